"""The row about `import fifoq`: what a program pays before it does anything."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

from fifoq.bench.measure import Absent, Row, Setting

MILLISECONDS_MAX = 150.0
OURS = "fifoq.opening"
"""What `import fifoq` leaves to the first use of a queue is part of what a program pays."""
_TIMED = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def import_time(setting: Setting) -> list[Row | Absent]:
    """Seconds of the import, in fresh processes, against those of asyncio, which is part of it."""
    with setting.fresh("compiled") as compiled:
        # Once before it counts: whoever installs a package has it compiled.
        _import_seconds(OURS, compiled)
        rounds = [
            (_import_seconds(OURS, compiled), _import_seconds("asyncio", compiled))
            for _ in range(setting.rounds)
        ]
    ours, bare = map(statistics.median, zip(*rounds, strict=True))
    return [
        Row(
            "import fifoq",
            ours * 1e3,
            "ms",
            MILLISECONDS_MAX,
            False,
            f"of which {bare * 1e3:.3g} ms are asyncio",
            {"seconds": ours, "yardstick_seconds": bare, "ratio": ours / bare},
        )
    ]


def _import_seconds(module: str, compiled: Path) -> float:
    """What the import takes in a process of its own, whose bytecode is kept at `compiled`."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(compiled)}
    # Without bytecode every import would compile everything anew.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-c", _TIMED.format(module)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(done.stdout)
