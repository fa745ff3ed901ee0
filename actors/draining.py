"""Draining: how a system that stops turns away what comes from outside, and hears of signals."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from actors.current import is_inside
from actors.errors import ActorStopped
from actors.mailbox import Intake

if TYPE_CHECKING:
    from actors.tree import Tree

SIGNALS: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGINT)
"""What asks a process to end: supervisors and containers send the first, a keyboard the second."""


class InsideOnly:
    """The intake of an actor whose system stops: only other actors still reach it.

    Their handlers finish what they began, and may need it for that. It takes the place of the
    mailbox in the ref, so that a system that does not stop pays nothing for it.
    """

    __slots__ = ("_name", "_tree", "intake")

    def __init__(self, intake: Intake, tree: Tree, name: str) -> None:
        self.intake = intake
        self._tree = tree
        self._name = name

    async def put(self, letter: object) -> None:
        self._check()
        await self.intake.put(letter)

    def put_nowait(self, letter: object, *, exempt: bool = False) -> None:
        if not exempt:
            self._check()
        self.intake.put_nowait(letter, exempt=exempt)

    def withdraw(self, letter: object) -> None:
        self.intake.withdraw(letter)

    def _check(self) -> None:
        if not is_inside(self._tree):
            raise ActorStopped(self._name)


@contextmanager
def heard(signals: Sequence[signal.Signals], call: Callable[[], None]) -> Iterator[None]:
    """Call back on the loop for each signal; afterwards they mean what they meant before.

    RuntimeError outside of the main thread, where no signal can be heard.
    """
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in signals}
    set_up: list[signal.Signals] = []
    try:
        for number in signals:
            try:
                loop.add_signal_handler(number, call)
            except (ValueError, RuntimeError) as error:
                raise RuntimeError(
                    "signals are heard in the main thread alone: run the loop there, or stop the "
                    "system yourself"
                ) from error
            set_up.append(number)
        yield
    finally:
        for number in set_up:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])
