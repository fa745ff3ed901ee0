"""What the README shows runs as it is shown, and every command that it names is there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def fenced(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


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
        assert [line for line in said if line not in output.splitlines()] == []
    assert printed[0] == "1 b'first'\n"
    assert "b'second'" in printed[1]


@pytest.mark.parametrize(
    "command", [line for line in commands() if line.startswith("python -m store")]
)
def test_every_store_command_runs_on_the_store_that_the_blocks_made(
    shown: tuple[Path, list[str]], command: str
) -> None:
    directory, _ = shown
    _, *arguments = shlex.split(command)
    assert run(arguments, directory)


def test_every_command_that_is_named_is_one_of_dev() -> None:
    """In the blocks and in the text; both name `./dev` alone and python's own modules."""
    assert all(line.startswith(("./dev ", "python -m store ")) for line in commands())
    named = set(re.findall(r"\./dev ([a-z]+)", README))
    known = set(re.findall(r"^    ([a-z]+)\)$", (ROOT / "dev").read_text(), re.MULTILINE))
    assert named
    assert named <= known
    assert os.access(ROOT / "dev", os.X_OK)
    assert "--deep" in (ROOT / "tests" / "run.py").read_text()


def test_every_file_of_the_documentation_that_is_linked_is_there() -> None:
    links = re.findall(r"\]\((docs/[^)#]+)", README)
    assert links
    assert [link for link in links if not (ROOT / link).is_file()] == []
