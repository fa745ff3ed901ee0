"""Every mutant of the store is killed: eight in each run, all in the long programme (T15)."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from tests.mutants.catalogue import BATTERY, MUTANTS, Mutant
from tests.mutants.queue_catalogue import QUEUE_BATTERY, QUEUE_MUTANTS
from tests.mutants.run import StaleMutant, killers_of, mutated, rotation, try_mutant, try_original
from tests.support.figures import record

IN_EVERY_RUN = 8
QUEUES_IN_EVERY_RUN = 2


def test_every_mutant_fits_the_store_as_it_is() -> None:
    """Each changes a text that is there exactly once, into something that compiles."""
    everyone = (*MUTANTS, *QUEUE_MUTANTS)
    for mutant in everyone:
        compile(mutated(mutant), mutant.name, "exec")
    assert len({mutant.name for mutant in everyone}) == len(everyone)


def test_a_mutant_whose_text_is_gone_is_an_error() -> None:
    mutant = Mutant("of a store that is no more", "log", "no such text", "", ())
    with pytest.raises(StaleMutant, match="the old text is 0 times in store/log"):
        mutated(mutant)


def test_the_rotation_never_meets_a_mutant_twice() -> None:
    assert len(set(rotation(len(MUTANTS)))) == len(MUTANTS)
    assert rotation(IN_EVERY_RUN) == rotation(len(MUTANTS))[:IN_EVERY_RUN]


def test_the_mutants_whose_turn_it_is_are_killed() -> None:
    assert_killed("T15 mutants", rotation(IN_EVERY_RUN))


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_all_mutants_are_killed() -> None:
    assert_killed("T15 all mutants", MUTANTS)


def test_the_mutants_of_queues_whose_turn_it_is_are_killed() -> None:
    turn = len(rotation(1)[0].name)
    chosen = [
        QUEUE_MUTANTS[(turn + 5 * i) % len(QUEUE_MUTANTS)] for i in range(QUEUES_IN_EVERY_RUN)
    ]
    assert_killed("T15 mutants of queues", chosen, QUEUE_BATTERY, len(QUEUE_MUTANTS))


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_all_mutants_of_queues_are_killed() -> None:
    assert_killed("T15 all mutants of queues", QUEUE_MUTANTS, QUEUE_BATTERY, len(QUEUE_MUTANTS))


def assert_killed(
    name: str,
    mutants: Sequence[Mutant],
    battery: Sequence[str] = BATTERY,
    total: int = len(MUTANTS),
) -> None:
    """What is not mutated passes what killed each of the mutants."""
    started = time.monotonic()
    outcomes = [try_mutant(mutant, battery) for mutant in mutants]
    killers = [killers_of(*pair, battery) for pair in zip(outcomes, mutants, strict=True)]
    original = try_original(sorted({test for tests in killers for test in tests}))
    assert original.killer is None, f"{original}\n{original.output}"
    survivors = [outcome.name for outcome in outcomes if outcome.killer is None]
    record(
        name,
        total=total,
        run=len(outcomes),
        killed=len(outcomes) - len(survivors),
        original_seconds=round(original.seconds, 1),
        slowest_seconds=round(max(outcome.seconds for outcome in outcomes), 1),
        seconds=round(time.monotonic() - started, 1),
    )
    assert not survivors
