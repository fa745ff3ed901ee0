"""Open a store in a process of its own and take one record from its first queue.

Prints the seconds of the open, the seconds of the take, and by how many megabytes the peak of
resident memory grew over both.
"""

from __future__ import annotations

import sys
import time

from fifoq.bench.machine import peak_megabytes
from store import open_log


def main() -> None:
    """Measure one open and the first take."""
    # Imported and compiled by now: what grows from here on is the store's.
    before = peak_megabytes()
    start = time.perf_counter()
    log = open_log(sys.argv[1])
    opened = time.perf_counter()
    (name, *_) = log.state.queues
    assert len(log.take(name)) == 1
    taken = time.perf_counter()
    print(opened - start, taken - opened, peak_megabytes() - before)
    log.close()


if __name__ == "__main__":
    main()
