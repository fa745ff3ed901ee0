"""A simulated disk with a store on it, for tests of the log and its readers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from fifoq.testing.simfiles import SimFiles
from store import Log, LogOptions, open_log
from tests.support.clock import ManualClock

PATH = "/data/store"
SMALL = LogOptions(fill_bytes=512, reserve_bytes=512)

OpenStore = Callable[..., Log]


@pytest.fixture
def files() -> SimFiles:
    return SimFiles()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def open_store(files: SimFiles, clock: ManualClock) -> Iterator[OpenStore]:
    """Opens the store on the simulated disk; what is left open is let go at the end."""
    logs: list[Log] = []

    def opener(options: LogOptions = SMALL, **more: object) -> Log:
        log = open_log(PATH, files=files, clock=clock, options=options, **more)  # type: ignore[arg-type]
        logs.append(log)
        return log

    yield opener
    for log in logs:
        log.release()


@pytest.fixture
def log(open_store: OpenStore) -> Log:
    return open_store()
