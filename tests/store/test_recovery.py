"""Recovery: which files it believes, when it reads the whole log, and what it calls damage."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from fifoq.testing.simfiles import SimFiles
from store import CorruptionError, FormatError, Log, open_log
from store.checksum import CRC32C, check_function, segment_seed
from store.encoding import encode_records
from store.frames import SegmentHeader, encode_frame
from store.genesis import Genesis, encode_genesis
from store.segment import segment_name
from tests.store.conftest import PATH, OpenStore
from tests.support.clock import ManualClock

A, B = f"{PATH}/checkpoint.a", f"{PATH}/checkpoint.b"


def segment(number: int) -> str:
    return f"{PATH}/{segment_name(number)}"


def payloads(log: Log, queue: str = "orders") -> list[bytes]:
    return [payload for block in log.read(queue) for payload in block.payloads()]


def unlink(files: SimFiles, path: str) -> None:
    directory, _, name = path.rpartition("/")
    files.unlink(files.open_dir(directory), name)


def cut(files: SimFiles, path: str, size: int) -> None:
    directory, _, name = path.rpartition("/")
    handle = files.open(files.open_dir(directory), name, write=True)
    files.truncate(handle, size)
    files.datasync(handle)
    files.close(handle)


def newest_checkpoint(files: SimFiles) -> str:
    numbers = {path: int.from_bytes(files.content(path)[32:40], "little") for path in (A, B)}
    return max(numbers, key=lambda path: numbers[path])


def damage_newest(files: SimFiles) -> None:
    files.flip_bit(newest_checkpoint(files), offset=60, bit=0)


def changed_header(header: SegmentHeader, **changes: int) -> bytes:
    fields = {name: getattr(header, name) for name in header.__struct_fields__}
    return SegmentHeader(**{**fields, **changes}).encode()


def refusal(open_store: OpenStore, files: SimFiles) -> CorruptionError:
    """The error that opening raises; not a byte is changed by it."""
    image = files.image()
    with pytest.raises(CorruptionError) as caught:
        open_store()
    assert files.image() == image
    return caught.value


@pytest.fixture
def store(log: Log) -> Log:
    """Two sealed segments with orders 1 to 3 and 4 to 6, order 7 in the tail; not closed."""
    for _ in range(2):
        for _ in range(3):
            log.put("orders", [b"r" * 100])
        log.rotate()
    log.put("orders", [b"r" * 100])
    log.release()
    return log


# Which checkpoint.


def test_the_newest_sound_checkpoint_counts(
    store: Log, open_store: OpenStore, files: SimFiles, caplog: pytest.LogCaptureFixture
) -> None:
    damage_newest(files)
    again = open_store()
    assert len(payloads(again)) == 7
    assert "checksum does not match" in caplog.text


def test_opening_reads_only_what_is_behind_the_checkpoint(
    store: Log, open_store: OpenStore, files: SimFiles
) -> None:
    """Damage before it is met by whoever comes to it, and not by opening."""
    open_store().close()
    files.flip_bit(segment(1), offset=200, bit=0)
    again = open_store()
    assert again.queue("orders").genesis.queue_size == 7
    with pytest.raises(CorruptionError):
        payloads(again)


@pytest.mark.parametrize("keep", [0, 20, 100])
def test_without_a_checkpoint_the_whole_log_is_read(
    store: Log,
    open_store: OpenStore,
    files: SimFiles,
    caplog: pytest.LogCaptureFixture,
    keep: int,
) -> None:
    for path in (A, B):
        cut(files, path, keep)
    again = open_store()
    assert len(payloads(again)) == 7
    assert again.put("orders", [b"next"]) == range(8, 9)
    assert "checkpoints do not suffice, reading the whole log" in caplog.text
    again.close()
    caplog.clear()
    assert len(payloads(open_store())) == 8
    assert not caplog.text


def test_a_whole_log_that_lacks_records_of_its_genesis_is_not_accepted(
    store: Log, open_store: OpenStore, files: SimFiles
) -> None:
    for path in (A, B, segment(2)):
        unlink(files, path)
    error = refusal(open_store, files)
    assert error.reason == "queue 'orders': genesis says 7 records, the log holds 4"


def test_checkpoints_of_two_stores_are_told_apart(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.close()
    other = SimFiles()
    open_log(PATH, files=other, clock=ManualClock(seed=1)).close()
    unlink(files, A)
    files.add_file(A, other.content(A))
    error = refusal(open_store, files)
    assert error.reason == "the two checkpoints belong to different stores"


def test_an_older_checkpoint_whose_segment_is_gone_gives_way_to_the_whole_log(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [b"old"])
    log.rotate()
    log.put("orders", [b"new"])
    log.take("orders")
    assert 1 not in log.state.segments
    log.release()
    damage_newest(files)
    again = open_store()
    assert payloads(again) == [b"new"]
    assert again.checkpoints.number > log.checkpoints.number - 1


def test_the_whole_log_must_reach_what_an_older_checkpoint_calls_durable(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [b"old"])
    log.rotate()
    length = log.tail.length
    log.put("orders", [b"new"])
    log.checkpoint()
    log.take("orders")
    assert 1 not in log.state.segments
    log.release()
    damage_newest(files)
    cut(files, segment(2), length)
    assert refusal(open_store, files).reason == (
        "no newest checkpoint is sound and the log alone is not enough: "
        "a checkpoint says that frames up to 2 were durable"
    )


# What is missing.


def test_a_directory_of_another_kind_is_refused_with_advice(
    files: SimFiles, open_store: OpenStore
) -> None:
    files.add_dir("/data")
    files.add_dir(PATH)
    files.add_file(f"{PATH}/letter.txt", b"dear")
    with pytest.raises(FormatError) as caught:
        open_store()
    assert str(caught.value) == (
        "/data/store: not a store, but not empty either (it holds 'letter.txt'). Nothing was "
        "changed. Give an empty or a new directory."
    )


def test_files_of_others_beside_a_store_are_left_alone(
    store: Log, files: SimFiles, open_store: OpenStore
) -> None:
    files.add_file(f"{PATH}/letter.txt", b"dear")
    files.add_file(f"{PATH}/{7:020}-80.bad", b"set aside")
    open_store().close()
    assert files.content(f"{PATH}/letter.txt") == b"dear"
    assert files.content(f"{PATH}/{7:020}-80.bad") == b"set aside"


@pytest.mark.parametrize("checkpoint_keep", ["both", "one", "damaged"])
def test_a_store_without_any_segment_is_damaged_not_new(
    store: Log, open_store: OpenStore, files: SimFiles, checkpoint_keep: str
) -> None:
    for number in (1, 2, 3):
        unlink(files, segment(number))
    if checkpoint_keep == "one":
        damage_newest(files)
    elif checkpoint_keep == "damaged":
        cut(files, A, 20)
        cut(files, B, 20)
    error = refusal(open_store, files)
    assert error.reason in ("every segment is missing", "the segment is missing")


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_missing_segment_is_named(
    store: Log, open_store: OpenStore, files: SimFiles, number: int
) -> None:
    unlink(files, segment(number))
    error = refusal(open_store, files)
    assert (error.path, error.reason) == (segment(number), "the segment is missing")
    assert str(error) == (
        f"{segment(number)}: damaged at byte 0: the segment is missing. Nothing was changed. "
        f"`python -m store check /data/store` lists what is intact; "
        f'recover="quarantine" opens with that and sets the rest aside.'
    )


def test_a_gap_behind_the_checkpoint_is_a_missing_segment(
    store: Log, open_store: OpenStore, files: SimFiles
) -> None:
    header = SegmentHeader(store.store_id, 5, 0, 9, 4, 80, 0, CRC32C)
    files.add_file(segment(5), header.encode())
    error = refusal(open_store, files)
    assert (error.path, error.reason) == (segment(4), "the segment is missing")


# What is damaged.


def test_a_segment_shorter_than_the_checkpoint_says_is_damaged(
    store: Log, open_store: OpenStore, files: SimFiles
) -> None:
    cut(files, segment(1), 200)
    error = refusal(open_store, files)
    length = store.state.segments[1].length
    assert (error.path, error.offset) == (segment(1), 200)
    assert error.reason == f"the file ends here, {length - 200} bytes early"


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_segment_header_that_the_checkpoint_knows_must_be_sound(
    store: Log, open_store: OpenStore, files: SimFiles, number: int
) -> None:
    files.flip_bit(segment(number), offset=20, bit=0)
    error = refusal(open_store, files)
    assert (error.path, error.offset) == (segment(number), 0)
    assert error.reason == "segment header checksum does not match"


def test_a_last_header_is_no_torn_tail_when_frames_stand_behind_it(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [b"a"])
    log.rotate()
    log.put("orders", [b"b"])
    log.release()
    damage_newest(files)
    files.flip_bit(segment(2), offset=20, bit=0)
    error = refusal(open_store, files)
    assert (error.path, error.offset) == (segment(2), 0)


def test_a_damaged_frame_of_a_segment_that_is_not_the_last_is_damage(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    start = log.tail.length
    log.put("orders", [b"a" * 100])
    log.rotate()
    log.release()
    damage_newest(files)
    files.flip_bit(segment(1), offset=start + 100, bit=0)
    error = refusal(open_store, files)
    assert (error.path, error.offset) == (segment(1), start)
    assert error.reason == "checksum of frame 1 does not match"


def test_a_segment_must_end_where_the_next_one_says(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [b"a" * 100])
    log.rotate()
    header = log.directory.open_segment(2, log.store_id).header()
    log.release()
    damage_newest(files)
    files.damage(segment(2), 0, changed_header(header, previous_checksum=1))
    error = refusal(open_store, files)
    assert error.path == segment(1)
    assert error.reason == "it does not end where segment 2 says"


def test_a_damaged_frame_that_a_later_one_calls_durable_is_no_torn_tail(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [b"a" * 100])
    start = log.tail.length
    log.put("orders", [b"b" * 100])
    behind = log.tail.length
    log.put("orders", [b"c" * 100])
    log.release()
    files.flip_bit(segment(1), offset=start + 100, bit=0)
    error = refusal(open_store, files)
    assert (error.path, error.offset) == (segment(1), start)
    assert error.reason == (
        f"checksum of frame 2 does not match, yet frame 3 at byte {behind} says that frames up "
        f"to 2 were durable"
    )


def test_a_damaged_frame_that_nothing_calls_durable_is_a_torn_tail(
    log: Log, open_store: OpenStore, files: SimFiles, caplog: pytest.LogCaptureFixture
) -> None:
    log.put("orders", [b"a" * 100], sync=False)
    start = log.tail.length
    log.put("orders", [b"b" * 100], sync=False)
    log.put("orders", [b"c" * 100], sync=False)
    log.release()
    files.flip_bit(segment(1), offset=start + 100, bit=0)
    size = len(files.content(segment(1)))
    with caplog.at_level(logging.WARNING, logger="store"):
        again = open_store()
    assert payloads(again) == [b"a" * 100]
    assert f"torn tail behind frame 1, {size - start} bytes set aside" in caplog.text


# Frames with sound checksums that make no sense: a writer was wrong.


def planted(log: Log, parts: list[bytes], genesis: list[Genesis], blocks: int) -> bytes:
    check = check_function(CRC32C)
    frame, _ = encode_frame(
        list(parts),
        encode_genesis(genesis),
        block_count=blocks,
        flags=0,
        sequence=log.sequence + 1,
        durable_upto=log.durable_upto,
        previous=log.checksum,
        check=check,
        seed=segment_seed(check, log.store_id, 1),
        offset=log.tail.length,
    )
    return bytes(frame)


def test_a_frame_that_makes_no_sense_is_damage_and_no_torn_tail(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [b"a"])
    parts, _ = encode_records([b"b"], queue=7, first=2, time=0)
    frame = planted(log, [bytes(part) for part in parts], [Genesis("orders")], 1)
    files.damage(segment(1), log.tail.length, frame)
    offset = log.tail.length
    log.release()
    error = refusal(open_store, files)
    assert (error.path, error.offset) == (segment(1), offset)
    assert error.reason == "frame 2: queue index 7 has no genesis entry"


def test_a_genesis_that_disagrees_with_its_records_is_damage(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [b"a"])
    parts, _ = encode_records([b"b"], queue=0, first=2, time=0)
    genesis = Genesis("orders", next_counter=3, queue_size=5)
    files.damage(
        segment(1), log.tail.length, planted(log, [bytes(part) for part in parts], [genesis], 1)
    )
    log.release()
    error = refusal(open_store, files)
    assert error.reason == "queue 'orders': genesis says 5 records, the log holds 2"


# The whole log, and no header to start from.


def test_the_store_is_known_by_the_first_header_that_is_sound(
    store: Log, open_store: OpenStore, files: SimFiles
) -> None:
    for path in (A, B):
        unlink(files, path)
    files.flip_bit(segment(1), offset=20, bit=0)
    error = refusal(open_store, files)
    assert (error.path, error.reason) == (segment(1), "segment header checksum does not match")


def damage_all_headers(files: SimFiles) -> None:
    for number in (1, 2, 3):
        files.flip_bit(segment(number), offset=20, bit=0)


def leave_one_under_another_number(files: SimFiles) -> None:
    content = files.content(segment(1))
    for number in (1, 2, 3):
        unlink(files, segment(number))
    files.add_file(segment(2), content)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (damage_all_headers, "no segment header is sound"),
        (leave_one_under_another_number, "no segment has a sound header"),
    ],
)
def test_neither_checkpoint_nor_header_is_damage(
    store: Log,
    open_store: OpenStore,
    files: SimFiles,
    damage: Callable[[SimFiles], None],
    reason: str,
) -> None:
    for path in (A, B):
        unlink(files, path)
    damage(files)
    assert refusal(open_store, files).reason == reason
