"""Paths that are not there or may not be used: one line that says what, where, and what to do."""

from __future__ import annotations

import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.support import PATIENCE_SECONDS, bound_by_modes, command, environment, here

WRITABLE = "Name a place in a directory that this user may write to."
READABLE = "Check that the path is right, and that this user may read it."
A_STORE = "Check that it is a directory of regular files which this user may read and write."
Case = tuple[str, int, str]
"""What is typed in a directory with the store S, its status, and the whole line that it says."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store, a backup, an export, an empty directory, a file, a database."""
    monkeypatch.chdir(tmp_path)
    here("put", "S", "x", "y")
    here("backup", "S", "saved")
    here("export", "S", "out.ndjson")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_bytes(b"")
    with closing(sqlite3.connect("jobs.db")) as database:
        database.execute("CREATE TABLE jobs (body)")
        database.commit()
    return tmp_path


NOT_THERE: tuple[Case, ...] = (
    (
        "migrate new nothere",
        1,
        "nothere: there is no such file or directory. Nothing was changed. Name what the other "
        "library wrote: its directory, or its database.",
    ),
    (
        "migrate new nothere --from queuelib",
        1,
        "nothere: there is no such file or directory. Nothing was changed. Name what the other "
        "library wrote: its directory, or its database.",
    ),
    (
        "migrate new nothere --table jobs",
        1,
        "nothere: there is no such file or directory. Nothing was changed. Name what the other "
        "library wrote: its directory, or its database.",
    ),
    (
        "migrate new empty --from queuelib",
        1,
        "empty/info.json: No such file or directory. Nothing was changed. Check that this is a "
        "queue of queuelib, and that this user may read it.",
    ),
    (
        "migrate new empty --from amqp",
        2,
        "--from: kind 'amqp' is none of persist-queue, persist-queue-sqlite, queuelib, "
        "queuelib-sqlite, sqlite. Nothing was changed. Try: fifoq migrate --help",
    ),
    (
        "migrate new jobs.db --from sqlite",
        2,
        "--from: for a table of SQLite name the table and the column. Nothing was changed. Try: "
        "fifoq migrate --help",
    ),
    (
        "migrate new jobs.db --table jobs --column body --where nonsense=1",
        1,
        "jobs.db: SQLite refuses: no such column: nonsense. The database was not changed. Check "
        "the names of its columns, and the condition.",
    ),
    (
        "export S no/where.ndjson",
        1,
        "no/where.ndjson: there is no directory no. Nothing was changed. Make it first, or name "
        "another place.",
    ),
    (
        "export S file/out.ndjson",
        1,
        "file/out.ndjson: there is no directory file. Nothing was changed. Make it first, or name "
        "another place.",
    ),
    (
        "export S out.csv",
        2,
        "FILE: out.csv: its ending tells no format. Nothing was changed. Use one of .ndjson, "
        ".msgpack, .arrow, .parquet, or name the format. Try: fifoq export --help",
    ),
    (
        "export S out.csv --format csv",
        2,
        "--format: format 'csv' is none of ndjson, msgpack, arrow, parquet. Nothing was changed. "
        "Try: fifoq export --help",
    ),
    (
        "import new out.csv",
        2,
        "FILE: out.csv: its ending tells no format. Nothing was changed. Use one of .ndjson, "
        ".msgpack, .arrow, .parquet, or name the format. Try: fifoq import --help",
    ),
    (
        "import new nothere.ndjson",
        1,
        f"nothere.ndjson: No such file or directory. Nothing was changed. {READABLE}",
    ),
    (
        "restore nothere new",
        1,
        "nothere: this is no backup, or not the whole of one (there is no such directory). Nothing "
        "was changed. Name a directory that a backup made.",
    ),
    (
        "restore empty new",
        1,
        "empty: this is no backup, or not the whole of one (it has no backup.json). Nothing was "
        "changed. Name a directory that a backup made.",
    ),
    (
        "backup S file/b",
        1,
        f"file/b: it cannot be made (file: File exists). Nothing was changed. {WRITABLE}",
    ),
    (
        "repair S file/b",
        1,
        f"file/b: it cannot be made (file: File exists). Nothing was changed. {WRITABLE}",
    ),
)


@pytest.mark.parametrize(
    ("line", "status", "told"), NOT_THERE, ids=[line for line, _, _ in NOT_THERE]
)
def test_what_is_not_there_is_named_and_nothing_is_made(
    place: Path, line: str, status: int, told: str
) -> None:
    before = contents(place)
    said = here(*line.split(), status=status)
    assert (said.out, said.err) == (b"", f"fifoq: {told}\n")
    assert contents(place) == before
    as_json = here(*line.split(), "--json", status=status).json
    assert as_json["error"] == told.partition(" Try: ")[0].removesuffix("\n")


LOOKING = (
    *("take {}", "peek {}", "tail {}", "stats {}", "queues {}", "inspect {}", "explain {} 1"),
    *("cursors {}", "dlq list {}", "dlq show {} 1", "dlq replay {} --all", "compact {}"),
    *("seek {} c --earliest", "top {} --count 1", "backup {} new", "repair {} new"),
    "export {} new.ndjson",
)
REFUSED: tuple[Case, ...] = (
    *(
        (
            verb.format("closed"),
            1,
            f"closed: Permission denied. Nothing was changed. {A_STORE}",
        )
        for verb in LOOKING
    ),
    (
        "backup S read_only/b",
        1,
        "read_only/b: it cannot be made (read_only/b.partial: Permission denied). Nothing was "
        f"changed. {WRITABLE}",
    ),
    (
        "restore saved read_only/b",
        1,
        "read_only/b: it cannot be made (read_only/b.partial: Permission denied). Nothing was "
        f"changed. {WRITABLE}",
    ),
    (
        "repair S read_only/b",
        1,
        "read_only/b: it cannot be made (read_only/b.partial: Permission denied). Nothing was "
        f"changed. {WRITABLE}",
    ),
    (
        "export S read_only/x.ndjson",
        1,
        f"read_only/x.ndjson: Permission denied. Nothing was changed. {WRITABLE}",
    ),
    (
        "export S read_only/x.parquet",
        1,
        f"read_only/x.parquet: Permission denied. Nothing was changed. {WRITABLE}",
    ),
    (
        "import new shut.ndjson",
        1,
        f"shut.ndjson: Permission denied. Nothing was changed. {READABLE}",
    ),
    (
        "migrate new shut --from queuelib",
        1,
        "shut/info.json: Permission denied. Nothing was changed. Check that this is a queue of "
        "queuelib, and that this user may read it.",
    ),
    (
        "restore shut new",
        1,
        f"shut/backup.json: Permission denied. Nothing was changed. {A_STORE}",
    ),
)


@pytest.mark.parametrize(("line", "status", "told"), REFUSED, ids=[line for line, _, _ in REFUSED])
def test_what_this_user_may_not_do_is_told_without_numbers(
    place: Path, line: str, status: int, told: str
) -> None:
    """`[Errno 13] Permission denied` was all that most of them said."""
    (place / "shut").mkdir()
    for name in ("shut.ndjson", "shut/info.json", "shut/backup.json"):
        (place / name).write_bytes(b"{}")
        (place / name).chmod(0o000)
    for name, mode in (("closed", 0o000), ("read_only", 0o555)):
        (place / name).mkdir()
        (place / name).chmod(mode)
    before = contents(place)
    said = bound(*line.split())
    for name in ("closed", "read_only"):
        (place / name).chmod(0o700)
    assert (said.returncode, said.stderr.decode()) == (status, f"fifoq: {told}\n")
    assert said.stdout == b""
    assert contents(place) == before


@pytest.mark.parametrize("line", ["put S z", "take S", "compact S", "seek S me --earliest --make"])
def test_a_store_in_which_no_files_can_be_made_is_left_as_it_is(place: Path, line: str) -> None:
    """The put was made, and then `What is on disk is unknown` was all that was said."""
    before = {path.name: path.read_bytes() for path in (place / "S").iterdir()}
    (place / "S").chmod(0o555)
    said = bound(*line.split())
    (place / "S").chmod(0o700)
    told = f"fifoq: S: Permission denied. Nothing was changed. {A_STORE}\n"
    assert (said.returncode, said.stderr.decode()) == (1, told)
    assert {path.name: path.read_bytes() for path in (place / "S").iterdir()} == before


def test_a_store_in_which_no_files_can_be_made_is_repaired_elsewhere(place: Path) -> None:
    """Where a disk fails, its file system is often read only by then."""
    (place / "S").chmod(0o555)
    said = bound("repair", "S", "mended")
    (place / "S").chmod(0o700)
    assert said.returncode == 0, said.stderr
    assert here("take", "mended", "-n", "2").lines == ["x", "y"]


def test_doctor_says_that_it_cannot_measure_there(place: Path) -> None:
    (place / "read_only").mkdir()
    (place / "read_only").chmod(0o555)
    said = bound("doctor", "read_only")
    (place / "read_only").chmod(0o700)
    assert said.returncode == 1
    assert said.stderr.decode() == (
        f"fifoq: {place}/read_only: no file can be written here to measure with (Permission "
        f"denied). Nothing was changed. Check that it is a directory which this user may write to, "
        f"on a disk with space.\n"
    )


def test_what_nobody_put_into_words_still_names_the_path(place: Path) -> None:
    (place / "read_only").mkdir()
    (place / "read_only").chmod(0o555)
    said = bound("demo", "--no-spark", "--seconds", "0.1", "--report", "read_only/x.html")
    (place / "read_only").chmod(0o700)
    assert said.returncode == 1
    (line,) = [line for line in said.stderr.decode().splitlines() if line.startswith("fifoq: ")]
    assert line.startswith("fifoq: read_only/")
    assert "Permission denied. It was not done. Check that the path is right" in line
    assert "Errno" not in line


def bound(*words: str) -> subprocess.CompletedProcess[bytes]:
    """Run by somebody whom modes of files keep out, as they do not keep out root."""
    return subprocess.run(
        bound_by_modes(command(*words)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment(),
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def contents(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*"))
