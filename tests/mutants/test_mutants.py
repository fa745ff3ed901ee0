"""Every mutant of the store is killed: eight in each run, all in the long programme (T15)."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from tests.mutants.catalogue import BATTERY, MUTANTS, Mutant
from tests.mutants.run import StaleMutant, mutated, rotation, try_mutant, try_original
from tests.support.figures import record

IN_EVERY_RUN = 8
SECONDS_MAX = 60.0


def test_every_mutant_fits_the_store_as_it_is() -> None:
    """Each changes a text that is there exactly once, into something that compiles."""
    for mutant in MUTANTS:
        compile(mutated(mutant), mutant.name, "exec")
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


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


def assert_killed(name: str, mutants: Sequence[Mutant]) -> None:
    """The store itself passes what each of the mutants does not."""
    started = time.monotonic()
    original = try_original(BATTERY)
    assert original.killer is None, f"{original}\n{original.output}"
    outcomes = [try_mutant(mutant, BATTERY) for mutant in mutants]
    survivors = [outcome.name for outcome in outcomes if outcome.killer is None]
    record(
        name,
        total=len(MUTANTS),
        run=len(outcomes),
        killed=len(outcomes) - len(survivors),
        battery_seconds=round(original.seconds, 1),
        slowest_seconds=round(max(outcome.seconds for outcome in outcomes), 1),
        seconds=round(time.monotonic() - started, 1),
    )
    assert not survivors
    slow = [str(outcome) for outcome in outcomes if outcome.seconds > SECONDS_MAX]
    assert not slow
