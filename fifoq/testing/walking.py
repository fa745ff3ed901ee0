"""How a path is walked on a simulated disk: as the kernel walks it, with its errnos."""

from __future__ import annotations

import errno
import os

from fifoq.testing.disk import ROOT_INO, Disk, Node
from fifoq.testing.image import Kind

NAME_BYTES_MAX = 255
SYMLINKS_FOLLOWED_MAX = 40


def look_up(disk: Disk, path: str, *, follow: bool) -> tuple[Node, str, Node | None]:
    """The directory a path ends in, the last name, and what is there; as the kernel walks."""
    refuse_bad_text(path)
    root = disk.nodes[ROOT_INO]
    trail = [root]
    parent, name = root, ""
    found: Node | None = root
    todo = _parts(path)
    symlink_count = 0
    while todo:
        part = todo.pop()
        if found is None:
            raise os_error(errno.ENOENT, path)
        if found.kind is not Kind.DIRECTORY:
            raise os_error(errno.ENOTDIR, path)
        if part == "..":
            trail = trail[:-1] or [root]
            found = trail[-1]
            continue
        parent, name = found, part
        found = child(disk, parent, name)
        if found is not None and found.kind is Kind.SYMLINK and (todo or follow):
            symlink_count += 1
            if symlink_count > SYMLINKS_FOLLOWED_MAX:
                raise os_error(errno.ELOOP, path)
            target = os.fsdecode(bytes(found.live))
            if target.startswith("/"):
                trail = [root]
            todo += _parts(target)
            found = trail[-1]
        elif found is not None and found.kind is Kind.DIRECTORY:
            trail.append(found)
    return parent, name, found


def child(disk: Disk, parent: Node, name: str) -> Node | None:
    """What is under that name in a directory."""
    ino = parent.entries.get(name)
    if ino is not None:
        return disk.nodes[ino]
    if len(os.fsencode(name)) > NAME_BYTES_MAX:
        raise os_error(errno.ENAMETOOLONG, name)
    return None


def os_error(number: int, name: str | None = None) -> OSError:
    """As the kernel would raise it."""
    if name is None:
        return OSError(number, os.strerror(number))
    return OSError(number, os.strerror(number), name)


def refuse_bad_text(text: str) -> None:
    """What no name and no path may be."""
    if "\0" in text:
        raise ValueError("embedded null byte")
    if not text:
        raise os_error(errno.ENOENT, text)


def _parts(path: str) -> list[str]:
    """The steps of a path, last first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]
