"""One opening of a log, which whoever waits for it may leave: then it lets go what it opened.

A thread that opens or closes a log cannot be called off, and the loop that wanted that may have
ended before it is done. So the thread itself lets go, and until it has, those of this process who
open the same directory wait: no owner is left whom they could close.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from store import AlreadyOpen, Log


class Leaving:
    """Somebody of this process who is about to let a store's directory go."""

    def __init__(self, path: str) -> None:
        self._path = path
        with suppress(FileNotFoundError):
            # Unless the working directory is gone.
            self._path = os.path.abspath(path)
        self._ended = threading.Event()

    def begin(self) -> None:
        _leaving.add(self)

    def end(self) -> None:
        """It has let go, or never began to. Twice is fine."""
        _leaving.discard(self)
        self._ended.set()

    def leaves(self, path: str) -> bool:
        """Whether it is that directory, wherever links lead now."""
        return os.path.realpath(self._path) == os.path.realpath(path)

    def wait(self) -> None:
        """Until it has let go."""
        self._ended.wait()


class LogOpening:
    """Opens a log, once. `run` and `give_up` may be called in different threads."""

    def __init__(self, path: str, open_the_log: Callable[[], Log]) -> None:
        self._path = path
        self._leaving = Leaving(path)
        self._open = open_the_log
        self._lock = threading.Lock()
        self._under_way = self._given_up = False
        self.log: Log | None = None
        """What was opened, until it is given up."""

    def run(self, _: object) -> Log | None:
        """Open the log, unless that was given up. What opening it raises."""
        with self._lock:
            if self._given_up:
                return None
            self._under_way = True
        log: Log | None = None
        try:
            log = self._open_once_let_go()
        finally:
            with self._lock:
                self._under_way = False
                if not self._given_up:
                    self.log, log = log, None
            try:
                if log is not None:
                    log.release()
            finally:
                self._leaving.end()
        return self.log

    def give_up(self) -> None:
        """Let the log go: now if it is open, else when it is."""
        with self._lock:
            self._given_up = True
            log, self.log = self.log, None
            if self._under_way:
                self._leaving.begin()
        if log is not None:
            log.release()

    def _open_once_let_go(self) -> Log:
        while True:
            # Before: one that ends meanwhile may be the one that has the lock.
            leaving = list(_leaving)
            try:
                return self._open()
            except AlreadyOpen:
                leaving = [other for other in leaving if other.leaves(self._path)]
                # Who is given up wants nothing more, and would wait for itself.
                if self._given_up or not leaving:
                    raise
                for other in leaving:
                    other.wait()
                if self._given_up:
                    raise


_leaving: Final[set[Leaving]] = set()
"""Openings that were given up and go on, and logs that are being closed."""

# In the child of a fork nobody is there to end them.
os.register_at_fork(after_in_child=_leaving.clear)
