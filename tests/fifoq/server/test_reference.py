"""The page of the frame server: every name, limit, byte, kind, field and code, and no other."""

from __future__ import annotations

import ast
import hashlib
import hmac
import re
from pathlib import Path

import crc32c
import msgspec

import fifoq.server
from fifoq import description
from fifoq.server import ServerLimits, ServerStats, failures, protocol

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/reference/frame_server.md").read_text()


def rows(title: str) -> list[list[str]]:
    """The cells of the table behind a title, without its head."""
    text = PAGE.partition(title)[2]
    assert text, title
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table is not None
    lines = table[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def layout(title: str) -> dict[str, slice]:
    end = 0
    found = {}
    for offset, size, name, _ in rows(title):
        assert int(offset) == end, name
        end += int(size)
        found[name] = slice(int(offset), end)
    return found


def test_public_names_limits_and_stats_are_on_the_page() -> None:
    assert sorted(row[0].strip("`") for row in rows("## Names")) == fifoq.server.__all__
    limits = {row[0].strip("`"): ast.literal_eval(row[1].strip("`")) for row in rows("one line, ")}
    assert limits == msgspec.structs.asdict(ServerLimits())
    (stats,) = [row[1] for row in rows("## Names") if row[0] == "`ServerStats`"]
    assert re.findall(r"`(\w+)`", stats) == list(ServerStats.__struct_fields__)


def test_a_greeting_lies_as_the_page_says() -> None:
    nonce = bytes(range(16))
    data = protocol.encode_greeting(nonce)
    places = layout("<!-- table: greeting -->")
    assert data[places["magic"]] == protocol.PROTOCOL_MAGIC
    assert f"`{protocol.PROTOCOL_MAGIC.decode()}`" in PAGE
    assert int.from_bytes(data[places["version"]], "little") == protocol.PROTOCOL_VERSION == 1
    assert data[places["zeros"]] == bytes(2)
    assert data[places["nonce"]] == nonce
    assert places["nonce"].stop == len(data) == protocol.GREETING_BYTES


def test_a_message_lies_as_the_page_says() -> None:
    header, *parts = protocol.encode_message(
        protocol.PAGE, [b"abc", b"defg"], request=0x01020304, block_count=513
    )
    data = bytes(header)
    places = layout("<!-- table: message header -->")
    found = {name: int.from_bytes(data[place], "little") for name, place in places.items()}
    assert found == {
        "body_bytes": 7,
        "kind": 68,
        "zeros": 0,
        "block_count": 513,
        "request": 0x01020304,
        "checksum": crc32c.crc32c(b"abcdefg", crc32c.crc32c(data[:12])),
    }
    assert len(data) == protocol.MESSAGE_HEADER_BYTES == places["checksum"].stop
    assert parts == [b"abc", b"defg"]


def test_kinds_are_those_of_the_code() -> None:
    kinds = {row[1].strip("`"): int(row[0]) for row in rows("<!-- table: kinds -->")}
    assert kinds == {name: getattr(protocol, name) for name in kinds}
    in_code = {
        name
        for name, value in vars(protocol).items()
        if name.isupper() and isinstance(value, int) and "_" not in name
    }
    # Two come from the log's format.
    assert set(kinds) == in_code - {"RECORDS", "MOVED", "CRC32C"}


def test_bodies_have_the_fields_of_the_page() -> None:
    said = {
        row[0].strip("`"): re.findall(r"`(\w+)`", row[1].replace("`spans`: ", ""))
        for row in rows("<!-- fields -->")
    }
    for name, fields in said.items():
        struct = getattr(protocol, name, None) or getattr(description, name)
        assert fields == list(struct.__struct_fields__), name
    structs = {
        name
        for module in (protocol, description)
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, msgspec.Struct)
    }
    assert set(said) == structs - {"Header", "Genesis", "RecordBlock", "Span"}
    assert f"at most {protocol.RANGE_COUNT_MAX:,}" in PAGE


def test_codes_are_those_of_the_code() -> None:
    assert {row[0].strip("`") for row in rows("<!-- codes -->")} == failures.CODES


def test_proofs_are_made_as_the_page_says() -> None:
    for role in ("client", "server"):
        assert f"`fifoq {role}`" in PAGE
        said = f"fifoq {role}".encode() + b"S" * 16 + b"C" * 16
        wanted = hmac.new(b"the token", said, hashlib.sha256).digest()
        assert protocol.prove("the token", role, b"S" * 16, b"C" * 16) == wanted
        assert len(wanted) == protocol.PROOF_BYTES
    assert f"{protocol.TOKEN_BYTES_MIN} to {protocol.TOKEN_BYTES_MAX} bytes" in PAGE
