"""The documentation: links lead somewhere, and what pages say about names and tests holds."""

from __future__ import annotations

import importlib
import inspect
import pydoc
import re
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

import actors
import actors.testing
import fifoq.spark
import fifoq.sync
import fifoq.testing
import store
from fifoq.codec import (
    HEADER_NAME_BYTES_MAX,
    HEADER_VALUE_BYTES_MAX,
    HEADERS_BYTES_MAX,
    HEADERS_MAX,
    OWN_PREFIX,
)
from fifoq.committer import LINGER_TURNS_MAX
from fifoq.delivery import EXTENDED_SECONDS_MAX
from fifoq.intake import UNSEALED_BYTES_MAX
from fifoq.line import CACHE_BYTES_MAX
from fifoq.options import ITEM_BYTES_MAX
from fifoq.places import WINDOW_MAX
from fifoq.putting import BATCH_BYTES_MAX
from fifoq.recurring import CATCH_UP_MAX, EVERY_SECONDS_MIN
from fifoq.recurring import ITEM_BYTES_MAX as SCHEDULE_BYTES_MAX
from fifoq.runs import SAME_TIME_NS
from fifoq.schedules import SCHEDULES_MAX
from fifoq.settling import RETRY_SECONDS, SEAL_SECONDS
from fifoq.taking import TAKE_MANY_MAX
from fifoq.writer import ASIDE_AFTER_SECONDS, ASIDE_SECONDS
from pages.api import modules

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
OTHERS = [ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "examples/README.md"]
GUARANTEES = (ROOT / "docs/reference/guarantees.md").read_text()
REFERENCE = (ROOT / "docs/reference/store.md").read_text()
ACTORS_REFERENCE = (ROOT / "docs/reference/actors.md").read_text()
EXAMPLES = (ROOT / "examples/README.md").read_text()
ERRORS = (ROOT / "docs/reference/errors.md").read_text()
CLAUSES = [f"C{number}" for number in range(1, 15)]


def clauses() -> dict[str, str]:
    """Each clause of the guarantees by its number."""
    parts = re.split(r"^## ", GUARANTEES, flags=re.MULTILINE)[1:]
    return {part.partition(":")[0]: part for part in parts if re.match(r"C\d+:", part)}


def named_tests(text: str) -> list[str]:
    return re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", text)


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=lambda page: page.name)
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).is_file()] == []


def test_every_page_but_the_first_is_linked_from_another() -> None:
    linked = {
        (source.parent / link).resolve()
        for source in [ROOT / "README.md", *PAGES]
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", source.read_text())
    }
    first = ROOT / "docs/index.md"
    assert [page.name for page in PAGES if page not in linked | {first}] == []


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=lambda page: page.name)
def test_no_page_has_a_section_twice(page: Path) -> None:
    """Each clause of the guarantees from C1 to C10 once stood there twice."""
    sections = re.findall(r"^## .+", page.read_text(), re.MULTILINE)
    assert sorted(set(sections)) == sorted(sections)


def test_every_clause_names_its_tests() -> None:
    assert list(clauses()) == CLAUSES
    for number, text in clauses().items():
        assert named_tests(text.partition("\nTests: ")[2]), number


@pytest.mark.parametrize("name", sorted(set(named_tests(GUARANTEES))))
def test_every_test_that_the_guarantees_name_exists(name: str) -> None:
    path, _, function = name.partition("::")
    text = (ROOT / path).read_text()
    assert re.search(rf"def {function or 'test_'}", text), name
    if function:
        assert re.search(rf"def {function}\(", text), name


def test_whatever_the_guarantees_quote_as_a_test_is_one() -> None:
    """A name that is cut in two, or spelled otherwise, would escape the test above."""
    said = re.findall(r"tests/[^`\s,]*", GUARANTEES)
    known = [*named_tests(GUARANTEES)]
    assert sorted(said) == sorted(known)


@pytest.mark.parametrize(
    ("package", "name"),
    [
        (package, name)
        for package in (fifoq, fifoq.sync, fifoq.spark, fifoq.testing, actors, store)
        for name in package.__all__
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_every_public_name_can_be_looked_up_with_help(package: Any, name: str) -> None:
    """`help(fifoq.Delivery)` ended in a NameError."""
    assert pydoc.render_doc(getattr(package, name))


def test_the_reference_lists_every_public_name_once_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", REFERENCE, re.MULTILINE)
    assert sorted(rows) == sorted(store.__all__)


def test_the_methods_that_the_reference_names_are_there() -> None:
    for owner in ("Log", "Draft", "Reader", "RecordBlock"):
        (row,) = re.findall(rf"^\| `{owner}` \| (.+) \|$", REFERENCE, re.MULTILINE)
        methods = set(re.findall(r"`(\w+)(?:\(\))?`", row)) - {"Log"}
        assert methods
        assert [name for name in methods if not hasattr(getattr(store, owner), name)] == []


def test_the_actors_reference_lists_every_public_name_once_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", ACTORS_REFERENCE, re.MULTILINE)
    assert sorted(rows) == sorted(actors.__all__)


def test_the_reference_of_the_test_kit_lists_every_name_and_option() -> None:
    page = (ROOT / "docs/reference/testing.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(rows) == sorted(fifoq.testing.__all__)
    assert set(actors.testing.__all__) <= set(fifoq.testing.__all__)
    (said,) = re.findall(r"^`crash_matrix\((.+)\)`$", page, re.MULTILINE)
    parameters = signature(fifoq.testing.crash_matrix).parameters.values()
    assert said.replace("*, ", "").split(", ", 2)[:2] == ["scenario", "invariant"]
    assert said.partition("*, ")[2] == ", ".join(
        f"{each.name}={each.default!r}" for each in parameters if each.kind is each.KEYWORD_ONLY
    )
    for owner in (fifoq.testing.Machine, fifoq.testing.Probe):
        methods = {name for name, value in vars(owner).items() if inspect.isfunction(value)}
        public = {name for name in methods if not name.startswith("_")}
        assert [name for name in public if f"`{name}()`" not in page] == []


@pytest.mark.parametrize(
    "owner", ["ActorSystem", "Actor", "Ref", "Context", "Batch", "Reply", "Keyed"]
)
def test_the_actors_reference_names_every_method_and_no_other(owner: str) -> None:
    (row,) = re.findall(rf"^\| `{owner}` \| (.+) \|$", ACTORS_REFERENCE, re.MULTILINE)
    said = set(re.findall(r"`(\w+)\(\)`", row))
    public = {
        name
        for name, value in vars(getattr(actors, owner)).items()
        if callable(value) and not name.startswith("_")
    }
    assert said == public


def test_the_limits_that_are_told_are_those_of_the_code() -> None:
    guarantees, why = told(GUARANTEES), told((ROOT / "docs/explanation/queue.md").read_text())
    reference = told((ROOT / "docs/reference/queue.md").read_text())
    cache, unsealed = CACHE_BYTES_MAX >> 20, UNSEALED_BYTES_MAX >> 20
    shared = f"{SAME_TIME_NS // 1000} µs or {WINDOW_MAX} puts"
    for page in (guarantees, why, reference):
        assert shared in page
        assert f"{unsealed} MiB" in page
    for page in (guarantees, why):
        assert f"at most {cache} MiB" in page.replace("**", "")
        assert f"{ASIDE_SECONDS * 1000} ms in each ms" in page
        assert RETRY_SECONDS == 0.25
        assert "every quarter of a second" in page
    assert ASIDE_AFTER_SECONDS == 0.001
    assert f"by itself after {SEAL_SECONDS * 1000:.0f} ms" in guarantees
    assert f"longer than {EXTENDED_SECONDS_MAX // 3600} hours" in reference
    assert f"at most {ITEM_BYTES_MAX >> 20} MiB" in reference
    assert f"never more than {TAKE_MANY_MAX:,};" in reference
    assert f"over {BATCH_BYTES_MAX >> 20} MiB together" in reference
    assert (
        f"Headers are at most {HEADERS_MAX} strings by name: names of 1 to {HEADER_NAME_BYTES_MAX} "
        f"bytes that do not begin with `{OWN_PREFIX}`, values of at most {HEADER_VALUE_BYTES_MAX} "
        f"bytes, {HEADERS_BYTES_MAX >> 10} KiB together."
    ) in reference
    assert f"up to {CATCH_UP_MAX:,} in a row" in reference
    assert (
        f"at most {SCHEDULE_BYTES_MAX >> 10} KiB and a store at most {SCHEDULES_MAX:,}" in reference
    )
    assert f"`every` is {EVERY_SECONDS_MIN} seconds to ten years" in reference
    assert LINGER_TURNS_MAX == 2
    assert "up to two turns of the loop" in why


def told(text: str) -> str:
    """A page without its line ends."""
    return " ".join(text.split())


def test_the_example_that_the_actors_reference_links_is_run() -> None:
    assert "../../examples/actors_in_memory.py" in ACTORS_REFERENCE
    assert (ROOT / "tests/actors/test_example.py").is_file()


def exported_errors() -> set[str]:
    """Every exception class that a public module exports."""
    return {
        name
        for module in map(importlib.import_module, modules())
        for name in module.__all__
        if inspect.isclass(value := getattr(module, name)) and issubclass(value, BaseException)
    }


def test_every_exported_error_is_told_with_what_happened_the_data_and_what_to_do() -> None:
    """A new one goes into docs/reference/errors.md, under the heading that fits."""
    parts = re.split(r"^### `(\w+)`$", ERRORS, flags=re.MULTILINE)
    told_of = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert len(told_of) == len(parts) // 2, "one is there twice"
    assert set(told_of) == exported_errors()
    for name, text in told_of.items():
        said = re.findall(r"^- \*\*(.+?)\.\*\* \S", text, re.MULTILINE)
        assert said == ["What happened", "Your data", "What to do"], name


def test_every_example_is_introduced() -> None:
    linked = re.findall(r"^\| \[(\w+)\.py\]\(\1\.py\)", EXAMPLES, re.MULTILINE)
    assert len(linked) == len(set(linked))
    there = {path.stem for path in (ROOT / "examples").glob("*.py")} - {"__init__"}
    assert set(linked) == there, "a new example goes into examples/README.md"
