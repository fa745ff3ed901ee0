"""Reading by counter and by time, on real segments: lookup, segment files, index, cache."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fifoq.testing.image import Image
from fifoq.testing.simfiles import SimFiles
from store import CorruptionError, LogOptions, lookup, open_log
from store.blocks import ACKED, PRIORITY, Column, records_weight
from store.cache import OPEN_SEGMENTS_MAX, SAVE_BYTES_MIN
from store.checksum import CRC32, CRC32C, check_function
from store.encoding import encode_records
from store.errors import DamageError
from store.frames import (
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    encode_frame,
)
from store.genesis import Genesis, encode_genesis
from store.index import MovedEntry
from store.log import Log
from store.lookup import SEEK_BYTES_MIN
from store.ranges import merged
from store.replay import frame_blocks
from store.segment import (
    READ_BYTES,
    Frame,
    SegmentClosed,
    SegmentFile,
    index_name,
    index_number,
    read_exactly,
    segment_name,
    segment_number,
)
from tests.support.clock import ManualClock
from tests.support.faulty import Fault, FaultyFiles

OPTIONS = LogOptions(fill_bytes=512, reserve_bytes=512, segment_bytes=65536)


@pytest.fixture
def files() -> SimFiles:
    return SimFiles()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(files: SimFiles, clock: ManualClock) -> Iterator[Log]:
    with open_log("/q", files=files, clock=clock, options=OPTIONS) as found:
        yield found


def records(log: Log, name: str, first: int = 1, last: int = 10**9) -> list[tuple[int, bytes]]:
    return [
        pair
        for block in log.read(name, first, last)
        for pair in zip(block.counters(), block.payloads(), strict=True)
    ]


def remove(log: Log, name: str, counters: list[int]) -> None:
    draft = log.draft()
    ranges = merged([(counter, counter, records_weight(1, 1)) for counter in sorted(counters)])
    draft.remove(log.queue(name), ranges, reason=ACKED)
    log.commit(draft)


def image_of(files: SimFiles) -> dict[str, bytes]:
    return dict(files.image().files)


def reopened(content: dict[str, bytes], clock: ManualClock) -> Log:
    return open_log("/q", files=SimFiles.from_image(Image.of(content)), clock=clock)


# Records by counter.


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_reading_gives_the_live_records_of_any_range(seed: int) -> None:
    random, clock, live = Random(seed), ManualClock(), dict[int, bytes]()
    times = dict[int, int]()
    log = open_log("/q", files=SimFiles(), clock=clock, options=OPTIONS)
    log.queue("a").retained = random.random() < 0.5
    for _ in range(random.randint(1, 25)):
        kind = random.randrange(8)
        clock.advance(seconds=random.choice([0, 1, 1]))
        if kind < 4:
            payloads = [random.randbytes(random.choice([9, 3000])) for _ in range(3)]
            counters = log.put("a", payloads)
            live.update(zip(counters, payloads, strict=True))
            times.update(dict.fromkeys(counters, clock.wall()))
            log.put("b", [b"in between"])
        elif kind == 4 and live:
            chosen = random.sample(sorted(live), random.randint(1, len(live)))
            remove(log, "a", chosen)
            for counter in chosen:
                del live[counter]
        elif kind == 5:
            log.rotate()
        elif kind == 6:
            log.compact(3000)
        else:
            log.checkpoint()
    assert records(log, "a") == sorted(live.items())
    for _ in range(10):
        first, last = random.randrange(1, 80), random.randrange(1, 80)
        expected = [pair for pair in sorted(live.items()) if first <= pair[0] <= last]
        assert records(log, "a", first, last) == expected
        assert log.exists("a", first) == (first in live)
        found = log.get("a", first)
        assert (found and found[1]) == live.get(first)
    retained = [c for block in log.read("a", removed=True) for c in block.counters()]
    assert retained == sorted(retained)
    assert set(live) <= set(retained)
    for time in {*times.values(), clock.wall() + 1}:
        later = [counter for counter in retained if times[counter] >= time]
        assert log.seek("a", time) == (later[0] if later else log.queue("a").genesis.next_counter)
    log.close()


def test_a_seek_finds_records_put_while_the_clock_was_back(log: Log, clock: ManualClock) -> None:
    """A segment's newest put time was once the clock's, although put times are clamped."""
    start = clock.wall()
    log.put("a", [b"1"])
    clock.set_wall(start - 10**9)
    log.rotate()
    log.put("a", [b"2"])
    log.rotate()
    log.take("a")
    log.checkpoint()
    assert log.seek("a", start) == 2
    assert log.seek("a", start + 1) == 3


def test_far_entries_are_jumped_to(files: SimFiles, clock: ManualClock) -> None:
    log = open_log("/q", files=files, clock=clock, options=LogOptions(fill_bytes=0))
    log.put("a", [b"1"])
    for _ in range(3):
        log.put("b", [bytes(SEEK_BYTES_MIN)])
    log.put("a", [b"2"])
    log.put("b", [b"x"])
    log.put("a", [b"3"])
    for again in (log, reopened(image_of(files), clock)):
        assert records(again, "a") == [(1, b"1"), (2, b"2"), (3, b"3")]


def test_state_values_come_from_the_newest_block(log: Log) -> None:
    draft = log.draft()
    draft.set_states([("x", b"old"), ("y", b"y")])
    draft.set_states([("x", b"new"), ("z", None)])
    draft.put(log.queue("a"), [b"beside them"])
    log.commit(draft)
    assert log.state_of("x") == b"new"
    assert log.state_of("y") == b"y"
    assert log.state_of("z") is None
    assert log.state_of("never") is None
    draft = log.draft()
    draft.set_states([("y", None)])
    log.commit(draft)
    assert log.state_of("y") is None


def test_a_record_moved_twice_into_one_segment_counts_once(log: Log) -> None:
    log.put("a", [b"1", b"2", b"3"])
    log.rotate()
    for payload in (b"old", b"new"):
        draft = log.draft()
        draft.move(log.queue("a"), [2], [5], [payload])
        log.commit(draft)
    assert records(log, "a") == [(1, b"1"), (2, b"new"), (3, b"3")]
    assert records(log, "a", 3, 3) == [(3, b"3")]


@pytest.mark.parametrize("seed", range(20))
def test_moves_that_lie_across_each_other_are_read_in_order(log: Log, seed: int) -> None:
    """Whole stretches moved in one frame, and single records restored between and into them."""
    random, start = Random(seed), log.put("a", [b"first"] * 60).start
    live = dict.fromkeys(range(start, start + 60), b"first")
    log.rotate()
    for turn in range(12):
        chosen = random.sample(sorted(live), min(len(live), 6))
        remove(log, "a", chosen)
        gone = {counter: live.pop(counter) for counter in chosen}
        draft = log.draft()
        for _ in range(random.randint(1, 4)):
            first = random.choice(sorted(live))
            moved = [counter for counter in sorted(live) if first <= counter < first + 9]
            live.update(dict.fromkeys(moved, b"%d" % turn))
            columns: dict[int, Column] = {PRIORITY: [turn] * len(moved)}
            payloads = [live[counter] for counter in moved]
            draft.move(log.queue("a"), moved, [5] * len(moved), payloads, columns)
        log.commit(draft)
        for counter in random.sample(sorted(gone), min(len(gone), 3)):
            draft = log.draft()
            draft.move(log.queue("a"), [counter], [5], [b"again"])
            log.commit(draft)
            live[counter] = b"again"
    for _ in range(20):
        first, last = sorted(random.choices(range(start, start + 60), k=2))
        expected = [pair for pair in sorted(live.items()) if first <= pair[0] <= last]
        assert records(log, "a", first, last) == expected


def test_a_hole_in_a_moved_block_is_damage_if_a_live_record_belongs_there(log: Log) -> None:
    log.put("a", [b"1", b"2", b"3"])
    log.rotate()
    remove(log, "a", [2])
    for counters in ([1, 3], [2], [3]):
        draft = log.draft()
        draft.move(log.queue("a"), counters, [5] * len(counters), [b"x"] * len(counters))
        log.commit(draft)
    _, index = log.lookup._open(log.tail.file.number)
    del index.queues["a"].moved[1:]
    with pytest.raises(CorruptionError, match="records 2 to 2 of queue 'a'"):
        records(log, "a")


def test_an_index_that_names_a_moved_block_that_is_none_hides_no_record(
    log: Log,
) -> None:
    log.put("a", [b"1", b"2", b"3"])
    log.rotate()
    draft = log.draft()
    draft.move(log.queue("a"), [2], [5], [b"moved"])
    log.commit(draft)
    _, index = log.lookup._open(log.tail.file.number)
    (entry,) = index.queues["a"].moved
    index.queues["a"].moved.append(MovedEntry(1, 3, entry.offset))
    assert records(log, "a") == [(1, b"1"), (2, b"moved"), (3, b"3")]
    index.queues["a"].moved[:] = [MovedEntry(2, 2, log.tail.length)]
    with pytest.raises(CorruptionError, match="records 2 to 2"):
        records(log, "a")


def test_a_frame_with_many_moved_blocks_is_decoded_once(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was decoded for each of them: 8,000 records took a quarter of a minute."""
    counters = log.put("a", [b"x"] * 100)
    log.rotate()
    draft = log.draft()
    for counter in counters:
        draft.move(log.queue("a"), [counter], [5], [b"x"])
    log.commit(draft)
    frames: list[int] = []

    def counting(frame: Frame, queue: str | None = None) -> object:
        frames.append(frame.offset)
        return frame_blocks(frame, queue)

    monkeypatch.setattr(lookup, "frame_blocks", counting)
    assert len(records(log, "a")) == 100
    assert len(frames) == 1


def test_gaps_inside_a_stretch_are_no_damage(log: Log) -> None:
    for first in (1, 7, 20):
        draft = log.draft()
        draft.put(log.queue("a"), [b"x", b"y"], first=first)
        log.commit(draft)
    assert [counter for counter, _ in records(log, "a")] == [1, 2, 7, 8, 20, 21]
    assert records(log, "a", 3, 6) == []
    assert records(log, "a", 3, 7) == [(7, b"x")]
    assert len(log.queue("a").spans) == 1


def test_a_seek_looks_into_moved_records_too(log: Log, clock: ManualClock) -> None:
    start = clock.wall()
    for _ in range(4):
        log.put("a", [b"x", b"y"])
        clock.advance(seconds=1)
    log.rotate()
    draft = log.draft()
    draft.move(log.queue("a"), [1, 2], [start, start], [b"x", b"y"])
    log.commit(draft)
    for step in range(4):
        assert log.seek("a", start + step * 10**9) == 2 * step + 1
        assert log.seek("a", start + step * 10**9 + 1) == 2 * step + 3


def test_reading_goes_on_when_its_segment_was_closed_meanwhile(
    files: SimFiles, clock: ManualClock
) -> None:
    log = open_log("/q", files=files, clock=clock, options=LogOptions())
    for _ in range(3):
        log.put("a", [bytes(READ_BYTES)])
    log.rotate()
    for number in range(OPEN_SEGMENTS_MAX + 1):
        log.put("b", [bytes([number])])
        log.rotate()
    found: list[int] = []
    for block in log.read("a"):
        found += block.counters()
        assert len(records(log, "b")) == OPEN_SEGMENTS_MAX + 1
    assert found == [1, 2, 3]


# Damage that is reached while reading.


def damaged(files: SimFiles, clock: ManualClock, number: int) -> Log:
    """The store reopened with a flipped bit in the first frame's body of a segment, no indexes."""
    content = {n: data for n, data in image_of(files).items() if not n.endswith(".idx")}
    name = f"/q/{segment_name(number)}"
    data = bytearray(content[name])
    data[SEGMENT_HEADER_BYTES + FRAME_HEADER_BYTES + 40] ^= 1
    content[name] = bytes(data)
    return reopened(content, clock)


def test_damage_stops_the_queue_that_reaches_it_and_no_other(
    files: SimFiles, clock: ManualClock
) -> None:
    """An index that could not be built once made the next eviction fail with KeyError."""
    with open_log("/q", files=files, clock=clock, options=OPTIONS) as log:
        for i in range(OPEN_SEGMENTS_MAX + 4):
            log.put(f"q{i}", [b"payload"])
            draft = log.draft()
            draft.set_states([(f"s{i}", b"value")])
            log.commit(draft)
            log.rotate()
    log = damaged(files, clock, 1)
    for _ in range(2):
        for reach in (lambda: log.get("q0", 1), lambda: log.seek("q0", 1)):
            with pytest.raises(CorruptionError) as caught:
                reach()
            assert caught.value.path == f"/q/{segment_name(1)}"
        for i in range(1, OPEN_SEGMENTS_MAX + 4):
            assert records(log, f"q{i}") == [(1, b"payload")]
            assert log.state_of(f"s{i}") == b"value"


def test_a_state_in_a_damaged_frame_is_damage(files: SimFiles, clock: ManualClock) -> None:
    with open_log("/q", files=files, clock=clock, options=OPTIONS) as log:
        draft = log.draft()
        draft.set_states([("x", b"value")])
        log.commit(draft)
        log.put("a", [b"1"])
        log.rotate()
    log = damaged(files, clock, 1)
    with pytest.raises(CorruptionError, match="checksum of frame 1 does not match"):
        log.state_of("x")
    assert records(log, "a") == [(1, b"1")]


def test_records_that_are_not_where_they_must_be_are_damage(log: Log) -> None:
    log.put("a", [b"1"])
    log.put("b", [b"1"])
    log.rotate()
    log.put("b", [b"2"])
    queue = log.queue("a")
    queue.spans[0].last, queue.genesis.next_counter = 2, 3
    with pytest.raises(CorruptionError, match=r"records 2 to 2 of queue 'a'.* not where they"):
        records(log, "a")
    queue.spans[0].segment = 2
    with pytest.raises(CorruptionError, match="the segment holds no records of queue 'a'"):
        records(log, "a")


def test_known_damage_is_stepped_over(files: SimFiles, clock: ManualClock) -> None:
    with open_log("/q", files=files, clock=clock, options=OPTIONS) as log:
        log.put("a", [b"1"])
        first_end = log.tail.length
        log.put("a", [b"2"])
        log.rotate()
    log = damaged(files, clock, 1)
    log.state.damage.append((1, SEGMENT_HEADER_BYTES, first_end))
    queue = log.queue("a")
    log.state.remove(queue, 1, 1, 0)
    assert records(log, "a") == [(2, b"2")]


# The cache of open segments.


def test_an_index_is_built_when_it_is_missing_damaged_or_too_long(
    files: SimFiles, clock: ManualClock
) -> None:
    with open_log("/q", files=files, clock=clock, options=OPTIONS) as log:
        log.put("a", [b"1", b"2"])
        log.rotate()
        log.put("a", [b"3"])
    content = image_of(files)
    name = f"/q/{index_name(1)}"
    good = content[name]
    for data in (None, b"", good[:-1], content[f"/q/{index_name(2)}"]):
        variant = {**content, name: data} if data is not None else dict(content)
        if data is None:
            del variant[name]
        again = reopened({n: d for n, d in variant.items() if d is not None}, clock)
        assert len(records(again, "a")) == 3
        again.close()
    again = reopened(content, clock)
    again.state.segments[1].length -= 8
    with pytest.raises(CorruptionError):
        records(again, "a")


def test_an_index_that_took_long_to_build_is_kept_on_disk(clock: ManualClock) -> None:
    files = SimFiles()
    with open_log("/q", files=files, clock=clock) as log:
        log.put("a", [bytes(SAVE_BYTES_MIN)])
        log.rotate()
    content = image_of(files)
    good = content.pop(f"/q/{index_name(1)}")
    files = SimFiles.from_image(Image.of(content))
    with open_log("/q", files=files, clock=clock) as log:
        assert len(records(log, "a")) == 1
        assert files.content(f"/q/{index_name(1)}") == good
    faulty = FaultyFiles(
        SimFiles.from_image(Image.of(content)), Fault(at=0, call="create", error=errno.ENOSPC)
    )
    with open_log("/q", files=faulty, clock=clock) as log:
        assert len(records(log, "a")) == 1
        assert faulty.fired == 1


def test_a_cache_that_was_closed_opens_nothing(log: Log) -> None:
    log.put("a", [b"1"])
    log.cache.close()
    with pytest.raises(FileNotFoundError):
        log.cache.open(1)


def test_only_a_few_segments_are_kept_open(log: Log, files: SimFiles) -> None:
    for _ in range(OPEN_SEGMENTS_MAX + 5):
        log.put("a", [b"x"])
        log.rotate()
    before = len(files._handles)
    assert len(records(log, "a")) == OPEN_SEGMENTS_MAX + 5
    assert len(files._handles) <= before + OPEN_SEGMENTS_MAX
    log.put("a", [b"y"])
    assert records(log, "a")[-1][1] == b"y"


def test_the_index_of_the_tail_outlives_its_file(log: Log) -> None:
    for i in range(OPEN_SEGMENTS_MAX + 2):
        log.put(f"q{i}", [b"x"])
        if i <= OPEN_SEGMENTS_MAX:
            log.rotate()
    tail = log.tail.file.number
    for i in (OPEN_SEGMENTS_MAX + 1, *range(OPEN_SEGMENTS_MAX + 1)):
        assert len(records(log, f"q{i}")) == 1
    assert log.cache.tail_index(tail) is not None
    log.cache.forget(tail)
    log.cache.forget(999)
    assert log.cache.tail_index(tail) is None
    log.put("q0", [b"y"])
    assert [payload for _, payload in records(log, "q0")] == [b"x", b"y"]


# Segment files.


def test_names_hold_twenty_digits() -> None:
    assert segment_name(7) == "00000000000000000007.log"
    assert segment_number(segment_name(7)) == 7
    assert index_number(index_name(2**63)) == 2**63
    for name in ("7.log", segment_name(0), "x" * 20 + ".log", "٣" * 20 + ".log", "", ".log"):
        assert segment_number(name) is None
    assert segment_number(index_name(1)) is None
    assert index_number(segment_name(1)) is None


HEADER = SegmentHeader(bytes(16), 3, 1, 1, 2, 80, 0, CRC32C)


def segment_file(data: bytes) -> SegmentFile:
    files = SimFiles()
    files.add_file("/segment", data)
    handle = files.open(files.open_dir("/"), "segment", write=False)
    return SegmentFile(files, handle, 3, bytes(16))


def frames_after(data: bytes, bodies: list[bytes]) -> bytes:
    """Segment bytes with one frame for each body behind the header."""
    file = segment_file(data)
    previous = 0
    for sequence, body in enumerate(bodies, 1):
        frame, previous = encode_frame(
            [body],
            b"",
            block_count=0,
            flags=0,
            sequence=sequence,
            durable_upto=sequence - 1,
            previous=previous,
            check=file.check,
            seed=file.seed,
            offset=len(data),
        )
        data += frame
    return data


def test_a_header_must_be_of_this_segment_and_store() -> None:
    assert segment_file(HEADER.encode()).header() == HEADER
    for header, reason in (
        (SegmentHeader(bytes(16), 4, 1, 1, 2, 80, 0, CRC32C), "segment 4 lies under the number 3"),
        (SegmentHeader(b"x" * 16, 3, 1, 1, 2, 80, 0, CRC32C), "belongs to another store"),
    ):
        with pytest.raises(DamageError, match=reason):
            segment_file(header.encode()).header()


def test_each_segment_may_have_a_checksum_of_its_own() -> None:
    header = SegmentHeader(bytes(16), 3, 1, 1, 2, 80, 0, CRC32)
    data = frames_after(header.encode(), [b"one"])
    file = segment_file(data)
    assert file.check is check_function(CRC32)
    assert file.header() == header
    assert [bytes(frame.body) for frame in file.frames(80, len(data))] == [b"one"]
    for byte in (0, 9):
        rotten = segment_file(data[:12] + bytes([byte]) + data[13:])
        assert rotten.check is check_function(CRC32)
        with pytest.raises(DamageError):
            rotten.header()
        # Nothing tells any more: the default.
        worse = segment_file(data[:12] + bytes([byte]) + data[13:20] + b"\xff" + data[21:])
        assert worse.check is check_function(CRC32C)


BODIES = [b"a" * 10, b"", b"b" * READ_BYTES, b"c" * 100, b"d" * (READ_BYTES - 60), b"e" * 9]
SEGMENT = frames_after(HEADER.encode(), BODIES)


def test_frames_are_read_in_order_over_the_seams_of_reads() -> None:
    file = segment_file(SEGMENT)
    frames = list(file.frames(80, len(SEGMENT), sequence=1, previous=0))
    assert [bytes(frame.body) for frame in frames] == BODIES
    assert [frame.end for frame in frames[:-1]] == [frame.offset for frame in frames[1:]]
    assert frames[-1].end == len(SEGMENT)
    assert [bytes(f.body) for f in file.frames(frames[3].offset, len(SEGMENT))] == BODIES[3:]
    headers = list(file.sound_headers(80, len(SEGMENT)))
    assert headers == [(frame.offset, frame.header) for frame in frames]


def test_frames_must_continue_each_other() -> None:
    file = segment_file(SEGMENT)
    with pytest.raises(DamageError, match="frame 1 stands where 2 must"):
        next(file.frames(80, len(SEGMENT), sequence=2))
    with pytest.raises(DamageError, match="frame 1 breaks the chain"):
        next(file.frames(80, len(SEGMENT), sequence=1, previous=5))


def test_a_segment_cut_anywhere_gives_whole_frames_and_then_damage() -> None:
    data = frames_after(HEADER.encode(), [b"one", b"two two"])
    ends = [frame.end for frame in segment_file(data).frames(80, len(data))]
    for size in range(80, len(data)):
        with pytest.raises(DamageError) as caught:
            list(segment_file(data[:size]).frames(80, len(data)))
        assert caught.value.offset == (ends[0] if size >= ends[0] else 80)
        damage: list[DamageError] = []
        found = list(segment_file(data[:size]).frames(80, len(data), damage=damage))
        assert [frame.end for frame in found] == [end for end in ends if end <= size]
        assert [error.offset for error in damage] == [caught.value.offset]
    with pytest.raises(DamageError, match=r"a frame of \d+ bytes runs past byte 96"):
        list(segment_file(data).frames(80, 96))


def test_regions_of_known_damage_are_stepped_over() -> None:
    data = frames_after(HEADER.encode(), [b"one", b"two", b"three"])
    file = segment_file(data)
    offsets = [frame.offset for frame in file.frames(80, len(data))]
    broken = bytearray(data)
    broken[offsets[1] + 3] ^= 1
    file = segment_file(bytes(broken))
    skip = [(offsets[1], offsets[2])]
    assert [f.header.sequence for f in file.frames(80, len(data), skip=skip)] == [1, 3]
    skip = [(offsets[1], len(data))]
    assert [f.header.sequence for f in file.frames(80, len(data), skip=skip)] == [1]


def test_frames_between_damage_are_read_when_that_is_asked_for() -> None:
    data = frames_after(HEADER.encode(), [b"one", b"two", b"three"])
    offsets = [frame.offset for frame in segment_file(data).frames(80, len(data))]
    broken = bytearray(data)
    broken[offsets[1] + 3] ^= 1
    damage: list[DamageError] = []
    frames = segment_file(bytes(broken)).frames(80, len(data), damage=damage)
    assert [frame.header.sequence for frame in frames] == [1, 3]
    assert [error.offset for error in damage] == [offsets[1]]


def test_a_header_that_went_astray_is_found_by_how_far() -> None:
    data = frames_after(HEADER.encode(), [b"one"])
    moved = HEADER.encode() + bytes(512) + data[80:]
    file = segment_file(moved)
    assert list(file.sound_headers(80, len(moved))) == []
    assert [at for at, _ in file.sound_headers(80, len(moved), astray=512)] == [592]
    assert list(file.sound_headers(80, len(moved), astray=1024)) == []


def test_a_segment_that_is_closed_while_it_is_read_says_so() -> None:
    file = segment_file(SEGMENT)
    frames = file.frames(80, len(SEGMENT))
    next(frames)
    file.close()
    with pytest.raises(SegmentClosed):
        list(frames)


def test_sound_headers_are_found_behind_damage_and_nowhere_else() -> None:
    one = frames_after(HEADER.encode(), [b"one"])
    # A magic that is no header, one that is not aligned, and a real frame of another place.
    data = one[:84] + b"?" * 8 + one[92:] + FRAME_MAGIC + bytes(60) + b"1234" + one[80:] + bytes(4)
    data = frames_after(data + bytes(-len(data) % 8), [b"behind"])
    file = segment_file(data)
    assert [bool(header.sequence) for _, header in file.sound_headers(80, len(data))] == [True]
    assert list(file.sound_headers(len(data), len(data))) == []
    assert list(file.sound_headers(80, 100)) == []
    assert list(segment_file(data[:90]).sound_headers(80, 400)) == []
    edge = bytes(READ_BYTES - 8) + frames_after(b"", [])
    edge = frames_after(edge, [b"over the seam"])
    found = list(segment_file(edge).sound_headers(0, len(edge)))
    assert [offset for offset, _ in found] == [READ_BYTES - 8]


def test_zeros_are_told_from_anything_else() -> None:
    data = bytes(READ_BYTES + 100) + b"x"
    file = segment_file(data)
    assert file.is_zero(0, READ_BYTES + 100)
    assert not file.is_zero(0, len(data))
    assert file.is_zero(len(data), len(data) + 50)
    assert segment_file(bytes(10)).is_zero(0, 50)


def test_short_reads_are_continued() -> None:
    inner = SimFiles()
    inner.add_file("/a", bytes(range(100)))
    for at in range(4):
        files = FaultyFiles(inner, Fault(at=at, call="pread", error="short", for_ever=True))
        handle = files.open(files.open_dir("/"), "a", write=False)
        assert read_exactly(files, handle, 50, 10) == bytes(range(10, 60))
        assert read_exactly(files, handle, 50, 80) == bytes(range(80, 100))
        assert read_exactly(files, handle, 5, 200) == b""


def test_a_segment_may_be_closed_twice() -> None:
    file = segment_file(HEADER.encode())
    file.close()
    file.close()
    with pytest.raises(SegmentClosed):
        list(file.frames(80, len(SEGMENT)))


# Blocks of one frame.


def test_blocks_of_one_queue_are_picked_from_a_frame(files: SimFiles) -> None:
    with open_log("/q", files=files, clock=ManualClock(), options=OPTIONS) as log:
        draft = log.draft()
        draft.put(log.queue("a"), [b"1"])
        draft.put(log.queue("b"), [b"2"])
        draft.set_states([("x", b"1")])
        log.commit(draft)
        log.seal()
        file, _ = log.cache.open(1)
        commit, seal, *_ = file.frames(SEGMENT_HEADER_BYTES, log.tail.length)
        assert len(frame_blocks(commit)) == 3
        assert len(frame_blocks(commit, "b")) == 1
        assert frame_blocks(commit, "c") == []
        assert frame_blocks(seal) == []


def test_blocks_that_make_no_sense_are_damage_at_their_frame() -> None:
    parts, _ = encode_records([b"1"], queue=1, first=1, time=1)
    file = segment_file(b"")
    frame, _ = encode_frame(
        parts,
        encode_genesis([Genesis("a")]),
        block_count=1,
        flags=0,
        sequence=9,
        durable_upto=0,
        previous=0,
        check=file.check,
        seed=file.seed,
        offset=80,
    )
    data = bytes(80) + frame
    (found,) = segment_file(data).frames(80, len(data))
    with pytest.raises(DamageError, match="frame 9: queue index 1 has no genesis") as caught:
        frame_blocks(found)
    assert caught.value.offset == 80
    assert frame_blocks(found, "a") == []
