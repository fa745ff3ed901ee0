"""What a process of Spark that runs our tasks does once."""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress
from typing import Final

from pyspark import TaskContext

_TRIM_THRESHOLD: Final = -1, 64 << 20
_MMAP_THRESHOLD: Final = -3, 32 << 20
"""Parameters of glibc's mallopt, by its own numbers, and what they are set to."""


def keep_memory() -> None:
    """Let the C library keep what one batch gives back for the next, in a process that runs tasks.

    By itself glibc gives free memory back to the kernel from a few megabytes on, which is what a
    batch takes: so each one met hundreds of pages anew, for a third of the time that reading takes.
    For the beginning of a task.
    """
    if TaskContext.get() is None or sys.platform != "linux":
        return
    # Other C libraries have no such function.
    with suppress(AttributeError):
        library = ctypes.CDLL(None)
        for parameter, size in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            library.mallopt(parameter, size)


def spare_collections() -> None:
    """Leave what is imported out of later garbage collections, in a process that runs tasks.

    Spark's Python worker collects all garbage after each task. That took 45 ms for some 100,000
    objects of modules, which stay anyway: as long as the task itself takes to read 64 MiB. For the
    end of a task, when everything is imported.
    """
    if TaskContext.get() is not None and not gc.get_freeze_count():
        gc.freeze()
