"""A store's directory: its names, its lock, its segments, indexes and two checkpoint copies."""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple, Protocol

from store.checkpoint import (
    CHECKPOINT_HEADER_BYTES,
    CHECKPOINT_NAMES,
    Checkpoint,
    body_bytes,
    decode_checkpoint,
)
from store.checksum import Buffer
from store.errors import (
    AccessError,
    AlreadyOpen,
    DamageError,
    DiskFull,
    DurabilityError,
    FormatError,
)
from store.files import Files, Handle
from store.frames import SegmentHeader
from store.index import INDEX_BODY_BYTES_MAX, INDEX_HEADER_BYTES, SegmentIndex
from store.segment import (
    SegmentFile,
    index_name,
    index_number,
    let_go,
    read_exactly,
    segment_name,
    segment_number,
)

SPACE_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What a write says when there is no room; from a sync any errno is a failure."""
PASSING_ERRNOS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
NO_FILE_ERRNOS: Final = frozenset({errno.EINVAL, errno.ELOOP, errno.EISDIR, errno.ENXIO})
"""What opening says of a name that is a directory, a link, a pipe or the like."""
"""What the kernel says when it has too little of its own; the next try may go well."""
QUARANTINE_SUFFIX: Final = ".bad"


class FilePath(Protocol):
    """A path object, such as those of pathlib."""

    def __fspath__(self) -> str: ...


def path_text(path: str | FilePath) -> str:
    """The path as text without a slash at its end. AccessError for what no path can be."""
    text = path if isinstance(path, str) else getattr(path, "__fspath__", lambda: None)()
    if not isinstance(text, str):
        raise TypeError(f"path={path!r:.80} is neither text nor a path. Nothing was changed.")
    if not text or "\0" in text:
        raise AccessError(f"{text!r} is no path. Nothing was changed. Name a directory.")
    return text.rstrip("/") or "/"


def access_error(path: str, error: OSError) -> AccessError | DiskFull:
    """An OSError in our words; raise it `from` the original."""
    if error.errno in SPACE_ERRNOS:
        return DiskFull(f"{path}: {error.strerror}. Nothing was changed. Free some space.")
    if error.errno == errno.ENOENT:
        return AccessError(f"{path}: {error.strerror}. Nothing was changed. Is the path right?")
    if error.errno in PASSING_ERRNOS:
        return AccessError(f"{path}: {error.strerror}. Nothing was changed. Try again.")
    return AccessError(
        f"{path}: {error.strerror or error}. Nothing was changed. Check that it is a directory "
        f"of regular files which this user may read and write."
    )


def sync_error(path: str, error: OSError) -> DurabilityError:
    """A failed sync, or a step that only a sync could have made certain."""
    return DurabilityError(
        f"{path}: {error.strerror or error} while making data durable. What is on disk is unknown "
        f"until the store is opened anew; this one has stopped. Close it, see to the disk, reopen."
    )


def sync_file(files: Files, handle: Handle, path: str) -> None:
    """Make a file's content durable. DurabilityError if that fails, whatever the errno."""
    try:
        files.datasync(handle)
    except OSError as error:
        raise sync_error(path, error) from error


class Names(NamedTuple):
    """What lies in a store's directory, by kind; numbers are sorted."""

    segments: list[int]
    indexes: list[int]
    checkpoints: list[str]
    others: list[str]


def write_all(files: Files, handle: Handle, data: Buffer, offset: int) -> None:
    """Write every byte. A write that makes no progress counts as a full disk."""
    count = files.pwrite(handle, data, offset)
    while count < len(data):
        more = files.pwrite(handle, memoryview(data)[count:], offset + count)
        if more == 0:
            raise OSError(errno.ENOSPC, "a write made no progress")
        count += more


class Directory:
    """An open store directory. Hands out files by name and decides nothing."""

    def __init__(self, files: Files, path: str) -> None:
        self.files = files
        self.path = path
        self.handle = files.open_dir(path)
        self._closed = False

    @staticmethod
    def make(files: Files, path: str) -> None:
        """Make the directory, and its parents where they are missing."""
        try:
            files.make_dir(path)
        except FileExistsError:
            return
        except FileNotFoundError:
            parent = posixpath.dirname(path)
            if parent in ("", path):
                raise
            Directory.make(files, parent)
            files.make_dir(path)

    def sync_parents(self) -> None:
        """Make the directory's own name durable, and its parents' names as far as we may."""
        path = posixpath.normpath(self.path)
        while True:
            parent = posixpath.dirname(path) or "."
            try:
                handle = self.files.open_dir(parent)
            except PermissionError:
                break
            try:
                self.files.sync_dir(handle)
            except OSError as error:
                # EINVAL: that file system, read-only or not on a disk, has no sync of directories.
                if error.errno != errno.EINVAL:
                    raise sync_error(parent, error) from error
            finally:
                let_go(self.files, handle)
            if parent in (path, "."):
                break
            path = parent

    def lock(self) -> None:
        # First: the child of a fork that comes in the middle of opening must not keep the lock.
        self.files.watch_fork(self.close)
        try:
            self.files.lock_dir(self.handle)
        except BlockingIOError:
            raise AlreadyOpen(self.path) from None

    def close(self) -> None:
        """Give the directory back, and the lock with it. Twice is fine."""
        if not self._closed:
            self._closed = True
            let_go(self.files, self.handle)

    def names(self) -> Names:
        names = Names([], [], [], [])
        for name in sorted(self.files.list_dir(self.handle)):
            if (number := segment_number(name)) is not None:
                names.segments.append(number)
            elif (number := index_number(name)) is not None:
                names.indexes.append(number)
            elif name in CHECKPOINT_NAMES:
                names.checkpoints.append(name)
            elif not name.endswith(QUARANTINE_SUFFIX):
                names.others.append(name)
        return names

    def remove(self, name: str) -> None:
        """Unlink a name that may already be gone."""
        with suppress(FileNotFoundError):
            self.files.unlink(self.handle, name)

    def sync(self) -> None:
        """Make names durable. DurabilityError if that fails."""
        try:
            self.files.sync_dir(self.handle)
        except OSError as error:
            raise sync_error(self.path, error) from error

    # Segments and indexes.

    def open_segment(self, number: int, store_id: bytes, *, write: bool = False) -> SegmentFile:
        handle = self.files.open(self.handle, segment_name(number), write=write)
        try:
            return SegmentFile(self.files, handle, number, store_id)
        except BaseException:
            let_go(self.files, handle)
            raise

    def create_segment(self, header: SegmentHeader) -> SegmentFile:
        """Make a segment; its header and its name are durable on return.

        Whatever goes wrong, no such segment is left: one that says where its predecessor ends
        must not exist while that one is still written. Only after a failed sync, when nothing is
        written any more, the disk is left as it is.
        """
        name = segment_name(header.number)
        handle = self.create(name, header.encode())
        try:
            self.sync()
            return SegmentFile(self.files, handle, header.number, header.store_id)
        except BaseException as error:
            let_go(self.files, handle)
            if not isinstance(error, DurabilityError):
                self.uncreate(name)
            raise

    def create(self, name: str, data: Buffer) -> Handle:
        """Make a file, in place of a leftover; its content is durable on return, its name not yet.

        Whatever goes wrong, no such file is left, unless a sync failed.
        """
        files = self.files
        self.remove(name)
        handle = files.create(self.handle, name)
        try:
            write_all(files, handle, data, 0)
            sync_file(files, handle, f"{self.path}/{name}")
        except BaseException as error:
            let_go(files, handle)
            if not isinstance(error, DurabilityError):
                self.uncreate(name)
            raise
        return handle

    def uncreate(self, name: str) -> None:
        """Take back a name that was made, for good. DurabilityError if that fails."""
        try:
            self.remove(name)
        except OSError as error:
            raise sync_error(f"{self.path}/{name}", error) from error
        self.sync()

    def write_index(self, index: SegmentIndex, number: int, store_id: bytes) -> None:
        handle = self.create(index_name(number), index.encode(store_id, number))
        let_go(self.files, handle)

    def read_index(self, number: int, store_id: bytes) -> SegmentIndex | None:
        """The index of a segment, or None if there is none that is sound."""
        try:
            with self.reading(index_name(number)) as handle:
                size = min(self.files.size(handle), INDEX_HEADER_BYTES + INDEX_BODY_BYTES_MAX)
                data = read_exactly(self.files, handle, size, 0)
            return SegmentIndex.decode(data, store_id, number)
        except (DamageError, OSError):
            return None

    def read_checkpoint(self, name: str) -> tuple[bytes, Checkpoint]:
        """Store id and state of one copy. DamageError or FormatError if it is not sound."""
        with self.reading(name) as handle:
            head = read_exactly(self.files, handle, CHECKPOINT_HEADER_BYTES, 0)
            body = read_exactly(self.files, handle, body_bytes(head), CHECKPOINT_HEADER_BYTES)
            return decode_checkpoint(head + body)

    @contextmanager
    def reading(self, name: str) -> Iterator[Handle]:
        handle = self.files.open(self.handle, name, write=False)
        try:
            yield handle
        except FormatError as error:
            raise FormatError(f"{self.path}/{name}: {error}") from None
        finally:
            let_go(self.files, handle)
