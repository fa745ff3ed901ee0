"""The life of a log: when it takes work, from whom, and what the disk's refusals mean for it.

One thread at a time has the turn. A failure whose outcome only the disk knows stops the log for
good: it is FAILED, and only opening anew tells what is there.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

from store.directory import PASSING_ERRNOS, SPACE_ERRNOS, sync_error
from store.errors import (
    AccessError,
    ConcurrentUse,
    DiskFull,
    DurabilityError,
    ForkError,
    StoreClosed,
    StoreFailed,
)

L = TypeVar("L", bound="Life")
P = ParamSpec("P")
T = TypeVar("T")


class Status(enum.Enum):
    """Life of a log. FAILED and FORKED refuse all work; only opening anew helps."""

    NEW = "new"
    OPEN = "open"
    CLOSED = "closed"
    FAILED = "failed"
    FORKED = "forked"


# Looking a member up needs memory, and "failed" must be said even when there is none.
OPEN: Final = Status.OPEN
CLOSED: Final = Status.CLOSED
FAILED: Final = Status.FAILED
FORKED: Final = Status.FORKED
REFUSED: Final = (DiskFull, AccessError)


def taken_error(life: Life) -> ConcurrentUse | ForkError:
    """What a thread gets that comes while another one has the turn."""
    if life.status is FORKED:
        # Whoever has it is the parent's.
        return forked_error(life)
    return ConcurrentUse(
        f"{life.path}: another thread is using the store. This call did nothing. Use a store from "
        f"one thread at a time."
    )


def forked_error(life: Life) -> ForkError:
    """What the child of a fork gets."""
    return ForkError(
        f"{life.path}: the store was opened before a fork, and only the parent may use it. Nothing "
        f"was changed. Open it in one process, after forking."
    )


def in_turn(method: Callable[Concatenate[L, P], T]) -> Callable[Concatenate[L, P], T]:
    """Let one thread in at a time; a second one is refused before it can do harm."""

    @wraps(method)
    def call(self: L, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        try:
            self.turn.pop()
        except IndexError:
            raise taken_error(self) from None
        try:
            return method(self, *arguments, **keywords)
        finally:
            self.turn.append(None)

    return call


class Life:
    """Whether a log takes work, and whose turn it is."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.status = Status.NEW
        # Taking the only entry out is atomic, so that two threads can never both have it.
        self.turn: list[None] = [None]
        self.untold: DurabilityError | None = None
        """A failure of upkeep that no call has told yet."""

    def require_turn(self) -> None:
        if not self.turn:
            raise taken_error(self)

    def free_turn(self) -> None:
        """Nobody has the turn any more. Twice is fine: whoever is interrupted may come again."""
        self.turn[:] = (None,)

    def require_open(self) -> None:
        """Raise what fits if the log takes no more work."""
        if self.status is OPEN:
            return
        if self.status is CLOSED:
            raise StoreClosed(f"{self.path}: the store is closed. Open it anew.")
        if self.status is FORKED:
            raise forked_error(self)
        self.untold = None
        raise StoreFailed(
            f"{self.path}: an earlier failure stopped the store. Everything confirmed before it is "
            f"safe; what was under way is known after a reopen. Close it, see to the disk, reopen."
        )

    @contextmanager
    def sorting_errors(self) -> Iterator[None]:
        """Turn what the disk says into: refused, and the log goes on; or unknown, and it stops."""
        try:
            yield
        except OSError as error:
            if error.errno in SPACE_ERRNOS:
                raise DiskFull(
                    f"{self.path}: {error.strerror}. Nothing was stored. Takes and acks still "
                    f"work; free some space and try again."
                ) from error
            if error.errno in PASSING_ERRNOS:
                raise AccessError(
                    f"{self.path}: {error.strerror}. Nothing was stored, and the store goes on. "
                    f"Try again."
                ) from error
            self.status = FAILED
            raise sync_error(self.path, error) from error
        except DurabilityError:
            self.status = FAILED
            raise

    def fail(self) -> None:
        """Take no more work: what is on disk is known only after a reopen."""
        self.status = FAILED
