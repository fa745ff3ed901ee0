"""The order in which `fifoq take` leases, prints and acks, step by step."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Mapping
from typing import Any

import pytest

from fifoq.cli.handing import hand_over
from fifoq.cli.records import LEASE_SECONDS, _take
from fifoq.control.messages import PAGE_RECORDS, Ack, Count, Lease, Leased, LeasedRecord, Request
from store import Key


class Journal:
    """An owner and a reader of stdout who write down what they see."""

    def __init__(self, records: int, *, closed_pipe: bool = False) -> None:
        self.steps: list[str] = []
        self._left = records
        self._closed_pipe = closed_pipe

    async def ask(self, request: Request, type: Any, *, seconds: float | None = None) -> Any:
        if isinstance(request, Ack):
            self.steps.append("ack")
            return Count(count=1)
        assert isinstance(request, Lease)
        assert request.seconds == LEASE_SECONDS
        count = min(request.count, self._left)
        self._left -= count
        self.steps.append(f"lease {count}")
        record = LeasedRecord(counter=1, time=1, payload=b"x", headers={}, attempt=1)
        return Leased(records=[record] * count, typed=False)

    def line(self, key: Key, payload: bytes, headers: Mapping[str, str], **more: object) -> bytes:
        return payload

    async def hand_over(self, data: bytes) -> None:
        if self._closed_pipe:
            raise BrokenPipeError
        self.steps.append(f"print {len(data)}")


def take(journal: Journal, count: int | None, wait: float | None = 0.0) -> int:
    writer: Any = journal
    return asyncio.run(_take(journal, "main", writer, count=count, wait=wait))


def test_a_record_is_acked_only_after_whoever_reads_has_it() -> None:
    journal = Journal(2)
    assert take(journal, 2) == 2
    assert journal.steps == ["lease 2", "print 2", "ack"]


def test_what_could_not_be_written_is_never_acked() -> None:
    journal = Journal(2, closed_pipe=True)
    with pytest.raises(BrokenPipeError):
        take(journal, 2)
    assert journal.steps == ["lease 2"]


def test_everything_goes_in_pages_until_there_is_no_more() -> None:
    journal = Journal(PAGE_RECORDS + 1)
    assert take(journal, None) == PAGE_RECORDS + 1
    first = [f"lease {PAGE_RECORDS}", f"print {PAGE_RECORDS}", "ack"]
    assert journal.steps == [*first, "lease 1", "print 1", "ack", "lease 0"]


async def _hand_over_slowly(data: bytes) -> bytes:
    reading, writing = os.pipe()
    with open(reading, "rb") as reader, open(writing, "wb") as out:
        handing = asyncio.create_task(hand_over(out, data))
        turns = 0
        while turns < 10:
            # The loop goes on, though nobody reads.
            await asyncio.sleep(0)
            turns += 1
        assert not handing.done()
        read = await asyncio.to_thread(reader.read, len(data))
        await handing
        return read


def test_the_loop_goes_on_while_nobody_reads() -> None:
    data = random.Random(1).randbytes(1 << 20)
    assert asyncio.run(_hand_over_slowly(data)) == data


def test_a_reader_who_goes_away_ends_it() -> None:
    async def leave() -> None:
        reading, writing = os.pipe()
        with open(writing, "wb") as out:
            handing = asyncio.create_task(hand_over(out, bytes(1 << 20)))
            await asyncio.sleep(0)
            os.close(reading)
            await handing

    with pytest.raises(BrokenPipeError):
        asyncio.run(leave())


def test_no_more_is_leased_than_was_asked_for() -> None:
    journal = Journal(5)
    assert take(journal, 3) == 3
    assert journal.steps[0] == "lease 3"
    assert take(Journal(0), 1) == 0
