"""Compressed payloads: what is compressed, that it comes back, and what a forged block can do."""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fifoq.testing.simfiles import SimFiles
from store import CorruptionError, DamageError, FormatError, Log, Reader, RecordBlock, open_log
from store import compression as module
from store.blocks import (
    ACKED,
    COMPRESSED,
    COUNTERS,
    DEDUP_ID,
    HEADERS,
    MOVED,
    Column,
    block_headers,
    decode_block,
    records_weight,
)
from store.check import check_store
from store.checksum import Buffer
from store.compression import (
    COMPRESSED_FROM_BYTES,
    DECOMPRESSED_BYTES_MAX,
    STEP_BYTES,
    ZLIB,
    ZSTD,
    BadData,
    Compression,
    compress,
    compression_of,
    decompress,
    wrong_compression,
)
from store.encoding import compressed, encode_block, encode_records
from tests.store.conftest import PATH, OpenStore
from tests.support.clock import ManualClock

FAST = Compression(ZLIB, 1)
ALIKE = [b'{"event":"page_view","user":%d}' % (n % 7) for n in range(200)]
PACKAGES = ("zstandard", "pyzstd", "backports.zstd")
"""The last has the interface of Python 3.14's own module."""


@pytest.fixture(params=["zlib", *PACKAGES])
def setting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Compression:
    """Each algorithm, by each module that may do it."""
    if request.param == "zlib":
        return FAST
    monkeypatch.setattr(module, "ZSTD_MODULES", (request.param,))
    return Compression(ZSTD, 3)


@pytest.fixture
def without_zstd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ZSTD_MODULES", ("not_here.zstd", "nor_here"))


def made(payloads: Sequence[Buffer], setting: Compression = FAST) -> RecordBlock:
    parts, _ = encode_records(payloads, queue=0, first=1, time=5)
    smaller = compressed(parts, 1, setting)
    return the_block(parts if smaller is None else smaller)


def the_block(parts: Sequence[Buffer]) -> RecordBlock:
    body = memoryview(b"".join(parts))
    (header,) = block_headers(body, 1, 0)
    block = decode_block(body, header, ["orders"])
    assert isinstance(block, RecordBlock)
    return block


def all_payloads(blocks: Iterator[RecordBlock]) -> list[bytes]:
    return [payload for block in blocks for payload in block.payloads()]


def stored_bytes(log: Log) -> int:
    return sum(place.length for place in log.state.segments.values())


# Settings.


@pytest.mark.parametrize(
    ("name", "level", "message"),
    [
        ("gzip", None, "compression='gzip' is none of None, zlib, zstd"),
        (1, None, "compression=1 is none of None, zlib, zstd"),
        ("zlib", 0, "compression_level=0 is not one of 1 to 9, which zlib has"),
        ("zlib", 10, "compression_level=10 is not one of 1 to 9, which zlib has"),
        ("zstd", 20, "compression_level=20 is not one of 1 to 19, which zstd has"),
        ("zlib", True, "compression_level=True is not one of 1 to 9, which zlib has"),
        ("zlib", 1.5, "compression_level=1.5 is not one of 1 to 9, which zlib has"),
        (None, 3, "compression_level=3 without a compression"),
    ],
)
def test_wrong_settings_are_told_in_words(name: object, level: object, message: str) -> None:
    assert wrong_compression(name, level) == message
    with pytest.raises(ValueError, match="compression"):
        compression_of(name, level)  # type: ignore[arg-type]


def test_settings_that_are_right() -> None:
    assert compression_of(None) is None
    assert compression_of("zlib") == Compression(ZLIB, 1)
    assert compression_of("zlib", 9) == Compression(ZLIB, 9)
    assert compression_of("zstd") == Compression(ZSTD, 3)
    assert compression_of("zstd", 19) == Compression(ZSTD, 19)


@pytest.mark.usefixtures("without_zstd")
def test_zstd_without_a_module_names_the_packages() -> None:
    assert wrong_compression("zstd", None) == (
        "compression='zstd' cannot be had: zstd needs Python 3.14, or one of the packages "
        "zstandard and pyzstd: `pip install zstandard`"
    )


# What is compressed.


def test_small_payloads_are_stored_as_they_are(setting: Compression) -> None:
    assert compress(b"x" * (COMPRESSED_FROM_BYTES - 1), setting) is None
    assert compress(b"x" * COMPRESSED_FROM_BYTES, setting) is not None


def test_what_saves_less_than_five_percent_is_stored_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for size, kept in ((950, True), (951, False), (1000, False), (1001, False)):
        monkeypatch.setattr("zlib.compress", lambda data, level, size=size: b"x" * size)
        monkeypatch.setattr(module, "COMPRESSED_FROM_BYTES", 1000)
        assert (compress(b"y" * 1000, FAST) is not None) is kept


def test_random_bytes_are_stored_as_they_are(open_store: OpenStore, files: SimFiles) -> None:
    data = [bytes(hash((n, k)) & 255 for k in range(64)) for n in range(64)]
    plain = open_store()
    plain.put("orders", data)
    plain.compress("orders", FAST)
    before = stored_bytes(plain)
    plain.put("orders", data)
    (first, second) = plain.read("orders")
    assert stored_bytes(plain) - before <= before
    assert first.payloads() == second.payloads() == data


# There and back.


@given(
    st.lists(st.binary(max_size=600) | st.binary(max_size=2).map(lambda b: b * 600), min_size=1),
    st.integers(1, 9),
    st.booleans(),
)
def test_blocks_come_back_as_they_were(payloads: list[bytes], level: int, columns: bool) -> None:
    count = len(payloads)
    more: dict[int, Column] = {}
    if columns:
        more = {COUNTERS: range(3, 3 + count), HEADERS: [b"h"] * count}
    parts, size = encode_records(payloads, queue=0, first=3, time=7, columns=more)
    smaller = compressed(parts, 1, Compression(ZLIB, level))
    if smaller is None:
        return
    assert len(b"".join(smaller)) < len(b"".join(parts))
    plain, block = the_block(parts), the_block(smaller)
    assert block.algorithm == ZLIB
    again = block.decompressed()
    assert again.algorithm == 0
    assert again.decompressed() is again
    assert bytes(again.payload) == bytes(plain.payload)
    assert len(again.payload) == size
    assert again.payloads() == payloads
    assert list(again.counters()) == list(plain.counters())
    assert again.columns.get(HEADERS) == plain.columns.get(HEADERS)
    assert b"".join(encode_block(again, queue=0)) == b"".join(parts)


def test_even_payloads_are_joined_before_they_are_compressed(setting: Compression) -> None:
    payloads = [b"%04d" % (n % 9) for n in range(1000)]
    even, _ = encode_records(payloads, queue=0, first=1, time=5, item_bytes=4)
    smaller = compressed(even, len(payloads), setting)
    assert smaller is not None
    assert the_block(smaller).decompressed().payloads() == payloads


def test_more_than_one_step_is_decompressed(setting: Compression) -> None:
    data = b"some bytes, again and again, %d" * (STEP_BYTES // 10)
    smaller = compress(data, setting)
    assert smaller is not None
    assert bytes(decompress(smaller, setting.algorithm, len(data))) == data


# Forged ones.


def test_a_length_that_lies_is_damage(setting: Compression) -> None:
    data = b"".join(ALIKE)
    smaller = compress(data, setting)
    assert smaller is not None
    for size in (0, 1, len(data) - 1, len(data) + 1, DECOMPRESSED_BYTES_MAX):
        with pytest.raises(BadData, match=f"to the {size} bytes that they must"):
            decompress(smaller, setting.algorithm, size)
    for size in (-1, DECOMPRESSED_BYTES_MAX + 1):
        with pytest.raises(BadData, match="over the limit 100000000"):
            decompress(smaller, setting.algorithm, size)


def test_bytes_that_are_cut_or_continued_are_damage(setting: Compression) -> None:
    data = b"".join(ALIKE)
    smaller = compress(data, setting)
    assert smaller is not None
    for wrong in (b"", smaller[:1], smaller[:-1], b"x" + smaller, smaller + b"more"):
        with pytest.raises(BadData, match="payloads do not decompress"):
            decompress(wrong, setting.algorithm, len(data))


def test_one_level_is_decompressed_and_no_more(setting: Compression) -> None:
    inner = compress(b"".join(ALIKE) * 50, setting)
    assert inner is not None
    assert made([inner] * 40, setting).decompressed().payloads() == [inner] * 40


def test_an_algorithm_of_a_newer_version_is_refused_as_such() -> None:
    parts = compressed(encode_records(ALIKE, queue=0, first=1, time=5)[0], 1, FAST)
    body = bytearray(b"".join(parts or []))
    at = body.index(zlib.compress(b"".join(ALIKE), 1)) - 8
    body[at] = 3
    with pytest.raises(FormatError, match="compression 3 is from a newer version"):
        the_block([body]).decompressed()
    body[at] = 0
    with pytest.raises(DamageError, match="compressed by nothing"):
        the_block([body])
    body[at] = ZLIB
    body[at + 5] = 255
    with pytest.raises(DamageError, match="a column runs past its block"):
        the_block([body])
    last = 32 + 4 * len(ALIKE)
    body[at + 5] = 0
    body[last : last + 4] = (-1 % 2**32).to_bytes(4, "little")
    with pytest.raises(DamageError, match="end offsets do not fit"):
        the_block([body])


@pytest.mark.parametrize(
    "forged",
    [b"nothing that zlib knows" * 50, zlib.compress(bytes(50 << 20), 1), b""],
    ids=["garbage", "bomb", "empty"],
)
def test_a_block_that_does_not_decompress_is_corruption_of_its_queue_alone(
    open_store: OpenStore, files: SimFiles, monkeypatch: pytest.MonkeyPatch, forged: bytes
) -> None:
    log = open_store()
    log.put("audit", [b"sound"])
    log.compress("orders", FAST)
    with monkeypatch.context() as patch:
        patch.setattr("store.encoding.compress", lambda data, _: forged)
        log.put("orders", ALIKE)
    log.put("orders", [b"behind"])
    for _ in range(2):
        for call in (
            lambda log: list(log.read("orders")),
            lambda log: log.get("orders", 3),
            lambda log: log.take("orders"),
        ):
            with pytest.raises(CorruptionError, match="payloads do not decompress"):
                call(log)
        assert log.get("audit", 1) is not None
        assert log.get("orders", len(ALIKE) + 1) is not None
        log.close()
        reader = Reader(PATH, files=files, clock=ManualClock())
        with reader, pytest.raises(CorruptionError, match="payloads do not decompress"):
            list(reader.blocks("orders"))
        # It opens all the same: what is not asked for is not decompressed.
        log = open_store()
    log.close()
    report = check_store(PATH, files=files, clock=ManualClock())
    assert [damage.reason.partition(": ")[2] for damage in report.damage] == [
        report.damage[0].reason.partition(": ")[2]
    ]
    assert report.missing == {"orders": [(1, len(ALIKE))]}
    log = open_store(recover="quarantine")
    assert log.quarantine is not None
    assert log.quarantine.missing == {"orders": [(1, len(ALIKE))]}
    assert all_payloads(log.read("orders")) == [b"behind"]


def test_a_bomb_does_not_need_more_memory_than_its_block_may() -> None:
    """Half a gigabyte in two megabytes, read where memory for it is not to be had."""
    script = """
import resource, zlib
from store.compression import BadData, decompress
maker = zlib.compressobj(1)
bomb = b"".join([maker.compress(bytes(1 << 20)) for _ in range(512)]) + maker.flush()
size = 64 << 20
limit = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + 3 * size
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for declared in (1000, size, 1 << 29, 1 << 40):
    try:
        decompress(bomb, 1, declared)
        raise SystemExit(f"{declared} was accepted")
    except BadData:
        pass
"""
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (found.returncode, found.stderr) == (0, "")


# In a log.


@pytest.fixture
def packed(open_store: OpenStore, setting: Compression) -> Log:
    """Orders 1 to 800 in four commits, compressed but for the first, in two segments."""
    log = open_store()
    log.put("orders", ALIKE)
    log.compress("orders", setting)
    log.put("orders", ALIKE)
    log.rotate()
    log.put("orders", ALIKE)
    draft = log.draft()
    draft.put(
        log.queue("orders"), ALIKE, columns={DEDUP_ID: [b"%d" % n for n in range(len(ALIKE))]}
    )
    draft.put(log.queue("audit"), [b"beside it"])
    log.commit(draft)
    return log


def test_records_are_found_by_owner_and_readers_alike(
    packed: Log, open_store: OpenStore, files: SimFiles
) -> None:
    wanted = ALIKE * 4
    assert [block.algorithm for block in packed.read("orders")] == [0] * 4
    assert all_payloads(packed.read("orders")) == wanted
    assert all_payloads(packed.read("orders", 150, 450)) == wanted[149:450]
    found = packed.get("orders", 333)
    assert found is not None
    assert found[1] == wanted[332]
    packed.close()
    with Reader(PATH, files=files, clock=ManualClock()) as reader:
        assert all_payloads(reader.blocks("orders", 201, 800)) == wanted[200:]
        frames = [frame for number in reader.state.segments for frame in reader.frames(number)]
        assert len(frames) >= 4
    log = open_store()
    assert all_payloads(log.read("orders")) == wanted
    assert [payload for _, payload in log.take("orders", 250)] == wanted[:250]


def test_sizes_and_weights_are_those_of_the_payloads(packed: Log, open_store: OpenStore) -> None:
    size = sum(map(len, ALIKE)) * 4
    assert packed.queue("orders").genesis.queue_bytes == size
    live = sum(place.live_weight for place in packed.state.segments.values())
    assert live == records_weight(size, 800) + records_weight(9, 1)
    assert stored_bytes(packed) < size
    packed.close()
    files_again = open_store()
    assert files_again.queue("orders").genesis.queue_bytes == size
    assert sum(place.live_weight for place in files_again.state.segments.values()) == live


def test_without_checkpoints_the_scan_finds_the_same(
    packed: Log, open_store: OpenStore, files: SimFiles
) -> None:
    packed.close()
    directory = files.open_dir(PATH)
    for name in ("checkpoint.a", "checkpoint.b"):
        files.unlink(directory, name)
    files.close(directory)
    assert all_payloads(open_store().read("orders")) == ALIKE * 4


def test_moved_records_are_compressed_again(packed: Log, open_store: OpenStore) -> None:
    """Else a sparse segment of compressed records would become a larger one by compaction."""
    packed.rotate()
    weight = records_weight(sum(map(len, ALIKE[50:])), 150)
    draft = packed.draft()
    queue = packed.queue("orders")
    draft.remove(queue, [(a * 200 + 51, a * 200 + 200, weight) for a in range(4)], reason=ACKED)
    packed.commit(draft)
    before = stored_bytes(packed)
    while packed.compact():
        pass
    packed.checkpoint()
    assert stored_bytes(packed) < before
    kept = ALIKE[:50] * 4
    assert all_payloads(packed.read("orders")) == kept
    assert all(span.moved for span in queue.spans)
    found = [kind_and_detail(packed, number) for number in packed.state.segments]
    assert (MOVED, True) in [pair for pairs in found for pair in pairs]
    packed.close()
    log = open_store()
    assert all_payloads(log.read("orders")) == kept
    counters = [c for block in log.read("orders") for c in block.counters()]
    assert all(a < b for a, b in pairwise(counters))


def kind_and_detail(log: Log, number: int) -> list[tuple[int, bool]]:
    file, _ = log.cache.open(number)
    return [
        (header.kind, bool(header.detail & COMPRESSED) and header.kind in (1, MOVED))
        for frame in file.frames(80, log.state.segments[number].length)
        for header in block_headers(
            frame.body, frame.header.block_count, frame.header.genesis_bytes
        )
    ]


def test_a_block_is_put_again_compressed(packed: Log) -> None:
    packed.compress("other", FAST)
    draft = packed.draft()
    for block in packed.read("orders"):
        draft.put_block(packed.queue("other"), block)
    size = draft.body_bytes
    packed.commit(draft)
    assert draft.body_bytes < size // 2
    assert all_payloads(packed.read("other")) == ALIKE * 4


def test_compression_ends_when_it_is_said(packed: Log) -> None:
    packed.compress("orders", None)
    before = stored_bytes(packed)
    packed.put("orders", ALIKE)
    assert stored_bytes(packed) - before > sum(map(len, ALIKE))


def test_the_check_reads_what_is_compressed(packed: Log, files: SimFiles) -> None:
    packed.close()
    report = check_store(PATH, files=files, clock=ManualClock())
    assert report.sound
    assert report.warnings == []
    assert sum(segment.records for segment in report.segments) == 801


def test_without_zstd_a_store_opens_and_says_what_is_missing(
    open_store: OpenStore, files: SimFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_store()
    log.compress("orders", Compression(ZSTD, 3))
    log.put("orders", ALIKE)
    log.rotate()
    log.put("audit", [b"plain"])
    log.close()
    monkeypatch.setattr(module, "ZSTD_MODULES", ("not_here",))
    log = open_store()
    assert log.get("audit", 1) is not None
    for call in (lambda: list(log.read("orders")), lambda: log.take("orders")):
        with pytest.raises(FormatError, match=r"pip install zstandard`\. Nothing was changed"):
            call()
    draft = log.draft()
    draft.remove(
        log.queue("orders"), [(2, 200, records_weight(sum(map(len, ALIKE[1:])), 199))], reason=ACKED
    )
    log.commit(draft)
    with pytest.raises(FormatError, match="pip install zstandard"):
        log.compact()
    assert not log.compact()
    log.close()
    report = check_store(PATH, files=files, clock=ManualClock())
    assert report.sound
    assert report.warnings == [
        "00000000000000000001.log: 200 records are compressed in a way that this machine cannot "
        "read; their checksums are sound"
    ]
    monkeypatch.undo()
    assert all_payloads(open_store().read("orders")) == ALIKE[:1]


def test_a_flipped_bit_of_a_compressed_store_is_found(tmp_path: Path) -> None:
    """Flips are met by checksums before anything is decompressed."""
    path = tmp_path / "store"
    with open_log(str(path), clock=ManualClock()) as log:
        log.compress("orders", FAST)
        log.put("orders", ALIKE)
        log.put("orders", ALIKE[::-1])
    segment = path / "00000000000000000001.log"
    whole = segment.read_bytes()
    wanted = ALIKE + ALIKE[::-1]
    for at in range(80, len(whole), 5):
        data = bytearray(whole)
        data[at] ^= 1 << at % 8
        segment.write_bytes(data)
        with Reader(str(path), clock=ManualClock()) as reader:
            try:
                assert all_payloads(reader.blocks("orders")) == wanted
            except CorruptionError:
                continue
