"""The page that maps features to calls and tests: `python -m tests.coverage_page` writes it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

from tests.support.features import Row, State
from tests.support.features_delivery import DELIVERY
from tests.support.features_log import LOG

PAGE: Final = Path(__file__).parents[1] / "docs/reference/coverage.md"
ROWS: Final = (*LOG, *DELIVERY)

WORDS: Final[dict[State, str]] = {
    "there": "as it is asked for",
    "otherwise": "met in another way",
    "missing": "not there",
    "outside": "outside of what fifoq is",
}

HEAD: Final = """\
# What is covered

Features of three queues that fifoq learned from, and what answers each of them here: L1 to L125 of
LedgerQ (all of it), E31 to E43 of EpochQueue, and G21 to G45 and G59 to G101 of GoQueue (those on
delivery). The numbers are those of the project's list of features; neighbours share a row where one
thing answers them. A part that is missing of what is met in another way is told as such. Names
are explained in [the names of `fifoq`](queue.md), words in [the glossary](glossary.md).

This page is made by `python -m tests.coverage_page`. `tests/test_coverage_page.py` checks that it
is up to date, that every name and every test on it exists, and that no number is left out.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD, _counts(), *(_section(title, rows) for title, rows in _sections())]
    return "\n".join(parts)


def _sections() -> list[tuple[str, list[Row]]]:
    titles = {"L": "LedgerQ", "E": "EpochQueue", "G": "GoQueue"}
    answered = [row for row in ROWS if row.tests]
    found = [
        (title, [row for row in answered if row.numbers.startswith(letter)])
        for letter, title in titles.items()
    ]
    return [*found, ("Not there, or outside", [row for row in ROWS if not row.tests])]


def _counts() -> str:
    counts = Counter[State]()
    for row in ROWS:
        counts[row.state] += len(row.items())
    lines = [f"| {words} | {counts[state]} |" for state, words in WORDS.items()]
    total = f"| all | {counts.total()} |"
    return "\n".join(["| items | how many |", "|---|---|", *lines, total, ""])


def _section(title: str, rows: list[Row]) -> str:
    if title in ("LedgerQ", "EpochQueue", "GoQueue"):
        head = ["| item | what | with | tests |", "|---|---|---|---|"]
        lines = [_answered(row) for row in rows]
    else:
        head = ["| item | what | |", "|---|---|---|"]
        lines = [f"| {row.numbers} | {row.words} | {_told(row)} |" for row in rows]
    return "\n".join([f"## {title}", "", *head, *lines, ""])


def _answered(row: Row) -> str:
    what = f"{row.words}. {_told(row)}" if row.note else row.words
    used = ", ".join(_linked(name) for name in row.api)
    tests = "<br>".join(f"`{name}`" for name in row.test_names())
    return f"| {row.numbers} | {what} | {used} | {tests} |"


def _told(row: Row) -> str:
    return row.note if row.state == "there" else f"*{WORDS[row.state].capitalize()}.* {row.note}"


def _linked(name: str) -> str:
    """A page as a link from this one, anything else as code."""
    if not name.startswith("docs/"):
        return f"`{name}`"
    path = name.removeprefix("docs/reference/")
    return f"[{Path(name).stem}]({path.replace('docs/', '../')})"


if __name__ == "__main__":
    PAGE.write_text(page())
