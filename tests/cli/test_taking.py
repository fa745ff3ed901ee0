"""The order in which `fifoq take` leases, prints and acks, step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

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

    def write(self, key: Key, payload: bytes, headers: Mapping[str, str], **more: object) -> None:
        if self.steps[-1] != "write":
            self.steps.append("write")

    def flush(self) -> None:
        if self._closed_pipe:
            raise BrokenPipeError
        self.steps.append("flush")


def take(journal: Journal, count: int | None, wait: float | None = 0.0) -> int:
    writer: Any = journal
    return asyncio.run(_take(journal, "main", writer, count=count, wait=wait))


def test_a_record_is_acked_only_after_whoever_reads_has_it() -> None:
    journal = Journal(2)
    assert take(journal, 2) == 2
    assert journal.steps == ["lease 2", "write", "flush", "ack"]


def test_what_could_not_be_written_is_never_acked() -> None:
    journal = Journal(2, closed_pipe=True)
    with pytest.raises(BrokenPipeError):
        take(journal, 2)
    assert journal.steps == ["lease 2", "write"]


def test_everything_goes_in_pages_until_there_is_no_more() -> None:
    journal = Journal(PAGE_RECORDS + 1)
    assert take(journal, None) == PAGE_RECORDS + 1
    page = ["write", "flush", "ack"]
    assert journal.steps == [f"lease {PAGE_RECORDS}", *page, "lease 1", *page, "lease 0"]


def test_no_more_is_leased_than_was_asked_for() -> None:
    journal = Journal(5)
    assert take(journal, 3) == 3
    assert journal.steps[0] == "lease 3"
    assert take(Journal(0), 1) == 0
