"""The fenced blocks of the documentation: where they are, and what says that they are checked."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), ROOT / "examples/README.md"])
_BLOCK = re.compile(r"^(?:<!-- (run) -->\n)?```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A fenced block with a language."""

    page: str
    language: str
    code: str
    run: bool
    """Whether the page says that a test runs it as it stands."""

    def __str__(self) -> str:
        return f"{self.page}: {self.code.splitlines()[0]}"


def blocks(language: str, pages: list[Path] = PAGES) -> Iterator[Block]:
    for page in pages:
        for mark, found, code in _BLOCK.findall(page.read_text()):
            if found == language:
                yield Block(page.relative_to(ROOT).as_posix(), found, code, bool(mark))


def linked_examples(page: str) -> list[Path]:
    """Programs of `examples/` that a page links."""
    here = (ROOT / page).parent
    links = re.findall(r"\]\(([^)#]+\.py)\)", (ROOT / page).read_text())
    return [path for link in links if (path := (here / link).resolve()).is_file()]


def stripped(code: str) -> list[str]:
    return [line.strip() for line in code.splitlines() if line.strip()]


def in_order(wanted: list[str], source: list[str]) -> bool:
    """Whether all of these lines are there, in this order; lines may be left out."""
    lines = iter(source)
    return all(line in lines for line in wanted)


async def run_python(code: str, names: dict[str, Any]) -> dict[str, Any]:
    """Run a block with these names known; it may await. Returns all names."""
    compiled: CodeType = compile(code, "<page>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    outcome = eval(compiled, names)
    if inspect.isawaitable(outcome):
        await outcome
    return names
