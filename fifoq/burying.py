"""Burying: records that nobody could handle go to the dead letters of their queue.

The move is one joint: the record is in `name.dlq`, payload untouched, and no more in its queue, or
nothing happened. What is known about its end goes along in headers.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from fifoq.attributes import NONE
from fifoq.codec import decode_headers, encode_own_headers
from fifoq.joint import Joint
from fifoq.options import OS, QueueOptions
from fifoq.runs import Returned
from store import Key
from store.blocks import DEAD_LETTERED

if TYPE_CHECKING:
    from fifoq.queue import Queue

SUFFIX: Final = ".dlq"
PREFIX: Final = "fifoq.dlq."
"""Headers of a dead letter that its record did not have begin so."""
ORIGINAL_KEY: Final = "fifoq.original_key"
"""The key that a record had before it was replayed, as hex digits."""

REASON_CHARACTERS_MAX: Final = 500
TRACEBACK_CHARACTERS_MAX: Final = 4000
"""The end of it is kept: that is where the error is."""

RETRY_SECONDS: Final = 0.25
"""How long after a full disk refused it a move is tried again."""
_DEFAULTS: Final = QueueOptions()

Cause = Literal["rejected", "max-retries", "expired"]


def is_dead_letters(name: str) -> bool:
    """Whether a queue holds dead letters: there are none of it."""
    return name.endswith(SUFFIX)


def refuse_burial(name: str, reason: str) -> None:
    """ValueError for a queue of dead letters, TypeError unless the reason is a text."""
    if not isinstance(reason, str):
        raise TypeError(f"a reason is a str, not {type(reason).__name__}. Nothing was changed.")
    if is_dead_letters(name):
        raise ValueError(
            f"queue {name!r} holds dead letters, and there is no other place for them. Nothing was "
            f"changed. Ack the record, replay it or purge it."
        )


def burial(
    queue: Queue[Any],
    record: Returned,
    cause: Cause,
    *,
    attempts: int,
    reason: str = "",
    error: BaseException | None = None,
) -> Joint:
    """The move of a record to the dead letters of its queue, to be committed.

    The caller holds the record, out of its place and still counted; `attempts` is how often it was
    leased, `reason` says in words what `cause` does not.
    """
    joint = Joint(level=max(OS, queue.level))
    bury(joint, queue, record, cause, attempts=attempts, reason=reason, error=error)
    return joint


def bury(
    joint: Joint,
    queue: Queue[Any],
    record: Returned,
    cause: Cause,
    *,
    attempts: int,
    reason: str = "",
    error: BaseException | None = None,
) -> None:
    """The same as a part of a joint that may have others."""
    headers = letter_headers(
        queue.name, record, cause, time.time_ns(), attempts=attempts, reason=reason, error=error
    )
    configuration = queue.codec.configuration(_DEFAULTS) if queue.codec.schema else None
    # What says when it may be handed out has had its effect.
    attributes = msgspec.structs.replace(
        record.attributes or NONE, headers=headers, deliver_at=0, expires_at=0, dedup_id=b""
    )
    joint.put(queue.name + SUFFIX, record.payload, attributes, configuration)
    joint.remove(queue, record, DEAD_LETTERED)


def letter_headers(
    name: str,
    record: Returned,
    cause: Cause,
    now: int,
    *,
    attempts: int,
    reason: str,
    error: BaseException | None,
) -> bytes:
    """The record's own headers and what is known about its end."""
    known = {
        "queue": name,
        "counter": str(record.counter),
        "timestamp": str(record.time),
        "key": bytes(Key(record.counter, record.time)).hex(),
        "attempts": str(attempts),
        "cause": cause,
        "reason": printable(reason or text_of(error)),
        "time": str(now),
    }
    if error is not None:
        known["error_type"] = type(error).__qualname__[:REASON_CHARACTERS_MAX]
        known["traceback"] = traceback_text(error)
    return encode_own_headers(
        {
            **decode_headers(record.headers),
            **{PREFIX + key: value for key, value in known.items()},
        }
    )


def printable(text: str) -> str:
    """The text on one line, without what could trouble a terminal, and not too long."""
    line = "".join(c if c.isprintable() else " " for c in text[: 2 * REASON_CHARACTERS_MAX])
    return line.strip()[:REASON_CHARACTERS_MAX]


def text_of(error: BaseException | None) -> str:
    """What the error says; nothing if it cannot: that must not keep its record from being moved."""
    try:
        return "" if error is None else str(error)
    except Exception:
        return ""


def traceback_text(error: BaseException) -> str:
    """How the error came about, as Python prints it."""
    try:
        text = "".join(traceback.format_exception(error, limit=-20))
    except Exception:
        text = f"{type(error).__qualname__}: no traceback could be made"
    text = "".join(c if c.isprintable() or c == "\n" else " " for c in text)
    return text[-TRACEBACK_CHARACTERS_MAX:].strip()


class Burials:
    """Moves of one queue's records that nobody waits for: a full disk only puts them off."""

    __slots__ = ("_put_off", "_queue", "_step", "_timer", "_tried", "count")

    def __init__(self, queue: Queue[Any]) -> None:
        self._queue = queue
        self._put_off: list[tuple[int, Joint, Returned]] = []
        """What a full disk refused, by counter; a heap."""
        self._timer: asyncio.TimerHandle | None = None
        self._tried: set[int] = set()
        """Counters of those that are being tried again."""
        self._step = 1
        """How many of them are tried at once."""
        self.count = 0
        """Records moved since the queue was opened."""

    def allowed(self, attempt: int) -> bool:
        """Whether a record that was leased that often may be leased again."""
        retries = self._queue.options.max_retries
        return retries is None or attempt <= retries or is_dead_letters(self._queue.name)

    def begin(
        self,
        record: Returned,
        cause: Cause,
        *,
        attempts: int,
        reason: str,
        error: BaseException | None = None,
    ) -> None:
        """Move a record, however long it takes; it is out of its place, and stays counted."""
        joint = burial(self._queue, record, cause, attempts=attempts, reason=reason, error=error)
        self._queue.leasing.leaving.add(record.counter)
        joint.done = lambda: self._moved_by(record)
        joint.undone = lambda _: self._later(joint, record)
        self._queue._committer.joints.submit(joint)

    def moved(self, record: Returned) -> None:
        self.count += 1
        leasing = self._queue.leasing
        leasing.leaving.discard(record.counter)
        self._queue.gone(record)

    def _moved_by(self, record: Returned) -> None:
        self.moved(record)
        if record.counter in self._tried:
            self._tried.discard(record.counter)
            if not self._tried:
                # There is space again, perhaps not much: twice as many follow.
                self._step *= 2
                self._try()

    def give_up(self, upto: int) -> list[Returned]:
        """Move those not that were put off, up to a counter: they are out of their places still."""
        given_up = [record for _, _, record in self._put_off if record.counter <= upto]
        if given_up:
            self._put_off = [entry for entry in self._put_off if entry[0] > upto]
            heapify(self._put_off)
        return given_up

    def _later(self, joint: Joint, record: Returned) -> None:
        # It stays in the queue on disk, attempts counted: a crash only puts this off as well.
        self._tried.discard(record.counter)
        self._step = 1
        heappush(self._put_off, (record.counter, joint, record))
        if self._timer is None:
            loop = self._queue._committer.loop
            self._timer = loop.call_later(RETRY_SECONDS, self._again)

    def _again(self) -> None:
        """Try one of them: while the disk is full, more would be work for nothing."""
        self._timer = None
        if self._queue._committer.usable and not self._tried:
            self._try()

    def _try(self) -> None:
        tried = [heappop(self._put_off) for _ in range(min(self._step, len(self._put_off)))]
        self._tried.update(counter for counter, _, _ in tried)
        for _, joint, _ in tried:
            self._queue._committer.joints.submit(joint)
