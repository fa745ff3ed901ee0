"""What the owner of a store keeps for its consumers, and what it tells of them.

Before the log lets a segment go, and from time to time while there are consumers, their positions
and the proofs of their checkpoints are read, and the log is told from which counter on it must hold
each queue's removed records. What they hold together is bounded: over the limit, the consumer that
holds the oldest is let go, until it moves.

Cursors are consumers in the process. Their positions are in the log itself: a `CursorHold` has what
was committed last, and changes only between two jobs or in the job that has the log.

`look` and `refresh` run where the log's work is done, `of` on the loop.
"""

from __future__ import annotations

import logging
import time
from typing import Final

import msgspec

from fifoq.consumers import CONSUMERS, Position, id_text, proved, read_positions
from fifoq.cursor_position import (
    CursorPosition,
    cursor_names,
    decode_position,
    encode_position,
    state_name,
)
from fifoq.logs import fields
from fifoq.retained import counts_from, first_from, put_time
from store import AccessError, DiskFull, Log
from store.keeping import held_bytes

logger = logging.getLogger("fifoq")

LOOK_SECONDS: Final = 1.0
"""How often the owner looks at its consumers, while there are any."""
SILENT_SECONDS: Final = 3600.0
"""A consumer that has something to do and was not heard of for so long is called silent."""
_SECOND: Final = 10**9
_MILLISECOND: Final = 10**6


class ConsumerStats(msgspec.Struct, frozen=True, kw_only=True):
    """One consumer of a queue, or one of its cursors, as its owner saw it last.

    `counter` is the first record that it has not proved to be done, `heard_at` when it last moved
    or wrote its position, in nanoseconds since the epoch.
    """

    name: str
    counter: int
    lag_records: int
    lag_seconds: float
    held_bytes: int
    heard_at: int
    let_go: bool
    silent: bool
    cursor: bool = False


class CursorHold:
    """What is kept for one cursor, whether anybody reads with it or not."""

    __slots__ = ("name", "position", "queue", "reads_at", "there")

    def __init__(self, queue: str, name: str, position: CursorPosition) -> None:
        self.queue, self.name = queue, name
        self.position = position
        """As it was committed last."""
        self.reads_at = position.counter
        """From which counter on it is to read."""
        self.there: int | None = position.first or None
        """The first record from `reads_at` on, once one was seen: if it is there no more, it was
        reclaimed. Looked for before anything is, so it cannot be missed."""

    @property
    def state(self) -> str:
        return state_name(self.queue, self.name)

    def read_from(self, log: Log, counter: int) -> None:
        """It reads on from there."""
        self.reads_at, self.there = counter, None
        self.look(log)

    def look(self, log: Log) -> None:
        if self.there is None:
            self.there = first_from(log, self.queue, self.reads_at)


class _Consumer:
    """What is known of one consumer."""

    __slots__ = (
        "counter",
        "cursor",
        "first_time",
        "heard_at",
        "held",
        "lag",
        "let_go",
        "name",
        "next",
        "position",
        "timed",
    )

    def __init__(self, name: str, position: Position, cursor: CursorHold | None = None) -> None:
        self.name = name
        self.cursor = cursor
        self.position = position
        self.counter = position.counter
        self.heard_at = position.written_at * _MILLISECOND
        self.let_go = False
        self.lag = self.held = self.next = 0
        self.timed = -1
        """The counter whose record was put at `first_time`."""
        self.first_time = 0

    def update(self, position: Position, counter: int, now: int) -> bool:
        """Note where it is; True if it has moved."""
        moved = counter != self.counter
        if position != self.position:
            self.heard_at = max(self.heard_at, position.written_at * _MILLISECOND)
        if moved:
            self.heard_at = max(self.heard_at, now)
            self.let_go = False
        self.position, self.counter = position, counter
        return moved


class Consumers:
    """The consumers of one store that is owned here."""

    def __init__(self, cap_bytes: int) -> None:
        self._cap_bytes = cap_bytes
        self._log: Log
        self._store = ""
        self._known: dict[str, _Consumer] = {}
        self.cursors: dict[tuple[str, str], CursorHold] = {}
        """By queue and name."""
        self._seen: dict[CursorHold, _Consumer] = {}
        self.cursor_moved = False
        """Whether a cursor was committed elsewhere since the last look."""
        self._told: set[str] = set()
        self._by_queue: dict[str, list[_Consumer]] = {}
        self._held: set[str] = set()
        self._looked_at = 0
        self.moved = False
        """Whether a consumer moved, came or went at the last look."""

    def __bool__(self) -> bool:
        """Whether there is something to look at later, though nothing happens here."""
        return bool(self._known) or self.cursor_moved

    def own(self, log: Log) -> None:
        """The log was opened: nothing of it goes without a look at the consumers from now on."""
        self._log = log
        self._store = id_text(log.store_id)
        self._held = {name for name, queue in log.state.queues.items() if queue.held}
        self._load_cursors()
        log.before_reclaim = self.look
        self.look(proofs=True)
        self._time_lags()

    def _load_cursors(self) -> None:
        log = self._log
        names = cursor_names(name for name, entry in log.state.states.items() if entry.present)
        values = log.states_of(state_name(*name) for name in names)
        for queue, name in names:
            state = state_name(queue, name)
            position = decode_position(values[state], log.path, state)
            self.cursors[queue, name] = CursorHold(queue, name, position)

    def look(self, *, proofs: bool = False) -> bool:
        """Hold what consumers need. False, and everything is held as before, if that is unknown.

        Without `proofs` checkpoints, which may lie on another disk, are taken as they were last
        seen: that holds too much rather than too little.
        """
        log = self._log
        files = log.directory.files
        now = time.time_ns()
        try:
            positions = read_positions(log.path, files)
        except OSError as error:
            self._tell("", f"{log.path}/{CONSUMERS} cannot be read ({error}): nothing is reclaimed")
            return False
        self._told.discard("")
        self.moved = False
        known: dict[str, _Consumer] = {}
        for name, position in positions.items():
            consumer = self._update(name, position, now, proofs)
            if consumer is not None:
                known[name] = consumer
        self.moved |= known.keys() != self._known.keys()
        self._known = known
        self._look_at_cursors(now)
        self._looked_at = now
        self._hold()
        return True

    def refresh(self, log: Log) -> None:
        """Look, see how far behind consumers are, and let go of what they need no more."""
        if self.look(proofs=True):
            self._time_lags()
            log.keep_house()

    def of(self, queue: str, following: int, now: int) -> tuple[ConsumerStats, ...]:
        """The queue's consumers by name; its next counter is `following` now."""
        return tuple(
            self._stats(consumer, following, now) for consumer in self._by_queue.get(queue, ())
        )

    def holder(self, queue: str, last: int) -> tuple[int, str] | None:
        """Who holds a record of the queue up to counter `last`, and from which one on."""
        holding = [
            (consumer.counter, f"{'cursor' if consumer.cursor else 'consumer'} {consumer.name}")
            for consumer in self._by_queue.get(queue, ())
            if consumer.counter <= last and not consumer.let_go
        ]
        return min(holding, default=None)

    def _stats(self, consumer: _Consumer, following: int, now: int) -> ConsumerStats:
        lag = consumer.lag + max(0, following - consumer.next)
        # What came since the last look cannot be older than that, and who is new was not timed yet.
        since = (consumer.lag and consumer.first_time) or self._looked_at
        return ConsumerStats(
            name=consumer.name,
            counter=consumer.counter,
            lag_records=lag,
            lag_seconds=max(0, now - since) / _SECOND if lag else 0.0,
            held_bytes=consumer.held,
            heard_at=consumer.heard_at,
            let_go=consumer.let_go,
            silent=bool(lag) and now - consumer.heard_at > SILENT_SECONDS * _SECOND,
            cursor=consumer.cursor is not None,
        )

    def _look_at_cursors(self, now: int) -> None:
        self.cursor_moved = False
        seen: dict[CursorHold, _Consumer] = {}
        for hold in self.cursors.values():
            hold.look(self._log)
            kept = hold.position
            position = Position(
                queue=hold.queue,
                counter=kept.counter,
                store=self._store,
                written_at=kept.written_at // _MILLISECOND,
            )
            consumer = self._seen.get(hold)
            if consumer is None:
                consumer = _Consumer(hold.name, position, hold)
                self.moved = True
            else:
                self.moved |= consumer.update(position, kept.counter, now)
            seen[hold] = consumer
        self.moved |= seen.keys() != self._seen.keys()
        self._seen = seen

    # Positions and proofs.

    def _update(
        self, name: str, position: Position | None, now: int, proofs: bool
    ) -> _Consumer | None:
        known = self._known.get(name)
        if position is None:
            self._tell(name, f"the position of consumer {name!r} does not decode; it is left alone")
            # Perhaps it is being replaced just now: better to hold too much.
            return known
        if position.store != self._store:
            self._tell(
                name,
                f"consumer {name!r} belongs to store {position.store}, and this one is "
                f"{self._store}: nothing is held for it. Remove {CONSUMERS}/{name}.json, or give "
                f"the query another checkpoint.",
            )
            return None
        self._told.discard(name)
        counter = max(position.counter, self._proof(known, position, proofs))
        if known is None:
            known = _Consumer(name, position)
            known.counter = counter
            self.moved = True
        else:
            self.moved |= known.update(position, counter, now)
        return known

    def _proof(self, known: _Consumer | None, position: Position, proofs: bool) -> int:
        """What the consumer's checkpoint proves, as far as it is looked at, or 0."""
        # What was proved before stands, unless the query was started anew and says so itself.
        before = known.counter if known is not None and known.position == position else 0
        if not (proofs and position.checkpoint):
            return before
        files = self._log.directory.files
        above = max(before, position.counter)
        try:
            found = proved(
                position.checkpoint, self._store, position.queue, above=above, files=files
            )
        except (OSError, ValueError):
            # It may be gone, of another user, or no path at all: the position says something.
            return before
        return found or before

    # Holding.

    def _hold(self) -> None:
        log = self._log
        by_queue: dict[str, list[_Consumer]] = {}
        for consumer in (*self._known.values(), *self._seen.values()):
            queue = log.state.queues.get(consumer.position.queue)
            if queue is None:
                # It will be asked again before anything of that queue can go.
                continue
            by_queue.setdefault(queue.name, []).append(consumer)
            consumer.next = queue.genesis.next_counter
            consumer.lag = sum(counts_from(queue, consumer.counter))
        self._by_queue = by_queue
        self._weigh()
        holds = self._within_cap()
        for name in self._held | holds.keys():
            log.hold(name, holds.get(name))
        self._held = set(holds)

    def _weigh(self) -> None:
        """See how many bytes stay because of each consumer.

        Each time that looks at every queue of the store: where all of them together hold nothing,
        as is usual, nobody is asked one by one.
        """
        first = {
            name: min(consumer.counter for consumer in consumers)
            for name, consumers in self._by_queue.items()
        }
        together = held_bytes(self._log, first)
        for name, consumers in self._by_queue.items():
            for consumer in consumers:
                held = held_bytes(self._log, {name: consumer.counter}) if together else 0
                consumer.held = held

    def _within_cap(self) -> dict[str, int]:
        """From where on each queue is held, after letting go what is over the limit."""
        log = self._log
        stay: set[_Consumer] = set()
        while True:
            holding = [
                (queue, consumer)
                for queue, consumers in self._by_queue.items()
                for consumer in consumers
                if not consumer.let_go
            ]
            holds: dict[str, int] = {}
            for queue, consumer in holding:
                holds[queue] = min(consumer.counter, holds.get(queue, consumer.counter))
            total = held_bytes(log, holds)
            others = [pair for pair in holding if pair[1].held and pair[1] not in stay]
            if total <= self._cap_bytes or not others:
                break
            queue, consumer = min(others, key=lambda pair: self._oldest(*pair))
            if not self._may_let_go(consumer):
                stay.add(consumer)
                continue
            consumer.let_go = True
            logger.warning(
                "%s: consumers hold %d bytes, over cursor_cap_bytes=%d. %s %r of queue %r, "
                "which is at counter %d, is let go: records that it has not read may be reclaimed. "
                "Let it catch up, raise the limit, or %s if it is gone for good.",
                *(log.path, total, self._cap_bytes, "Cursor" if consumer.cursor else "Consumer"),
                *(consumer.name, queue, consumer.counter),
                "delete it" if consumer.cursor else f"remove {CONSUMERS}/{consumer.name}.json",
                extra=fields(
                    "let_go",
                    log.path,
                    queue=queue,
                    consumer=consumer.name,
                    counter=consumer.counter,
                ),
            )
        for consumers in self._by_queue.values():
            for consumer in consumers:
                if consumer.let_go:
                    consumer.held = 0
        return holds

    def _may_let_go(self, consumer: _Consumer) -> bool:
        """Have the log know the first record that a cursor lacks, before that can go.

        False if there is no space to say so: then it is held.
        """
        hold, log = consumer.cursor, self._log
        if hold is None or hold.position.first:
            return True
        first = first_from(log, hold.queue, hold.position.counter) or 0
        position = msgspec.structs.replace(hold.position, first=first)
        draft = log.new_draft()
        draft.set_states([(hold.state, encode_position(position))], drains=True)
        # It may use the reserve: the segments that go give back more than this takes.
        draft.frees_segment = True
        try:
            log.commit_frame(draft, sync=False)
        except (DiskFull, AccessError):
            return False
        hold.position = position
        return True

    def _oldest(self, name: str, consumer: _Consumer) -> tuple[int, int]:
        """The oldest segment that a consumer holds, and the most of it first."""
        queue = self._log.state.queues[name]
        span = queue.spans[queue.span_index(consumer.counter)]
        return span.segment, -consumer.held

    def _time_lags(self) -> None:
        """See when the first record was put that each consumer has not done."""
        for name, consumers in self._by_queue.items():
            for consumer in consumers:
                if consumer.lag and consumer.timed != consumer.counter:
                    consumer.first_time = put_time(self._log, name, consumer.counter)
                    consumer.timed = consumer.counter

    def _tell(self, key: str, text: str) -> None:
        """Warn, once until it has gone."""
        if key not in self._told:
            self._told.add(key)
            logger.warning("%s", text, extra=fields("consumers", self._log.path))
