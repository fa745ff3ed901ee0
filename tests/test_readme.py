"""What README and tour show runs as it is shown, and every command that they name is there."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import fifoq
from pages import bench, readme
from store.frames import BODY_BYTES_MAX
from store.genesis import check_name
from store.reader import UNWITNESSED_SECONDS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
TOUR = (ROOT / "docs/tutorial/tour.md").read_text()
LIMITS = (ROOT / "docs/reference/limits.md").read_text()


def fenced(language: str) -> list[str]:
    """Of the README, then of the tour."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README + TOUR, re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    """Every line of the shell blocks, without its comment."""
    lines = [line.split("#")[0].strip() for block in fenced("sh") for line in block.splitlines()]
    return [line for line in lines if line]


def run(arguments: list[str], directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The directory in which the python blocks were run in turn, and what each of them printed."""
    directory = tmp_path_factory.mktemp("readme")
    return directory, [run(["-c", block], directory) for block in fenced("python")]


def test_every_python_block_runs_and_prints_what_its_comments_say(
    shown: tuple[Path, list[str]],
) -> None:
    _, printed = shown
    for block, output in zip(fenced("python"), printed, strict=True):
        said = re.findall(r"print\(.*\)\s+# (.+)$", block, re.MULTILINE)
        assert said
        assert output.splitlines() == [line for text in said for line in text.split(", then ")]


def test_every_python_block_may_be_run_again(shown: tuple[Path, list[str]]) -> None:
    """A reader block shows one line for each commit by then, all of them the same."""
    directory, printed = shown
    for block, before in zip(fenced("python"), printed, strict=True):
        again = run(["-c", block], directory)
        assert set(again.splitlines()) == set(before.splitlines())


def test_every_name_comes_from_the_package_itself() -> None:
    imports = re.findall(r"^(?:from|import) (\S+)", "".join(fenced("python")), re.MULTILINE)
    assert set(imports) <= {"asyncio", "msgspec", "fifoq", "fifoq.sync", "actors", "store"}


def test_the_ten_lines_are_the_quick_start() -> None:
    source = (ROOT / "examples/quick_start.py").read_text()
    assert source.endswith(fenced("python")[0])


def test_the_levels_that_are_told_have_the_bounds_of_the_code() -> None:
    queue, store = fifoq.QueueOptions(), fifoq.StoreOptions()
    assert f'"{queue.durability}"`, the default' in README
    assert f"the last {store.sync_interval} s (`sync_interval`)" in README
    assert f"the last {queue.flush_interval} s (`flush_interval`)" in README


@pytest.mark.parametrize("command", [line for line in commands() if "-m store" in line])
def test_every_store_command_runs_on_the_store_that_the_blocks_made(
    shown: tuple[Path, list[str]], command: str
) -> None:
    directory, _ = shown
    _, *arguments = shlex.split(command)
    assert run(arguments, directory)


def test_every_command_that_is_named_is_one_of_dev() -> None:
    """In the blocks and in the text; both name `./dev`, the store's module and `fifoq bench`."""
    known_starts = ("./dev ", ".venv/bin/python -m store ", ".venv/bin/fifoq bench")
    assert all(line.startswith(known_starts) for line in commands())
    benches = [line for line in commands() if "fifoq bench" in line]
    options = {option for line in benches for option in re.findall(r"--[\w-]+", line)}
    assert options == {"--peers"}
    assert "| `--peers` |" in (ROOT / "docs/reference/bench.md").read_text()
    named = set(re.findall(r"\./dev ([a-z]+)", README))
    script = (ROOT / "dev").read_text()
    known = set(re.findall(r"^    ([a-z]+)(?: \| .*)?\)", script, re.MULTILINE))
    assert named
    assert named <= known
    assert os.access(ROOT / "dev", os.X_OK)
    options = set(re.findall(r"\./dev test (--\w+)", README))
    run_py = (ROOT / "tests" / "run.py").read_text()
    assert options == {"--deep", "--figures"}
    assert all(f'"{option}"' in run_py for option in options)


def test_every_link_leads_to_a_file() -> None:
    """Also to the figures, unless this very run is about to write them."""
    links = set(re.findall(r"\]\((?!https?:)([^)#]+)", README))
    assert "RELIABILITY.json" in links
    if os.environ.get("FIFOQ_WRITES_FIGURES"):
        links.remove("RELIABILITY.json")
    assert sorted(link for link in links if not (ROOT / link).is_file()) == []


def test_the_limits_that_are_told_are_those_of_the_code() -> None:
    assert f"at most {BODY_BYTES_MAX >> 20} MiB" in LIMITS
    assert f"about {UNWITNESSED_SECONDS * 1000:.0f} ms" in LIMITS
    rule = LIMITS[LIMITS.index("**Names**") :].partition("\n- ")[0]
    examples = re.findall(r"`([^`]+)`", rule.rpartition(":")[2])
    assert len(examples) == 3
    for name in examples:
        assert check_name(name)


def test_every_figure_is_that_of_the_kept_run_and_has_its_command() -> None:
    """As the page of benchmarks has it; `python -m pages.readme` writes them."""
    run = json.loads(bench.KEPT.read_text())
    assert readme.table(run) in README
    assert readme.verdict(run) in README
    for rows in re.findall(r"`fifoq bench --rows ([\w-]+)`", readme.table(run)):
        assert f"| `{rows}` |" in (ROOT / "docs/reference/bench.md").read_text()
