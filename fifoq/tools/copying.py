"""Copying and linking files so that what is there is whole and durable."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from store import AccessError, FifoqError

COPY_BYTES: Final = 4 << 20
PARTIAL_SUFFIX: Final = ".partial"
NO_LINK_ERRNOS: Final = frozenset(
    (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EACCES, errno.ENOSYS)
)
"""What linking says across file systems, and on those that have no links."""

Counted = Callable[[int], None]
"""Called with how many bytes were copied since the last call."""


class TargetExists(FifoqError):
    """Somebody would miss what is there. Nothing was changed."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: it exists. Nothing was changed. Remove it, or name another.")


class TargetInside(FifoqError):
    """The target would be a part of its own source. Nothing was changed."""

    def __init__(self, path: str, source: str) -> None:
        super().__init__(
            f"{path}: it is inside {source}, which holds nothing but its own files. Nothing was "
            f"changed. Name a place elsewhere."
        )


def begin_directory(target: str, *, source: str) -> str:
    """Make the directory that becomes `target` when it is whole, or take up one that was begun.

    TargetExists, TargetInside if it is below `source`, AccessError: nothing was changed.
    """
    if os.path.lexists(target):
        raise TargetExists(target)
    require_outside(target, source)
    partial = target.rstrip("/") + PARTIAL_SUFFIX
    try:
        os.makedirs(os.path.dirname(partial) or ".", exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(partial, 0o700)
    except OSError as error:
        raise AccessError(
            f"{target}: it cannot be made ({error.filename}: {error.strerror}). Nothing was "
            f"changed. Name a place in a directory that this user may write to."
        ) from error
    return partial


def require_outside(target: str, source: str) -> None:
    """TargetInside if it is the directory `source` or below it, through whatever links."""
    inside = os.path.realpath(source)
    if os.path.commonpath((inside, os.path.realpath(target))) == inside:
        raise TargetInside(target, source)


def end_directory(partial: str, target: str) -> None:
    """Give the directory its name; durable on return."""
    sync_directory(partial)
    if os.path.lexists(target):
        raise TargetExists(target)
    os.rename(partial, target.rstrip("/"))
    sync_directory(os.path.dirname(target.rstrip("/")) or ".")


def link_or_copy(source: str, target: str, *, copy: bool, counted: Counted | None = None) -> bool:
    """Give the file a second name, or copy it where that cannot be; returns whether it is linked.

    FileNotFoundError if it is not there. What has the target's name is replaced.
    """
    with suppress(FileNotFoundError):
        os.unlink(target)
    if not copy:
        try:
            os.link(source, target, follow_symlinks=False)
            return True
        except OSError as error:
            if error.errno not in NO_LINK_ERRNOS:
                raise
    copy_file(source, target, counted=counted)
    return False


def copy_file(
    source: str, target: str, *, size: int | None = None, counted: Counted | None = None
) -> int:
    """Copy a file, or its first `size` bytes; whole and durable under its name on return.

    Returns how many bytes there were. FileNotFoundError if it is not there.
    """
    temporary = f"{target}.new"
    read_from = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        write_to = os.open(temporary, flags, 0o600)
        try:
            done = _copy(read_from, write_to, size, counted)
            os.fsync(write_to)
        finally:
            os.close(write_to)
    finally:
        os.close(read_from)
    os.rename(temporary, target)
    return done


def _copy(read_from: int, write_to: int, size: int | None, counted: Counted | None) -> int:
    done = 0
    while size is None or done < size:
        wanted = COPY_BYTES if size is None else min(COPY_BYTES, size - done)
        data = os.pread(read_from, wanted, done)
        if not data:
            break
        view = memoryview(data)
        while view:
            view = view[os.write(write_to, view) :]
        done += len(data)
        if counted is not None:
            counted(len(data))
    return done


def write_file(target: str, data: bytes) -> None:
    """Write a small file, whole and durable under its name on return."""
    temporary = f"{target}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, target)


def sync_directory(path: str) -> None:
    """Make names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
