"""Marks: how far a source of records is, kept in the store in the commit of the records.

So whoever is interrupted between two commits goes on behind the last one, and nothing is put twice.
A mark is a state entry; what it says is for those who pour records in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from store import Log

if TYPE_CHECKING:
    from fifoq.attributes import Attributes
    from fifoq.putting import Putting
    from fifoq.store import Store

PREFIX: Final = "import/"
"""How the names of marks begin among those of all states."""


async def mark_of(store: Store, name: str) -> bytes | None:
    """What was kept last for that name."""
    return cast(
        "bytes | None", await store._committer.call(lambda log: log.state_of(PREFIX + name))
    )


async def pour(
    store: Store,
    queue: Putting[Any],
    name: str,
    mark: bytes | None,
    payloads: Sequence[bytes],
    attributes: Mapping[int, Attributes],
) -> None:
    """Put records into an open queue, with their mark, in one synced commit."""
    if payloads and mark is not None:
        await queue.put_staged(payloads, dict(attributes), (PREFIX + name, mark))
    else:
        await keep_mark(store, name, mark)


async def keep_mark(store: Store, name: str, mark: bytes | None) -> None:
    """Keep a mark, or forget it, durable on return."""

    def commit(log: Log) -> None:
        draft = log.draft()
        draft.set_states([(PREFIX + name, mark)])
        log.commit(draft)

    await store._committer.call(commit)
