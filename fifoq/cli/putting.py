"""The work of `fifoq put`: records in commits of bounded size."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fifoq.cli.access import Session
from fifoq.cli.input import records
from fifoq.cli.input import whole as read_whole
from fifoq.cli.output import counted, print_json
from fifoq.control.messages import PAGE_BYTES, PAGE_RECORDS, Placed, Put
from store import Key


class Putter:
    """Puts records into one queue, and remembers which."""

    def __init__(self, asked: Session, queue: str, *, text: bool, keywords: dict[str, Any]) -> None:
        self.queue = queue
        self.placed: list[Placed] = []
        self.count = 0
        self._asked = asked
        self._text = text
        self._keywords = keywords

    async def put(self, payloads: list[bytes], *, remember: bool = True) -> None:
        """On return they are committed. A page of them at a time is one commit."""
        for page in _pages(payloads):
            request = Put(queue=self.queue, payloads=page, text=self._text, **self._keywords)
            # However long: a full queue makes whoever puts wait.
            placed = await self._asked.ask(request, Placed, seconds=None)
            self.count += placed.count
            self.placed = [*self.placed, placed] if remember else [placed]


async def put_stdin(putter: Putter, *, end: bytes, whole: bool) -> None:
    """What stdin gives, as it comes."""
    descriptor = sys.stdin.fileno()
    if whole:
        await putter.put([await read_whole(descriptor)])
        return
    async for batch in records(descriptor, end=end):
        await putter.put(batch, remember=False)


@contextmanager
def telling(putter: Putter) -> Iterator[None]:
    """Say how far it came, whatever ends it early: the rest is for the next run."""
    try:
        yield
    except BaseException:
        print(f"fifoq: {counted(putter.count, 'record')} put before it ended", file=sys.stderr)
        raise


def print_put(putter: Putter, *, each: bool, json: bool) -> None:
    """The counter of each record, or how many there were."""
    if not each:
        told = {"queue": putter.queue, "count": putter.count}
        print_json(told) if json else print(counted(putter.count, "record"))
        return
    keys = [
        Key(placed.first + at if placed.first else 0, placed.time)
        for placed in putter.placed
        for at in range(placed.count)
    ]
    if json:
        told_keys = [{"counter": key.counter, "key": bytes(key).hex()} for key in keys]
        print_json({"queue": putter.queue, "count": len(keys), "records": told_keys})
    else:
        for key in keys:
            print(key.counter)


def _pages(payloads: list[bytes]) -> Iterator[list[bytes]]:
    page: list[bytes] = []
    size = 0
    for payload in payloads:
        if page and (size + len(payload) > PAGE_BYTES or len(page) == PAGE_RECORDS):
            yield page
            page, size = [], 0
        page.append(payload)
        size += len(payload)
    if page:
        yield page
