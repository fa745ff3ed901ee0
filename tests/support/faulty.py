"""A `Files` that fails by plan: the k-th call, once or for ever, with one of the usual errors."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal, TypeVar

from fifoq.testing.disk import SyncFailure
from fifoq.testing.simfiles import SimFiles
from store.files import Files, Handle
from tests.support.wrapping import WrappedFiles

T = TypeVar("T")

ERRORS = (
    errno.EIO,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EMFILE,
    errno.ENOMEM,
)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Call number `at`, counted from 0 over all calls or over those named `call`, fails.

    `error` is an errno, or "short" for a pread or pwrite that does only part of its work.
    A "short" on any other call, or on one of a single byte, changes nothing. `partial` lets a
    failing pwrite write a part first. `sync_failure` and `seed` say what a failing datasync
    leaves behind on a SimFiles; on any other disk it leaves everything undone.
    """

    at: int
    error: int | Literal["short"]
    call: str | None = None
    for_ever: bool = False
    partial: bool = False
    sync_failure: SyncFailure = SyncFailure.LOST
    seed: int = 0


class FaultyFiles(WrappedFiles):
    """Passes calls on to `inner` except where a fault hits; the first that matches counts.

    `fired` is how many calls really went wrong: a loop over `at` is over when it stays 0.
    `call_count` is how many calls there were, refused ones included.
    """

    def __init__(self, inner: Files, *faults: Fault) -> None:
        super().__init__(inner)
        self.faults = faults
        self.fired = 0
        self.call_count = 0
        self._name_counts: Counter[str] = Counter()
        self._random = Random(faults[0].seed if faults else 0)

    def pread(self, handle: Handle, count: int, offset: int) -> bytes:
        fault = self._hit("pread")
        if fault is None:
            return self.inner.pread(handle, count, offset)
        if fault.error != "short":
            raise self._failure(fault.error)
        data = self.inner.pread(handle, count, offset)
        if len(data) < 2:
            return data
        self.fired += 1
        return data[: self._random.randint(1, len(data) - 1)]

    def pwrite(self, handle: Handle, data: bytes | bytearray | memoryview, offset: int) -> int:
        fault = self._hit("pwrite")
        content = bytes(data)
        if fault is None or (fault.error == "short" and len(content) < 2):
            return self.inner.pwrite(handle, content, offset)
        if fault.error == "short":
            self.fired += 1
            part = content[: self._random.randint(1, len(content) - 1)]
            return self.inner.pwrite(handle, part, offset)
        if fault.partial and content:
            part = content[: self._random.randint(0, len(content) - 1)]
            self.inner.pwrite(handle, part, offset)
        raise self._failure(fault.error)

    def datasync(self, handle: Handle) -> None:
        fault = self._hit("datasync")
        if fault is None or fault.error == "short":
            return self.inner.datasync(handle)
        if isinstance(self.inner, SimFiles):
            seed = self._random.getrandbits(32)
            self.inner.fail_next_datasync(fault.sync_failure, error=fault.error, seed=seed)
            self.fired += 1
            return self.inner.datasync(handle)
        raise self._failure(fault.error)

    def close(self, handle: Handle) -> None:
        fault = self._hit("close")
        # Linux gives the descriptor back whatever close reports.
        self.inner.close(handle)
        if fault is not None and fault.error != "short":
            raise self._failure(fault.error)

    def _around(self, name: str, args: tuple[object, ...], call: Callable[[], T]) -> T:
        fault = self._hit(name)
        if fault is not None and fault.error != "short":
            raise self._failure(fault.error)
        return call()

    def _hit(self, name: str) -> Fault | None:
        """Count this call and find the fault that meets it."""
        total, named = self.call_count, self._name_counts[name]
        self.call_count += 1
        self._name_counts[name] += 1
        for fault in self.faults:
            number = total if fault.call is None else named
            if fault.call in (None, name) and (
                number == fault.at or (fault.for_ever and number > fault.at)
            ):
                return fault
        return None

    def _failure(self, number: int) -> OSError:
        self.fired += 1
        return OSError(number, os.strerror(number))
