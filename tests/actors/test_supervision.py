"""The rules of supervision, and the table of an actor's life."""

from __future__ import annotations

from random import Random
from typing import cast

import pytest

from actors import State, Strategy, Supervision
from actors.life import TABLE, Event
from actors.supervision import Restarts


def delays(rules: Supervision, times: list[float], seed: int = 0) -> list[float | None]:
    restarts = Restarts(rules, Random(seed))
    return [restarts.next_delay(now) for now in times]


def test_the_nearest_base_of_an_error_decides() -> None:
    rules = Supervision(
        strategy="stop", by_error={LookupError: "resume", KeyError: "escalate", OSError: "restart"}
    )
    errors = (KeyError(), IndexError(), FileNotFoundError(), ValueError())
    found = [rules.strategy_for(error) for error in errors]
    assert found == ["escalate", "resume", "restart", "stop"]


def test_each_further_restart_waits_twice_as_long_up_to_the_maximum() -> None:
    rules = Supervision(max_restarts=5, backoff_seconds=1, backoff_seconds_max=5, jitter=0)
    assert delays(rules, [0, 0, 0, 0, 0, 0]) == [1, 2, 4, 5, 5, None]


def test_restarts_longer_ago_than_the_period_do_not_count() -> None:
    rules = Supervision(max_restarts=2, within_seconds=10, backoff_seconds=1, jitter=0)
    assert delays(rules, [0, 5, 9.9, 10, 15]) == [1, 2, None, 2, 2]


def test_no_restart_is_allowed_with_zero() -> None:
    assert delays(Supervision(max_restarts=0), [0]) == [None]


def test_jitter_takes_off_at_most_its_share_and_repeats_with_the_seed() -> None:
    rules = Supervision(max_restarts=100, backoff_seconds=1, backoff_seconds_max=1, jitter=0.5)
    found = delays(rules, [0] * 100, seed=7)
    assert found == delays(rules, [0] * 100, seed=7)
    assert all(delay is not None and 0.5 <= delay <= 1 for delay in found)
    assert len(set(found)) > 90


def test_a_very_long_row_of_restarts_overflows_nothing() -> None:
    rules = Supervision(max_restarts=5000, jitter=0)
    assert delays(rules, [0] * 5000)[-1] == rules.backoff_seconds_max


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"strategy": "panic"}, "strategy is 'panic'"),
        ({"by_error": {OSError: "panic"}}, "strategy is 'panic'"),
        ({"max_restarts": -1}, "max_restarts is -1"),
        ({"within_seconds": 0}, "within_seconds is 0"),
        ({"within_seconds": float("nan")}, "within_seconds is nan"),
        ({"backoff_seconds": -1}, "backoff_seconds is -1"),
        ({"backoff_seconds": 11}, "between 0 and backoff_seconds_max, 10"),
        ({"backoff_seconds_max": float("inf")}, "backoff_seconds_max, inf"),
        ({"jitter": 2}, "jitter is 2"),
    ],
)
def test_an_option_without_sense_is_refused(options: dict[str, float], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Supervision(**cast("dict[str, Strategy]", options))  # type: ignore[arg-type]


def test_every_state_can_be_told_to_stop_and_only_a_stopping_actor_ends() -> None:
    assert {state for state, event in TABLE if event is Event.STOP} == set(State)
    assert [state for state, event in TABLE if event is Event.ENDED] == [State.STOPPING]


def test_a_stopping_actor_never_runs_again() -> None:
    after = {TABLE[pair] for pair in TABLE if pair[0] in (State.STOPPING, State.STOPPED)}
    assert after == {State.STOPPING, State.STOPPED}
