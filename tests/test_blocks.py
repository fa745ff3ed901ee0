"""Every fenced block of Python and shell is run by a test, or is lines of a program that is.

A Python block has the lines of an example which its page links, or stands below `<!-- run -->` and
is run here. A line of shell is a command that is known to be tested: see `KNOWN`; or the block
stands below `<!-- run -->` and is run here, in an empty directory, with the commands on the PATH.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import fifoq
import fifoq.sync
from tests.blocks import ROOT, Block, blocks, in_order, linked_examples, run_python, stripped
from tests.test_examples import ELSEWHERE, HERE

IN_README = {"README.md", "docs/tutorial/tour.md"}
"""Run by tests/test_readme.py, as programs."""
PYTHON = [block for block in blocks("python") if block.page not in IN_README]
SHELL = [block for block in blocks("sh") if block.page not in IN_README]
IN_SPARK = {"docs/reference/spark.md", "docs/reference/spark_sink.md"}
"""Run by tests/spark/test_blocks.py."""
TYPED = "docs/tutorial/ten_lines.md"
BANK = "docs/tutorial/bank_in_40_lines.md"


def test_there_are_blocks_of_both_kinds() -> None:
    assert len(PYTHON) > 40
    assert len(SHELL) > 5
    languages = {
        language
        for page in {block.page for block in [*PYTHON, *SHELL]}
        for language in re.findall(r"^```(\w+)$", (ROOT / page).read_text(), re.MULTILINE)
    }
    assert languages <= {"python", "sh"}, "a language that nothing here checks"


@pytest.mark.parametrize("block", [b for b in PYTHON if not b.run], ids=str)
def test_code_that_a_page_shows_is_that_of_an_example_which_it_links(block: Block) -> None:
    """Lines may be left out, no line may differ; the tests run the examples."""
    sources = [stripped(path.read_text()) for path in linked_examples(block.page)]
    assert any(in_order(stripped(block.code), source) for source in sources), (
        f"{block}\nis in no example that the page links; take its lines from one, or put "
        "`<!-- run -->` above it and have it run"
    )


def test_whoever_types_the_bank_in_has_the_whole_program() -> None:
    typed = "".join(block.code for block in PYTHON if block.page == BANK)
    program = ast.parse((ROOT / "examples/bank.py").read_text())
    del program.body[0]  # its docstring
    assert ast.dump(ast.parse(typed)) == ast.dump(program)


def test_code_in_another_order_or_with_another_line_would_be_noticed() -> None:
    assert in_order(["a", "c"], ["a", "b", "c"])
    assert not in_order(["c", "a"], ["a", "b", "c"])
    assert not in_order(["a", "d"], ["a", "b", "c"])


@pytest.mark.parametrize("block", [b for b in PYTHON if b.run and b.page not in IN_SPARK], ids=str)
def test_code_that_is_marked_runs_as_it_is_shown(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with fifoq.sync.open("data/orders") as q:
        q.put_many([b"an order"] * 3)
    handled: list[object] = []
    asyncio.run(run_python(block.code, {"fifoq": fifoq, "handle": handled.append}))
    assert bool(handled) == ("handle(" in block.code)


# Shell.


def _is_dev(command: str) -> bool:
    known = re.findall(r"^    ([a-z]+)(?: \| .*)?\)", (ROOT / "dev").read_text(), re.MULTILINE)
    return command.split()[1] in known


def _is_example(command: str) -> bool:
    return Path(command.split()[1]).stem in HERE | ELSEWHERE


def _is_extra(command: str) -> bool:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = re.findall(r"fifoq\[(\w+)\]", command)
    return bool(wanted) and set(wanted) <= set(extras["optional-dependencies"])


def _is_test(command: str) -> bool:
    paths = re.findall(r"(tests/[\w/]+\.py)", command)
    word = re.findall(r"-k (\w+)", command)
    text = "".join((ROOT / path).read_text() for path in paths)
    return bool(paths) and all(re.search(rf"def test_\w*{each}", text) for each in word)


def _is_module(command: str) -> bool:
    return importlib.util.find_spec(command.split()[2]) is not None


KNOWN: list[tuple[str, Callable[[str], bool]]] = [
    (r"\./dev ", _is_dev),
    (r"python examples/", _is_example),
    (r"pip install ", _is_extra),
    (r"\.venv/bin/python -m pytest ", _is_test),
    (r"\.venv/bin/python -m pages\.", _is_module),
]


@pytest.mark.parametrize("block", [b for b in SHELL if not b.run and b.page != TYPED], ids=str)
def test_every_line_of_shell_is_a_command_that_is_known(block: Block) -> None:
    for line in block.code.splitlines():
        command = line.split(" #")[0].strip()
        checks = [check for start, check in KNOWN if re.match(start, command)]
        assert checks, f"{command}: not known; put `<!-- run -->` above the block to have it run"
        assert all(check(command) for check in checks), command


def typed(code: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run it as somebody types it, with `python` and `fifoq` of this environment."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", code],
        cwd=directory,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def shell(code: str, directory: Path) -> str:
    """What it prints; it must end well."""
    done = typed(code, directory)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_shell_that_is_marked_runs_as_it_is_shown(tmp_path: Path) -> None:
    """The blocks of each page one after the other, in a directory of its own."""
    for number, page in enumerate(sorted({block.page for block in SHELL if block.run})):
        directory = tmp_path / str(number)
        directory.mkdir()
        for block in SHELL:
            if block.page == page and block.run:
                done = typed(f"set -e\n{block.code}", directory)
                assert done.returncode == 0, done.stdout + done.stderr


def test_the_tutorial_typed_word_for_word_does_what_it_says(tmp_path: Path) -> None:
    """All but `./dev demo`, which has tests of its own, the environment, and its pause."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    program = next(block for block in PYTHON if block.page == TYPED)
    (tmp_path / "orders.py").write_text(program.code)
    demo, activate, *typed = (block.code for block in SHELL if block.page == TYPED)
    assert [demo, activate] == ["./dev demo\n", ". .venv/bin/activate\n"]
    orders, kill, left = typed
    said = re.findall(r"print\(.*\)\s+# (.+)$", program.code, re.MULTILINE)
    assert shell(orders, tmp_path).splitlines() == said
    # Two seconds are enough on a machine that has nothing else to do.
    assert "& sleep 2; kill" in kill
    waited = kill.replace("sleep 2", "until [ -s seen.txt ]; do sleep 0.05; done")
    last = int(shell(waited, tmp_path))
    found = re.match(r"(\d+) records, the last is (\d+)\n", shell(left, tmp_path))
    assert found
    assert last <= int(found[1]) <= last + 1
