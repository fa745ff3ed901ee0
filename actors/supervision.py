"""Supervision: what happens to an actor that failed. Plain rules that are given the time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from random import Random
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

Strategy = Literal["restart", "resume", "stop", "escalate"]
STRATEGIES: tuple[Strategy, ...] = ("restart", "resume", "stop", "escalate")
Scope = Literal["one-for-one", "one-for-all", "rest-for-one"]
SCOPES: tuple[Scope, ...] = ("one-for-one", "one-for-all", "rest-for-one")


class Supervision(Struct, frozen=True, kw_only=True):
    """What to do when an actor fails, by the type of its exception, and how often.

    `restart` makes a new actor object that goes on with the same mailbox and ref; `resume` goes on
    with the old one; `stop` stops the actor; `escalate` stops it and fails its parent, or the
    system if it has none. `by_error` says it for single types (the nearest base counts),
    `strategy` for all others. More than `max_restarts` within `within_seconds` escalate, or stop
    the actor if `exhausted` says so.

    `scope` says who is restarted with an actor that is: nobody else, all its siblings, or those
    that were spawned after it. Siblings are the children of one parent, and at the top those of
    the system. For each of them that counts as a restart of its own.

    A restart waits `backoff_seconds`, twice as long after each further restart of that period, up
    to `backoff_seconds_max`; `jitter` takes off up to that share by chance, so that actors that
    failed together do not return together.
    """

    strategy: Strategy = "restart"
    scope: Scope = "one-for-one"
    by_error: Mapping[type[Exception], Strategy] = MappingProxyType({})
    max_restarts: int = 3
    within_seconds: float = 60.0
    backoff_seconds: float = 0.1
    backoff_seconds_max: float = 10.0
    jitter: float = 0.1
    exhausted: Literal["escalate", "stop"] = "escalate"

    def __post_init__(self) -> None:
        for strategy in (self.strategy, *self.by_error.values()):
            if strategy not in STRATEGIES:
                raise ValueError(f"strategy is {strategy!r}: it must be one of {STRATEGIES}")
        if self.scope not in SCOPES:
            raise ValueError(f"scope is {self.scope!r}: it must be one of {SCOPES}")
        if self.exhausted not in ("escalate", "stop"):
            raise ValueError(f"exhausted is {self.exhausted!r}: it must be 'escalate' or 'stop'")
        if self.max_restarts < 0:
            raise ValueError(f"max_restarts is {self.max_restarts}: it must be 0 or more")
        if not self.within_seconds > 0:
            raise ValueError(f"within_seconds is {self.within_seconds}: it must be over 0")
        if not 0 <= self.backoff_seconds <= self.backoff_seconds_max < float("inf"):
            raise ValueError(
                f"backoff_seconds is {self.backoff_seconds}: it must lie between 0 and "
                f"backoff_seconds_max, {self.backoff_seconds_max}"
            )
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter is {self.jitter}: it must lie between 0 and 1")

    def strategy_for(self, error: Exception) -> Strategy:
        """The strategy for this error: that of its nearest base in `by_error`, or the default."""
        for base in type(error).__mro__:
            if base in self.by_error:
                return self.by_error[base]
        return self.strategy


DURABLE = Supervision(max_restarts=1 << 31, backoff_seconds=0.0)
"""For a durable actor, when nothing else is said: a message that keeps failing goes to the dead
letters, after attempts that wait longer each time, and the actor goes on without it."""


class Restarts:
    """Counts the restarts of one actor and says how long to wait before the next."""

    __slots__ = ("_random", "_supervision", "_times")

    def __init__(self, supervision: Supervision, random: Random) -> None:
        self._supervision = supervision
        self._random = random
        self._times: list[float] = []

    def next_delay(self, now: float) -> float | None:
        """Seconds to wait before a restart that is due now; None if it would be one too many."""
        rules = self._supervision
        self._forget_before(now - rules.within_seconds)
        if len(self._times) >= rules.max_restarts:
            return None
        # The exponent is bounded: a float overflows where the longest delay was reached long ago.
        delay = rules.backoff_seconds * 2.0 ** min(len(self._times), 64)
        self.note(now)
        return min(delay, rules.backoff_seconds_max) * (1 - rules.jitter * self._random.random())

    def note(self, now: float) -> None:
        """Count a restart, also one that a sibling caused."""
        self._forget_before(now - self._supervision.within_seconds)
        self._times.append(now)

    def _forget_before(self, time: float) -> None:
        if self._times and self._times[0] <= time:
            del self._times[: bisect_right(self._times, time)]
