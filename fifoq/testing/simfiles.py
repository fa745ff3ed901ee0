"""A simulated disk behind the `Files` protocol: same results and errnos as Linux, and it can crash.

Results and errnos follow the real thing, and `test_differential` holds them to it. On purpose it
is stricter in three ways: a handle's number is never used again, `list_dir` mixes its names, and
a sync makes durable only what the protocol says (`sync_dir` of a file does nothing).
"""

from __future__ import annotations

import errno
import os
import weakref
from collections.abc import Callable
from random import Random
from zlib import crc32

from fifoq.testing.capacity import Capacity
from fifoq.testing.disk import Disk, Node, SyncFailure
from fifoq.testing.image import Image, Kind
from fifoq.testing.pending import SECTOR_BYTES
from fifoq.testing.walking import child, look_up, os_error, refuse_bad_text
from store.files import Handle

FILE_BYTES_MAX = 1 << 30
OFFSET_MAX = (1 << 63) - 1

OpHook = Callable[[int, str, tuple[object, ...]], None]


class SimFiles:
    """A `Files` in memory. The root directory `/` exists; relative paths start there too.

    `before_op(index, name, args)` is called before every call of the protocol and may raise.
    `op_log`, if it is a list, collects `(name, args)`. `disk` is the state that crashes act on;
    `disk.before_change` is the hook for crash points.
    """

    def __init__(self, *, capacity: int | None = None) -> None:
        self.disk = Disk()
        self.op_count = 0
        self.op_log: list[tuple[str, tuple[object, ...]]] | None = None
        self.before_op: OpHook | None = None
        self._capacity = None if capacity is None else Capacity(capacity)
        self._handles: dict[int, tuple[Node, bool]] = {}
        self._next_handle = 1000
        self._locks: dict[int, int] = {}
        self._bad_sectors: set[tuple[int, int]] = set()
        self._sync_failure: tuple[SyncFailure, int, Random] | None = None
        self._fork_watchers: list[weakref.WeakMethod[Callable[[], None]]] = []

    @classmethod
    def from_image(cls, image: Image, *, capacity: int | None = None) -> SimFiles:
        """A machine just started on this disk: all of it durable, nothing open."""
        files = cls(capacity=capacity)
        files.disk = Disk.from_image(image)
        if files._capacity is not None:
            for node in files.disk.nodes.values():
                files._capacity.take(node.ino, 0, len(node.live))
        return files

    def image(self) -> Image:
        """What an orderly shutdown now would leave on the disk."""
        return self.disk.image()

    def copy(self) -> SimFiles:
        """An independent twin with the same handles, locks and faults, without hooks and log."""
        twin = SimFiles()
        twin.disk = self.disk.copy()
        twin.op_count = self.op_count
        twin._capacity = None if self._capacity is None else self._capacity.copy()
        nodes = twin.disk.nodes
        twin._handles = {
            handle: (nodes[node.ino], writable)
            for handle, (node, writable) in self._handles.items()
        }
        twin._next_handle = self._next_handle
        twin._locks = self._locks.copy()
        twin._bad_sectors = self._bad_sectors.copy()
        return twin

    def process_crash(self) -> None:
        """Lose every handle and lock. The live view survives, as a page cache does."""
        held = [node for node, _ in self._handles.values()]
        self._handles.clear()
        self._locks.clear()
        self._fork_watchers.clear()
        self.disk.forget_handles()
        for node in held:
            self._free_space(node)

    # Faults and fixtures for tests; none of these is a call of the protocol.

    def fail_next_datasync(
        self, failure: SyncFailure, *, error: int = errno.EIO, seed: int = 0
    ) -> None:
        """Let the next datasync raise `error` after doing what `failure` says."""
        self._sync_failure = (failure, error, Random(seed))

    def fail_reads(self, path: str, *, sector: int) -> None:
        """Make one sector of a file unreadable: EIO, after what could be read before it."""
        self._bad_sectors.add((self._existing(path).ino, sector))

    def heal_reads(self) -> None:
        self._bad_sectors.clear()

    def damage(self, path: str, offset: int, data: bytes) -> None:
        """Change bytes on the disk and in the cache at once, behind everybody's back."""
        node = self._existing(path)
        end = offset + len(data)
        node.live = bytes(node.live[:offset]) + data + bytes(node.live[end:])
        if len(node.durable) >= end:
            node.durable = node.durable[:offset] + data + node.durable[end:]

    def flip_bit(self, path: str, *, offset: int, bit: int) -> None:
        """Flip one bit as `damage` does."""
        value = self._existing(path).live[offset] ^ (1 << bit)
        self.damage(path, offset, bytes([value]))

    def add_symlink(self, path: str, target: str) -> None:
        """Put a durable symbolic link at a free path."""
        self._add_durable(path, Kind.SYMLINK, target.encode())

    def add_fifo(self, path: str) -> None:
        """Put a durable fifo at a free path."""
        self._add_durable(path, Kind.FIFO, b"")

    def add_dir(self, path: str) -> None:
        """Put a durable directory at a free path."""
        self._add_durable(path, Kind.DIRECTORY, b"")

    def add_file(self, path: str, content: bytes) -> None:
        """Put a durable file at a free path. It does not count against the capacity."""
        self._add_durable(path, Kind.FILE, content)

    def content(self, path: str) -> bytes:
        """The live content of a file."""
        return bytes(self._existing(path).live)

    def fork_in_child(self) -> None:
        """Do what the operating system does in a child after a fork."""
        for reference in self._fork_watchers:
            callback = reference()
            if callback is not None:
                callback()
        self._fork_watchers.clear()

    # The protocol.

    def make_dir(self, path: str) -> None:
        self._enter("make_dir", path)
        parent, name, found = look_up(self.disk, path, follow=False)
        if found is not None:
            raise os_error(errno.EEXIST, path)
        self.disk.link(parent, name, Kind.DIRECTORY)

    def open_dir(self, path: str) -> Handle:
        self._enter("open_dir", path)
        _, _, found = look_up(self.disk, path, follow=True)
        if found is None:
            raise os_error(errno.ENOENT, path)
        if found.kind is not Kind.DIRECTORY:
            raise os_error(errno.ENOTDIR, path)
        return self._open(found, writable=False)

    def lock_dir(self, directory: Handle) -> None:
        self._enter("lock_dir", directory)
        ino = self._node(directory).ino
        if self._locks.setdefault(ino, directory) != directory:
            raise os_error(errno.EAGAIN)

    def require_writable(self, directory: Handle) -> None:
        """Everybody may do everything here."""

    def list_dir(self, directory: Handle) -> list[str]:
        self._enter("list_dir", directory)
        node = self._node(directory)
        if node.kind is not Kind.DIRECTORY:
            raise os_error(errno.ENOTDIR)
        return sorted(node.entries, key=lambda name: crc32(os.fsencode(name)))

    def sync_dir(self, directory: Handle) -> None:
        self._enter("sync_dir", directory)
        self.disk.sync_dir(self._node(directory))

    def create(self, directory: Handle, name: str) -> Handle:
        self._enter("create", directory, name)
        parent, found = self._entry(directory, name)
        if found is not None:
            raise os_error(errno.EEXIST, name)
        return self._open(self.disk.link(parent, name, Kind.FILE), writable=True)

    def open(self, directory: Handle, name: str, *, write: bool) -> Handle:
        self._enter("open", directory, name, write)
        _, found = self._entry(directory, name)
        if found is None:
            raise os_error(errno.ENOENT, name)
        if found.kind is Kind.SYMLINK:
            raise os_error(errno.ELOOP, name)
        if found.kind is Kind.DIRECTORY and write:
            raise os_error(errno.EISDIR, name)
        if found.kind is not Kind.FILE:
            raise OSError(errno.EINVAL, "not a regular file", name)
        return self._open(found, writable=write)

    def unlink(self, directory: Handle, name: str) -> None:
        self._enter("unlink", directory, name)
        parent, found = self._entry(directory, name)
        if found is None:
            raise os_error(errno.ENOENT, name)
        if found.kind is Kind.DIRECTORY:
            raise os_error(errno.EISDIR, name)
        self._free_space(self.disk.unlink(parent, name))

    def size(self, handle: Handle) -> int:
        self._enter("size", handle)
        return len(self._node(handle).live)

    def pread(self, handle: Handle, count: int, offset: int) -> bytes:
        self._enter("pread", handle, count, offset)
        if count < 0 or offset < 0:
            raise os_error(errno.EINVAL)
        node = self._node(handle)
        if count > OFFSET_MAX - offset:
            raise os_error(errno.EINVAL)
        if node.kind is Kind.DIRECTORY:
            raise os_error(errno.EISDIR)
        data = bytes(node.live[offset : offset + count])
        return self._readable(node, data, offset) if self._bad_sectors else data

    def pwrite(self, handle: Handle, data: bytes | bytearray | memoryview, offset: int) -> int:
        content = bytes(data)
        self._enter("pwrite", handle, content, offset)
        if offset < 0:
            raise os_error(errno.EINVAL)
        node = self._node(handle, write=True)
        if not content:
            return 0
        if len(content) > OFFSET_MAX - offset:
            raise os_error(errno.EINVAL)
        if offset + len(content) > FILE_BYTES_MAX:
            raise os_error(errno.EFBIG)
        if self._capacity is not None:
            content = content[: self._capacity.take(node.ino, offset, len(content))]
            if not content:
                raise os_error(errno.ENOSPC)
        self.disk.write(node, offset, content)
        return len(content)

    def truncate(self, handle: Handle, size: int) -> None:
        self._enter("truncate", handle, size)
        if size < 0:
            raise os_error(errno.EINVAL)
        self._node(handle)
        node, writable = self._handles[handle]
        if not writable:
            raise os_error(errno.EINVAL)
        if size > FILE_BYTES_MAX:
            raise os_error(errno.EFBIG)
        if self._capacity is not None:
            self._capacity.cut(node.ino, size)
        self.disk.truncate(node, size)

    def datasync(self, handle: Handle) -> None:
        self._enter("datasync", handle)
        plan, self._sync_failure = self._sync_failure, None
        node = self._node(handle)
        if plan is not None:
            failure, error, random = plan
            self.disk.fail_datasync(node, failure, random)
            raise os_error(error)
        self.disk.datasync(node)

    def forget_cache(self, handle: Handle) -> None:
        self._enter("forget_cache", handle)
        self.disk.forget_cache(self._node(handle))

    def await_writes(self, directory: Handle, name: str) -> bool:
        """A process that is gone writes nothing more here."""
        return False

    def close(self, handle: Handle) -> None:
        self._enter("close", handle)
        node = self._node(handle)
        del self._handles[handle]
        if self._locks.get(node.ino) == handle:
            del self._locks[node.ino]
        node.open_count -= 1
        self.disk.release(node)
        self._free_space(node)

    def watch_fork(self, callback: Callable[[], None]) -> None:
        self._fork_watchers.append(weakref.WeakMethod(callback))

    def _enter(self, name: str, *args: object) -> None:
        index = self.op_count
        self.op_count = index + 1
        if self.op_log is not None:
            self.op_log.append((name, args))
        if self.before_op is not None:
            self.before_op(index, name, args)

    def _open(self, node: Node, *, writable: bool) -> Handle:
        handle = self._next_handle
        self._next_handle = handle + 1
        self._handles[handle] = (node, writable)
        node.open_count += 1
        return Handle(handle)

    def _node(self, handle: Handle, *, write: bool = False) -> Node:
        held = self._handles.get(handle)
        if held is None or (write and not held[1]):
            raise os_error(errno.EBADF)
        return held[0]

    def _entry(self, directory: Handle, name: str) -> tuple[Node, Node | None]:
        assert "/" not in name, f"the protocol takes plain names, not {name!r}"
        refuse_bad_text(name)
        parent = self._node(directory)
        if parent.kind is not Kind.DIRECTORY:
            raise os_error(errno.ENOTDIR, name)
        if name in (".", ".."):
            return parent, parent
        return parent, child(self.disk, parent, name)

    def _existing(self, path: str) -> Node:
        _, _, found = look_up(self.disk, path, follow=True)
        if found is None:
            raise os_error(errno.ENOENT, path)
        return found

    def _add_durable(self, path: str, kind: Kind, content: bytes) -> None:
        parent, name, found = look_up(self.disk, path, follow=False)
        if found is not None:
            raise os_error(errno.EEXIST, path)
        parent.durable_entries[name] = self.disk.link(parent, name, kind, content).ino
        self.disk.pending.pop()

    def _readable(self, node: Node, data: bytes, offset: int) -> bytes:
        for sector in range(offset // SECTOR_BYTES, (offset + len(data) - 1) // SECTOR_BYTES + 1):
            if (node.ino, sector) in self._bad_sectors:
                good = sector * SECTOR_BYTES - offset
                if good <= 0:
                    raise os_error(errno.EIO)
                return data[:good]
        return data

    def _free_space(self, node: Node) -> None:
        if self._capacity is not None and not node.linked and not node.open_count:
            self._capacity.free(node.ino)
