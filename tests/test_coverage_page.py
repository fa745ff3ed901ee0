"""The page of features: up to date, complete, and everything that it names is there."""

from __future__ import annotations

import ast
import importlib
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import fifoq
from tests.coverage_page import PAGE, ROWS, page
from tests.support.features import RANGES, Row

ROOT = Path(__file__).parents[1]


def named(row: Row) -> str:
    return row.numbers.replace(", ", "+")


def test_the_page_is_what_its_script_makes() -> None:
    assert PAGE.read_text() == page(), "run python -m tests.coverage_page"


def test_every_number_of_the_ranges_is_there_once_and_no_other() -> None:
    wanted = [f"{letter}{n}" for letter, first, last in RANGES for n in range(first, last + 1)]
    found = [item for row in ROWS for item in row.items()]
    assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_a_row_has_tests_and_names_or_a_reason(row: Row) -> None:
    answered = row.state in ("there", "otherwise")
    assert bool(row.tests) == bool(row.api) == answered
    assert row.note or row.state == "there"


@pytest.mark.parametrize("row", [row for row in ROWS if row.tests], ids=named)
def test_every_test_and_every_name_of_a_row_exists(row: Row) -> None:
    assert [name for name in row.test_names() if not is_test(name)] == []
    assert [name for name in row.api if not is_there(name)] == []


@pytest.mark.parametrize(
    "name",
    [
        "Queue.no_such_call",
        "NoSuchName",
        "QueueOptions.no_such_option",
        "put(no_such_keyword=)",
        "store.NoSuchName",
        "fifoq.sync.NoSuchName",
        "docs/no_such_page.md",
    ],
)
def test_a_name_that_is_not_there_is_noticed(name: str) -> None:
    assert not is_there(name)


def test_a_test_that_is_not_there_is_noticed() -> None:
    here = "tests/test_coverage_page.py"
    assert is_test(f"{here}::test_a_test_that_is_not_there_is_noticed")
    assert not is_test(f"{here}::test_that_was_renamed")
    assert not is_test("tests/test_no_such_file.py::test_x")


def is_test(name: str) -> bool:
    path, _, function = name.partition("::")
    return (ROOT / path).is_file() and function in functions(ROOT / path)


@cache
def functions(path: Path) -> frozenset[str]:
    """Of a file of tests, without running it: some need what is not installed everywhere."""
    body = ast.parse(path.read_text()).body
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in body if isinstance(node, kinds))


def is_there(name: str) -> bool:
    """Whether fifoq, or the module that a name begins with, has it."""
    if name.startswith("docs/"):
        return (ROOT / name).is_file()
    if name.startswith("put("):
        return name[len("put(") : -len("=)")] in fifoq.PutKeywords.__annotations__
    module, attributes = split(name)
    found: object = module
    for attribute in attributes:
        if not hasattr(found, attribute):
            return False
        found = getattr(found, attribute)
    return attributes[0] in module.__all__


def split(name: str) -> tuple[ModuleType, list[str]]:
    """The module that a name is in, and the rest of it."""
    for prefix in ("store", "fifoq.sync", "fifoq.spark.pipelines"):
        if name.startswith(f"{prefix}."):
            return importlib.import_module(prefix), name.removeprefix(f"{prefix}.").split(".")
    return fifoq, name.split(".")
