"""Where a run was measured, and what this process has used so far. Linux."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from contextlib import suppress
from pathlib import Path

from fifoq.bench.measure import PAYLOAD_BYTES, Setting, duration, percentile, records
from fifoq.bench.yardsticks import bare_append

FSYNC_COUNT = 200


def place(setting: Setting) -> dict[str, str]:
    """Disk, file system, latency of a sync, payload, loop, Python: what the figures hold for."""
    kind, source = mounted(setting.scratch)
    with setting.fresh("probe") as path:
        each = bare_append(path, records(1)[0], setting.count(FSYNC_COUNT), sync=True)
    return {
        "disk": disk(setting.scratch, source),
        "file system": kind,
        "append + fdatasync": (
            f"p50 {duration(percentile(each, 50))}, p99 {duration(percentile(each, 99))}"
        ),
        "payload": f"{PAYLOAD_BYTES} bytes",
        "durability": "as each row says",
        "loop": f"uvloop {importlib.metadata.version('uvloop')}",
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cores": str(len(os.sched_getaffinity(0))),
    }


def mounted(path: Path) -> tuple[str, str]:
    """The kind of file system that holds `path`, and what is mounted there."""
    best = ("", "unknown", "unknown")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        point = before.split()[4].replace("\\040", " ")
        kind, source = after.split()[:2]
        # Later lines lie over earlier ones with the same mount point.
        if path.resolve().is_relative_to(point) and len(point) >= len(best[0]):
            best = (point, kind, source)
    return best[1], best[2]


def disk(path: Path, source: str) -> str:
    """The device under `path`, with its model where the kernel knows one."""
    device = path.stat().st_dev
    node = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    if not node.exists():
        node = Path("/sys/class/block") / Path(source).name
    if not node.exists():
        return source
    node = node.resolve()
    whole = node.parent if (node / "partition").exists() else node
    model = _read(whole / "device/model")
    turning = _read(whole / "queue/rotational") == "1"
    kind = "rotating" if turning else "solid state"
    return f"{node.name} ({f'{model}, ' if model else ''}{kind}, as the kernel says)"


def peak_megabytes() -> float:
    """Largest resident size since this program was started.

    Not `ru_maxrss`, which a program inherits from the process that started it.
    """
    return int(_status(Path("/proc/self/status"), "VmHWM").split()[0]) / 1024


def resident_bytes() -> int:
    """What of this process is in memory now."""
    return int(_status(Path("/proc/self/status"), "VmRSS").split()[0]) * 1024


def wake_ups() -> int:
    """How often the threads of this process have gone to sleep, to be woken, so far."""
    count = 0
    for thread in Path("/proc/self/task").iterdir():
        # A thread may end between the listing and the reading.
        with suppress(FileNotFoundError, ProcessLookupError):
            count += int(_status(thread / "status", "voluntary_ctxt_switches"))
    return count


def _status(path: Path, name: str) -> str:
    for line in path.read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return value.strip()
    raise RuntimeError(f"{path} does not tell {name}; benchmarks need Linux, not {sys.platform}")


def _read(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""
