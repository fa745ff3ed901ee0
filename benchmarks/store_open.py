"""Open a store in a process of its own and take one record from its first queue.

Prints the seconds of the open, the seconds of the take, and by how many megabytes the peak of
resident memory grew over both.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

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


def peak_megabytes() -> float:
    """Largest resident size since this program was started.

    Not `ru_maxrss`, which a program inherits from the process that started it.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status does not tell the peak of resident memory")


if __name__ == "__main__":
    main()
