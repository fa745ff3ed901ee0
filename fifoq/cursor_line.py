"""What a commit holds of a cursor: its position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fifoq.cursor_position import CursorPosition, encode_position
from fifoq.line import Line
from fifoq.runs import Batch

if TYPE_CHECKING:
    from fifoq.reading import Reading


class PositionLine(Line):
    """A line without records. The position is the one of the moment its frame is sealed."""

    __slots__ = ("_reading", "_sealing", "due")

    def __init__(self, reading: Reading[Any]) -> None:
        super().__init__(reading.name, next_counter=1, floor=0, size=0, last_put_time=0)
        # Whoever waits for it waits for something that needs space.
        self.tail_first = 0
        self._reading = reading
        self._sealing: CursorPosition | None = None
        self.due = False

    @property
    def dirty(self) -> bool:
        return self.due

    @property
    def waits(self) -> bool:
        return self.due

    @property
    def idle(self) -> bool:
        """Whether what was committed last is all there is."""
        return not self.due and self.sealed is None

    def seal(self, *, puts: bool = True) -> Batch:
        assert self.sealed is None
        self.sealed = batch = Batch()
        if puts and self.due and not self._reading.deleted:
            self.due = False
            self._sealing = position = self._reading.position()
            batch.marks = {0: (self._reading.hold.state, encode_position(position))}
        return batch

    def confirm(self) -> None:
        self.sealed = None
        position, self._sealing = self._sealing, None
        if position is not None:
            self._reading.committed(position)

    def unseal(self) -> None:
        self.due |= self._sealing is not None
        self.sealed = self._sealing = None
