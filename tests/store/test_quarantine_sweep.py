"""Quarantine of every kind of damage: what is intact is there, and the rest is told.

RELIABILITY C6. After each case the check finds nothing, the store opens as any other, and no
counter is given out again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import islice

import pytest

from tests.support.damage import (
    Case,
    Ending,
    build_sample,
    flips,
    header_bytes,
    sectors,
    truncations,
    whole_files,
)
from tests.support.quarantining import Intact, judge

ENDINGS = pytest.mark.parametrize("ending", list(Ending), ids=lambda ending: ending.name.lower())
STEPS = {"flip": 1499, "header byte": 211, "truncate": 13, "sector": 7, "file": 2}
KINDS = pytest.mark.parametrize("kind", list(STEPS))


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage is warned of; here there is nothing else."""
    monkeypatch.setattr(logging.getLogger("store"), "disabled", True)


@cache
def intact_of(ending: Ending) -> Intact:
    return Intact(build_sample(ending))


def cases_of(ending: Ending, kind: str, *, stride: int) -> Iterator[Case]:
    sample = intact_of(ending).sample
    if kind == "flip":
        return flips(sample)
    if kind == "header byte":
        return header_bytes(sample)
    if kind == "truncate":
        return truncations(sample, stride=stride)
    return sectors(sample) if kind == "sector" else whole_files(sample)


def sweep(ending: Ending, cases: Iterator[Case]) -> Counter[str]:
    verdicts: Counter[str] = Counter()
    for case in cases:
        try:
            verdicts[judge(intact_of(ending), case)] += 1
        except BaseException as error:
            error.add_note(f"{ending.name}: {case.kind}: {case.note}")
            raise
    return verdicts


@KINDS
@ENDINGS
def test_what_is_intact_is_there_and_the_rest_is_told(ending: Ending, kind: str) -> None:
    cases = cases_of(ending, kind, stride=97)
    assert sweep(ending, islice(cases, 1, None, STEPS[kind]))["saved"]


@pytest.mark.deep
@KINDS
@ENDINGS
def test_the_same_in_every_place(ending: Ending, kind: str) -> None:
    verdicts = sweep(ending, cases_of(ending, kind, stride=11))
    assert verdicts["saved"]
    assert verdicts["lost"]
