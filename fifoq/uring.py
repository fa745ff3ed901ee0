"""A ring of Linux' io_uring with one request at a time: writes that no thread of ours waits for.

The kernel starts such a write in the caller's own call and goes on by itself, or has a thread of
its own do that; nothing of it needs one of ours, and so nothing of it waits for the interpreter.
Its end is seen by a look at memory that is shared with the kernel, or by an eventfd.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import re
import struct
import sys
from functools import cache
from typing import Any, Final

KERNEL_MIN: Final = (6, 12)
"""Before that a write to a file system that is frozen could block whoever submits it."""
_SETUP, _ENTER, _REGISTER = 425, 426, 427
_ENTRIES: Final = 1
_PARAMETERS: Final = struct.Struct("=30I")
_FEATURE_SINGLE_MMAP: Final = 1
_OFFSET_ENTRIES: Final = 0x10000000
_REGISTER_EVENTFD: Final = 4
_ENTER_GETEVENTS: Final = 1
_OPERATION_WRITE: Final = 23
_REQUEST: Final = struct.Struct("=BBHiQQIIQQQQ")
_RESULT: Final = struct.Struct("=QiI")
_RWF_DSYNC: Final = 2
_NOT_BY_THE_CALLER: Final = 16
_EVENTFD_DISABLED: Final = 1
_WRAP: Final = 0xFFFFFFFF
_IN_PLACE: Final = (0xEF53, 0x58465342)
"""ext4 and XFS: file systems that overwrite a block where it lies."""


class Ring:
    """Writes for one loop. OSError if the kernel has no rings, or forbids them."""

    def __init__(self) -> None:
        if not _kernel_is_fit():
            raise OSError(errno.ENOSYS, "io_uring of this kernel is too old")
        parameters = (ctypes.c_char * _PARAMETERS.size)()
        self._descriptor = _call(_SETUP, _ENTRIES, parameters)
        self.eventfd = -1
        self._words: Any = None
        self._memory: Any = None
        self._requests: Any = None
        try:
            self._map(_PARAMETERS.unpack(parameters.raw))
            self.eventfd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            number = ctypes.c_int(self.eventfd)
            _call(_REGISTER, self._descriptor, _REGISTER_EVENTFD, ctypes.byref(number), 1)
        except BaseException:
            self.close()
            raise

    def _map(self, parameters: tuple[int, ...]) -> None:
        sq_entries, cq_entries, features = parameters[0], parameters[1], parameters[5]
        sq_head, sq_tail, _, _, _, _, sq_array = parameters[10:17]
        cq_head, cq_tail, cq_mask, _, _, cq_entries_at, cq_flags = parameters[20:27]
        if not features & _FEATURE_SINGLE_MMAP:
            raise OSError(errno.ENOSYS, "io_uring of this kernel is too old")
        size = max(sq_array + sq_entries * 4, cq_entries_at + cq_entries * _RESULT.size)
        shared = mmap.MAP_SHARED | mmap.MAP_POPULATE
        self._memory = mmap.mmap(self._descriptor, size, shared)
        self._requests = mmap.mmap(
            self._descriptor, sq_entries * 64, shared, offset=_OFFSET_ENTRIES
        )
        self._words = memoryview(self._memory).cast("B").cast("I")
        self._taken_at, self._submit_at = sq_head // 4, sq_tail // 4
        self._head_at, self._tail_at = cq_head // 4, cq_tail // 4
        self._flags_at, self._results_at = cq_flags // 4, cq_entries_at
        self._mask = self._words[cq_mask // 4]
        self._words[sq_array // 4] = 0
        self._submitted = self._words[sq_head // 4]
        self._head = self._words[self._head_at]

    def write(
        self,
        descriptor: int,
        address: int,
        count: int,
        offset: int,
        *,
        durably: bool,
        at_once: bool,
    ) -> None:
        """Begin to write `count` bytes of memory; no write may be under way.

        With `at_once` this very call starts it, which costs less and must be known not to wait. The
        memory must stay as it is until there is a result.
        """
        flags, how = 0 if at_once else _NOT_BY_THE_CALLER, _RWF_DSYNC if durably else 0
        self._submitted = (self._submitted + 1) & _WRAP
        _REQUEST.pack_into(
            self._requests,
            0,
            _OPERATION_WRITE,
            flags,
            0,
            descriptor,
            offset,
            address,
            count,
            how,
            self._submitted,
            0,
            0,
            0,
        )
        self._words[self._submit_at] = self._submitted
        if _call(_ENTER, self._descriptor, 1, 0, 0, None, 0) != 1:
            raise BlockingIOError(errno.EBUSY, "the kernel did not take the request")

    @property
    def taken(self) -> int:
        """A number that changes when the kernel takes a request."""
        return int(self._words[self._taken_at])

    def result(self) -> int | None:
        """Bytes written, or an error's number as a negative one; None while it is under way."""
        while self._words[self._tail_at] != self._head:
            at = self._results_at + (self._head & self._mask) * _RESULT.size
            request, result, _ = _RESULT.unpack_from(self._memory, at)
            if request == self._submitted:
                return int(result)
            # Of an earlier one: who had seen it was interrupted.
            self.next()
        return None

    def next(self) -> None:
        """The result was seen: another request may be made."""
        self._head = self._words[self._head_at] = (self._head + 1) & _WRAP

    def use_eventfd(self, use: bool) -> None:
        """Whether the eventfd tells of the end.

        Who switches it on while a request is under way looks twice: at once, and a little later,
        since the kernel may have looked here before it saw that.
        """
        self._words[self._flags_at] = 0 if use else _EVENTFD_DISABLED

    def wait(self) -> None:
        """Wait until there is a result."""
        while self.result() is None:
            try:
                _call(_ENTER, self._descriptor, 0, 1, _ENTER_GETEVENTS, None, 0)
            except InterruptedError:
                continue

    def close(self) -> None:
        """Let go of it. Twice is fine."""
        if self._words is not None:
            self._words.release()
        for memory in (self._memory, self._requests):
            if memory is not None:
                memory.close()
        for descriptor in (self._descriptor, self.eventfd):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self.eventfd = -1


def overwrites_in_place(descriptor: int) -> bool:
    """Whether an open file lies on a file system that overwrites blocks where they are."""
    buffer = (ctypes.c_long * 32)()
    return _libc().fstatfs(descriptor, buffer) == 0 and buffer[0] in _IN_PLACE


def _kernel_is_fit() -> bool:
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    # What the kernel wrote last is seen last: elsewhere a result could be an older one.
    ordered = os.uname().machine == "x86_64" and ctypes.sizeof(ctypes.c_long) == 8
    if sys.platform != "linux" or release is None or not ordered:
        return False
    return (int(release[1]), int(release[2])) >= KERNEL_MIN


def _call(number: int, *arguments: Any) -> int:
    result: int = _libc().syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
