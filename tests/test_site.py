"""The documentation as a site: it builds without a warning, and what is generated is complete."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pages import api, bench, hooks

ROOT = Path(__file__).parents[1]


def build(target: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pages.site", str(target)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_the_site_is_built_without_a_warning_and_every_page_is_in_it(tmp_path: Path) -> None:
    done = build(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"built {tmp_path / 'index.html'}\n"
    for page in (ROOT / "docs").rglob("*.md"):
        assert (tmp_path / page.relative_to(ROOT / "docs").with_suffix(".html")).is_file()
    for name in hooks.examples():
        assert (tmp_path / f"examples/{name}.html").is_file()
    index = (tmp_path / "index.html").read_text()
    loaded = re.findall(r'<(?:script|img)[^>]* src="([^"]+)"', index)
    loaded += re.findall(r'<link[^>]* rel="stylesheet"[^>]* href="([^"]+)"', index)
    assert not [link for link in loaded if link.startswith(("http:", "https:", "//"))]


@pytest.mark.parametrize("name", api.modules())
def test_the_names_of_a_module_are_all_on_its_page_with_what_they_promise(name: str) -> None:
    module = importlib.import_module(name)
    page = api.page(name)
    headings = re.findall(r"^## `(\w+)`$", page, re.MULTILINE)
    values = {each: getattr(module, each) for each in module.__all__}
    assert headings == sorted(n for n, value in values.items() if not inspect.ismodule(value))
    assert " at 0x" not in page


def test_a_signature_is_shown_as_it_is_written() -> None:
    page = api.page("fifoq")
    assert "### `Queue.put()`" in page
    assert "'" not in page[page.index("### `Queue.take_many()`") :].split("```")[1]
    assert "### `Queue.seal()`" not in page, "not for users: the reference does not name it"


def test_links_out_of_the_documentation_lead_to_what_shows_the_file() -> None:
    page = ROOT / "docs/how-to/x.md"
    found = hooks.relinked("[a](../../examples/threads.py) [b](../faq.md#c)", page, "how-to/x.md")
    assert found == "[a](../examples/threads.md) [b](../faq.md#c)"
    found = hooks.relinked("[a](docs/faq.md) [b](#c)", ROOT / "CHANGELOG.md", "changelog.md")
    assert found == "[a](faq.md) [b](#c)"


def test_the_page_of_benchmarks_is_made_of_the_run_that_is_kept() -> None:
    run = json.loads(bench.KEPT.read_text())
    assert bench.PAGE.read_text() == bench.page(run)
    assert f"`{run['command']}`" in bench.PAGE.read_text()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", run["date"])


def test_a_run_becomes_a_page_with_what_was_missed_and_what_is_absent() -> None:
    row = {"name": " put", "value": 0.5, "unit": "×", "target": 0.8, "more": True}
    lost = {"lost_on_kill": "nothing", "lost_on_power_cut": "all | of it"}
    run = {
        "command": "fifoq bench --peers --json",
        "date": "2026-11-17",
        "place": {"cores": "2"},
        "rows": [{**row, "met": False, "detail": "1 µs"}],
        "absent": [{"name": "redis", "why": "apt install redis"}],
        "peers": [{"name": "sqlite", "rates": {"put": 1000.0}, **lost}],
    }
    page = bench.page(run)
    assert "| put | 0.500 × | ≥ 0.8 | **missed** | 1 µs |" in page
    assert "0 rows met their target, 1 missed" in page
    assert "- redis: apt install redis" in page
    assert "| cores | 2 |" in page
    assert "all / of it" in page
