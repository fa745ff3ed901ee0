"""What stays although it is not live: held for consumers, or retained by a queue's own limits."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from store import Log, LogOptions, Retention
from store.checkpoint import UnloggedEntry
from store.growth import UNLOGGED_GROWTH
from store.keeping import held_bytes
from store.keys import COUNTER_MAX
from tests.store.conftest import OpenStore

RECORD = b"x" * 1000
OPTIONS = LogOptions(fill_bytes=512, reserve_bytes=512)


def filled(log: Log, count: int = 5, name: str = "orders") -> None:
    """That many sealed segments of one record each, and a tail."""
    for _ in range(count):
        log.put(name, [RECORD])
        log.rotate()
    log.put("tail", [b"t"])


def segments(log: Log) -> list[int]:
    return sorted(log.state.segments)


def kept(log: Log, name: str = "orders") -> list[int]:
    return [c for block in log.read(name, removed=True) for c in block.counters()]


# Holding.


def test_removed_records_are_held_from_a_counter_on(log: Log) -> None:
    filled(log)
    log.hold("orders", 3)
    log.take("orders", 5)
    assert kept(log) == [3, 4, 5]
    assert segments(log) == [3, 4, 5, 6]
    log.hold("orders", 5)
    log.keep_house()
    assert kept(log) == [5]
    log.hold("orders", None)
    log.keep_house()
    assert kept(log) == []
    assert segments(log) == [6]


def test_to_hold_more_than_before_asks_for_no_housework(log: Log) -> None:
    filled(log)
    log.hold("orders", 3)
    log.take("orders", 5)
    log.hold("orders", 2)
    log.hold("orders", 2)
    assert not log.upkeep_due()
    log.hold("orders", 3)
    assert log.upkeep_due()
    log.keep_house()
    assert kept(log) == [3, 4, 5]


def test_the_tail_is_not_looked_over(log: Log) -> None:
    log.put("orders", [RECORD])
    log.take("orders")
    log.hold("orders", 1)
    log.hold("orders", None)
    log.retain("orders")
    assert not log.upkeep_due()


def test_what_is_held_is_not_compacted(log: Log) -> None:
    log.put("orders", [RECORD] * 10)
    log.rotate()
    log.put("tail", [b"t"])
    log.hold("orders", 4)
    log.take("orders", 9)
    assert not log.compact()
    assert kept(log) == list(range(1, 11))
    log.hold("orders", 11)
    while log.compact():
        pass
    assert kept(log) == [10]


@pytest.mark.parametrize("clean", [True, False])
def test_what_is_held_is_held_after_a_reopen(open_store: OpenStore, clean: bool) -> None:
    log = open_store()
    filled(log)
    log.hold("orders", 2)
    log.take("orders", 5)
    if clean:
        log.close()
    else:
        log.checkpoint()
        log.release()
    log = open_store()
    assert log.state.queues["orders"].held == 2
    log.put("tail", [b"u"])
    log.compact()
    assert kept(log) == [2, 3, 4, 5]


def test_who_holds_records_is_asked_before_they_go(log: Log) -> None:
    asked = []

    def hold() -> bool:
        asked.append(segments(log))
        log.hold("orders", 4)
        return True

    filled(log)
    log.before_reclaim = hold
    log.put("tail", [b"u"])
    assert asked == []
    log.take("orders", 5)
    assert asked == [[1, 2, 3, 4, 5, 6]]
    assert kept(log) == [4, 5]


def test_nothing_goes_while_he_cannot_tell(log: Log) -> None:
    filled(log)
    log.before_reclaim = lambda: False
    log.take("orders", 5)
    log.compact()
    log.flush()
    assert kept(log) == [1, 2, 3, 4, 5]
    log.before_reclaim = lambda: True
    log.compact()
    assert kept(log) == []


def test_he_is_asked_before_compaction_as_well(log: Log) -> None:
    log.put("orders", [RECORD] * 10)
    log.rotate()
    log.put("tail", [b"t"])
    log.take("orders", 9)

    def hold() -> bool:
        log.hold("orders", 1)
        return True

    log.before_reclaim = lambda: False
    assert not log.compact()
    log.before_reclaim = hold
    assert not log.compact()
    assert kept(log) == list(range(1, 11))


def test_held_bytes_are_those_that_only_holding_keeps(log: Log) -> None:
    filled(log)
    # Half of this one lives, and nothing of the tail can go.
    log.put("orders", [RECORD] * 4)
    log.rotate()
    log.put("orders", [RECORD])
    log.hold("orders", 1)
    log.take("orders", 7)
    lengths = {number: segment.length for number, segment in log.state.segments.items()}
    assert held_bytes(log, {"orders": 6}) == 0
    assert held_bytes(log, {"orders": 4, "nobody": 1}) == lengths[4] + lengths[5]
    assert held_bytes(log, {"orders": 1}) == sum(lengths[number] for number in range(1, 6))
    log.retain("orders", limits=Retention(max_segments=2))
    assert held_bytes(log, {"orders": 1}) == lengths[1] + lengths[2] + lengths[3]


def test_the_room_of_checkpoints_is_enough_for_a_hold() -> None:
    """It is held for each queue together with an entry of unlogged removals."""
    name = "abcdefgh/" + "q" * 64 + ".dlq"
    entry = UnloggedEntry(name, 6, *[COUNTER_MAX] * 5)
    held = f',"held":{COUNTER_MAX}'
    assert len(msgspec.json.encode(entry)) + len(",") + len(held) <= UNLOGGED_GROWTH


@pytest.mark.parametrize("seed", range(12))
def test_what_is_held_can_be_read_whatever_happens(open_store: OpenStore, seed: int) -> None:
    """Random lives of a log, with crashes: the newest hold that a checkpoint knows is kept."""
    random = Random(seed)
    options = msgspec.structs.replace(OPTIONS, segment_records=7, checkpoint_bytes=3000)
    log = open_store(options)
    # A queue that has no commit yet is not in a checkpoint either.
    put = list(log.put("orders", [RECORD]))
    held = 1
    log.hold("orders", held)

    def take(count: int) -> None:
        taken = log.take("orders", count)
        assert [key.counter for key, _ in taken] == sorted(key.counter for key, _ in taken)

    for _ in range(80):
        work = random.choice(["put", "put", "put", "take", "hold", "compact", "rotate", "reopen"])
        if work == "put":
            put += log.put("orders", [RECORD[: random.randrange(900)]] * random.randint(1, 4))
        elif work == "take":
            take(random.randint(1, 5))
        elif work == "hold":
            held = random.randint(held, put[-1] + 1)
            log.hold("orders", held)
            log.checkpoint()
        elif work == "compact":
            log.put("other", [b"o"])
            log.take("other")
            log.compact(500)
        elif work == "rotate":
            log.rotate()
        elif work == "reopen":
            if random.random() < 0.5:
                log.close()
            else:
                log.checkpoint()
                log.release()
            log = open_store(options)
            assert log.queue("orders").held == held
        found = kept(log)
        assert [c for c in found if c >= held] == [c for c in put if c >= held]
        assert {key.counter for key in log.keys("orders")} <= set(found)
    log.hold("orders", None)
    take(len(put))
    log.rotate()
    log.put("tail", [b"t"])
    log.compact()
    assert kept(log) == []


# Limits of a queue's own.


def test_limits_of_a_queue_stand_before_those_of_the_options(open_store: OpenStore) -> None:
    log = open_store(msgspec.structs.replace(OPTIONS, retention=Retention(max_segments=4)))
    log.retain("orders", limits=Retention(max_segments=2))
    log.retain("other")
    for name in ("orders", "other"):
        for _ in range(5):
            log.put(name, [RECORD])
            log.rotate()
    log.put("tail", [b"t"])
    log.take("orders", 5)
    log.take("other", 5)
    assert kept(log) == [4, 5]
    assert kept(log, "other") == [2, 3, 4, 5]
    log.retain("other", limits=Retention(max_segments=1))
    log.keep_house()
    assert kept(log, "other") == [5]
    log.retain("other", retained=False)
    log.keep_house()
    assert kept(log, "other") == []


def test_a_segment_goes_only_when_no_queue_wants_it(log: Log) -> None:
    log.retain("orders", limits=Retention(max_segments=0, min_segments=0))
    log.retain("other", limits=Retention(max_segments=1))
    log.put("orders", [RECORD])
    log.put("other", [RECORD])
    log.rotate()
    log.put("orders", [RECORD])
    log.rotate()
    log.put("tail", [b"t"])
    log.take("orders", 2)
    log.take("other")
    assert kept(log) == [1]
    assert kept(log, "other") == [1]


def test_a_stuck_record_does_not_keep_what_is_past_the_limits(log: Log) -> None:
    """Its segment is compacted as soon as enough newer ones are kept."""
    log.retain("orders", limits=Retention(max_segments=2))
    log.put("stuck", [b"s"])
    log.put("orders", [RECORD] * 5)
    log.rotate()
    filled(log, 4)
    log.take("orders", 9)
    while log.compact():
        pass
    log.put("tail", [b"u"])
    assert kept(log) == [8, 9]
    assert [key.counter for key in log.keys("stuck")] == [1]
