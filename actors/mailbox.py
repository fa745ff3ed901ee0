"""Mailboxes: what the runtime asks of one, and the options of those it makes itself.

A mailbox of the caller's own needs three methods (`Mailbox`). It may hold anything: the runtime
hands what `next_batch` returns to the actor and looks at nothing else. To be reached by `tell` and
`ask` it needs the methods of `Intake` as well; otherwise its owner feeds it by ways of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, runtime_checkable

from msgspec import Struct

SIZE_MAX = 1000
"""Messages in a mailbox, when nothing else is said."""
BATCH_COUNT_MAX = 100
"""Messages in a batch, when nothing else is said."""

Overflow = Literal["block", "fail", "drop-oldest", "drop-newest"]
OVERFLOWS: tuple[Overflow, ...] = ("block", "fail", "drop-oldest", "drop-newest")


class Mailbox(Protocol):
    """Where an actor's messages wait."""

    async def next_batch(self) -> object | None:
        """Wait for something to handle; None when the mailbox is closed and all was handed out.

        Cancelling it must lose nothing. What it returns goes to `on_batch` as it is (an actor that
        has `receive` gets the messages one by one). If the handler fails, and the returned
        object has a method `fail(error) -> int`, the runtime calls it, as it does with a `Batch`.
        """
        ...

    def close(self) -> None:
        """Take no more; what is inside is still handed out. May be called twice."""
        ...

    def discard(self, error: BaseException) -> int:
        """Empty the mailbox: whoever waits for an outcome of a message gets `error`.

        Returns how many of the messages nobody waits for. It is called after `close`, also while
        a batch is being handled, and possibly twice.
        """
        ...


@runtime_checkable
class Intake(Protocol):
    """What a mailbox has besides, if refs can send to it. A letter is a message or an `Asked`."""

    async def put(self, letter: object) -> None:
        """Take the letter, when there is room for it as the mailbox understands it."""
        ...

    def put_nowait(self, letter: object, *, exempt: bool = False) -> None:
        """Take the letter now or raise `MailboxFull`; an `exempt` one needs no room."""
        ...

    def withdraw(self, letter: object) -> None:
        """Forget an `Asked` whose asker has left, if it has not been handed out."""
        ...


@runtime_checkable
class Failing(Protocol):
    """A batch that can tell its senders that its handler failed."""

    def fail(self, error: BaseException) -> int:
        """Give everybody who waits for an outcome this error; count those nobody waits for."""
        ...


class BatchOptions(Struct, frozen=True, kw_only=True):
    """When a batch is closed: at `count_max` messages, at `bytes_max` bytes, after lingering.

    `bytes_max` needs `size_of`, which tells the bytes of one message; a batch stays within it
    unless a single message does not. `linger_seconds` count from when the actor is free and a
    message waits; 0 means that a batch is whatever waits now.
    """

    count_max: int = BATCH_COUNT_MAX
    bytes_max: int | None = None
    size_of: Callable[[object], int] | None = None
    linger_seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.count_max < 1:
            raise ValueError(f"count_max is {self.count_max}: a batch holds at least one message")
        if self.bytes_max is not None and self.bytes_max < 1:
            raise ValueError(f"bytes_max is {self.bytes_max}: a batch holds at least one byte")
        if (self.bytes_max is None) != (self.size_of is None):
            raise ValueError("bytes_max and size_of are of use only together")
        if not 0 <= self.linger_seconds < float("inf"):
            raise ValueError(f"linger_seconds is {self.linger_seconds}: it must be 0 or more")


class MailboxOptions(Struct, frozen=True, kw_only=True):
    """A bounded mailbox in memory: its size, what happens when it is full, how it makes batches.

    When full, `block` makes `tell` wait, `fail` raises `MailboxFull`, `drop-oldest` and
    `drop-newest` drop a message and count it; if that one was asked, its asker gets `MailboxFull`.
    `batch` is for actors that have `on_batch`.
    """

    size_max: int = SIZE_MAX
    overflow: Overflow = "block"
    batch: BatchOptions = BatchOptions()

    def __post_init__(self) -> None:
        if self.size_max < 1:
            raise ValueError(f"size_max is {self.size_max}: a mailbox holds at least one message")
        if self.overflow not in OVERFLOWS:
            raise ValueError(f"overflow is {self.overflow!r}: it must be one of {OVERFLOWS}")
