"""The cache of open segments: what it opens and cannot keep, it gives back."""

from __future__ import annotations

from collections import OrderedDict

import pytest

from fifoq.testing.simfiles import SimFiles
from store import Log
from store.segment import SegmentFile


def test_a_segment_that_cannot_be_kept_is_closed(log: Log, files: SimFiles) -> None:
    class NoMemory(OrderedDict[int, SegmentFile]):
        def __setitem__(self, number: int, file: SegmentFile) -> None:
            raise MemoryError

    handles = len(files._handles)
    log.cache._files = NoMemory()
    with pytest.raises(MemoryError):
        log.cache.open(1)
    assert len(files._handles) == handles
