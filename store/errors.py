"""What can go wrong, one class for each case that a caller would treat differently.

Facts are attributes; nobody needs to read a message to decide. Messages say where, what
happened, what state the data is in, and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class FifoqError(Exception):
    """Base of every error of store and queue."""


class DamageError(FifoqError):
    """Bytes that do not decode. The format raises it; files turn it into CorruptionError."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"byte {offset}: {reason}")
        self.offset, self.reason = offset, reason


class CorruptionError(FifoqError):
    """Committed data cannot be read back.

    Raised while opening or reading, never while putting. The files are left as found.
    """

    def __init__(self, path: str, offset: int, reason: str) -> None:
        directory = path.rpartition("/")[0] or "."
        super().__init__(
            f"{path}: damaged at byte {offset}: {reason}. Nothing was changed. "
            f"`python -m store check {directory}` lists what is intact; "
            f'recover="quarantine" opens with that and sets the rest aside.'
        )
        self.path, self.offset, self.reason = path, offset, reason


class FormatError(FifoqError):
    """The directory is not a store, or was written by a newer version. Nothing was changed."""


class AccessError(FifoqError):
    """The operating system refused a file of the store. Nothing was changed."""


class AlreadyOpen(FifoqError):
    """Another owner, in this process or another, has the store open."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path}: the store is owned by another process, thread or object. Nothing was "
            "changed. Close that owner, or read beside it: "
            "`fifoq.open_store(path, read_only=True)`."
        )
        self.path = path


class ForkError(FifoqError):
    """This store was opened before a fork and is dead in the child; open it there anew."""


class StoreClosed(FifoqError):
    """The store was closed; open it anew."""


class StoreFailed(FifoqError):
    """An earlier failure stopped this store. What is on disk is known only after a reopen."""


class DurabilityError(FifoqError):
    """A sync failed: whether the frame is on disk is unknown until the store is opened anew.

    The store is stopped. A sync is never tried again, because the kernel forgets the error
    and reports success for data that it dropped.
    """


class DiskFull(FifoqError):
    """No space for the frame: nothing of it was stored. Takes and acks still work."""


class InvalidName(FifoqError, ValueError):
    """A queue's name breaks the rule."""


class ItemTooLarge(FifoqError, ValueError):
    """A record or a commit is over its limit; nothing was stored."""


class CounterExhausted(FifoqError):
    """The queue has used its last counter. Counters never wrap."""


class StaleDraft(FifoqError):
    """The draft was committed already, or its queue changed since; nothing was stored.

    A draft is built and committed in one go, by one thread at a time.
    """


class ConcurrentUse(FifoqError):
    """Another thread is inside the store; this call did nothing. One thread at a time."""


class RangeGone(FifoqError):
    """The wanted record was reclaimed; `oldest` is the next counter that is still there."""

    def __init__(self, queue: str, wanted: int, oldest: int, text: str = "") -> None:
        super().__init__(
            text
            or f"queue {queue!r}: counter {wanted} was reclaimed by the owner; the next one that "
            f"is still there is {oldest}. Nothing was read. Start at {oldest} or later."
        )
        self.queue, self.wanted, self.oldest = queue, wanted, oldest


class Quarantine(FifoqError):
    """Not raised: what `recover="quarantine"` set aside, kept as `Log.quarantine`.

    `missing` maps each queue to the inclusive counter ranges that are lost; `regions` lists
    (segment number, first byte, end byte) of the damage; `states` names the state entries that
    are lost. Where nothing that is left says how far a queue went, `unknown` has the counter from
    which on records of it may be lost as well; none of those counters is given out again.
    """

    def __init__(
        self,
        missing: Mapping[str, Sequence[tuple[int, int]]],
        regions: Sequence[tuple[int, int, int]],
        states: Sequence[str],
        unknown: Mapping[str, int],
    ) -> None:
        lost = sum(last - first + 1 for ranges in missing.values() for first, last in ranges)
        super().__init__(f"{len(regions)} damaged regions set aside, {lost} records missing")
        self.missing = {name: list(ranges) for name, ranges in missing.items()}
        self.regions = list(regions)
        self.states = list(states)
        self.unknown = dict(unknown)
