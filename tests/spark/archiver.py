"""An archive run that dies by SIGKILL when its records are written and nothing is noted yet.

python -m tests.spark.archiver STORE TARGET
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable

import fifoq.spark
from fifoq.spark.pipelines import archive, archiving
from fifoq.spark.pipelines.shelf import Shelf, Unit


class Dying(Shelf):
    """Notes what is planned; instead of noting what is done it dies."""

    def write(self, units: Iterable[Unit]) -> None:
        if any(unit.state == "done" for unit in units):
            os.kill(os.getpid(), signal.SIGKILL)
        super().write(units)


def main(store: str, target: str) -> None:
    vars(archiving)["Shelf"] = Dying
    conf = {"spark.sql.shuffle.partitions": "1", "spark.driver.memory": "512m"}
    archive(fifoq.spark.session("archiver", "local[1]", conf), store, target, tail=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
