"""The schedules of an open store: one timer for all of them, and what happens when it ends.

Each firing is one synced frame with its records and the schedule's next time. Intervals go by the
loop's clock, cron lines by the wall clock. While there is a cron line, the wall clock is looked at
once a minute at least, since nobody tells when it was set; that touches no file.

A schedule fires while its store is open, whoever has opened its queue or has not.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, cast

import msgspec

from fifoq.attributes import attributes_from
from fifoq.codec import encode_own_headers
from fifoq.committer import Committer
from fifoq.cron import Cron
from fifoq.joint import Joint
from fifoq.logs import fields, name_of
from fifoq.member import Member
from fifoq.options import SYNC
from fifoq.recurring import (
    CATCH_UP_MAX,
    DUE_HEADER,
    JUMP_NS,
    NAME_HEADER,
    SECOND,
    Plan,
    Schedule,
    after_setback,
    decode_plan,
    encode_plan,
    fire,
    headers_of,
    make_plan,
    next_when_opened,
    passed_over,
    schedules_in,
    shown,
    state_name,
)
from store import FifoqError, Log
from store.keys import COUNTER_MAX

R = TypeVar("R")
logger = logging.getLogger("fifoq")

SCHEDULES_MAX: Final = 1000
"""Of one store: each is held in memory."""
LOOK_SECONDS: Final = 60.0
"""How long a set wall clock may go unnoticed."""
RETRY_SECONDS: Final = 1.0
RETRY_SECONDS_MAX: Final = 60.0
"""After a full disk, or whatever else may pass: the first wait, doubled each time, and the last."""

_NEVER: Final = float("inf")


class Entry:
    """A schedule and when it is due by the loop's clock; a cron line is due by the wall clock."""

    __slots__ = ("caught_up", "cron", "deadline", "missed", "name", "not_before", "plan", "queue")

    def __init__(self, queue: str, name: str, plan: Plan, cron: Cron | None) -> None:
        self.queue = queue
        self.name = name
        self.plan = plan
        self.cron = cron
        self.deadline = 0.0
        self.not_before = 0.0
        """After a failure: the loop's time of the next try."""
        self.missed = False
        """It came due while nobody could fire it."""
        self.caught_up = 0
        """Times that were made up for since it was last on time."""


class Schedules:
    """Keeps and fires the schedules of one store, on its loop."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._entries: dict[tuple[str, str], Entry] = {}
        self._kept: list[tuple[str, str, Plan, Cron | None]] = []
        self._unknown: set[tuple[str, str]] = set()
        """What is kept and does not fire, since this version can not follow it."""
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[Any]] = set()
        self._retry_seconds = RETRY_SECONDS
        self._looked = (0, 0.0)
        self._ended = False

    # Life.

    def read(self, log: Log) -> None:
        """On the writer, as the store is opened: what was kept."""
        for queue, name in schedules_in(log.state.states):
            try:
                value = log.lookup.state_value(state_name(queue, name))
                if value is not None:
                    self._kept.append((queue, name, *decode_plan(value)))
            except (FifoqError, ValueError, TypeError) as error:
                self._unknown.add((queue, name))
                logger.error(
                    "schedule %s of queue %s does not fire: %s",
                    name,
                    queue,
                    error,
                    extra=fields("schedule_broken", log.path, queue=queue, schedule=name),
                )

    def start(self) -> None:
        """On the loop, once the store is open."""
        now = time.time_ns()
        for queue, name, plan, cron in self._kept:
            entry = Entry(queue, name, plan, cron)
            self._set(entry, plan, next_when_opened(plan, cron, now), now)
            entry.missed = entry.plan.next_time <= now
            self._entries[queue, name] = entry
        self._kept.clear()
        self._arm()

    async def stop(self) -> None:
        """Fire no more; what is due then is for the next open to make up for."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # What queues ask for.

    def of(self, queue: str) -> list[Schedule]:
        """The schedules of a queue, by name."""
        return [
            shown(entry.name, entry.plan, self._next_time(entry))
            for _, entry in sorted(self._entries.items())
            if entry.queue == queue
        ]

    async def add(
        self, queue: str, name: str, item: bytes, options: dict[str, Any], **times: Any
    ) -> Schedule:
        """Keep a schedule, durable on return; one of that name and those times goes on as it was.

        Cancelled, it is kept or not.
        """
        if {NAME_HEADER, DUE_HEADER} & set(options.get("headers") or {}):
            raise ValueError(
                f"the headers {NAME_HEADER} and {DUE_HEADER} are those of the schedule. Nothing "
                f"was changed."
            )
        plan, cron = make_plan(name, item, options, **times, now=time.time_ns())
        return await self._change(self._add(Entry(queue, name, plan, cron)))

    async def _add(self, new: Entry) -> Schedule:
        key, now = (new.queue, new.name), time.time_ns()
        old = self._entries.get(key)
        plan = new.plan
        if old is not None and old.plan.same_times(plan):
            plan = msgspec.structs.replace(
                plan, next_time=self._next_time(old), set_time=now, **_counts(old.plan)
            )
        elif old is None and len(self._entries) >= SCHEDULES_MAX:
            raise ValueError(
                f"the store has {SCHEDULES_MAX} schedules already. Nothing was changed."
            )
        if old is None or _given(plan) != _given(old.plan):
            await self._write([(state_name(*key), encode_plan(plan))])
            self._set(new, plan, plan.next_time, now)
            if old is not None and old.plan.same_times(plan):
                new.missed, new.caught_up = old.missed, old.caught_up
                new.deadline = old.deadline
            self._entries[key] = old = new
            self._unknown.discard(key)
            self._arm()
        return shown(new.name, old.plan, self._next_time(old))

    async def drop(self, queue: str, name: str) -> bool:
        """Forget a schedule, durable on return; False if there is none. Its records stay."""
        return await self._change(self._drop(queue, name))

    async def _drop(self, queue: str, name: str) -> bool:
        if (queue, name) not in self._entries and (queue, name) not in self._unknown:
            return False
        await self._write([(state_name(queue, name), None)])
        self._entries.pop((queue, name), None)
        self._unknown.discard((queue, name))
        self._arm()
        return True

    async def _change(self, change: Coroutine[Any, Any, R]) -> R:
        """Whoever asked may leave: memory and disk must agree all the same."""

        async def in_turn() -> R:
            async with self._changing:
                return await change

        try:
            self._committer.require_usable()
        except BaseException:
            change.close()
            raise
        task = self._committer.loop.create_task(in_turn())
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    # Time.

    def _set(self, entry: Entry, plan: Plan, next_time: int, now: int) -> None:
        entry.plan = msgspec.structs.replace(plan, next_time=next_time)
        entry.deadline = self._committer.loop.time() + (next_time - now) / SECOND

    def _next_time(self, entry: Entry) -> int:
        """By the wall clock of now."""
        if entry.cron is not None:
            return entry.plan.next_time
        wait = entry.deadline - self._committer.loop.time()
        return time.time_ns() + round(wait * SECOND)

    def _wait(self, entry: Entry, now: int, moment: float) -> float:
        """Seconds until it is due; 0 or less if it is."""
        if entry.not_before > moment:
            return entry.not_before - moment
        if entry.cron is not None:
            return min((entry.plan.next_time - now) / SECOND, LOOK_SECONDS)
        return entry.deadline - moment

    def _arm(self) -> None:
        """Set the one timer for what is due first."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ended or not self._entries:
            return
        now, moment = time.time_ns(), self._committer.loop.time()
        self._looked = self._look_at_clock(now, moment)
        wait = min(self._wait(entry, now, moment) for entry in self._entries.values())
        if wait < _NEVER:
            self._timer = self._committer.loop.call_later(max(0.0, wait), self._time_is_up)

    def _look_at_clock(self, now: int, moment: float) -> tuple[int, float]:
        """See to cron lines if somebody set the clock since the last look."""
        before, then = self._looked
        jump = now - before - round((moment - then) * SECOND) if before else 0
        if abs(jump) > JUMP_NS:
            for entry in self._entries.values():
                if entry.cron is None:
                    continue
                if jump < 0:
                    next_time = after_setback(entry.plan, entry.cron, now)
                    entry.plan = msgspec.structs.replace(entry.plan, next_time=next_time)
                elif entry.plan.next_time < now - JUMP_NS:
                    entry.missed = True
        return now, moment

    def _time_is_up(self) -> None:
        self._timer = None
        if self._ended or not self._committer.usable or self._committer.closing:
            return
        if self._task is None or self._task.done():
            self._task = self._committer.loop.create_task(self._run())

    def _due(self) -> list[Entry]:
        now, moment = time.time_ns(), self._committer.loop.time()
        self._looked = self._look_at_clock(now, moment)
        return [e for e in self._entries.values() if self._wait(e, now, moment) <= 0]

    # Firing.

    async def _run(self) -> None:
        async with self._changing:
            while not self._ended and (due := self._due()):
                ready = [entry for entry in due if await self._is_ready(entry)]
                try:
                    pending = await self._pending(ready)
                except FifoqError as error:
                    for entry in ready:
                        self._put_off(entry, error)
                    ready, pending = [], set()
                # All at once: they share a commit.
                await asyncio.gather(*(self._fire(entry, entry in pending) for entry in ready))
                if not self._committer.usable or self._committer.closing:
                    return
            self._arm()

    async def _is_ready(self, entry: Entry) -> bool:
        """Whether it may fire now; else it has to wait."""
        line = self._committer.lines.get(entry.queue)
        if not isinstance(line, Member):
            # Nobody has opened it.
            return True
        if line.shut_down:
            # For the next owner to make up for.
            entry.not_before = _NEVER
            return False
        try:
            if _looks_back(entry) and line.dirty:
                # What was taken in memory must count as taken.
                await line.next_commit()
        except FifoqError as error:
            self._put_off(entry, error)
            return False
        return True

    async def _pending(self, due: list[Entry]) -> set[Entry]:
        """Those of which the last firing's record is still in the queue."""
        looking = list(filter(_looks_back, due))
        if not looking:
            return set()
        return await self._call(
            lambda log: {e for e in looking if log.exists(e.queue, e.plan.last_counter)}
        )

    async def _fire(self, entry: Entry, pending: bool) -> None:
        now, moment = time.time_ns(), self._committer.loop.time()
        plan = entry.plan
        if entry.cron is None:
            # By the wall clock, since that is what is kept.
            late = round(max(0.0, moment - entry.deadline) * SECOND)
            plan = msgspec.structs.replace(plan, next_time=now - late)
        firing = fire(plan, entry.cron, now, missed=entry.missed, pending=pending)
        after = firing.plan
        more = after.next_time <= now
        caught_up = entry.caught_up + len(firing.times) if more else 0
        if caught_up >= CATCH_UP_MAX:
            logger.warning(
                "schedule %s of queue %s has made up for %d times; those up to now are passed over",
                entry.name,
                entry.queue,
                caught_up,
                extra=fields(
                    "schedule_passed_over",
                    self._committer.path,
                    queue=entry.queue,
                    schedule=entry.name,
                    count=caught_up,
                ),
            )
            after, more = passed_over(after, entry.cron, now), False
        try:
            after = await self._commit(entry, plan, firing.times, after)
        except Exception as error:
            # Whatever it is, the others fire, and this one is tried again.
            self._put_off(entry, error)
            return
        entry.deadline = moment + (after.next_time - now) / SECOND
        entry.plan, entry.not_before = after, 0.0
        entry.missed, entry.caught_up = entry.missed and more, caught_up
        self._retry_seconds = RETRY_SECONDS

    async def _commit(self, entry: Entry, plan: Plan, times: list[int], after: Plan) -> Plan:
        """The records and the plan afterwards, in one frame; returns the plan as it is written."""
        joint = Joint(level=SYNC)
        state = state_name(entry.queue, entry.name)
        for due in times:
            own = encode_own_headers(headers_of(entry.name, plan, due))
            asked = {name: value for name, value in plan.options.items() if name != "headers"}
            attributes = attributes_from(time.time_ns(), **asked)
            joint.put(entry.queue, plan.item, msgspec.structs.replace(attributes, headers=own))
        # As long as it can be: its record's counter is not known yet.
        longest = msgspec.structs.replace(after, last_counter=COUNTER_MAX)
        joint.set_state(state, encode_plan(longest if times else after))

        def entered(joint: Joint) -> None:
            nonlocal after
            if joint.keys:
                after = msgspec.structs.replace(after, last_counter=joint.keys[-1].counter)
            joint.states = [(state, encode_plan(after))]

        joint.entered = entered
        await self._committer.joints.commit(joint)
        return after

    def _put_off(self, entry: Entry, error: Exception) -> None:
        moment = self._committer.loop.time()
        logger.warning(
            "schedule %s of queue %s waits: %s",
            entry.name,
            entry.queue,
            error,
            extra=fields(
                "schedule_waits",
                self._committer.path,
                queue=entry.queue,
                schedule=entry.name,
                error=name_of(error),
            ),
        )
        entry.not_before = moment + self._retry_seconds
        self._retry_seconds = min(2 * self._retry_seconds, RETRY_SECONDS_MAX)

    # The log.

    async def _write(self, states: list[tuple[str, bytes | None]]) -> None:
        def commit(log: Log) -> None:
            draft = log.draft()
            draft.set_states(states)
            log.commit(draft)

        await self._call(commit)
        # Readers see a commit once the next one, or a seal, witnesses it.
        self._committer.watch_idleness()

    async def _call(self, function: Callable[[Log], R]) -> R:
        return cast(R, await self._committer.call(function))


def _looks_back(entry: Entry) -> bool:
    """Whether it matters what became of the record before."""
    return bool(entry.plan.last_counter and not entry.plan.overlap)


def _counts(plan: Plan) -> dict[str, int]:
    return {
        "last_time": plan.last_time,
        "last_counter": plan.last_counter,
        "put_count": plan.put_count,
        "passed_count": plan.passed_count,
    }


def _given(plan: Plan) -> tuple[object, ...]:
    """What the caller has a say in."""
    times = plan.every, plan.cron, plan.zone
    return *times, plan.item, plan.options, plan.catch_up, plan.overlap
