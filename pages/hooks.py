"""What the site has beside the files of `docs/`: examples, names from docstrings, the order.

`mkdocs.yml` names this module; mkdocs calls the functions below. A page needs no line in a list:
it is found in its directory and gets its title from its first heading.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pages import api

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[1]
FROM_ROOT: Final = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "examples/README.md": "examples/index.md",
    "RELIABILITY.json": "reliability.json",
}
"""Files of the checkout that are pages or files of the site."""
DEMO: Final = "fifoq/demo/service.py"
"""The part of the demonstration that is shown as an example."""
SECTIONS: Final = (
    ("Tutorial", "tutorial", ("ten_lines", "tour", "demo", "bank_in_40_lines")),
    ("How to", "how-to", ("replace_asyncio_queue", "choose_durability", "stop_cleanly")),
    ("Reference", "reference", ("queue", "errors", "guarantees", "glossary", "cli")),
    ("Why it is so", "explanation", ("architecture", "queue", "store", "exactly_once")),
)
"""Title, directory, and the pages that come first there; the others follow by name."""


def nav() -> list[dict[str, Any]]:
    """The order of the pages."""
    found: list[dict[str, Any]] = [{"Home": "index.md"}]
    for title, directory, first in SECTIONS:
        names = sorted(path.stem for path in (ROOT / "docs" / directory).glob("*.md"))
        ordered = [name for name in first if name in names]
        ordered += [name for name in names if name not in first]
        pages: list[Any] = [f"{directory}/{name}.md" for name in ordered]
        if directory == "reference":
            pages.append({"Names, from docstrings": [_api_uri(name) for name in api.modules()]})
        found.append({title: pages})
    about = ["comparison.md", "benchmarks.md", "faq.md", "changelog.md"]
    programs = [*(f"examples/{name}.md" for name in examples()), "examples/demo_service.md"]
    found.append({"Examples": ["examples/index.md", *programs]})
    found.append({"About": [*about, "contributing.md", "security.md"]})
    return found


def examples() -> list[str]:
    """Every example that is a program."""
    return sorted(p.stem for p in (ROOT / "examples").glob("*.py") if p.stem != "__init__")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.nav = nav()
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    made = {_api_uri(name): api.page(name) for name in api.modules()}
    made |= {f"examples/{name}.md": _program(f"examples/{name}.py") for name in examples()}
    made["examples/demo_service.md"] = _program(DEMO)
    made |= {uri: (ROOT / path).read_text() for path, uri in FROM_ROOT.items()}
    for uri, content in made.items():
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links that lead out of `docs/` lead to the page that shows the file instead."""
    origin = {uri: path for path, uri in FROM_ROOT.items()}.get(page.file.src_uri)
    here = ROOT / (origin or f"docs/{page.file.src_uri}")
    return relinked(markdown, here, page.file.src_uri)


def relinked(markdown: str, here: Path, uri: str) -> str:
    """`markdown`, which lies at `here` in the checkout and at `uri` in the site."""

    def lead(match: re.Match[str]) -> str:
        path, anchor = match[1], match[2] or ""
        target = (here.parent / path).resolve()
        if not target.is_relative_to(ROOT):
            return match[0]
        return f"]({_up(uri)}{site_uri(target.relative_to(ROOT).as_posix())}{anchor})"

    return re.sub(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)", lead, markdown)


def site_uri(path: str) -> str:
    """Where the site has a file of the checkout."""
    if path in FROM_ROOT:
        return FROM_ROOT[path]
    if path == "README.md":
        return "index.md"
    if path == DEMO:
        return "examples/demo_service.md"
    if match := re.fullmatch(r"examples/(\w+)\.py", path):
        return f"examples/{match[1]}.md"
    return path.removeprefix("docs/")


def _up(uri: str) -> str:
    return "../" * uri.count("/")


def _api_uri(name: str) -> str:
    return f"reference/api/{name.replace('.', '_')}.md"


def _program(path: str) -> str:
    source = (ROOT / path).read_text()
    return f"# `{Path(path).name}`\n\n`{path}`\n\n```python\n{source}```\n"
