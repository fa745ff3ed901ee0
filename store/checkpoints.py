"""Writing checkpoints: two copies in turn, each with room to be overwritten on a full disk."""

from __future__ import annotations

from typing import Final

from store.checkpoint import CHECKPOINT_NAMES
from store.directory import SPACE_ERRNOS, Directory, sync_file, write_all
from store.files import Handle
from store.segment import let_go

SLACK_BYTES: Final = 4 << 10
"""Room behind the body of each copy, at the least."""


class Checkpoints:
    """The owner's two copies. The newest sound one is never the one being overwritten."""

    def __init__(
        self, directory: Directory, number: int, newest: str | None, *, room: int = 0
    ) -> None:
        """`room` is how much space a copy holds behind its body for removals on a full disk."""
        self._room = room
        self._directory = directory
        self._handles: dict[str, Handle] = {}
        self._newest = newest
        self.number = number
        self.size = 0

    @property
    def _next(self) -> str:
        return CHECKPOINT_NAMES[1 if self._newest == CHECKPOINT_NAMES[0] else 0]

    def room(self) -> int:
        """Bytes that either copy can take without any new space."""
        files = self._directory.files
        return min(files.size(self._open(name)) for name in CHECKPOINT_NAMES)

    def write(self, number: int, data: bytes, *, needed: int = 0) -> None:
        """Overwrite the older copy with checkpoint `number`; durable on return.

        An OSError leaves the newer one as it is. `needed` is how large a checkpoint may become on
        a full disk: the copy holds room for that unless there is no space. DurabilityError if a
        sync fails.
        """
        files = self._directory.files
        name = self._next
        handle = self._open(name)
        size = len(data)
        write_all(files, handle, data, 0)
        self._hold_room(handle, size, needed)
        sync_file(files, handle, f"{self._directory.path}/{name}")
        self._newest = name
        self.number = number
        self.size = size

    def _hold_room(self, handle: Handle, size: int, needed: int) -> None:
        """Keep space behind the body, for the time when there is none to be had."""
        files = self._directory.files
        held = files.size(handle)
        room = max(self._room, SLACK_BYTES)
        if held >= max(size + room // 2, needed):
            return
        wanted = max(size + size // 2 + room, needed + needed // 8)
        try:
            write_all(files, handle, bytes(wanted - held), held)
        except OSError as error:
            if error.errno not in SPACE_ERRNOS:
                raise

    def _open(self, name: str) -> Handle:
        handle = self._handles.get(name)
        if handle is None:
            directory = self._directory
            try:
                handle = directory.files.open(directory.handle, name, write=True)
            except FileNotFoundError:
                handle = directory.files.create(directory.handle, name)
                try:
                    # Before anything relies on this copy its name must survive a power cut.
                    directory.sync()
                except BaseException:
                    let_go(directory.files, handle)
                    raise
            try:
                self._handles[name] = handle
            except BaseException:
                let_go(directory.files, handle)
                raise
        return handle

    def close(self) -> None:
        """Give both handles back. Twice is fine."""
        # One by one: a loop needs memory, which may be just what there is none of.
        self._close(CHECKPOINT_NAMES[0])
        self._close(CHECKPOINT_NAMES[1])

    def _close(self, name: str) -> None:
        handle = self._handles.pop(name, None)
        if handle is not None:
            let_go(self._directory.files, handle)
