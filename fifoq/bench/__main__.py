"""`python -m fifoq.bench`: the same as `fifoq bench`."""

from __future__ import annotations

from fifoq.bench.command import queue_rows, run

if __name__ == "__main__":
    run(queue_rows)
