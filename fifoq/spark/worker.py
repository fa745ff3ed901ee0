"""What a process of Spark that runs our tasks does once."""

from __future__ import annotations

import gc

from pyspark import TaskContext


def spare_collections() -> None:
    """Leave what is imported out of later garbage collections, in a process that runs tasks.

    Spark's Python worker collects all garbage after each task. That took 45 ms for some 100,000
    objects of modules, which stay anyway: as long as the task itself takes to read 64 MiB. For the
    end of a task, when everything is imported.
    """
    if TaskContext.get() is not None and not gc.get_freeze_count():
        gc.freeze()
