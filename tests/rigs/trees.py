"""What can be compared before and after a call that must change nothing."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple


class Entry(NamedTuple):
    """One name: everything about it but when it was last read."""

    mode: int
    owner: int
    inode: int
    changed_ns: int
    modified_ns: int
    content: bytes


def snapshot(directory: Path) -> dict[str, Entry]:
    """Every name below a directory, itself included; links are not followed."""
    paths = [directory, *sorted(directory.rglob("*"))]
    return {str(path.relative_to(directory)): _entry(path) for path in paths}


def _entry(path: Path) -> Entry:
    found = path.lstat()
    content = b""
    if stat.S_ISREG(found.st_mode):
        content = path.read_bytes()
    elif stat.S_ISLNK(found.st_mode):
        content = os.fsencode(os.readlink(path))
    return Entry(
        found.st_mode,
        found.st_uid,
        found.st_ino,
        found.st_ctime_ns,
        found.st_mtime_ns,
        content,
    )


def open_files() -> dict[int, str]:
    """This process's open descriptors and what they are."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            # The descriptor that listed them is gone by now.
            continue
    return found
