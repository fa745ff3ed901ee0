"""Private mounts: file systems in image files that vanish with the process that mounted them.

Everything that mounts runs in a process of its own, started by `assert_runs_private` in a mount
namespace of its own, so that nothing is left behind whatever happens.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SHUTDOWN = (2 << 30) | (4 << 16) | (ord("X") << 8) | 125
"""EXT4_IOC_SHUTDOWN, which is XFS_IOC_GOINGDOWN."""
FLUSH_ALL, FLUSH_LOG, FLUSH_NOTHING = 0, 1, 2
MIB = 1 << 20


def private(*command: str) -> list[str]:
    """The command line that runs `command` with mounts of its own."""
    return ["unshare", "--mount", "--propagation", "private", *command]


def assert_runs_private(module: str, *arguments: str) -> str:
    """Run a module of ours with mounts of its own; returns what it prints, raises if it fails."""
    done = subprocess.run(
        private(sys.executable, "-m", module, *arguments),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{module} {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@cache
def why_no_mounts() -> str | None:
    """Why private mounts of images do not work here, or None if they do."""
    if os.geteuid() != 0:
        return "needs root"
    for tool in "unshare", "mount", "umount", "mkfs.ext4":
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    if not os.path.exists("/dev/loop-control"):
        return "there are no loop devices"
    done = subprocess.run(private("true"), capture_output=True, text=True, check=False)
    return f"no private mounts: {done.stderr.strip()}" if done.returncode else None


def make_image(path: Path, size_bytes: int, kind: str = "ext4", *options: str) -> None:
    """Make an empty file system in a file."""
    with path.open("wb") as file:
        file.truncate(size_bytes)
    force = "-F" if kind.startswith("ext") else "-f"
    _run(f"mkfs.{kind}", "-q", force, *options, str(path))


def copy_image(source: Path, target: Path) -> None:
    """Copy an image with its holes."""
    _run("cp", "--sparse=always", str(source), str(target))


def mount_image(image: Path, point: Path, options: str = "") -> None:
    _run("mount", "-o", f"loop,{options}".rstrip(","), str(image), str(point))


def mount_tmpfs(point: Path, size_bytes: int) -> None:
    _run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(point))


def bind(source: Path, point: Path) -> None:
    """Mount a directory a second time."""
    _run("mount", "--bind", str(source), str(point))


def remount(point: Path, options: str) -> None:
    _run("mount", "-o", f"remount,{options}", str(point))


def unmount(point: Path) -> None:
    _run("umount", str(point))


def cut_power(point: Path, flush: int = FLUSH_NOTHING) -> None:
    """Shut the file system down as a power cut does: nothing more reaches the device."""
    handle = os.open(point, os.O_RDONLY)
    try:
        fcntl.ioctl(handle, _SHUTDOWN, struct.pack("I", flush))
    finally:
        os.close(handle)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
