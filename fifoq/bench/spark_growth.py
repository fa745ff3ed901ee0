"""How time and memory of a scan by Spark grow with the queue. Linux.

`python -m fifoq.bench.spark_growth [--dir DIR] RECORDS...` fills a store with so many records,
scans it in a session of its own with a heap of 1 GiB, and prints a line for each number: the
seconds of the last scan, the driver's heap in use once its garbage is collected, and the peaks of
resident memory of the driver (Java) and of its largest Python worker. The store is deleted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fifoq.bench.spark import fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCANS = 3
_SCAN_IN_CHILD = "--scan"
_MEGABYTE = 1000


def main(arguments: Sequence[str]) -> None:
    """Measure each number of records, from the first to the last."""
    if arguments[:1] == [_SCAN_IN_CHILD]:
        print(json.dumps(_scans(Path(arguments[1]))))
        return
    parser = argparse.ArgumentParser(prog="python -m fifoq.bench.spark_growth")
    parser.add_argument("records", nargs="+", type=int)
    parser.add_argument("--dir", default=".", help="where the scratch directory is made")
    options = parser.parse_args(arguments)
    print("    records    scan s  µs/record    heap MB  driver MB  worker MB")
    for count in options.records:
        scratch = Path(tempfile.mkdtemp(prefix="growth", dir=options.dir))
        try:
            fill(scratch / "store", count)
            found = _in_a_session_of_its_own(scratch / "store")
        finally:
            shutil.rmtree(scratch)
        seconds, memory = found["seconds"], (found["heap"], found["driver"], found["worker"])
        columns = "".join(f"{megabytes:11.0f}" for megabytes in memory)
        print(f"{count:11,} {seconds:9.2f} {seconds / count * 1e6:10.3f}{columns}", flush=True)


def _in_a_session_of_its_own(path: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "fifoq.bench.spark_growth", _SCAN_IN_CHILD, str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _scans(path: Path) -> dict[str, float]:
    import fifoq.spark

    spark = fifoq.spark.session("fifoq growth", conf={"spark.driver.memory": "1g"})
    seconds = 0.0
    for _ in range(SCANS):
        start = time.perf_counter()
        spark.read.format("fifoq").load(str(path)).write.format("noop").mode("overwrite").save()
        seconds = time.perf_counter() - start
    driver, worker = peaks(os.getpid())
    heap = heap_in_use(spark)
    spark.stop()
    return {"seconds": seconds, "heap": heap, "driver": driver, "worker": worker}


def heap_in_use(spark: SparkSession) -> float:
    """Megabytes of the driver's heap that are still there after a collection."""
    java: Any = spark._jvm
    java.java.lang.System.gc()
    runtime = java.java.lang.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / _MEGABYTE**2


def peaks(process: int) -> tuple[float, float]:
    """Peaks, in megabytes, of the Java process below a process and of the largest Python below."""
    sizes: dict[bool, list[float]] = {True: [0.0], False: [0.0]}
    for child in _below(process):
        status = Path(f"/proc/{child}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines())
        if "VmHWM" in fields:
            is_java = fields["Name"].strip() == "java"
            sizes[is_java].append(int(fields["VmHWM"].split()[0]) / _MEGABYTE)
    return max(sizes[True]), max(sizes[False])


def _below(process: int) -> Iterator[int]:
    """Children of a process, their children, and so on."""
    # Threads come and go meanwhile.
    with suppress(FileNotFoundError):
        for task in list(Path(f"/proc/{process}/task").iterdir()):
            with suppress(FileNotFoundError):
                for child in (task / "children").read_text().split():
                    yield int(child)
                    yield from _below(int(child))


if __name__ == "__main__":
    main(sys.argv[1:])
