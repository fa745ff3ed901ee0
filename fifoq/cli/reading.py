"""The work of `fifoq peek` and `fifoq tail`: records read from the files, whoever owns them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Final

from fifoq.cli.access import require_store
from fifoq.cli.output import RecordWriter
from fifoq.codec import decode_headers, read_kept
from store import RangeGone, Reader, RecordBlock
from store.blocks import HEADERS
from store.genesis import check_name

PAUSE_SECONDS: Final = 0.05
"""Between two looks for new records; a commit can be seen after as long anyway."""


def peek(path: str, queue: str, writer: RecordWriter, *, start: int, count: int) -> int:
    """Print the oldest records from a counter on that are not removed; returns how many."""
    require_store(path)
    with Reader(path) as reader:
        shown = 0
        for block in reader.blocks(check_name(queue), start, removed=False):
            rest = count - shown
            _write(reader, writer, block if block.count <= rest else block.slice(0, rest))
            shown += min(block.count, rest)
            if shown == count:
                break
        writer.flush()
        return shown


def tail(
    path: str,
    queue: str,
    writer: RecordWriter,
    *,
    count: int,
    follow: bool,
    absent: Callable[[], None],
) -> None:
    """Print the newest records, taken or not, and then, if asked, whatever is put.

    Where the files know no such queue, `absent` is called first.
    """
    require_store(path)
    with Reader(path) as reader:
        if queue not in reader.state.queues:
            absent()
        for block in _newest(reader, check_name(queue), count, follow):
            _write(reader, writer, block)
            writer.flush()


def _newest(reader: Reader, queue: str, count: int, follow: bool) -> Iterator[RecordBlock]:
    state = reader.state.queues.get(queue)
    following = state.genesis.next_counter if state is not None else 1
    counter = max(1, following - count)
    while True:
        try:
            blocks = (
                reader.follow(queue, counter, pause=PAUSE_SECONDS)
                if follow
                else reader.blocks(queue, counter)
            )
            for block in blocks:
                yield block
                counter = block.last + 1
            return
        except RangeGone as gone:
            if counter >= following:
                print(
                    f"fifoq: counters {counter} to {gone.oldest - 1} were reclaimed before they "
                    f"could be shown",
                    file=sys.stderr,
                )
            counter = gone.oldest


def _write(reader: Reader, writer: RecordWriter, block: RecordBlock) -> None:
    typed = is_typed(reader, block.queue)
    column = block.columns.get(HEADERS)
    headers = column if isinstance(column, list) else [b""] * block.count
    for key, payload, encoded in zip(block.keys(), block.payloads(), headers, strict=True):
        writer.write(key, payload, decode_headers(encoded), typed=typed)


def is_typed(reader: Reader, queue: str) -> bool:
    """Whether the queue was opened with a type, so that its records are shown as JSON."""
    state = reader.state.queues.get(queue)
    return state is not None and read_kept(state.configuration).schema is not None
