"""Offsets of a stream, as Spark keeps them in its checkpoint: the next counter to read."""

from __future__ import annotations

from typing import Any

import msgspec

from fifoq.description import QueueDescription
from fifoq.spark.options import StreamOptions
from store import FifoqError


class CheckpointMismatch(FifoqError):
    """The query's checkpoint does not belong to the store that it is to read."""


class Offset(msgspec.Struct, frozen=True):
    """Every record below `counter` belongs to earlier batches.

    `puts` is how many records were ever put below it: by that a gap of counters that nobody used
    is told from records that are missing.
    """

    counter: int
    store: str
    queue: str | None = None
    puts: int | None = None

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    @classmethod
    def of(cls, offset: dict[str, Any]) -> Offset:
        """Read one back. CheckpointMismatch if another kind of source wrote it."""
        try:
            return msgspec.convert(offset, cls)
        except msgspec.ValidationError as error:
            raise CheckpointMismatch(
                f"the checkpoint holds an offset that is not a queue's ({error}): {offset!r:.200}. "
                f"Nothing was read. Give the query a checkpointLocation of its own."
            ) from None


def check_offset(
    offset: Offset, store: str, view: QueueDescription, options: StreamOptions
) -> None:
    """CheckpointMismatch if the offset cannot be one of this queue."""
    where = f"the query's checkpoint ({options.checkpoint or 'its checkpointLocation'})"
    path = options.target.path
    if offset.store != store:
        raise CheckpointMismatch(
            f"{where} was made with store {offset.store}, but {path} is store {store}. Nothing "
            f"was read. Give the query a new checkpointLocation, or the store that it began with."
        )
    if offset.queue not in (None, view.name):
        raise CheckpointMismatch(
            f"{where} was made with queue {offset.queue!r}, not {view.name!r} of {path}. Nothing "
            f"was read. Give the query a new checkpointLocation, or the queue that it began with."
        )
    if offset.counter > view.next:
        raise CheckpointMismatch(
            f"{where} is at counter {offset.counter} of queue {view.name!r}, but {path} ends at "
            f"{view.next - 1}: it is an older copy of the store. Nothing was read. Give the query "
            f"a new checkpointLocation, or the store as it was."
        )
