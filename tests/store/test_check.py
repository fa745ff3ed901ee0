"""The check and quarantine: exact places, exact counters, nothing changed, the rest goes on."""

from __future__ import annotations

import json
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fifoq.testing.simfiles import SimFiles
from store import CorruptionError, FormatError, Log, open_log
from store.__main__ import main, shortened
from store.blocks import RECORD_WEIGHT
from store.check import ROUNDS_MAX, Damage, Report, check_store
from store.checksum import CRC32C, check_function, segment_seed
from store.encoding import encode_records
from store.frames import encode_frame
from store.genesis import Genesis, encode_genesis
from store.keys import RESERVED_COUNTERS
from store.segment import index_name, segment_name
from tests.store.conftest import PATH, OpenStore
from tests.support.clock import ManualClock

RECORD = b"r" * 200


@pytest.fixture
def store(log: Log) -> Log:
    """Three segments: orders 1 to 9, three to a commit, and audit 1 to 3; closed."""
    for number in range(3):
        log.put("orders", [RECORD] * 3)
        log.put("audit", [b"%d" % number])
        log.rotate()
    log.close()
    return log


def second_commit(log: Log, segment: int) -> int:
    """Offset of the second frame of a segment, which holds an audit record."""
    file, _ = log.cache.open(segment)
    frames = list(file.frames(80, log.state.segments[segment].length))
    return frames[1].offset


def flip(files: SimFiles, segment: int, offset: int) -> None:
    files.flip_bit(f"{PATH}/{segment_name(segment)}", offset=offset, bit=3)


def test_a_sound_store_is_called_sound_and_left_alone(store: Log, files: SimFiles) -> None:
    image = files.image()
    seen: list[tuple[int, int]] = []
    report = check_store(
        PATH,
        files=files,
        clock=ManualClock(),
        progress=lambda done, all_: seen.append((done, all_)),
    )
    assert report.sound
    assert not report.warnings
    assert sum(segment.records for segment in report.segments) == 12
    assert {segment.index for segment in report.segments} == {"sound"}
    assert seen[-1][0] == seen[-1][1] > 0
    assert files.image() == image


def test_a_live_store_is_checked_beside_its_owner(log: Log, files: SimFiles) -> None:
    log.put("orders", [RECORD] * 3)
    log.put("orders", [RECORD])
    report = check_store(PATH, files=files, clock=ManualClock())
    assert report.sound


def test_damage_is_told_with_its_place_and_its_counters(store: Log, files: SimFiles) -> None:
    flip(files, 2, 300)
    report = check_store(PATH, files=files, clock=ManualClock())
    (damage,) = report.damage
    assert (damage.file, damage.offset) == (segment_name(2), 80)
    assert damage.end > 300
    assert report.missing == {"orders": [(4, 6)]}


def test_a_damaged_segment_header_is_told(store: Log, files: SimFiles) -> None:
    flip(files, 2, 30)
    report = check_store(PATH, files=files, clock=ManualClock())
    assert {(damage.file, damage.offset) for damage in report.damage} == {(segment_name(2), 0)}


def test_a_damaged_index_is_a_note_and_one_that_lies_is_damage(
    open_store: OpenStore, store: Log, files: SimFiles
) -> None:
    files.flip_bit(f"{PATH}/{index_name(1)}", offset=30, bit=0)
    report = check_store(PATH, files=files, clock=ManualClock())
    assert report.sound
    assert index_name(1) in report.warnings[0]
    log = open_store()
    _, index = log.cache.open(1)
    index.queues["orders"].counters[0] = 7
    log.directory.write_index(index, 1, log.store_id)
    log.close()
    report = check_store(PATH, files=files, clock=ManualClock())
    assert [damage.file for damage in report.damage] == [index_name(1)]


def test_a_damaged_checkpoint_copy_is_a_note(store: Log, files: SimFiles) -> None:
    files.flip_bit(f"{PATH}/checkpoint.a", offset=5, bit=0)
    report = check_store(PATH, files=files, clock=ManualClock())
    assert any("checkpoint.a" in text for text in report.warnings)


def test_a_segment_that_ends_differently_than_the_next_one_says_is_damage(
    open_store: OpenStore, store: Log, files: SimFiles
) -> None:
    log = open_store()
    number = 3
    header = log.directory.open_segment(number, log.store_id).header()
    changed = type(header)(
        header.store_id,
        header.number,
        header.created_at,
        header.first_sequence + 1,
        header.previous_number,
        header.previous_length,
        header.previous_checksum,
        header.algorithm,
    )
    log.close()
    files.damage(f"{PATH}/{segment_name(number)}", 0, changed.encode())
    report = check_store(PATH, files=files, clock=ManualClock())
    assert [damage.file for damage in report.damage] == [segment_name(number)]


def test_damage_behind_the_checkpoint_is_told_for_every_segment(
    log: Log, files: SimFiles, clock: ManualClock
) -> None:
    log.put("orders", [RECORD] * 3)
    first = log.tail.length
    log.put("orders", [RECORD])
    log.put("orders", [RECORD])
    log.release()
    flip(files, 1, first + 60)
    report = check_store(PATH, files=files, clock=clock)
    assert first in {damage.offset for damage in report.damage}


def test_no_store_is_a_format_error(files: SimFiles) -> None:
    files.make_dir("/empty")
    with pytest.raises(FormatError):
        check_store("/empty", files=files, clock=ManualClock())


def test_a_sealed_segment_that_is_missing_is_told_by_its_counters(
    store: Log, files: SimFiles
) -> None:
    files.unlink(files.open_dir(PATH), segment_name(2))
    report = check_store(PATH, files=files, clock=ManualClock())
    assert report.warnings == []
    assert report.damage == [Damage(segment_name(2), 0, 0, "the segment is missing")]
    assert report.missing == {"orders": [(4, 6)], "audit": [(2, 2)]}


def test_a_missing_segment_without_records_is_damage(log: Log, files: SimFiles) -> None:
    """It was called sound, and opening refused it."""
    set_state(log, "alice", RECORD)
    log.rotate()
    log.put("orders", [b"a"])
    log.close()
    files.unlink(files.open_dir(PATH), segment_name(1))
    report = check_store(PATH, files=files, clock=ManualClock())
    assert report.damage == [Damage(segment_name(1), 0, 0, "the segment is missing")]
    assert report.missing == {}


def test_a_missing_segment_of_a_store_that_cannot_be_read_is_told_beside_the_rest(
    store: Log, files: SimFiles
) -> None:
    last = max(store.state.segments)
    for number in (2, last):
        files.unlink(files.open_dir(PATH), segment_name(number))
    report = check_store(PATH, files=files, clock=ManualClock())
    assert [(damage.file, damage.reason) for damage in report.damage] == [
        (segment_name(last), "the segment is missing"),
        (segment_name(2), "the segment is missing"),
    ]
    assert report.missing == {"orders": [(4, 6)], "audit": [(2, 2)]}


def test_a_segment_that_is_reclaimed_during_the_check_is_no_damage(
    log: Log, files: SimFiles
) -> None:
    """What the owner took and reclaimed meanwhile was called missing."""
    for number in range(3):
        log.put("orders", [b"%d" % number])
        log.rotate()
    log.seal()

    def take(done: int, total: int) -> None:
        if 2 in log.state.segments:
            log.take("orders", 2)
            log.seal()

    report = check_store(PATH, files=files, clock=ManualClock(), progress=take)
    assert report.sound
    assert report.warnings == [f"{segment_name(2)}: reclaimed while it was checked"]
    assert 2 not in log.state.segments


def test_records_that_are_compacted_during_the_check_are_found_where_they_went(
    log: Log, files: SimFiles
) -> None:
    for _ in range(3):
        log.put("orders", [b"x" * 3000] * 5)
        log.rotate()
    log.seal()

    def compact(done: int, total: int) -> None:
        if 2 in log.state.segments:
            draft = log.draft()
            draft.remove(log.queue("orders"), [(7, 9, 3 * (3000 + RECORD_WEIGHT))])
            log.commit(draft)
            while log.compact():
                pass
            log.seal()

    report = check_store(PATH, files=files, clock=ManualClock(), progress=compact)
    assert report.sound
    assert 2 not in log.state.segments
    assert [segment.records for segment in report.segments] == [5, 5, 2]


def test_a_check_beside_an_owner_that_always_reclaims_comes_to_an_end(
    log: Log, files: SimFiles
) -> None:
    for _ in range(3):
        log.put("orders", [b"x"])
        log.rotate()
    log.seal()

    def run_ahead(done: int, total: int) -> None:
        log.take("orders", 2)
        for _ in range(2):
            log.put("orders", [b"x"])
            log.rotate()
        log.seal()

    report = check_store(PATH, files=files, clock=ManualClock(), progress=run_ahead)
    assert report.sound
    assert "the owner reclaims faster than this reads: counters not compared" in report.warnings
    assert len(report.warnings) >= ROUNDS_MAX


@pytest.mark.parametrize("frames", [0, 1])
def test_torn_bytes_and_the_frames_among_them_are_counted(
    log: Log, open_store: OpenStore, files: SimFiles, frames: int
) -> None:
    for _ in range(frames):
        log.put("orders", [RECORD])
    start = log.tail.length
    log.put("orders", [b"torn"])
    log.release()
    flip(files, 1, start + 60)
    torn_bytes = log.tail.length - start
    reports = [check_store(PATH, files=files, clock=ManualClock())]
    if frames:
        reports.append(_reopened(open_store))
    for report in reports:
        assert report.sound
        (told,) = [segment for segment in report.segments if segment.number == 1]
        assert (told.frames, told.orphan_frames) == (frames, 1)
        assert torn_bytes - 8 < told.torn_bytes <= torn_bytes
        assert report.warnings == [
            f"{segment_name(1)}: {told.torn_bytes} bytes from byte {start} on belong to no commit "
            f"(frame headers among them: 1): torn by a crash, or being written"
        ]


def _reopened(open_store: OpenStore) -> Report:
    """The report on the store after it was opened again and closed."""
    log = open_store()
    log.put("orders", [b"next"])
    log.close()
    return check_store(PATH, files=log.directory.files, clock=ManualClock())


def test_commits_that_nothing_calls_durable_yet_are_not_torn(log: Log, files: SimFiles) -> None:
    log.put("orders", [RECORD])
    log.rotate()
    log.put("orders", [RECORD])
    log.seal()

    def put(done: int, total: int) -> None:
        log.put("orders", [b"new"])

    report = check_store(PATH, files=files, clock=ManualClock(), progress=put)
    assert report.sound
    assert report.warnings == []


def test_a_last_segment_that_is_missing_is_damage_and_its_counters_are_told(
    log: Log, files: SimFiles
) -> None:
    log.put("orders", [RECORD] * 3)
    log.put("audit", [RECORD])
    log.take("audit")
    log.close()
    files.unlink(files.open_dir(PATH), segment_name(1))
    report = check_store(PATH, files=files, clock=ManualClock())
    assert [(damage.file, damage.reason) for damage in report.damage] == [
        (segment_name(1), "the segment is missing")
    ]
    assert report.missing == {"orders": [(1, 3)]}


def test_a_store_without_checkpoints_is_checked_by_its_log(store: Log, files: SimFiles) -> None:
    for name in ("checkpoint.a", "checkpoint.b"):
        files.unlink(files.open_dir(PATH), name)
    assert check_store(PATH, files=files, clock=ManualClock()).sound
    flip(files, 2, 300)
    report = check_store(PATH, files=files, clock=ManualClock())
    assert (segment_name(2), 80) in {(damage.file, damage.offset) for damage in report.damage}
    assert report.missing == {}


def test_checkpoints_of_two_stores_are_told_and_nothing_else_is_looked_at(
    store: Log, files: SimFiles
) -> None:
    other = SimFiles()
    open_log(PATH, files=other, clock=ManualClock(seed=1)).close()
    files.unlink(files.open_dir(PATH), "checkpoint.a")
    files.add_file(f"{PATH}/checkpoint.a", other.content(f"{PATH}/checkpoint.a"))
    report = check_store(PATH, files=files, clock=ManualClock())
    assert {damage.reason for damage in report.damage} == {
        "the two checkpoints belong to different stores"
    }
    assert report.segments == []


def test_a_genesis_that_disagrees_with_its_records_is_damage(log: Log, files: SimFiles) -> None:
    log.put("orders", [RECORD] * 3)
    log.queue("orders").genesis.queue_size = 9
    log.close()
    report = check_store(PATH, files=files, clock=ManualClock())
    assert [damage.reason for damage in report.damage] == [
        "queue 'orders': genesis says 9 records, the log holds 3"
    ]


# Quarantine.


def test_quarantine_delivers_the_rest_and_lists_what_is_missing_exactly(
    open_store: OpenStore, store: Log, files: SimFiles
) -> None:
    flip(files, 2, 300)
    log = open_store(recover="quarantine")
    assert log.quarantine is not None
    assert log.quarantine.missing == {"orders": [(4, 6)]}
    assert [number for number, _, _ in log.quarantine.regions] == [2]
    assert [key.counter for key in log.keys("orders")] == [1, 2, 3, 7, 8, 9]
    assert [key.counter for key in log.keys("audit")] == [1, 2, 3]
    assert log.queue("orders").genesis.queue_size == 6
    start, end = log.quarantine.regions[0][1:]
    bad = f"{2:020}-{start}.bad"
    assert len(files.content(f"{PATH}/{bad}")) == end - start


def test_after_quarantine_the_store_opens_and_works_as_any_other(
    open_store: OpenStore, store: Log, files: SimFiles
) -> None:
    flip(files, 2, 300)
    open_store(recover="quarantine").close()
    log = open_store()
    assert log.quarantine is None
    log.put("orders", [b"new"])
    assert [payload for _, payload in log.take("orders", 9)] == [RECORD] * 6 + [b"new"]
    log.close()
    assert check_store(PATH, files=files, clock=ManualClock()).sound
    again = open_store(recover="quarantine")
    assert again.quarantine is None


def test_quarantine_makes_a_new_store_where_there_is_none(open_store: OpenStore) -> None:
    log = open_store(recover="quarantine")
    assert log.quarantine is None
    assert log.put("orders", [b"a"]) == range(1, 2)


def test_quarantine_finds_counters_of_a_damaged_commit_behind_the_checkpoint(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [RECORD] * 2)
    start = log.tail.length
    log.put("orders", [RECORD] * 4)
    log.put("orders", [RECORD])
    log.release()
    flip(files, 1, start + 100)
    with pytest.raises(CorruptionError):
        open_store()
    again = open_store(recover="quarantine")
    assert again.quarantine is not None
    assert again.quarantine.missing == {"orders": [(3, 6)]}
    assert [key.counter for key in again.keys("orders")] == [1, 2, 7]
    assert again.put("orders", [b"next"]) == range(8, 9)


def test_what_was_taken_later_is_not_called_missing(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [RECORD] * 2)
    start = log.tail.length
    log.put("orders", [RECORD] * 4)
    log.take("orders", 3)
    draft = log.draft()
    draft.remove(log.queue("orders"), [(5, 5, 216)])
    log.commit(draft)
    log.put("orders", [RECORD])
    log.release()
    flip(files, 1, start + 100)
    again = open_store(recover="quarantine")
    assert again.quarantine is not None
    assert again.quarantine.missing == {"orders": [(4, 4), (6, 6)]}


def test_quarantine_survives_a_missing_segment(
    open_store: OpenStore, store: Log, files: SimFiles
) -> None:
    files.unlink(files.open_dir(PATH), segment_name(2))
    with pytest.raises(CorruptionError) as caught:
        open_store()
    assert caught.value.path.endswith(segment_name(2))
    log = open_store(recover="quarantine")
    assert log.quarantine is not None
    assert log.quarantine.missing == {"orders": [(4, 6)], "audit": [(2, 2)]}
    assert [key.counter for key in log.keys("orders")] == [1, 2, 3, 7, 8, 9]


def test_quarantine_works_without_any_checkpoint(
    open_store: OpenStore, store: Log, files: SimFiles
) -> None:
    for name in ("checkpoint.a", "checkpoint.b"):
        files.unlink(files.open_dir(PATH), name)
    flip(files, 2, 300)
    with pytest.raises(CorruptionError):
        open_store()
    log = open_store(recover="quarantine")
    assert log.quarantine is not None
    assert log.quarantine.missing == {"orders": [(4, 6)]}
    assert [key.counter for key in log.keys("orders")] == [1, 2, 3, 7, 8, 9]


def test_quarantine_reads_past_a_damaged_segment_header(
    open_store: OpenStore, store: Log, files: SimFiles
) -> None:
    flip(files, 2, 30)
    log = open_store(recover="quarantine")
    assert log.quarantine is not None
    assert log.quarantine.missing == {}
    assert [key.counter for key in log.keys("orders")] == list(range(1, 10))


def test_quarantine_goes_on_when_the_last_segment_is_the_missing_one(
    open_store: OpenStore, store: Log, files: SimFiles
) -> None:
    last = max(store.state.segments)
    files.unlink(files.open_dir(PATH), segment_name(last))
    log = open_store(recover="quarantine")
    assert [key.counter for key in log.keys("orders")] == list(range(1, 10))
    assert log.quarantine is not None
    assert log.quarantine.unknown == {"orders": 10, "audit": 4}
    assert log.put("orders", [b"next"])[0] > 9 + RESERVED_COUNTERS


def test_a_last_segment_that_lost_everything_is_left_as_it_is(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [RECORD])
    log.rotate()
    log.put("orders", [RECORD] * 2)
    log.put("orders", [RECORD])
    log.seal()
    log.release()
    files.damage(f"{PATH}/{segment_name(2)}", 0, b"\xff" * 600)
    again = open_store(recover="quarantine")
    assert again.quarantine is not None
    assert again.quarantine.missing == {"orders": [(2, 3)]}
    assert [key.counter for key in again.keys("orders")] == [1, 4]
    assert files.content(f"{PATH}/{segment_name(2)}").startswith(b"\xff" * 600)


def test_lost_states_are_named(log: Log, open_store: OpenStore, files: SimFiles) -> None:
    draft = log.draft()
    draft.set_states([("alice", b"10"), ("bob", b"20")])
    log.commit(draft)
    start = log.tail.length
    draft = log.draft()
    draft.set_states([("carol", b"30")])
    log.commit(draft)
    log.close()
    flip(files, 1, start + 60)
    again = open_store(recover="quarantine")
    assert again.quarantine is not None
    assert again.quarantine.states == ["carol"]
    assert again.state_of("alice") == b"10"
    assert again.state_of("carol") is None


def test_a_lost_deletion_is_not_called_a_lost_state(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [RECORD])
    set_state(log, "alice", RECORD)
    log.rotate()
    start = log.tail.length
    set_state(log, "alice", None)
    log.close()
    flip(files, 2, start + 60)
    again = open_store(recover="quarantine")
    assert again.quarantine is not None
    assert again.quarantine.states == []


def set_state(log: Log, name: str, value: bytes | None) -> None:
    draft = log.draft()
    draft.set_states([(name, value)])
    log.commit(draft)


def test_a_segment_whose_states_were_lost_is_reclaimed_with_the_rest(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    """Lost states went on counting as newest entries, and kept their segment."""
    set_state(log, "alice", RECORD)
    set_state(log, "bob", RECORD)
    log.rotate()
    log.put("orders", [RECORD])
    log.close()
    flip(files, 1, 200)
    again = open_store(recover="quarantine")
    assert again.quarantine is not None
    assert again.quarantine.states == ["alice"]
    assert 1 in again.state.segments
    set_state(again, "bob", b"new")
    assert 1 not in again.state.segments
    assert not again.compact()


def test_quarantine_removes_a_segment_that_came_back(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [b"old"])
    content = files.content(f"{PATH}/{segment_name(1)}")
    log.rotate()
    log.take("orders")
    start = log.tail.length
    log.put("orders", [RECORD])
    log.put("orders", [RECORD])
    log.close()
    files.add_file(f"{PATH}/{segment_name(1)}", content)
    flip(files, 2, start + 100)
    again = open_store(recover="quarantine")
    assert again.quarantine is not None
    assert again.quarantine.missing == {"orders": [(2, 2)]}
    assert [key.counter for key in again.keys("orders")] == [3]
    assert segment_name(1) not in files.list_dir(files.open_dir(PATH))


def test_quarantine_keeps_gaps_apart_from_losses(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    start = log.tail.length
    log.put("audit", [RECORD])
    log.put("orders", [RECORD])
    draft = log.draft()
    draft.put(log.queue("orders"), [RECORD], first=7)
    log.commit(draft)
    log.release()
    flip(files, 1, start + 100)
    again = open_store(recover="quarantine")
    assert again.quarantine is not None
    assert "orders" not in again.quarantine.missing
    assert [key.counter for key in again.keys("orders")] == [1, 7]


def test_quarantine_sets_the_same_damage_aside_once(
    store: Log, open_store: OpenStore, files: SimFiles
) -> None:
    flip(files, 2, 300)
    first = open_store(recover="quarantine")
    assert first.quarantine is not None
    first.close()
    flip(files, 3, 300)
    second = open_store(recover="quarantine")
    assert second.quarantine is not None
    assert [number for number, _, _ in second.quarantine.regions] == [3]
    assert second.quarantine.missing == {"orders": [(7, 9)]}
    assert [key.counter for key in second.keys("orders")] == [1, 2, 3]


def test_quarantine_gives_up_damage_at_the_end_of_a_sealed_segment(
    store: Log, open_store: OpenStore, files: SimFiles
) -> None:
    opened = open_store()
    last = second_commit(opened, 2)
    opened.close()
    flip(files, 2, last + 60)
    again = open_store(recover="quarantine")
    assert again.quarantine is not None
    assert again.quarantine.missing == {"audit": [(2, 2)]}


def test_quarantine_sets_a_frame_aside_that_makes_no_sense(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [RECORD])
    parts, _ = encode_records([b"b"], queue=0, first=1, time=0)
    check = check_function(CRC32C)
    frame, _ = encode_frame(
        parts,
        encode_genesis([Genesis("orders", next_counter=2, queue_size=1)]),
        block_count=1,
        flags=0,
        sequence=log.sequence + 1,
        durable_upto=log.durable_upto,
        previous=log.checksum,
        check=check,
        seed=segment_seed(check, log.store_id, 1),
        offset=log.tail.length,
    )
    files.damage(f"{PATH}/{segment_name(1)}", log.tail.length, bytes(frame))
    start = log.tail.length
    log.release()
    again = open_store(recover="quarantine")
    assert again.quarantine is not None
    assert (1, start, start + len(frame)) in again.quarantine.regions
    assert [key.counter for key in again.keys("orders")] == [1]


def test_quarantine_leaves_a_torn_tail_where_it_is(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [RECORD])
    log.rotate()
    log.put("orders", [RECORD])
    files.damage(f"{PATH}/{segment_name(2)}", log.tail.length, b"torn")
    log.release()
    flip(files, 1, 200)
    again = open_store(recover="quarantine")
    assert again.quarantine is not None
    assert again.quarantine.missing == {"orders": [(1, 1)]}
    assert [number for number, _, _ in again.quarantine.regions] == [1]
    assert again.torn_bytes > 0


@pytest.mark.parametrize("checkpoints", [True, False])
def test_a_store_whose_last_segment_is_all_damage_reopens_after_quarantine(
    log: Log, open_store: OpenStore, files: SimFiles, checkpoints: bool
) -> None:
    """The segment was given the length of the one before it, which its file did not have."""
    log.put("orders", [b"a" * 5000])
    log.rotate()
    for _ in range(2):
        start = log.tail.length
        log.put("orders", [RECORD])
        flip(files, 2, start + 100)
    log.release()
    for name in () if checkpoints else ("checkpoint.a", "checkpoint.b"):
        files.unlink(files.open_dir(PATH), name)
    again = open_store(recover="quarantine")
    assert again.quarantine is not None
    assert [number for number, _, _ in again.quarantine.regions] == [2]
    again.put("audit", [b"new"])
    again.close()
    assert [len(payload) for _, payload in open_store().take("orders", 9)] == [5000]
    assert check_store(PATH, files=files, clock=ManualClock()).sound


@pytest.mark.parametrize("checkpoints", ["sound", "damaged"])
def test_quarantine_of_a_store_without_any_segment_is_refused(
    log: Log, open_store: OpenStore, files: SimFiles, checkpoints: str
) -> None:
    """There is nothing to start from; it failed with an error that was not ours."""
    log.put("orders", [RECORD])
    log.close()
    files.unlink(files.open_dir(PATH), segment_name(1))
    if checkpoints == "damaged":
        for name in ("checkpoint.a", "checkpoint.b"):
            files.flip_bit(f"{PATH}/{name}", offset=5, bit=0)
    with pytest.raises(CorruptionError) as caught:
        open_store(recover="quarantine")
    assert caught.value.reason == "every segment is missing"


# The command line.


def test_check_and_show_tell_a_sound_store_by_words_and_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "store")
    with open_log(path) as log:
        log.put("orders", [b"a", b"b"])
    assert main(["check", path]) == 0
    assert "sound" in capsys.readouterr().out
    assert main(["check", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sound"] is True
    assert main(["show", path, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["queues"]["orders"]["nextCounter"] == 3
    (segment,) = shown["segments"]
    assert segment["number"] == 1
    assert segment["bytes"] == (Path(path) / segment_name(1)).stat().st_size
    assert (segment["records"], segment["live"]) == (2, 2)


def test_show_prints_a_line_for_each_queue_within_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "store")
    long_name = "audit/" + "x" * 64 + ".dlq"
    with open_log(path, clock=ManualClock()) as log:
        log.put("orders", [b"a", b"b"])
        log.take("orders")
        log.put(long_name, [b"x"] * 123_456)
        draft = log.draft()
        draft.configure(log.queue("idle"), b"{}")
        log.commit(draft)
    size = (Path(path) / segment_name(1)).stat().st_size
    assert main(["show", path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{path}: 1 segment, {size} bytes"
    assert lines[1].split() == ["segment", "bytes", "records", "live"]
    assert lines[2].split() == ["1", str(size), "123458", "123457"]
    assert lines[3] == "3 queues"
    titles = " ".join(lines[4].split())
    assert titles == "queue size bytes puts takes next high low last put"
    name, cells = " ".join(lines[5].split()).split(" ", 1)
    assert name.endswith("…")
    assert long_name.startswith(name[:-1])
    assert cells == "123k 123k 123k 0 123k 123k 123k 2023-11-14T22:13:20Z"
    assert lines[6].split() == ["idle", "0", "0", "0", "0", "1", "-", "-", "never"]
    assert " ".join(lines[7].split()) == "orders 1 1 2 1 3 2 1 2023-11-14T22:13:20Z"
    assert max(map(len, lines[1:])) <= 80


@pytest.mark.parametrize(
    ("number", "text"),
    [(99_999, "99999"), (100_000, "100k"), (999_999, "999k"), (1_000_000, "1M"), (2**63, "9E")],
)
def test_large_numbers_are_shown_rounded_down(number: int, text: str) -> None:
    assert shortened(number) == text


def test_check_tells_damage_by_place_and_status_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "store"
    with open_log(str(path)) as log:
        log.put("orders", [b"a" * 100])
    segment = path / segment_name(1)
    data = bytearray(segment.read_bytes())
    data[200] ^= 1
    segment.write_bytes(data)
    assert main(["check", str(path)]) == 1
    out = capsys.readouterr().out
    assert f"damaged  {segment_name(1)} bytes 80 to" in out
    assert "missing  queue 'orders': counters 1 to 1" in out


def test_check_of_no_store_is_status_two_without_a_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "store", "check", str(tmp_path / "nothing")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "nothing" in done.stderr


def test_show_of_a_damaged_store_is_status_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "store"
    with open_log(str(path)) as log:
        log.put("orders", [b"a" * 100])
    for name in ("checkpoint.a", "checkpoint.b"):
        (path / name).unlink(missing_ok=True)
    segment = path / segment_name(1)
    data = bytearray(segment.read_bytes())
    data[30] ^= 1
    segment.write_bytes(data)
    assert main(["show", str(path)]) == 1
    assert "Nothing was changed" in capsys.readouterr().err
    assert main(["show", str(path), "--json"]) == 1
    captured = capsys.readouterr()
    assert "Nothing was changed" in json.loads(captured.out)["error"]
    assert not captured.err


def test_progress_is_shown_only_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "store")
    with open_log(path) as log:
        log.put("orders", [b"a"])
    assert main(["check", path]) == 0
    assert not capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert main(["check", path]) == 0
    assert "100 %" in capsys.readouterr().err


def test_notes_are_printed_and_do_not_make_a_store_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "store"
    with open_log(str(path)) as log:
        log.put("orders", [b"a"])
    copy = path / "checkpoint.b"
    copy.write_bytes(b"damaged" + copy.read_bytes()[7:])
    assert main(["check", str(path)]) == 0
    assert "  note     checkpoint.b: " in capsys.readouterr().out


def test_a_file_that_cannot_be_read_is_status_two_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "store"
    with open_log(str(path)) as log:
        log.put("orders", [b"a"])
        log.rotate()
    (path / segment_name(1)).unlink()
    (path / segment_name(1)).mkdir()
    assert main(["check", str(path)]) == 2
    assert "Check that it is a directory of regular files" in capsys.readouterr().err
    assert main(["check", str(path), "--json"]) == 2
    assert "regular files" in json.loads(capsys.readouterr().out)["error"]


def test_no_store_is_status_two_by_either_verb(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb in ("check", "show"):
        assert main([verb, str(tmp_path)]) == 2
        assert "there is no store here" in capsys.readouterr().err
        assert main([verb, str(tmp_path), "--json"]) == 2
        assert "there is no store here" in json.loads(capsys.readouterr().out)["error"]


def test_the_module_runs_as_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "store")
    with open_log(path) as log:
        log.put("orders", [b"a"])
    monkeypatch.setattr(sys, "argv", ["store", "show", path])
    pipe = signal.getsignal(signal.SIGPIPE)
    try:
        with pytest.raises(SystemExit) as caught:
            runpy.run_path(main.__code__.co_filename, run_name="__main__")
    finally:
        signal.signal(signal.SIGPIPE, pipe)
    assert caught.value.code == 0
    assert " orders" in capsys.readouterr().out
