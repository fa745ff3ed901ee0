"""Import: what an export wrote, or what people wrote in its formats, into a store.

It owns the store meanwhile, or asks whoever does. Begun again after an interruption it goes on
where it was, and what was imported whole is not imported twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import BinaryIO

import msgspec

from fifoq.store import DEFAULT_QUEUE
from fifoq.tools.pouring import commits_of, pouring_into, skipped
from fifoq.tools.sinks import Format
from fifoq.tools.sources import Pipe, open_source
from fifoq.tools.threads import on_thread

Progress = Callable[[int, int], None]
"""Called with how many records are done, and how many there are, or 0 if that is not known."""


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What an import did: `records` are in the store, `resumed` of them from runs before."""

    path: str
    format: Format
    queues: list[str]
    records: int
    resumed: int = 0
    keys_kept: bool


async def import_records(
    source: str | os.PathLike[str] | BinaryIO,
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    queue: str | None = None,
    name: str | None = None,
    keep_keys: bool = True,
    again: bool = False,
    partial: bool = False,
    progress: Progress | None = None,
) -> Imported:
    """Put every record of `source` into the store at `path`, in order, durable on return.

    Records go to the queues that they are from, or all to `queue`. Those of a queue that is new
    here keep their counters and put times, unless `keep_keys` is false; others get new ones behind
    what is there. The owner of a live store is asked to put what people wrote, and with `keep_keys`
    false what an export wrote: as new records, without attempts, ids of puts and options.
    QueueIsOpen if it is to keep them. `name` says what the source is called, if it does not say so
    itself. With `again` a source that was imported before is imported once more. AlreadyOpen,
    FormatError: what was put before the error stays, and the next run goes on behind it.
    """
    with ExitStack() as stack:
        given = source if isinstance(source, str | os.PathLike) else Pipe(source)
        stop = given.stop if isinstance(given, Pipe) else None
        found = await on_thread(open_source, given, format, name, partial, stack, stop=stop)
        queues = found.queues(queue)
        keeps = keep_keys and found.header is not None and (queue is None or len(queues) == 1)
        async with pouring_into(path, found.name) as pouring:
            as_new = found.header is None or not keep_keys
            mark = await pouring.begin(queues, keep_keys=keeps, as_new=as_new, again=again)
            if not mark.done:
                rows = await on_thread(skipped, found.rows(queue), mark.records, stop=stop)
                commits = commits_of(rows)
                while (batch := await on_thread(next, commits, None, stop=stop)) is not None:
                    await pouring.put(batch)
                    if progress is not None:
                        progress(pouring.mark.records, found.about_records)
                await pouring.end(forget=found.nameless)
        return Imported(
            path=found.path,
            format=found.format,
            queues=[queue.name for queue in queues] or [queue or DEFAULT_QUEUE],
            records=pouring.mark.records,
            resumed=mark.records,
            keys_kept=bool(mark.keep_keys),
        )
