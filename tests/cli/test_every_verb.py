"""Every verb once, as a process of its own, on a store that another process owns."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import queuelib

from fifoq.cli import reference
from tests.cli.support import command, environment, owner

ELSEWHERE = ("dlq run", "spark ")
"""They need a store of actors, or Spark, and have tests of their own."""
Line = tuple[str, int | None, str]
"""What is typed, its status, and what it says among other things. L is the live store.

None: 0 or 1, as the machine is.
"""
LINES: tuple[Line, ...] = (
    ("put L one two --header from=here", 0, "3\n4\n"),
    ("peek L --long", 0, "zero"),
    ("tail L -n 1", 0, "two"),
    ("take L", 0, "zero\n"),
    ("queues L", 0, "main\nmain.dlq\norders\n"),
    ("stats L", 0, "owned by process"),
    ("top L --count 1", 0, "owned by process"),
    ("inspect L", 0, "next counter"),
    ("explain L 2", 0, "acked"),
    ("seek L audit --earliest --make", 0, "audit: at"),
    ("cursors L", 0, "audit"),
    ("dlq list L", 0, "rejected"),
    ("dlq show L 1", 0, "broken"),
    ("dlq replay L 1", 0, "1 dead letter replayed"),
    ("dlq purge L --all --dry-run", 3, "0 dead letters would be purged"),
    ("compact L", 0, "given back"),
    ("verify L", 0, "sound: every frame, chain, index and genesis agrees"),
    ("export L out.ndjson", 0, "out.ndjson: 3 records of main (ndjson)"),
    ("import L out.ndjson", 5, "Stop the owner to import them as they are"),
    ("import L out.ndjson --new-keys", 0, "3 records with new keys, into main"),
    ("migrate L old -q jobs", 0, "3 records of 3 from queuelib, into jobs"),
    ("backup L saved", 0, "saved: 9 records of 4 queues"),
    ("restore saved restored", 0, "restored: 9 records, checked"),
    ("repair L repaired", 5, "the store is owned by another process"),
    ("repair restored repaired", 0, "repaired: 9 records saved, 0 lost"),
    ("doctor L --json", None, '"healthy":'),
    ("bench --quick --rows disk-bytes --dir . --json", 0, "disk-bytes"),
    ("demo --no-spark --seconds 0.3 --report demo.html", 0, "Nothing confirmed was lost"),
    ("version", 0, "."),
)


def test_no_verb_is_left_out() -> None:
    verbs = [" ".join(names) for names, _ in reference.verbs()]
    missing = [verb for verb in verbs if not any(is_of(verb, line) for line, _, _ in LINES)]
    assert [verb for verb in missing if not verb.startswith(ELSEWHERE)] == []


def is_of(verb: str, line: str) -> bool:
    return line == verb or line.startswith(f"{verb} ")


@pytest.mark.deep
def test_each_does_what_it_says_beside_a_live_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    old = queuelib.FifoDiskQueue("old")
    for item in (b"a", b"b", b"c"):
        old.push(item)
    old.close()
    with owner(tmp_path / "L") as live:
        live.do("fail main broken")
        live.do("put main zero")
        assert typed(LINES) == []


def typed(lines: tuple[Line, ...]) -> list[tuple[str, int, str]]:
    """Those that did something else, with their status and what they said."""
    wrong = []
    for line, status, told in lines:
        done = subprocess.run(
            command(*line.split()), capture_output=True, env=environment(), check=False
        )
        said = (done.stdout + done.stderr).decode()
        as_said = done.returncode in ((0, 1) if status is None else (status,)) and told in said
        if not as_said or "Traceback" in said:
            wrong.append((line, done.returncode, said))
    return wrong
