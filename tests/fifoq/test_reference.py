"""The reference of the queue: every public name, method, option, field and error, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

import fifoq
import fifoq.sync

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/queue.md").read_text()

# What other modules of fifoq call; not for users. A new method goes here or onto the page.
INTERNAL = {
    "Queue": {
        "arrive",
        "attributes_came",
        "bring_back",
        "come_due",
        "fetch",
        "come_back",
        "come_restored",
        "depart",
        "expire_unread",
        "fill_shelf",
        "gone",
        "has_head",
        "has_ready",
        "hold_back",
        "key_free",
        "key_in",
        "key_out",
        "remember_ids",
        "unseal",
        "set_aside",
        "shelve",
        "wait_on_shelf",
        "expect",
        "put_staged",
        "stay",
        "byte_count",
        "check_schedule",
        "next_commit",
        "bytes_went",
        "fill_gap",
        "pick",
        "pull",
        "pulled",
        "remove_returned",
        "waiting_upto",
        "unpick",
        "confirm",
        "counts",
        "decoded_head",
        "decodes_head",
        "give_back",
        "looks_ready",
        "read_ended",
        "read_on",
        "records_came",
        "records_went",
        "restore",
        "seal",
        "show_readers",
        "skipped",
        "store_closed",
        "take_back",
        "take_record_nowait",
        "take_records",
        "touch",
        "until_closed",
        "use",
        "wait_to_take",
        "withdraw",
    },
    "Cursor": {"records_came", "store_closed", "take_back", "take_records", "use"},
    "Delivery": {"record"},
    "ReadOnlyStore": {"run"},
    "Store": {"lend", "lend_dead_letters"},
    "Transaction": {"start"},
}
DOCUMENTED = [
    "Topic",
    *(
        "DeadLetters",
        "Queue",
        "Store",
        "Transaction",
        "Cursor",
        "Delivery",
        "Receipt",
        "ReadOnlyStore",
        "ReadOnlyQueue",
    ),
]
NOT_FOR_THREADS = {"submit", "watch", "as_asyncio"}


def section(title: str) -> str:
    """From a heading with that name to the next one of its level or above."""
    match = re.search(rf"^(##+) `?{title}`?\n", PAGE, re.MULTILINE)
    assert match is not None, title
    rest = PAGE[match.end() :]
    end = re.search(rf"^#{{2,{len(match[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def rows(text: str) -> list[list[str]]:
    """The cells of every row that begins with a name."""
    lines = re.findall(r"^\| (`.+) \|$", text, re.MULTILINE)
    return [line.split(" | ") for line in lines]


def methods(owner: type) -> set[str]:
    return every_method(owner) - INTERNAL.get(owner.__name__, set())


def every_method(owner: type) -> set[str]:
    """Those of its halves as well, but not what it does as a line."""
    return {
        name
        for base in owner.__mro__
        if base.__module__.startswith("fifoq.") and base.__name__ not in ("Line", "Head", "Places")
        for name, value in vars(base).items()
        if callable(value) and not name.startswith("_")
    }


def test_every_public_name_has_its_place_on_the_page_and_is_there() -> None:
    headings = re.findall(r"^##+ `(\w+)`$", PAGE, re.MULTILINE)
    values = ("Opening", "Values", "Errors")
    in_tables = [cells[0].strip("`") for title in values for cells in rows(section(title))]
    named = set(headings) | {name for name in in_tables if "(" not in name}
    assert named == set(fifoq.__all__)
    assert all(hasattr(fifoq, name) for name in fifoq.__all__)


@pytest.mark.parametrize("owner", DOCUMENTED)
def test_every_method_is_on_the_page_and_no_other(owner: str) -> None:
    said = [re.fullmatch(r"`(\w+)\(\)`", cells[0]) for cells in rows(section(owner))]
    assert sorted(match[1] for match in said if match) == sorted(methods(getattr(fifoq, owner)))


def test_no_method_that_was_removed_is_still_called_internal() -> None:
    for owner, names in INTERNAL.items():
        assert [name for name in names if name not in every_method(getattr(fifoq, owner))] == []


def test_the_asyncio_face_is_named_whole() -> None:
    said = set(re.findall(r"`(\w+)\(\)`", section("AsyncioQueue")))
    assert said == methods(fifoq.AsyncioQueue)


@pytest.mark.parametrize("options", [fifoq.QueueOptions, fifoq.StoreOptions])
def test_every_option_is_on_the_page_with_its_default(options: type[msgspec.Struct]) -> None:
    said = {
        cells[0].strip("`"): ast.literal_eval(cells[1].strip("`"))
        for cells in rows(section(options.__name__))
    }
    defaults: Any = options()
    assert said == {name: getattr(defaults, name) for name in options.__struct_fields__}


def test_every_field_of_stats_is_on_the_page_and_those_of_readers_are_marked() -> None:
    fields = [cells[0] for cells in rows(section("QueueStats")) if cells[0]]
    assert [field.strip("`+ ") for field in fields] == list(fifoq.QueueStats.__struct_fields__)
    marked = [field.strip("`+ ") for field in fields if field.endswith("+")]
    assert marked == list(fifoq.ReadOnlyStats.__struct_fields__)


def test_the_blocking_face_has_the_same_methods() -> None:
    for owner in (
        "Queue",
        "Store",
        "Topic",
        "DeadLetters",
        "Transaction",
        "Cursor",
        "Delivery",
        "ReadOnlyStore",
        "ReadOnlyQueue",
    ):
        blocking = {name for name in vars(getattr(fifoq.sync, owner)) if name[0] != "_"}
        blocking = {
            name for name in blocking if callable(getattr(getattr(fifoq.sync, owner), name))
        }
        missing = methods(getattr(fifoq, owner)) - blocking
        assert missing == (NOT_FOR_THREADS if owner == "Queue" else set())
        assert all(f"`{name}`" in section("fifoq.sync") for name in missing)
    assert all(f"`{name}`" in section("fifoq.sync") for name in fifoq.sync.__all__)
