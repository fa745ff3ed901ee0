"""A record's journey: every step that frames tell, and an honest word on those they do not."""

from __future__ import annotations

import contextlib
import logging

import pytest

from fifoq.testing.simfiles import SimFiles
from store import (
    AccessError,
    CorruptionError,
    DiskFull,
    InvalidName,
    Log,
    LogOptions,
    Reader,
    open_log,
)
from store import journey as module
from store.blocks import (
    ACKED,
    DEAD_LETTERED,
    DELIVER_AT,
    DROPPED,
    EXPIRED,
    HEADERS,
    TAKEN,
    Column,
    records_weight,
)
from store.journey import Journey
from store.segment import segment_name
from tests.store.conftest import PATH
from tests.support.clock import WALL_START, ManualClock


@pytest.fixture
def look(log: Log, files: SimFiles, clock: ManualClock) -> Look:
    return Look(log, files, clock)


class Look:
    """Seals the log and reads a journey from outside."""

    def __init__(self, log: Log, files: SimFiles, clock: ManualClock) -> None:
        self.log = log
        self._files = files
        self._clock = clock

    def reader(self) -> Reader:
        self.log.flush()
        self.log.seal()
        return Reader(PATH, files=self._files, clock=self._clock)

    def __call__(self, counter: int, name: str = "orders") -> Journey:
        with self.reader() as reader:
            return reader.journey(name, counter)


def remove(
    log: Log, counter: int, reason: int = TAKEN, *, size: int = 1, name: str = "orders"
) -> None:
    draft = log.draft()
    draft.remove(log.queue(name), [(counter, counter, records_weight(size, 1))], reason=reason)
    log.commit(draft)


def lease(log: Log, counter: int, attempt: int, deadline: int = 0) -> None:
    draft = log.draft()
    draft.lease(log.queue("orders"), [counter], [attempt], deadline)
    log.commit(draft)


def restore(log: Log, counter: int, payload: bytes) -> None:
    draft = log.draft()
    draft.move(log.queue("orders"), [counter], [WALL_START], [payload], {})
    log.commit(draft)


def kinds(journey: Journey) -> list[str]:
    return [step.kind for step in journey.steps]


def test_a_put_tells_its_place_size_columns_and_company(
    log: Log, look: Look, clock: ManualClock
) -> None:
    draft = log.draft()
    columns: dict[int, Column] = {DELIVER_AT: [0, 99], HEADERS: [b"", b"hh"]}
    draft.put(
        log.queue("orders"), [b"a", b"bcd"], times=[WALL_START, WALL_START + 5], columns=columns
    )
    draft.put(log.queue("other"), [b"x"])
    sequence = log.commit(draft)
    told = look(2)
    (step,) = told.steps
    assert (step.kind, step.time, step.size, step.sequence) == ("put", WALL_START + 5, 3, sequence)
    assert step.columns == {DELIVER_AT: 99, HEADERS: b"hh"}
    assert (step.segment, step.frame_records, step.frame_time) == (1, 3, 0)
    assert (told.live, told.attempts, told.fate, told.left_out) == (True, 0, "", 0)
    assert (told.unlogged, told.damage) == (None, [])


def test_a_frame_that_holds_more_than_puts_tells_when_it_was_put_together(
    log: Log, look: Look, clock: ManualClock
) -> None:
    clock.advance(seconds=2)
    draft = log.draft()
    draft.put(log.queue("orders"), [b"a"], times=[WALL_START])
    draft.set_states([("x", b"y")])
    log.commit(draft)
    assert look(1).steps[0].frame_time == WALL_START + 2 * 10**9


def test_hand_outs_and_the_end_are_told_in_order(log: Log, look: Look, clock: ManualClock) -> None:
    log.put("orders", [b"a", b"b"])
    for attempt in (1, 2):
        lease(log, 2, attempt, deadline=77)
    log.put("other", [b"x"])
    told = look(2)
    assert (kinds(told), told.live, told.attempts) == (["put", "leased", "leased"], True, 2)
    assert [(s.attempt, s.deadline) for s in told.steps[1:]] == [(1, 77), (2, 77)]
    clock.advance(seconds=3)
    when = clock.wall()
    remove(log, 2, ACKED)
    told = look(2)
    assert (kinds(told), told.live) == (["put", "leased", "leased", "removed"], False)
    assert (told.steps[-1].reason, told.steps[-1].time) == (ACKED, when)
    assert kinds(look(1)) == ["put"]


@pytest.mark.parametrize("reason", [TAKEN, ACKED, EXPIRED, DROPPED, DEAD_LETTERED])
def test_the_reason_of_a_removal_is_told(log: Log, look: Look, reason: int) -> None:
    log.put("orders", [b"a"])
    remove(log, 1, reason)
    assert look(1).steps[-1].reason == reason


def test_what_went_to_the_dead_letters_tells_where_to(log: Log, look: Look) -> None:
    log.put("orders", [b"a", b"b"])
    draft = log.draft()
    ranges = [(2, 2, records_weight(1, 1))]
    draft.remove(log.queue("orders"), ranges, reason=DEAD_LETTERED)
    draft.put(log.queue("orders.dlq"), [b"b"])
    draft.put(log.queue("orders"), [b"c"])
    log.commit(draft)
    assert look(2).steps[-1].dead_letters == [("orders.dlq", 1, 1)]
    assert look(1).steps[-1].dead_letters == []


def test_a_record_that_came_back_after_its_removal_is_told_as_restored(
    log: Log, look: Look
) -> None:
    log.retain("orders")
    log.put("orders", [b"a"])
    remove(log, 1)
    restore(log, 1, b"a")
    assert (kinds(look(1)), look(1).live) == (["put", "removed", "restored"], True)
    log.rotate()
    remove(log, 1)
    assert kinds(look(1)) == ["put", "removed", "restored", "removed"]


def test_a_record_that_came_back_in_a_later_segment_is_told_so(log: Log, look: Look) -> None:
    log.put("orders", [b"a", b"keeps the segment"])
    remove(log, 1)
    log.rotate()
    log.put("orders", [b"b"])
    restore(log, 1, b"a")
    log.rotate()
    remove(log, 1)
    log.put("orders", [b"c"])
    log.rotate()
    log.put("orders", [b"d"])
    assert kinds(look(1)) == ["put", "removed", "restored", "removed"]


def test_compaction_is_told_and_what_it_leaves_behind(log: Log, look: Look) -> None:
    log.put("orders", [b"a" * 900, b"b", b"c" * 900])
    log.rotate()
    log.put("orders", [b"d"])
    for counter in (1, 3):
        remove(log, counter, size=900)
    while log.compact():
        pass
    told = look(2)
    # The segment with its put is gone: that is said, not guessed.
    assert (kinds(told), told.fate, told.live) == (["moved"], "reclaimed", True)
    assert (told.steps[0].time, told.steps[0].size) == (WALL_START, 1)
    gone = look(1)
    assert (kinds(gone), gone.fate, gone.live) == (["removed"], "reclaimed", False)


def test_what_was_reclaimed_whole_is_said_to_be_so(log: Log, look: Look) -> None:
    log.put("orders", [b"a"])
    remove(log, 1)
    log.rotate()
    log.put("orders", [b"b"])
    log.keep_house()
    log.checkpoint()
    log.rotate()
    log.put("orders", [b"c"])
    told = look(1)
    assert (told.steps, told.fate, told.live) == ([], "reclaimed", False)


def test_a_counter_that_nobody_had_is_told_from_one_that_nobody_has_yet(
    log: Log, look: Look
) -> None:
    assert look(1).fate == "not put"
    log.put("orders", [b"a"])
    draft = log.draft()
    draft.put(log.queue("orders"), [b"d"], first=4)
    log.commit(draft)
    for skipped in (2, 3):
        told = look(skipped)
        assert (told.steps, told.fate, told.live) == ([], "skipped", False)
    assert look(4).fate == ""
    assert look(5).fate == "not put"
    assert look(1, "nobody").fate == "not put"


def test_queues_whose_names_are_alike_are_kept_apart(log: Log, look: Look) -> None:
    log.put("orders", [b"a"])
    log.put("orders-2", [b"x", b"y"])
    remove(log, 1, name="orders-2")
    assert kinds(look(1)) == ["put"]
    assert kinds(look(1, "orders-2")) == ["put", "removed"]


def test_only_the_segments_that_may_tell_something_are_read(
    log: Log, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.retain("orders")
    for _ in range(4):
        log.put("orders", [b"a"])
        log.rotate()
    remove(log, 2)
    log.put("orders", [b"e"])
    log.rotate()
    log.put("orders", [b"f"])
    read: list[int] = []
    frames = Reader.frames

    def noted(self: Reader, number: int, start: int = 0) -> object:
        read.append(number)
        return frames(self, number, start)

    monkeypatch.setattr(Reader, "frames", noted)
    assert kinds(look(2)) == ["put", "removed"]
    assert read == [2, 3, 4, 5]
    read.clear()
    assert kinds(look(3)) == ["put"]
    assert read == [3]


def test_a_removal_whose_frame_was_reclaimed_is_told_by_what_is_left(log: Log, look: Look) -> None:
    log.retain("orders")
    log.put("orders", [b"a"])
    log.rotate()
    remove(log, 1)
    log.rotate()
    log.put("orders", [b"b"])
    told = look(1)
    assert (kinds(told), told.live, told.fate) == (["put"], False, "")


def test_an_endless_journey_has_its_first_and_last_steps(
    log: Log, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEPS_MAX", 5)
    log.put("orders", [b"a"])
    for attempt in range(1, 11):
        lease(log, 1, attempt)
    told = look(1)
    assert [step.attempt for step in told.steps] == [0, 1, 2, 9, 10]
    assert told.left_out == 6


def test_a_removal_that_only_the_checkpoint_holds_is_told(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("store"), "disabled", True)
    files = SimFiles(capacity=40 << 10)
    options = LogOptions(fill_bytes=0, reserve_bytes=1024, segment_bytes=64 << 10)
    with open_log(PATH, files=files, clock=clock, options=options) as log:
        with contextlib.suppress(DiskFull):
            while True:
                log.put("orders", [b"x" * 120])
        counter = 1
        while not log.state.unlogged:
            counter += 2
            remove(log, counter, size=120)
        look = Look(log, files, clock)
        told = look(counter)
        assert (told.live, kinds(told)) == (False, ["put"])
        assert told.unlogged == (TAKEN, WALL_START)
        assert look(1).unlogged is None
        draft = log.draft()
        draft.remove(log.queue("orders"), [(1, 1, records_weight(120, 1))])
        log.commit(draft)
        assert look(1).unlogged is not None
        # One that is told by a frame, below the others.
        assert look(3).unlogged is None


def test_a_removal_that_is_told_again_is_one(log: Log, look: Look) -> None:
    log.put("orders", [b"a"])
    remove(log, 1)
    remove(log, 1)
    assert kinds(look(1)) == ["put", "removed"]


def test_damage_is_named_and_the_rest_is_told(log: Log, look: Look, files: SimFiles) -> None:
    log.retain("orders")
    log.put("orders", [b"a"])
    log.rotate()
    log.put("orders", [b"b"])
    lease(log, 1, 1)
    log.rotate()
    remove(log, 1)
    with look.reader() as reader:
        place = f"{PATH}/{segment_name(2)}"
        content = bytearray(files.content(place))
        offset = next(reader.frames(2)).offset
        content[offset + 60] ^= 1
        _overwrite(files, segment_name(2), bytes(content))
        told = reader.journey("orders", 1)
        assert kinds(told) == ["put", "removed"]
        assert len(told.damage) == 1
        assert place in told.damage[0]
        # Whether it was skipped or hidden is not known now.
        assert reader.journey("orders", 2).fate == "reclaimed"


def _overwrite(files: SimFiles, name: str, content: bytes) -> None:
    directory = files.open_dir(PATH)
    handle = files.open(directory, name, write=True)
    files.pwrite(handle, content, 0)
    files.close(handle)
    files.close(directory)


def test_a_segment_that_the_owner_reclaims_meanwhile_is_looked_past(log: Log, look: Look) -> None:
    log.put("orders", [b"a" * 900, b"b"])
    log.rotate()
    log.put("orders", [b"c"])
    with look.reader() as reader:
        remove(log, 1, size=900)
        while log.compact():
            pass
        log.checkpoint()
        log.seal()
        told = reader.journey("orders", 2)
        assert (kinds(told), told.fate) == (["moved"], "reclaimed")


def test_a_segment_that_is_missing_is_damage(log: Log, look: Look, files: SimFiles) -> None:
    log.put("orders", [b"a"])
    log.rotate()
    log.put("orders", [b"b"])
    with look.reader() as reader:
        directory = files.open_dir(PATH)
        files.unlink(directory, segment_name(1))
        files.close(directory)
        with pytest.raises(CorruptionError, match="the segment is missing"):
            reader.journey("orders", 1)


def test_what_the_system_refuses_is_told(
    log: Log, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.put("orders", [b"a"])
    with look.reader() as reader:

        def refuse(self: Reader, number: int, start: int = 0) -> object:
            raise AccessError("no more files")

        monkeypatch.setattr(Reader, "frames", refuse)
        with pytest.raises(AccessError, match="no more files"):
            reader.journey("orders", 1)


def test_nonsense_is_refused(look: Look) -> None:
    with look.reader() as reader:
        for wrong in (0, -1, "1", None):
            with pytest.raises(ValueError, match="is no counter"):
                reader.journey("orders", wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidName):
            reader.journey("No Queue", 1)
