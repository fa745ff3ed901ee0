"""Hearing of new files without looking: Linux tells through a descriptor that the loop watches.

Where that is not to be had (another system, no watches left) there is simply no notice.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from fifoq.staged import MANIFEST_SUFFIX, STAGED_DIRECTORY

_MOVED_TO: Final = 0x80
_CREATE: Final = 0x100
_OVERFLOW: Final = 0x4000
_ONLYDIR: Final = 0x0100_0000
_EVENT = struct.Struct("iIII")
_READ_BYTES: Final = 64 << 10


class Notice:
    """Tells of the directory of staged files as it appears, and of each manifest in it."""

    def __init__(self, descriptor: int, store_path: str, staged_path: str) -> None:
        self._descriptor = descriptor
        # For a store that nobody closed.
        self._last = weakref.finalize(self, os.close, descriptor)
        self._staged_path = staged_path
        self._wake: Callable[[], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watch(store_path)
        self.watch_staged()

    @staticmethod
    def of(store_path: str, staged_path: str) -> Notice | None:
        """For a store at that path, or None if the system gives none."""
        if sys.platform != "linux":
            return None
        descriptor = _libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if descriptor < 0:
            return None
        try:
            return Notice(descriptor, store_path, staged_path)
        except OSError:
            return None

    def _watch(self, path: str) -> None:
        libc = _libc()
        mask = _CREATE | _MOVED_TO | _ONLYDIR
        if libc.inotify_add_watch(self._descriptor, os.fsencode(path), mask) < 0:
            raise OSError(ctypes.get_errno(), "no watch", path)

    def watch_staged(self) -> None:
        """From here on manifests are told of, if the directory is there. Again is fine."""
        if self._descriptor >= 0:
            with suppress(OSError):
                self._watch(self._staged_path)

    def start(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self._loop, self._wake = loop, wake
        loop.add_reader(self._descriptor, self._read)

    def stop(self) -> asyncio.Future[None]:
        """Tell no more; done when the descriptor is closed. Once, and on the loop.

        The kernel may take 20 ms to close it, and the loop does not wait for that.
        """
        assert self._loop is not None
        loop, descriptor, self._descriptor = self._loop, self._descriptor, -1
        loop.remove_reader(descriptor)
        # At the end of the interpreter it may have been closed already.
        still_open = self._last.detach() is not None
        closed = loop.create_future()

        def close() -> None:
            if still_open:
                os.close(descriptor)
            with suppress(RuntimeError):  # The loop has ended meanwhile.
                loop.call_soon_threadsafe(_done, closed)

        threading.Thread(target=close, name="fifoq notice", daemon=True).start()
        return closed

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return
        if self._wake is not None and any(map(_concerns_us, _names(data))):
            self._wake()


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _names(data: bytes) -> list[bytes | None]:
    """The names that events speak of; None for those that were lost."""
    names: list[bytes | None] = []
    at = 0
    while at < len(data):
        _, mask, _, length = _EVENT.unpack_from(data, at)
        at += _EVENT.size
        names.append(None if mask & _OVERFLOW else data[at : at + length].rstrip(b"\0"))
        at += length
    return names


def _concerns_us(name: bytes | None) -> bool:
    return (
        name is None or name == STAGED_DIRECTORY.encode() or name.endswith(MANIFEST_SUFFIX.encode())
    )


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
