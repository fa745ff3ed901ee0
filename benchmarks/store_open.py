"""Open a store in a process of its own; prints seconds and how many MB the peak grew."""

from __future__ import annotations

import sys
import time

from benchmarks.store import peak_megabytes
from store import open_log


def main() -> None:
    """Measure one open, the take of the first record included in the memory."""
    before = peak_megabytes()
    start = time.perf_counter()
    log = open_log(sys.argv[1])
    seconds = time.perf_counter() - start
    print(seconds, peak_megabytes() - before)
    log.close()


if __name__ == "__main__":
    main()
