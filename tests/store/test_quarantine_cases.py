"""Damage that a quarantine once got wrong, case by case."""

from __future__ import annotations

import pytest

from fifoq.testing.pending import SECTOR_BYTES
from fifoq.testing.simfiles import SimFiles
from store import CorruptionError, Log, Quarantine
from store.check import check_store
from store.frames import ALGORITHM_AT
from store.keys import RESERVED_COUNTERS
from store.segment import index_name, segment_name
from tests.store.conftest import PATH, OpenStore
from tests.store.test_recovery import cut, segment, unlink
from tests.support.clock import ManualClock

RECORD = b"r" * 100


def counters(log: Log, name: str = "orders") -> list[int]:
    return [key.counter for key in log.keys(name)]


def told(log: Log) -> Quarantine:
    assert log.quarantine is not None
    return log.quarantine


def quarantined(open_store: OpenStore, files: SimFiles) -> Log:
    """The store, quarantined; closed, checked, and opened again as any other."""
    log = open_store(recover="quarantine")
    found = counters(log)
    lost = told(log)
    log.close()
    assert check_store(PATH, files=files, clock=ManualClock()).sound
    again = open_store()
    assert counters(again) == found
    again.quarantine = lost
    return again


def put_around_a_checkpoint(log: Log) -> int:
    """Two records before it, one behind; returns where the second one begins."""
    log.put("orders", [RECORD])
    start = log.tail.length
    log.put("orders", [RECORD])
    log.checkpoint()
    log.put("orders", [RECORD])
    return start


def assert_the_second_is_missing_and_more_may_be(log: Log) -> None:
    assert told(log).missing == {"orders": [(2, 2)]}
    assert told(log).unknown == {"orders": 3}
    assert counters(log) == [1]
    assert log.put("orders", [RECORD])[0] > 3 + RESERVED_COUNTERS


def test_damage_across_the_place_of_the_checkpoint_loses_what_is_behind_it(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    """It began before that place, was not counted as a loss, and counters came again."""
    start = put_around_a_checkpoint(log)
    end = log.tail.length
    log.seal()
    log.release()
    files.damage(segment(1), start + 8, bytes(end - start - 8))
    assert_the_second_is_missing_and_more_may_be(quarantined(open_store, files))


def test_damage_before_the_checkpoint_leaves_nothing_unknown(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [RECORD])
    start = log.tail.length
    log.put("orders", [RECORD])
    log.checkpoint()
    log.release()
    files.flip_bit(segment(1), offset=start + 60, bit=0)
    again = quarantined(open_store, files)
    assert told(again).missing == {"orders": [(2, 2)]}
    assert told(again).unknown == {}
    assert again.put("orders", [RECORD]) == range(3, 4)


def test_a_commit_whose_witness_lies_beside_its_place_is_not_dropped_in_silence(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    """Opening saw the witness and raised; quarantine did not, and took the commit for torn."""
    log.put("orders", [RECORD])
    log.put("orders", [RECORD * 3])
    log.seal()
    log.release()
    content = files.content(segment(1))
    first, second = content[:SECTOR_BYTES], content[SECTOR_BYTES : 2 * SECTOR_BYTES]
    third = content[2 * SECTOR_BYTES : 3 * SECTOR_BYTES]
    assert b"FQF1" in third
    files.damage(segment(1), 0, first + third + second)
    again = quarantined(open_store, files)
    assert [number for number, _, _ in told(again).regions] == [1]
    assert told(again).unknown == {"orders": 2}
    assert again.put("orders", [RECORD])[0] > 2 + RESERVED_COUNTERS


@pytest.mark.parametrize("size", [0, 40, 80, 200, 330])
def test_a_segment_that_was_cut_short_is_opened_by_everybody_afterwards(
    log: Log, open_store: OpenStore, files: SimFiles, size: int
) -> None:
    """The next open met the missing bytes and raised."""
    for _ in range(3):
        log.put("orders", [RECORD])
    log.rotate()
    log.put("orders", [RECORD])
    log.close()
    cut(files, segment(1), size)
    again = quarantined(open_store, files)
    missing = [(1, 3)] if size < 320 else [(2, 3)]
    assert told(again).missing == {"orders": missing}
    assert told(again).unknown == {}
    assert counters(again)[-1] == 4


def test_a_last_segment_cut_before_the_checkpoint_may_have_lost_more(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    length = put_around_a_checkpoint(log)
    log.release()
    cut(files, segment(1), length)
    assert_the_second_is_missing_and_more_may_be(quarantined(open_store, files))


def test_an_index_that_speaks_of_a_lost_frame_is_built_again(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    """Reading went by it to the frame of records that had been moved, and raised."""
    log.put("orders", [RECORD] * 3)
    log.put("bulk", [b"x" * 4000])
    log.rotate()
    log.take("bulk")
    starts = [log.tail.length]
    while log.compact(1):
        starts.append(log.tail.length)
    log.rotate()
    assert [(span.first, span.last, span.moved) for span in log.queue("orders").spans] == [
        (1, 3, True)
    ]
    log.close()
    assert f"{PATH}/{index_name(2)}" in files.image().files
    files.flip_bit(segment(2), offset=starts[1] + 60, bit=0)
    again = quarantined(open_store, files)
    assert told(again).missing == {"orders": [(2, 2)]}
    assert counters(again) == [1, 3]


def test_a_queue_of_which_a_segment_lost_every_record_is_still_read(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [RECORD])
    log.rotate()
    start = log.tail.length
    log.put("orders", [RECORD])
    log.put("audit", [RECORD])
    log.rotate()
    log.put("orders", [RECORD])
    log.close()
    files.flip_bit(segment(2), offset=start + 60, bit=0)
    again = quarantined(open_store, files)
    assert told(again).missing == {"orders": [(2, 2)]}
    assert counters(again) == [1, 3]
    assert [block.first for block in again.read("orders", removed=True)] == [1, 3]


def test_a_moved_copy_that_is_lost_is_missed_although_an_older_one_is_there(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    """Both lie in one segment, and the older one counted for the record."""
    log.put("orders", [RECORD])
    [(key, payload)] = log.take("orders")
    start = log.tail.length
    draft = log.draft()
    draft.move(log.queue("orders"), [key.counter], [key.timestamp], [payload])
    log.commit(draft)
    log.put("orders", [RECORD])
    log.close()
    files.flip_bit(segment(1), offset=start + 60, bit=0)
    again = quarantined(open_store, files)
    assert told(again).missing == {"orders": [(1, 1)]}
    assert counters(again) == [2]


def test_a_record_that_was_moved_out_of_the_damage_is_not_missing(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    start = log.tail.length
    log.put("orders", [RECORD] * 2)
    key = next(log.keys("orders"))
    draft = log.draft()
    draft.move(log.queue("orders"), [key.counter], [key.timestamp], [RECORD])
    log.commit(draft)
    log.put("orders", [RECORD])
    log.release()
    files.flip_bit(segment(1), offset=start + 60, bit=0)
    again = quarantined(open_store, files)
    assert told(again).missing == {"orders": [(2, 2)]}
    assert counters(again) == [1, 3]


def test_without_a_checkpoint_a_moved_record_that_is_lost_is_at_least_missed(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    """Its counter was passed long ago: only the queue's size tells that it is gone."""
    log.put("orders", [RECORD] * 2)
    [(key, payload)] = log.take("orders")
    start = log.tail.length
    draft = log.draft()
    draft.move(log.queue("orders"), [key.counter], [key.timestamp], [payload])
    log.commit(draft)
    log.put("orders", [RECORD])
    log.release()
    files.flip_bit(segment(1), offset=start + 60, bit=0)
    for name in ("checkpoint.a", "checkpoint.b"):
        unlink(files, f"{PATH}/{name}")
    again = open_store(recover="quarantine")
    assert counters(again) == [2, 3]
    assert told(again).unknown == {"orders": 1}


def test_the_store_is_sound_when_its_last_segment_is_gone(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    """The next segment claimed to continue the one that was lost."""
    log.put("orders", [RECORD] * 2)
    log.rotate()
    log.put("orders", [RECORD])
    log.checkpoint()
    log.put("orders", [RECORD])
    log.release()
    unlink(files, segment(2))
    again = quarantined(open_store, files)
    assert told(again).missing == {"orders": [(3, 3)]}
    assert told(again).unknown == {"orders": 4}
    assert again.put("orders", [RECORD])[0] > 4 + RESERVED_COUNTERS


def test_a_crash_does_not_pass_a_new_segment_off_as_the_lost_one(
    log: Log, open_store: OpenStore, files: SimFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the number of the lost one: the checkpoint must no longer speak of that."""
    log.put("orders", [RECORD] * 2)
    log.rotate()
    log.put("orders", [RECORD])
    log.checkpoint()
    log.put("orders", [RECORD])
    log.release()
    unlink(files, segment(2))

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("store.upkeep.retire", crash)
        with pytest.raises(KeyboardInterrupt):
            open_store(recover="quarantine")
    assert f"{PATH}/{segment_name(2)}" in files.image().files
    again = open_store()
    assert counters(again) == [1, 2]
    assert again.put("orders", [RECORD])[0] > 4 + RESERVED_COUNTERS


@pytest.mark.parametrize("value", [0, 2, 255])
def test_a_rotten_algorithm_byte_costs_no_record(
    log: Log, open_store: OpenStore, files: SimFiles, value: int
) -> None:
    """Another algorithm that there is made every frame of the segment look damaged."""
    log.put("orders", [RECORD] * 3)
    log.rotate()
    log.put("orders", [RECORD])
    log.close()
    files.damage(segment(1), ALGORITHM_AT, bytes([value]))
    again = quarantined(open_store, files)
    assert told(again).regions == [(1, 0, 80)]
    assert told(again).missing == {}
    assert told(again).unknown == {}
    assert counters(again) == [1, 2, 3, 4]


def test_zeros_where_a_sealed_segment_had_its_last_frame_are_damage(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    """The check took them for zeros ahead; only a state was in there, so nothing else told."""
    log.put("orders", [RECORD])
    start = log.tail.length
    draft = log.draft()
    draft.set_states([("alice", b"10")])
    log.commit(draft)
    log.rotate()
    log.put("orders", [RECORD])
    log.close()
    files.damage(segment(1), start, bytes(log.state.segments[1].length - start))
    again = quarantined(open_store, files)
    assert told(again).states == ["alice"]
    assert counters(again) == [1, 2]


def test_a_file_in_the_place_of_the_only_segment_is_nothing_to_start_from(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [RECORD])
    log.rotate()
    log.put("orders", [RECORD])
    log.take("orders", 1)
    log.checkpoint()
    assert set(log.state.segments) == {2}
    log.release()
    content = files.content(segment(2))
    unlink(files, segment(2))
    files.add_file(segment(1), content)
    image = files.image()
    with pytest.raises(CorruptionError, match="every segment is missing"):
        open_store(recover="quarantine")
    assert files.image() == image
