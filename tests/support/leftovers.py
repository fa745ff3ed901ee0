"""What a test leaves behind in its process: threads of writers, descriptors."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

JOIN_SECONDS = 20.0


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@contextmanager
def assert_nothing_is_left_behind() -> Iterator[None]:
    for thread in threading.enumerate():
        # Of a test before this one, whose writer was told to stop and may not have come to it.
        if thread.name.startswith("fifoq "):
            thread.join(JOIN_SECONDS)
    threads, before = set(threading.enumerate()), len(descriptors())
    yield
    for thread in set(threading.enumerate()) - threads:
        thread.join(JOIN_SECONDS)
        assert not thread.is_alive()
    assert len(descriptors()) == before
