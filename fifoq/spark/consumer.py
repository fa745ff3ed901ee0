"""A query's named position: it keeps the owner from reclaiming what the query has not read.

The position moves by what Spark's own checkpoint proves, and by nothing else. The owner reads that
checkpoint too, so nothing depends on this process living to write the last one.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from fifoq.consumers import Position, local_path, proved
from fifoq.spark.access import Access
from fifoq.spark.offsets import Offset
from fifoq.spark.options import OptionError
from store import FifoqError

HEARD_SECONDS: Final = 60.0
"""How often a position that does not move is written again, so that the owner hears of it."""


_MILLISECOND: Final = 1_000_000


class ConsumerInUse(FifoqError):
    """Another query has the consumer's name."""


class Consumer:
    """The position of one query."""

    def __init__(self, access: Access, name: str, checkpoint: str, begin: Offset) -> None:
        """Write the first position: records from `begin` on are kept from here on.

        ConsumerInUse if the name belongs to a query with another checkpoint.
        """
        if local_path(checkpoint) is None:
            raise OptionError(
                "checkpoint",
                f"{checkpoint} is not in a local file system, so nobody can see what the query "
                f"has done. Use a local directory, or no consumer.",
            )
        self._access, self._name = access, name
        before = access.position(name)
        assert begin.queue is not None
        if before is not None and before.store == begin.store:
            _check_free(name, before, begin.queue, checkpoint)
        self._write(
            Position(
                queue=begin.queue,
                counter=begin.counter,
                store=begin.store,
                checkpoint=checkpoint,
                query=_query_id(checkpoint),
            )
        )

    def advance(self) -> None:
        """Move on to what the checkpoint proves by now."""
        at = self._position
        counter = proved(at.checkpoint, at.store, at.queue, above=at.counter)
        if counter is not None:
            query = at.query or _query_id(at.checkpoint)
            self._write(replace(at, counter=counter, query=query))
        elif time.monotonic() - self._written >= HEARD_SECONDS:
            self._write(at)

    def _write(self, position: Position) -> None:
        self._position = replace(position, written_at=time.time_ns() // _MILLISECOND)
        self._access.set_position(self._name, self._position)
        self._written = time.monotonic()


def _check_free(name: str, before: Position, queue: str, checkpoint: str) -> None:
    root = local_path(before.checkpoint)
    gone = root is not None and not Path(root).is_dir()
    if gone or (before.queue == queue and root is not None and root == local_path(checkpoint)):
        return
    raise ConsumerInUse(
        f"option consumer: {name!r} belongs to {_whose(before)}, which reads queue "
        f"{before.queue!r}; this query has the checkpoint {checkpoint} and reads {queue!r}. "
        f"Nothing was read. Choose another name; or, if the other one is gone for good, delete its "
        f"checkpoint or the store's file consumers/{name}.json."
    )


def _whose(position: Position) -> str:
    if position.checkpoint:
        return f"the query with the checkpoint {position.checkpoint}"
    return "something that is no query, such as an archive"


def _query_id(checkpoint: str) -> str:
    """The query's id as Spark keeps it in the checkpoint, or "" if it is not there yet."""
    root = local_path(checkpoint)
    try:
        text = Path(f"{root}/metadata").read_text()
        return str(json.loads(text.splitlines()[-1])["id"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""
