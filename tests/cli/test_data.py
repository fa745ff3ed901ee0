"""Export, import and migrate as a user runs them: files, pipes, live owners, kills."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
import queuelib

import fifoq.sync
from store import FifoqError, Reader
from tests.cli.support import PATIENCE_SECONDS, command, environment, here
from tests.cli.support import fifoq as run
from tests.tools.support import rows_in

COUNT = 9000
"""More than one commit of an import holds."""


def fill(path: Path, count: int = 20) -> list[bytes]:
    payloads = [b"%d" % number + b"\xff\0\n" for number in range(count)]
    with fifoq.sync.open(path) as queue:
        queue.put_many(payloads, headers={"from": "here"})
    return payloads


@pytest.mark.parametrize("name", ["out.ndjson", "out.msgpack", "out.arrow", "out.parquet"])
def test_records_go_out_and_come_back(tmp_path: Path, name: str) -> None:
    fill(tmp_path / "a")
    said = here("export", tmp_path / "a", tmp_path / name)
    assert said.lines[0].startswith(f"{tmp_path / name}: 20 records of main (")
    said = here("import", tmp_path / "b", tmp_path / name, "--json")
    assert (said.json["records"], said.json["keys_kept"]) == (20, True)
    assert rows_in(tmp_path / "b") == rows_in(tmp_path / "a")
    assert here("import", tmp_path / "b", tmp_path / name, "--json").json["resumed"] == 20
    here("export", tmp_path / "a", tmp_path / name, status=1)


def test_an_import_beside_a_live_owner_makes_the_queue_that_was_named_alone(tmp_path: Path) -> None:
    with fifoq.sync.open_store(tmp_path) as store:
        store.queue("jobs").put(b"a")
        run("import", tmp_path, "-", "-q", "copy", input=b'{"data":"z"}\n')
        assert store.queues() == ["copy", "jobs"]


def test_records_go_through_a_pipe_beside_a_live_owner(tmp_path: Path) -> None:
    fill(tmp_path / "a")
    with fifoq.sync.open(tmp_path / "a") as queue:
        queue.put(b"more")
        out = run("export", tmp_path / "a", "-", "-f", "msgpack", "--json")
        assert b'"records":21' in out.stderr
        refused = run("import", tmp_path / "a", "-", "-f", "msgpack", input=out.stdout, status=5)
        assert refused.stderr == (
            b"fifoq: another process owns the store, and an owner puts new records only: keys, "
            b"attempts, ids of puts and options would be lost. Nothing was stored. Stop the owner "
            b"to import them as they are, or ask for new keys (--new-keys).\n"
        )
        asking = ("import", tmp_path / "a", "-", "-f", "msgpack", "--new-keys")
        done = run(*asking, input=out.stdout)
        assert done.stdout == b"21 records with new keys, into main\n"
        assert len(queue) == 42
        while len(queue) > 21:
            queue.take_many(len(queue) - 21)
    done = run("import", tmp_path / "b", "-", "-f", "msgpack", input=out.stdout)
    assert done.stdout == b"21 records with their keys, into main\n"
    mine, copied = rows_in(tmp_path / "a"), rows_in(tmp_path / "b")
    assert [(row.data, row.headers) for row in mine] == [(r.data, r.headers) for r in copied]


def test_what_people_write_is_imported_and_mistakes_are_told(tmp_path: Path) -> None:
    lines = b'{"data": "one"}\n{"base64": "/w==", "priority": 3}\n'
    run("import", tmp_path / "a", "-", "--queue", "orders", input=lines)
    assert [row.data for row in rows_in(tmp_path / "a")] == [b"one", b"\xff"]
    done = run("import", tmp_path / "a", "-", input=b"{nonsense}\n", status=1)
    assert b"object 1 of the ndjson stream" in done.stderr
    assert "There are: orders" in here("export", tmp_path / "a", "-", status=3).err
    assert here("export", tmp_path / "none", "-", status=3).err
    assert here("import", tmp_path / "b", tmp_path / "none.ndjson", status=1).err


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.deep),
        pytest.param(signal.SIGKILL, marks=pytest.mark.deep),
    ],
)
def test_an_import_that_is_killed_goes_on_and_doubles_nothing(
    tmp_path: Path, number: signal.Signals
) -> None:
    fill(tmp_path / "a", COUNT)
    whole = run("export", tmp_path / "a", "-").stdout
    lines = whole.splitlines(keepends=True)
    process = subprocess.Popen(
        command("import", tmp_path / "b", "-"),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdin is not None
    # All but the last records: one commit is made, and it waits for more.
    process.stdin.write(b"".join(lines[: COUNT - 100]))
    process.stdin.flush()
    wait_for_records(tmp_path / "b")
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode in (-number, 128 + number), said
    assert b"Traceback" not in said
    found = rows_in(tmp_path / "b")
    assert 0 < len(found) < COUNT
    assert found == rows_in(tmp_path / "a")[: len(found)]
    told = run("import", tmp_path / "b", "-", "--json", input=whole).stdout
    assert b'"resumed":%d' % len(found) in told
    assert rows_in(tmp_path / "b") == rows_in(tmp_path / "a")


def wait_for_records(path: Path) -> None:
    """Until a reader sees some; the runner's limit ends a test that waits in vain."""
    while True:
        try:
            with Reader(str(path)) as reader:
                if any(genesis.queue_size for genesis in reader.queues().values()):
                    return
        except FifoqError:
            continue


def test_a_queue_of_another_library_is_moved(tmp_path: Path) -> None:
    old = queuelib.FifoDiskQueue(str(tmp_path / "old"))
    for number in range(30):
        old.push(b"%d" % number)
    old.close()
    said = here("migrate", tmp_path / "new", tmp_path / "old", "-q", "jobs")
    assert said.lines == ["30 records of 30 from queuelib, into jobs"]
    assert [row.data for row in rows_in(tmp_path / "new")] == [b"%d" % n for n in range(30)]
    assert here("migrate", tmp_path / "new", tmp_path / "old", "--json").json["resumed"] == 30
    assert "no queue of" in here("migrate", tmp_path / "new", tmp_path, status=1).err
    assert "none of" in here("migrate", tmp_path / "new", "x", "--from", "y", status=2).err
