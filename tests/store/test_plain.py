"""Plain puts write what a draft would write, byte for byte, and leave all else to it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from fifoq.testing.simfiles import SimFiles
from store import Draft, Log, LogOptions, open_log, plain
from store.blocks import records_weight
from store.errors import DiskFull, ItemTooLarge, StaleDraft
from store.packing import json_bytes_max, put_growth
from store.plain import PlainPut, prepare
from store.ranges import RangeSet
from store.segment import segment_name
from tests.store.conftest import PATH
from tests.support.clock import ManualClock

OPTIONS = LogOptions(
    segment_bytes=64 << 10, checkpoint_bytes=16 << 10, fill_bytes=4096, reserve_bytes=4096
)
SEEDS = range(12)
STEPS = 120


class Counting:
    """`prepare`, with how often it did the work itself."""

    def __init__(self) -> None:
        self.plain = self.left = 0

    def __call__(self, *arguments: object, **keywords: object) -> PlainPut | None:
        put = prepare(*arguments, **keywords)  # type: ignore[arg-type]
        if put is None:
            self.left += 1
        else:
            self.plain += 1
        return put


def contents(files: SimFiles, log: Log) -> dict[str, bytes]:
    """All files. Of the tail what is behind its last frame is left out: zeros, if it is right."""
    names = files.list_dir(log.directory.handle)
    found = {name: files.content(f"{PATH}/{name}") for name in names}
    tail = segment_name(log.tail.file.number)
    frames, ahead = found[tail][: log.tail.length], found[tail][log.tail.length :]
    assert not any(ahead)
    return found | {tail: frames}


def play(seed: int, commit: Callable[..., object] = Log.commit) -> list[dict[str, bytes]]:
    """What lies on the disk now and then while random work is done, and after a reopen."""
    random, files, clock = Random(seed), SimFiles(), ManualClock(seed=seed)
    log = open_log(PATH, files=files, clock=clock, options=OPTIONS)
    seen = []
    for step in range(STEPS):
        clock.advance(seconds=random.choice((0, 0.0001, 0.5)))
        if random.random() < 0.02:
            clock.set_wall(clock.wall() - 10**9)
        _work(random, log, commit)
        if step % 10 == 0:
            seen.append(contents(files, log))
        if random.random() < 0.03:
            log.close()
            log = open_log(PATH, files=files, clock=clock, options=OPTIONS)
    seen.append(contents(files, log))
    log.close()
    return seen


def _work(random: Random, log: Log, commit: Callable[..., object]) -> None:
    name = random.choice(("a", "a", "b"))
    queue = log.queue(name)
    even = random.random() < 0.7
    count = random.choice((1, 2, 7, 100))
    size = random.randrange(300)
    payloads = [b"x" * (size if even else random.randrange(300)) for _ in range(count)]
    sync = random.random() < 0.5
    match random.randrange(8):
        case 0:
            log.take(name, random.randrange(1, 50), sync=sync)
        case 1:
            _ack_one(random, log, "b", commit)
        case 2 | 3:
            log.put(name, payloads, sync=sync)
        case _:
            now = log.clock.wall()
            half = random.randrange(1, count) if count > 1 else 1
            runs = [(half, now), (count - half, now + random.randrange(2**33))]
            gap = 3 if name == "b" and random.random() < 0.2 else 0
            put = log.prepare_put(
                queue,
                payloads,
                first=queue.genesis.next_counter + gap,
                time_runs=runs if count > 1 and random.random() < 0.5 else [(count, now)],
                item_bytes=size if even else None,
                marks=None if random.random() < 0.5 else (10**6, now, 0, now),
                sync=sync,
            )
            commit(log, put, sync=sync)


def _ack_one(random: Random, log: Log, name: str, commit: Callable[..., object]) -> None:
    """Remove a record out of order."""
    blocks = list(log.read(name))
    if not blocks:
        return
    block = random.choice(blocks)
    at = random.randrange(block.count)
    counter = block.counters()[at]
    draft = log.draft()
    weight = records_weight(block.record_bytes(at), 1)
    draft.remove(log.queue(name), [(counter, counter, weight)])
    commit(log, draft, sync=True)


def test_zeros_are_written_before_a_put_finds_no_room() -> None:
    """So that a run of plain puts never needs a draft for them."""
    log = open_log(PATH, files=SimFiles(), clock=ManualClock(), options=OPTIONS)
    for _ in range(100):
        log.put("a", [b"x" * 100])
        assert log.tail.has_room(300)
    log.close()


def test_what_is_written_is_what_a_draft_would_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve random lives of a store, each lived twice: as it is, and by drafts alone."""
    counting = Counting()
    for seed in SEEDS:
        with monkeypatch.context() as patch:
            patch.setattr(plain, "prepare", counting)
            ours = play(seed)
            patch.setattr(plain, "prepare", lambda *_, **__: None)
            by_drafts = play(seed)
        assert ours == by_drafts, f"seed {seed}"
    assert counting.plain > 200
    assert counting.left > 50


class InTwoSteps:
    """Commits that are begun where that is possible, written by the test or by the log."""

    def __init__(self, *, by_hand: bool) -> None:
        self.by_hand = by_hand
        self.puts = self.drafts = self.unsynced = self.left = 0

    def __call__(self, log: Log, draft: Draft | PlainPut, *, sync: bool) -> None:
        begun = log.begin(draft, sync=sync)
        if begun is None:
            self.left += 1
            log.commit(draft, sync=sync)
            return
        self.puts += isinstance(draft, PlainPut)
        self.drafts += isinstance(draft, Draft)
        self.unsynced += not sync
        if self.by_hand:
            files = log.directory.files
            assert files.pwrite(begun.file.handle, begun.frame, begun.offset) == len(begun.frame)
            if sync:
                files.datasync(begun.file.handle)
            begun.end(0.001)
        else:
            begun.write()
        log.keep_house()


@pytest.mark.parametrize("by_hand", [True, False])
def test_what_is_written_in_two_steps_is_what_one_would_write(by_hand: bool) -> None:
    in_two = InTwoSteps(by_hand=by_hand)
    for seed in SEEDS:
        assert play(seed, in_two) == play(seed), f"seed {seed}"
    assert in_two.puts > 50
    assert in_two.drafts > 20
    assert in_two.unsynced > 100
    assert in_two.left > 50


@pytest.mark.parametrize("floor", [0, 5, 70_000])
@pytest.mark.parametrize("count", [1, 31, 100, 5000, 200_000])
@pytest.mark.parametrize("live", [0, 1, 30, 31, 32, 2000, 2046, 65_534, 150_000])
def test_the_growth_of_a_put_is_what_its_records_may_need(
    live: int, count: int, floor: int
) -> None:
    nothing, following = RangeSet(), floor + live + 1
    before = json_bytes_max(nothing, live, floor, following)
    after = json_bytes_max(nothing, live + count, floor, following + count)
    assert put_growth(live, floor, following, count) == after - before


def test_a_put_of_another_kind_of_sequence_is_stored_as_well(log: Log) -> None:
    log.put("a", [b"1"])
    assert log.put("a", (b"2", b"3")) == range(2, 4)
    assert log.put("a", []) == range(4, 4)
    assert [payload for _, payload in log.take("a", 9)] == [b"1", b"2", b"3"]


def test_a_payload_that_is_not_bytes_is_refused_and_named(log: Log) -> None:
    log.put("a", [b"1"])
    with pytest.raises(TypeError, match="payload 1 is str, not bytes"):
        log.put("a", [b"2", "3"])  # type: ignore[list-item]
    assert log.queue("a").genesis.next_counter == 2


def test_a_view_of_larger_items_is_refused(log: Log) -> None:
    log.put("a", [b"1"])
    before = log.sequence
    with pytest.raises(TypeError, match="a view of items larger than a byte"):
        log.put("a", [b"22", memoryview(b"3333").cast("H")])
    assert log.sequence == before


def test_a_frame_over_the_limit_is_refused(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.put("a", [b"1"])
    for module in ("encoding", "plain", "gathering"):
        monkeypatch.setattr(f"store.{module}.BODY_BYTES_MAX", 4096)
    for size in (3000, 3900, 5000):
        before = log.sequence
        if size == 3000:
            log.put("a", [b"x" * size])
            assert log.sequence == before + 1
        else:
            with pytest.raises(ItemTooLarge):
                log.put("a", [b"x" * size])
            assert log.sequence == before


def fill(log: Log, name: str) -> int:
    """Put records until the disk is full; returns how many."""
    stored = 0
    while True:
        try:
            log.put(name, [b"2" * 100] * 50)
        except DiskFull:
            assert stored
            return stored
        stored += 50


def test_a_full_disk_refuses_a_plain_put_and_all_records_can_be_removed() -> None:
    """In any order: a put that was refused must not have used up the room held for removals."""
    log = open_log(PATH, files=SimFiles(capacity=96 << 10), clock=ManualClock(), options=OPTIONS)
    stored = fill(log, "a")
    with pytest.raises(DiskFull):
        log.put("a", [b"2" * 100] * 50)
    queue = log.queue("a")
    for counter in (*range(1, stored + 1, 2), *range(2, stored + 1, 2)):
        draft = log.draft()
        draft.remove(queue, [(counter, counter, records_weight(100, 1))])
        log.commit(draft)
    assert queue.genesis.queue_size == 0
    log.close()


def test_a_put_that_was_prepared_before_another_commit_is_refused(log: Log) -> None:
    log.put("a", [b"1"])
    queue = log.queue("a")
    puts = [
        log.prepare_put(
            queue,
            [payload],
            first=2,
            time_runs=[(1, log.clock.wall())],
            item_bytes=1,
            marks=None,
            sync=True,
        )
        for payload in (b"2", b"3")
    ]
    log.commit(puts[0])
    with pytest.raises(StaleDraft, match="Nothing was stored"):
        log.commit(puts[1])
    assert [payload for _, payload in log.take("a", 9)] == [b"1", b"2"]
