"""The reference page of the format says what the code does, byte for byte.

Each table is compared with bytes that the code wrote, or with the constants of the code, so that
a change on either side alone fails here.
"""

from __future__ import annotations

import re
import struct
import zlib
from array import array
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from store import (
    blocks,
    checkpoint,
    checksum,
    compression,
    encoding,
    frames,
    genesis,
    index,
    keys,
    segment,
)
from store.checksum import Buffer, check_function, place_seed, segment_seed

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/format.md").read_text()
STORE_ID = bytes(range(16, 32))
CHECK = check_function(checksum.CRC32C)

Row = list[str]


def table(title: str) -> list[Row]:
    """The rows of the table whose title, or whose header row, contains `title`."""
    lines = PAGE.splitlines()
    (at,) = [number for number, line in enumerate(lines) if line == title]
    start = at + (1 if title.startswith("<!--") else 0)
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return rows


def layout(title: str) -> list[tuple[int, int, str, str]]:
    """Offset, size, name and meaning of each row; rows must follow each other without a hole."""
    rows = [(int(a), int(b), name, meaning) for a, b, name, meaning in table(title)]
    end = 0
    for offset, size, name, _ in rows:
        assert offset == end, f"{name} does not follow the row before"
        end = offset + size
    return rows


def fields_of(title: str, data: Buffer, order: str = "little") -> dict[str, int | bytes]:
    """Read `data` as the page says; magic and ids stay bytes, everything else is a number."""
    found: dict[str, int | bytes] = {}
    for offset, size, name, _ in layout(title):
        piece = bytes(data[offset : offset + size])
        number = int.from_bytes(piece, "little" if order == "little" else "big")
        found[name] = piece if name in {"magic", "store_id"} else number
    return found


def size_of(title: str) -> int:
    offset, size, *_ = layout(title)[-1]
    return offset + size


# Keys.


def test_keys_lie_as_the_page_says() -> None:
    key = keys.Key(0x0102030405060708, 0x1112131415161718)
    assert fields_of("<!-- table: key -->", bytes(key), "big") == {
        "counter": key.counter,
        "timestamp": key.timestamp,
    }
    assert size_of("<!-- table: key -->") == keys.KEY_BYTES
    fat = keys.pack_fat_key(key, 5, 6)
    assert fields_of("<!-- table: fat key -->", fat, "big") == {
        "counter": key.counter,
        "timestamp": key.timestamp,
        "total_put": 5,
        "total_take": 6,
    }
    assert size_of("<!-- table: fat key -->") == keys.FAT_KEY_BYTES


# Headers.

SEGMENT = frames.SegmentHeader(
    store_id=STORE_ID,
    number=3,
    created_at=1_700_000_000_000_000_001,
    first_sequence=41,
    previous_number=2,
    previous_length=4096,
    previous_checksum=0xDEADBEEF,
    algorithm=checksum.CRC32C,
)


def test_a_segment_header_lies_as_the_page_says() -> None:
    data = SEGMENT.encode()
    assert fields_of("<!-- table: segment header -->", data) == {
        "magic": frames.SEGMENT_MAGIC,
        "version": frames.FORMAT_VERSION,
        "byte_order": frames.ENDIAN_MARK,
        "zeros": 0,
        **msgspec.structs.asdict(SEGMENT),
        "checksum": CHECK(data[:-4], 0),
    }
    assert size_of("<!-- table: segment header -->") == frames.SEGMENT_HEADER_BYTES == len(data)


def test_a_frame_lies_as_the_page_says() -> None:
    seed = segment_seed(CHECK, STORE_ID, 3)
    block, entry = bytes(range(32)), b"genesis entries"
    data, body_checksum = frames.encode_frame(
        [block],
        entry,
        block_count=1,
        flags=0,
        sequence=41,
        durable_upto=40,
        previous=0xDEADBEEF,
        check=CHECK,
        seed=seed,
        offset=800,
    )
    header_checksum = CHECK(data[:36], place_seed(CHECK, seed, 800))
    assert fields_of("<!-- table: frame header -->", data) == {
        "magic": frames.FRAME_MAGIC,
        "body_bytes": 47,
        "sequence": 41,
        "durable_upto": 40,
        "previous": 0xDEADBEEF,
        "flags": 0,
        "block_count": 1,
        "genesis_bytes": len(entry),
        "checksum": header_checksum,
    }
    assert size_of("<!-- table: frame header -->") == frames.FRAME_HEADER_BYTES
    assert CHECK(block + entry, header_checksum) == body_checksum
    assert data[40:] == block + entry + struct.pack("<I", body_checksum) + bytes(5)
    names = [name for _, _, name, _ in layout("<!-- table: frame header -->")]
    assert names[1:] == [field.name for field in msgspec.structs.fields(frames.FrameHeader)]


def test_the_seeds_are_computed_as_the_page_says() -> None:
    formulas = dict(re.findall(r"^([a-z ]+?) += (check\(.*)$", PAGE, re.MULTILINE))
    assert list(formulas) == ["segment seed", "place seed", "frame header", "frame body", "index"]
    seed = CHECK(STORE_ID + struct.pack("<Q", 7), 0)
    assert segment_seed(CHECK, STORE_ID, 7) == seed
    assert place_seed(CHECK, seed, 80) == CHECK(struct.pack("<Q", 80), seed)


def test_a_block_header_lies_as_the_page_says() -> None:
    parts, _ = encoding.encode_records(
        [b"a", b"bc"], queue=9, first=77, time=1000, times=[1000, 1005], columns={8: [1, 2]}
    )
    body = b"".join(parts)
    assert fields_of("<!-- table: block header -->", body) == {
        "kind": blocks.RECORDS,
        "width": 4,
        "queue": 9,
        "detail": blocks.PRIORITY,
        "count": 2,
        "size": len(body),
        "first": 77,
        "time": 1000,
    }
    assert size_of("<!-- table: block header -->") == blocks.BLOCK_HEADER_BYTES
    names = [name for _, _, name, _ in layout("<!-- table: block header -->")]
    assert [*names, "at"] == [field.name for field in msgspec.structs.fields(blocks.BlockHeader)]


def a_checkpoint() -> checkpoint.Checkpoint:
    return checkpoint.Checkpoint(
        number=12,
        clean=True,
        written_at=3,
        segment=1,
        offset=80,
        sequence=0,
        last_checksum=0,
        segments=[],
        queues=[],
        states={},
        damage=[],
        unlogged=[],
    )


def test_a_checkpoint_header_lies_as_the_page_says() -> None:
    data = checkpoint.encode_checkpoint(a_checkpoint(), STORE_ID)
    body = data[checkpoint.CHECKPOINT_HEADER_BYTES :]
    rows = layout("<!-- table: checkpoint header -->")
    assert fields_of("<!-- table: checkpoint header -->", data) == {
        "magic": checkpoint.CHECKPOINT_MAGIC,
        "version": frames.FORMAT_VERSION,
        "byte_order": frames.ENDIAN_MARK,
        "algorithm": checksum.CRC32C,
        "zeros": 0,
        "store_id": STORE_ID,
        "number": 12,
        "body_bytes": len(body),
        "body_checksum": CHECK(body, 0),
        "checksum": CHECK(data[:48], 0),
    }
    assert [name for *_, name, _ in rows].count("zeros") == 2
    assert data[13:16] == bytes(3)
    assert size_of("<!-- table: checkpoint header -->") == checkpoint.CHECKPOINT_HEADER_BYTES


def test_an_index_lies_as_the_page_says() -> None:
    entries = index.SegmentIndex(4096)
    entries.note("orders", blocks.RECORDS, 7, 9, 1000, 80)
    entries.note("orders", blocks.MOVED, 2, 4, 900, 160)
    data = entries.encode(STORE_ID, 3)
    body = data[index.INDEX_HEADER_BYTES :]
    assert fields_of("<!-- table: index header -->", data) == {
        "magic": index.INDEX_MAGIC,
        "length": 4096,
        "body_bytes": len(body),
        "checksum": CHECK(body, CHECK(data[:20], segment_seed(CHECK, STORE_ID, 3))),
    }
    assert size_of("<!-- table: index header -->") == index.INDEX_HEADER_BYTES
    columns = [struct.pack("<Q", number) for number in (7, 1000, 80)]
    assert msgspec.msgpack.decode(body) == {"orders": [*columns, [[2, 4, 160]]]}


# Columns: the page is used as the decoder.

CODES = {"i32": "i", "u32": "I", "u64": "Q", "u8": "B"}


class ColumnReader:
    """Reads columns one after another by nothing but what the page says of them."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = size_of("<!-- table: block header -->")

    def numbers(self, kind: str, count: int) -> list[int]:
        column = array(CODES[kind])
        size = count * column.itemsize
        column.frombytes(self.data[self.at : self.at + size])
        self._step(size)
        return column.tolist()

    def values(self, ends: list[int]) -> list[bytes]:
        data = self.data[self.at : self.at + ends[-1]]
        self._step(ends[-1])
        return [data[start:end] for start, end in pairwise(ends)]

    def read(self, kind: str, count: int) -> list[int] | list[bytes]:
        if kind == "offsets and bytes":
            return self.values(self.numbers("i32", count + 1))
        return self.numbers(kind, count)

    def _step(self, size: int) -> None:
        end = self.at + size
        self.at = end + -end % frames.ALIGNMENT
        assert self.data[end : self.at] == bytes(self.at - end)


RECORD_COLUMNS: dict[int, blocks.Column] = {
    blocks.COUNTERS: [5, 9, 12],
    blocks.DELIVER_AT: [1, 2, 3],
    blocks.EXPIRES_AT: [4, 5, 6],
    blocks.PRIORITY: [7, 8, 9],
    blocks.HEADERS: [b"", b"h", b"header"],
    blocks.DEDUP_ID: [b"1", b"22", b"333"],
    blocks.ORDERING_KEY: [b"k", b"", b"kk"],
}


@pytest.mark.parametrize("step", [1, 2**33])
def test_columns_of_records_lie_as_the_page_says(step: int) -> None:
    payloads = [b"one", b"", b"three"]
    times = [1000, 1000, 1000 + step]
    for bits in range(128):
        columns = {bit: column for bit, column in RECORD_COLUMNS.items() if bits & bit}
        parts, _ = encoding.encode_records(
            payloads, queue=0, first=5, time=1000, times=times, columns=columns
        )
        data = b"".join(parts)
        width = data[1]
        reader = ColumnReader(data)
        ends: list[int] = []
        for name, kind, entries, condition in table("<!-- columns: records -->"):
            bit = re.fullmatch(r"bit (\d+)", condition)
            if name == "offsets":
                assert entries == "count + 1"
                ends = reader.numbers(kind, 4)
            elif name == "payloads":
                assert reader.values(ends) == payloads
            elif name == "times":
                assert kind == "u32 or u64"
                found = reader.numbers({4: "u32", 8: "u64"}[width], 3)
                assert [1000 + difference for difference in found] == times
            else:
                assert bit
                number = int(bit.group(1))
                assert getattr(blocks, name.strip("`")) == number
                if bits & number:
                    assert reader.read(kind, 3) == columns[number]
        assert reader.at == len(data)


def test_compressed_payloads_lie_as_the_page_says() -> None:
    payloads = [b"one and the same " * 40] * 3
    parts, size = encoding.encode_records(payloads, queue=0, first=5, time=1000)
    smaller = encoding.compressed(parts, 1, compression.Compression(compression.ZLIB, 6))
    assert smaller is not None
    data = b"".join(smaller)
    (row,) = [row for row in table("<!-- columns: records -->") if row[0] == "`COMPRESSED`"]
    _, kind, entries, condition = row
    assert condition == f"bit {blocks.COMPRESSED}"
    assert struct.unpack_from("<I", data, 4) == (blocks.COMPRESSED,)
    reader = ColumnReader(data)
    assert reader.numbers("i32", 4)[-1] == size
    algorithm, stored = reader.numbers(kind, int(entries))
    (found,) = reader.values([0, stored])
    assert named_values("| value | algorithm | what it is |")["ZLIB"] == algorithm
    assert zlib.decompress(found) == b"".join(payloads)
    assert reader.at == len(data)
    assert f"at most\n{compression.DECOMPRESSED_BYTES_MAX:,} bytes" in PAGE
    assert f"a window of at most {(1 << compression.WINDOW_LOG_MAX) >> 20} MiB" in PAGE


def test_columns_of_the_other_kinds_lie_as_the_page_says() -> None:
    removed = encoding.encode_removed([(1, 2, 40), (4, 4, 20)], queue=0, time=1, reason=1)
    leases = encoding.encode_leases([3, 5, 8], [1, 2, 1], queue=0, deadline=9)
    state = encoding.encode_state([("a", b"value"), ("gone", None), ("", b"")], time=1)
    expected: dict[str, tuple[list[Buffer], dict[str, object]]] = {
        "removed": (removed, {"firsts": [1, 4], "lasts": [2, 4], "weights": [40, 20]}),
        "leases": (leases, {"counters": [3, 5, 8], "attempts": [1, 2, 1]}),
        "state": (
            state,
            {"present": [1, 0, 1], "names": [b"a", b"gone", b""], "values": [b"value", b"", b""]},
        ),
    }
    for kind, (parts, columns) in expected.items():
        data = b"".join(parts)
        count = struct.unpack_from("<I", data, 8)[0]
        reader = ColumnReader(data)
        found = {
            name: reader.read(how, count) for name, how, _ in table(f"<!-- columns: {kind} -->")
        }
        assert found == columns
        assert reader.at == len(data)


# Numbers with a meaning.


def named_values(title: str) -> dict[str, int]:
    return {row[1].strip("`"): int(row[0]) for row in table(title)}


def test_values_of_kinds_reasons_flags_and_algorithms_are_those_of_the_code() -> None:
    kinds = named_values("| value | kind | means |")
    assert kinds == {name: getattr(blocks, name) for name in kinds}
    assert sorted(kinds.values()) == [1, 2, 3, 4, 5]
    reasons = named_values("| value | reason | in words |")
    assert reasons == {name: getattr(blocks, name) for name in reasons}
    words = {int(row[0]): row[2] for row in table("| value | reason | in words |")}
    assert words == blocks.REASONS
    flags = named_values("| bit | flag |")
    assert flags == {"FLAG_SEAL": frames.FLAG_SEAL}
    algorithms = named_values("| value | algorithm |")
    assert algorithms == {"CRC32C": checksum.CRC32C, "CRC32": checksum.CRC32}
    compressions = named_values("| value | algorithm | what it is |")
    assert compressions == {"ZLIB": compression.ZLIB, "ZSTD": compression.ZSTD}
    assert set(compressions.values()) == set(compression.ALGORITHMS.values())


def test_the_optional_columns_are_all_there_are() -> None:
    rows = table("<!-- columns: records -->")
    bits = [int(row[3].split()[1]) for row in rows if row[3].startswith("bit")]
    assert sum(bits) == blocks._COLUMNS_KNOWN
    assert bits == sorted(bits)


def test_limits_are_those_of_the_code() -> None:
    rows = table("| constant | value |")
    assert len(rows) > 15
    for constant, value in rows:
        module, _, name = constant.strip("`").rpartition(".")
        assert getattr(import_module(module), name) == int(value), constant


def test_magics_and_the_rule_of_names_stand_in_the_page() -> None:
    for magic in (
        frames.SEGMENT_MAGIC,
        frames.FRAME_MAGIC,
        checkpoint.CHECKPOINT_MAGIC,
        index.INDEX_MAGIC,
    ):
        assert f"| magic | `{magic.decode()}` |" in PAGE
    assert f"`{genesis.NAME_RULE}`" in PAGE
    assert f"{frames.ENDIAN_MARK:#06x}" in PAGE


def test_file_names_are_those_of_the_code() -> None:
    names = [row[0].strip("`") for row in table("| name | content |")]
    assert names == [segment.segment_name(1), segment.index_name(1), *checkpoint.CHECKPOINT_NAMES]


# Names and orders of stored values.

ARRAYS: dict[str, type[msgspec.Struct]] = {
    "fields: Genesis": genesis.Genesis,
    "array: SegmentEntry": checkpoint.SegmentEntry,
    "array: SpanEntry": checkpoint.SpanEntry,
    "array: StateEntry": checkpoint.StateEntry,
    "array: UnloggedEntry": checkpoint.UnloggedEntry,
    "array: _QueueEntries": index._QueueEntries,
    "array: MovedEntry": index.MovedEntry,
}


@pytest.mark.parametrize("title", ARRAYS)
def test_arrays_have_their_fields_in_the_order_of_the_page(title: str) -> None:
    struct_type = ARRAYS[title]
    assert struct_type.__struct_config__.array_like
    rows = table(f"<!-- {title} -->")
    assert [int(row[0]) for row in rows] == list(range(len(rows)))
    assert [row[1] for row in rows] == [field.name for field in msgspec.structs.fields(struct_type)]


OBJECTS: list[type[msgspec.Struct]] = [
    checkpoint.Checkpoint,
    checkpoint.QueueEntry,
    genesis.GenesisView,
]


@pytest.mark.parametrize("struct_type", OBJECTS, ids=lambda found: str(found.__name__))
def test_objects_have_the_names_of_the_page(struct_type: type[msgspec.Struct]) -> None:
    rows = table(f"<!-- json: {struct_type.__name__} -->")
    fields = msgspec.structs.fields(struct_type)
    assert [row[0] for row in rows] == [field.encode_name for field in fields]


def test_genesis_has_the_default_for_a_missing_field_and_ignores_further_ones() -> None:
    def decode(data: bytes) -> list[genesis.Genesis]:
        return genesis.decode_genesis(memoryview(data), len(data))

    assert decode(msgspec.msgpack.encode([["orders"]])) == [genesis.Genesis("orders")]
    whole = msgspec.to_builtins(genesis.Genesis("orders", queue_size=3))
    assert decode(msgspec.msgpack.encode([[*whole, "from later"]]))[0].queue_size == 3


# The other pages.


def test_the_glossary_lists_each_word_once_and_in_order() -> None:
    text = (ROOT / "docs/reference/glossary.md").read_text()
    for part in text.split("## ")[1:]:
        words = re.findall(r"^\| ([a-z][^|]*?) \|", part, re.MULTILINE)[1:]
        assert words == sorted(words)
        assert len(set(words)) == len(words)


def test_the_explanation_stays_short() -> None:
    assert len((ROOT / "docs/explanation/store.md").read_text().splitlines()) <= 150
