"""Death watch: who wants to hear when an actor ends, and what they hear."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from actors import logs
from actors.errors import ActorStopped

if TYPE_CHECKING:
    from actors.cell import Cell


class Terminated(Struct, frozen=True, kw_only=True, tag=True):
    """An actor that was watched has ended.

    `generation` is that of its ref at the end. `error` names the failure that ended it, as
    `ValueError: no such account`; None if it stopped because somebody wanted it to.
    """

    name: str
    generation: int
    error: str | None = None


class Watches:
    """Calls back those who watch an actor when it ends: once for each that watches."""

    def __init__(self) -> None:
        self._by_watched: dict[Cell[Any], dict[object, Callable[[Terminated], None]]] = {}
        self._by_watcher: dict[object, set[Cell[Any]]] = {}

    def tell(self, watcher: Cell[Any], cell: Cell[Any]) -> None:
        """Tell the watcher when `cell` has ended; at once if it has."""

        def tell(message: Terminated) -> None:
            try:
                watcher.ref.tell_exempt(message)
            except ActorStopped:
                """Whoever takes no more messages need not hear of it."""
            except Exception as error:
                # The disk of a mailbox may have failed: that must not end who has nothing to do
                # with it, nor keep others from hearing.
                logs.unheard(watcher.name, message.name, error)

        self.add(watcher, cell, tell)

    def add(self, watcher: object, cell: Cell[Any], call: Callable[[Terminated], None]) -> None:
        """Call back at the end of `cell`; at once if it has ended."""
        if cell.ended.is_set():
            call(terminated(cell))
            return
        self._by_watched.setdefault(cell, {})[watcher] = call
        self._by_watcher.setdefault(watcher, set()).add(cell)

    def remove(self, watcher: object, cell: Cell[Any]) -> None:
        """Do not call back; nothing happens if nobody watched."""
        calls = self._by_watched.get(cell, {})
        if calls.pop(watcher, None) is not None:
            self._unlink(watcher, cell)
            if not calls:
                del self._by_watched[cell]

    def forget(self, watcher: object) -> None:
        """The watcher watches nothing any more."""
        for cell in list(self._by_watcher.get(watcher, ())):
            self.remove(watcher, cell)

    def ended(self, cell: Cell[Any]) -> None:
        """An actor has ended."""
        self.forget(cell)
        for watcher, call in self._by_watched.pop(cell, {}).items():
            self._unlink(watcher, cell)
            call(terminated(cell))

    def _unlink(self, watcher: object, cell: Cell[Any]) -> None:
        watched = self._by_watcher[watcher]
        watched.discard(cell)
        if not watched:
            del self._by_watcher[watcher]


def terminated(cell: Cell[Any]) -> Terminated:
    """What is told about an actor that has ended."""
    error = None if cell.cause is None else _text(cell.cause)
    return Terminated(name=cell.name, generation=cell.restarts, error=error)


def _text(error: Exception) -> str:
    """What failed, as text that can be written, whatever the error's own says or does."""
    try:
        text = str(error)
    except Exception:
        text = "no text could be made"
    return f"{type(error).__name__}: {text}".encode(errors="backslashreplace").decode()
