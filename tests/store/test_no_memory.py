"""No memory at one place of a commit: what is told of it is so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fifoq.testing.simfiles import SimFiles
from store import Log, LogOptions, Status, open_log
from store.appending import Appending
from tests.support.clock import ManualClock

PATH = "/q"
OPTIONS = LogOptions(fill_bytes=4096, reserve_bytes=4096)


@pytest.fixture
def files() -> SimFiles:
    return SimFiles()


@pytest.fixture
def log(files: SimFiles) -> Iterator[Log]:
    log = open_log(PATH, files=files, clock=ManualClock(), options=OPTIONS)
    log.put("a", [b"first"])
    yield log
    log.close()


def put(log: Log) -> None:
    log.put("a", [b"second"])


def commit(log: Log) -> None:
    draft = log.draft()
    draft.put(log.queue("a"), [b"second"])
    draft.set_states([("x", b"y")])
    log.commit(draft)


def begin(log: Log) -> None:
    draft = log.draft()
    draft.put(log.queue("a"), [b"second"])
    begun = log.begin(draft, sync=True)
    assert begun is not None
    begun.write()


@pytest.mark.parametrize("call", [put, commit, begin])
def test_between_a_frame_and_its_sync_the_log_has_failed(
    log: Log, files: SimFiles, monkeypatch: pytest.MonkeyPatch, call: object
) -> None:
    """It was open, and whoever put the records was told that nothing of them was stored."""

    def no_memory(_: Log) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Appending, "sync_tail", no_memory)
        with pytest.raises(MemoryError):
            call(log)  # type: ignore[operator]
    assert log.status is Status.FAILED
    log.close()
    with open_log(PATH, files=files, clock=ManualClock(), options=OPTIONS) as again:
        assert [payload for block in again.read("a") for payload in block.payloads()] == [
            b"first",
            b"second",
        ]
