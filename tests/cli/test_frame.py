"""What every verb has, what help costs, and that the reference is the app's own."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fifoq.cli import reference
from fifoq.cli.frame import MEANINGS, Status, guard
from tests.cli.support import ROOT, command, environment, fifoq, here

VERBS = [(" ".join(names), each) for names, each in reference.verbs()]
NOT_FOR_HELP = ("rich", "aiofiles", "pyspark", "pyarrow", "numpy", "uvloop", "fifoq.cli.output")


def test_the_reference_is_what_the_app_says() -> None:
    """`python -m fifoq.cli.reference > docs/reference/cli.md` writes it anew."""
    assert (ROOT / "docs/reference/cli.md").read_text() == reference.page()


@pytest.mark.parametrize(("name", "verb"), VERBS, ids=[name for name, _ in VERBS])
def test_every_verb_has_json_and_an_example_that_can_be_typed(name: str, verb: Any) -> None:
    assert "--json" in [option for each in verb.params for option in each.opts]
    examples = reference.example_lines(verb)
    assert examples
    for line in examples:
        words = shlex.split(line.partition("fifoq ")[2].partition(" | ")[0])
        assert words[: len(name.split())] == name.split(), line
        # Typer parses it as if it had been typed, and stops before it is run.
        with verb.make_context(name, words[len(name.split()) :]) as context:
            assert context.params
    assert all(each.help for each in verb.params), "an option that says nothing"
    assert here(*name.split(), "--help").out.startswith(b"Usage: ")


def test_help_loads_nothing_that_only_a_verb_needs() -> None:
    code = f"import sys, fifoq.cli; print([m for m in {NOT_FOR_HELP!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_the_same_from_python_and_as_a_program() -> None:
    assert fifoq("version").stdout == here("version").out
    assert here("version", "--json").json == {"version": here("version").lines[0]}


def test_every_status_has_a_meaning() -> None:
    assert list(MEANINGS) == list(Status)


def test_a_mistake_of_ours_keeps_its_traceback() -> None:
    def wrong() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        guard(wrong)()


def test_damage_has_a_status_of_its_own(tmp_path: Path) -> None:
    here("put", tmp_path, "one", "two")
    (segment,) = tmp_path.glob("*.log")
    data = bytearray(segment.read_bytes())
    data[64] ^= 0xFF
    segment.write_bytes(data)
    for copy in tmp_path.glob("checkpoint.*"):
        copy.write_bytes(b"nothing")
    assert here("take", tmp_path, status=4).err.startswith(f"fifoq: {tmp_path}")
    assert here("stats", tmp_path, "--json", status=4).json["kind"] == "CorruptionError"


def test_the_shell_completes_verbs_and_names_of_queues(tmp_path: Path) -> None:
    here("put", tmp_path, "x", "-q", "orders")
    words = f"fifoq take {tmp_path} --queue "
    done = subprocess.run(
        command(),
        env=environment(
            _FIFOQ_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD="4", SHELL="/bin/bash"
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["orders"], done.stderr
