"""Damage of every kind to every file of a store: no effect, or an exact error; never less (T11).

Each case is opened and read to the end. What is not the truth must be a CorruptionError that names
the damaged file and a byte in it, and a failed open changes no byte. RELIABILITY C6, C10 and C11.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice

import pytest

from fifoq.testing.pending import SECTOR_BYTES
from store import CorruptionError, Key, Log, open_log
from tests.support.clock import ManualClock
from tests.support.damage import (
    OPTIONS,
    PATH,
    Case,
    Ending,
    Sample,
    Verdict,
    build_sample,
    disk_of,
    flips,
    header_bytes,
    judge,
    read_truth,
    sectors,
    truncations,
    whole_files,
)
from tests.support.figures import record

ENDINGS = pytest.mark.parametrize("ending", list(Ending), ids=lambda ending: ending.name.lower())


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage is warned of; here there is nothing else."""
    monkeypatch.setattr(logging.getLogger("store"), "disabled", True)


@cache
def sample_of(ending: Ending) -> Sample:
    return build_sample(ending)


def assert_no_silent_harm(name: str, ending: Ending, cases: Iterable[Case]) -> Counter[Verdict]:
    """Judge every case and keep the count of each verdict."""
    sample = sample_of(ending)
    verdicts: Counter[Verdict] = Counter()
    for case in cases:
        try:
            verdicts[judge(sample, case)] += 1
        except Exception as error:
            error.add_note(f"{ending.name}: {case.kind}: {case.note}")
            raise
    counts = {verdict.name.lower(): count for verdict, count in verdicts.items()}
    record(f"damage_{name}", ending=ending.name.lower(), cases=verdicts.total(), **counts)
    return verdicts


def test_the_samples_are_large_enough_and_hold_everything() -> None:
    for ending in (Ending.CLOSED, Ending.AT_REST):
        sample = sample_of(ending)
        assert len(sample.segments) == 3
        assert sample.size >= 16 << 10
        assert {len(extent.queues) for extent in sample.extents} == {0, 1, 2}
        assert sample.truth.states
        assert all(queue.records for queue in sample.truth.queues.values())
        assert any(queue.attempts for queue in sample.truth.queues.values())
        with open_log(PATH, files=disk_of(sample.files), options=OPTIONS) as log:
            assert read_truth(log) == sample.truth
            spans = [span for queue in log.state.queues.values() for span in queue.spans]
            assert any(span.moved and span.live for span in spans)


@pytest.mark.parametrize("shard", range(3))
@ENDINGS
def test_a_flipped_bit_in_any_byte(ending: Ending, shard: int) -> None:
    cases: Iterator[Case] = islice(flips(sample_of(ending)), shard, None, 3)
    if ending is not Ending.CLOSED:
        # Most files are the same as in the closed store; the last segment is what differs.
        last = sample_of(ending).segments[-1]
        cases = (case for i, case in enumerate(cases) if last in case.damaged or i % 4 == 0)
    verdicts = assert_no_silent_harm("flip", ending, cases)
    assert set(verdicts) <= {Verdict.NO_EFFECT, Verdict.ERROR_AT_OPEN, Verdict.ERROR_AT_READ}


@ENDINGS
def test_any_byte_of_any_header_set_to_another_value(ending: Ending) -> None:
    verdicts = assert_no_silent_harm("header_byte", ending, header_bytes(sample_of(ending)))
    assert set(verdicts) <= {Verdict.NO_EFFECT, Verdict.ERROR_AT_OPEN, Verdict.ERROR_AT_READ}


@ENDINGS
def test_files_cut_at_any_length(ending: Ending) -> None:
    """Of a store that was not closed, the end of the last segment may go without a trace."""
    verdicts = assert_no_silent_harm("truncate", ending, truncations(sample_of(ending), stride=11))
    if ending is Ending.CLOSED:
        assert set(verdicts) == {Verdict.NO_EFFECT, Verdict.ERROR_AT_OPEN}


@ENDINGS
def test_sectors_that_are_zero_doubled_swapped_or_stale(ending: Ending) -> None:
    verdicts = assert_no_silent_harm("sector", ending, sectors(sample_of(ending)))
    assert set(verdicts) <= {Verdict.NO_EFFECT, Verdict.ERROR_AT_OPEN, Verdict.ERROR_AT_READ}


@ENDINGS
def test_files_that_are_dropped_doubled_renamed_or_swapped(ending: Ending) -> None:
    verdicts = assert_no_silent_harm("file", ending, whole_files(sample_of(ending)))
    assert set(verdicts) <= {Verdict.NO_EFFECT, Verdict.ERROR_AT_OPEN, Verdict.ERROR_AT_READ}


@pytest.mark.deep
@pytest.mark.parametrize("bit", range(8))
@ENDINGS
def test_every_bit_of_every_byte_flipped(ending: Ending, bit: int) -> None:
    assert_no_silent_harm("flip_all", ending, flips(sample_of(ending), bit=bit))


@pytest.mark.deep
@pytest.mark.parametrize("start", range(0, 256, 16))
@ENDINGS
def test_any_byte_of_any_header_set_to_every_value(ending: Ending, start: int) -> None:
    values = range(start, start + 16)
    assert_no_silent_harm("header_byte_all", ending, header_bytes(sample_of(ending), values))


@pytest.mark.deep
@ENDINGS
def test_files_cut_at_every_length(ending: Ending) -> None:
    assert_no_silent_harm("truncate_all", ending, truncations(sample_of(ending), stride=1))


# What the sweep found, or must not lose sight of, one by one.


def test_no_single_bad_sector_hides_the_last_commit_of_a_store_at_rest() -> None:
    """Commit and witness lie in different sectors, so losing either one is seen or harmless."""
    sample = sample_of(Ending.AT_REST)
    last = sample.segments[-1]
    content = sample.files[last]
    commit = max((e for e in sample.extents if e.file == last and e.blocks), key=lambda e: e.start)
    errors = 0
    for start in range(commit.start // SECTOR_BYTES * SECTOR_BYTES, len(content), SECTOR_BYTES):
        damaged = content[:start] + bytes(SECTOR_BYTES) + content[start + SECTOR_BYTES :]
        files = {**sample.files, last: damaged}
        verdict = judge(sample, Case("zero sector", frozenset({last}), files, f"{start}"))
        assert verdict in (Verdict.NO_EFFECT, Verdict.ERROR_AT_OPEN)
        errors += verdict is Verdict.ERROR_AT_OPEN
    assert errors


def test_a_witness_in_the_sector_beside_its_own_still_witnesses() -> None:
    """Swapping the last commit's sector with the seal's once lost the commit without a word."""
    sample = sample_of(Ending.AT_REST)
    last = sample.segments[-1]
    cases = [case for case in sectors(sample) if case.kind == "swap sector"]
    tail = [case for case in cases if last in case.damaged]
    assert tail
    for case in tail:
        judge(sample, case)


def test_damage_to_one_queue_stops_no_other() -> None:
    """Walking over a damaged frame of another queue once stopped the queue that walked."""
    sample = sample_of(Ending.CLOSED)
    alone = [extent for extent in sample.extents if extent.queues == {"b"} and extent.blocks]
    stopped = 0
    for extent in alone:
        files = dict(sample.files)
        content = bytearray(files[extent.file])
        content[extent.end - 9] ^= 1
        files[extent.file] = bytes(content)
        with open_log(PATH, files=disk_of(files), clock=ManualClock(), options=OPTIONS) as log:
            assert records_of(log, "a") == sample.truth.queues["a"].records
            place = damage_met(log, "b")
            if place is not None:
                assert extent.start <= place < extent.end
                stopped += 1
    assert stopped


def records_of(log: Log, name: str) -> list[tuple[Key, bytes]]:
    return [pair for b in log.read(name) for pair in zip(b.keys(), b.payloads(), strict=True)]


def damage_met(log: Log, name: str) -> int | None:
    """The byte at which reading a queue ends, if it does."""
    try:
        records_of(log, name)
    except CorruptionError as error:
        return error.offset
    return None


def test_damage_to_retained_records_is_not_passed_over_in_silence() -> None:
    """Who reads removed records as well must hear of the ones that damage took."""
    sample = sample_of(Ending.CLOSED)
    first = next(e for e in sample.extents if e.queues == {"b"} and e.blocks)
    files = dict(sample.files)
    content = bytearray(files[first.file])
    content[first.start + 200] ^= 1
    files[first.file] = bytes(content)
    with open_log(PATH, files=disk_of(files), clock=ManualClock(), options=OPTIONS) as log:
        log.queue("b").removed.add(2, 8)
        with pytest.raises(CorruptionError):
            list(log.read("b", removed=True))


def test_damaged_indexes_change_nothing() -> None:
    sample = sample_of(Ending.CLOSED)
    cases = (case for case in flips(sample) if next(iter(case.damaged)).endswith(".idx"))
    assert {judge(sample, case) for case in islice(cases, 0, None, 3)} == {Verdict.NO_EFFECT}
