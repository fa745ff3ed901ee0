"""Long verbs that are stopped in the middle: what they read stays as it was, and a repeat finishes.

By Ctrl-C, SIGTERM and kill, as a user does it: the verb is a process of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import queuelib

import fifoq.sync
from fifoq.tools.backup import back_up
from tests.cli.support import PATIENCE_SECONDS, command, environment, here, is_running
from tests.tools.support import rows_in, scratch

SIZE = 64 << 10
"""Of each record."""


def payloads(mebibytes: int) -> Iterator[list[bytes]]:
    """Records that differ, a mebibyte at a time."""
    each = (1 << 20) // SIZE
    for start in range(0, mebibytes * each, each):
        yield [b"%08d" % (start + n) * (SIZE // 8) for n in range(each)]


def fill(path: Path, mebibytes: int) -> None:
    with fifoq.sync.open(path, segment_bytes=1 << 20) as queue:
        for some in payloads(mebibytes):
            queue.put_many(some, durability="os")


class Verb:
    """A verb that takes long, and what is to hold when it was stopped and when it is done."""

    reads: str = "a"
    """The store that is only read, if it is one."""
    target: str = "b"
    warnings: str = "error"
    starts_others: bool = False
    """Whether processes that it started see it killed, and say so on the same stderr."""

    def prepare(self, root: Path, mebibytes: int) -> None:
        fill(root / "a", mebibytes)

    def arguments(self, root: Path) -> list[str | Path]:
        return [self.name, root / "a", root / "b"]

    @property
    def name(self) -> str:
        return type(self).__name__.lower()

    def has_begun(self, root: Path, process: int) -> bool:
        return any(root.glob("b.part*"))

    def check_stopped(self, root: Path) -> None:
        """What is not whole has not got its name."""
        assert not (root / self.target).exists()

    def is_done(self, root: Path) -> bool:
        """Everything is there."""
        here("verify", root / "b")
        return rows_in(root / "b") == rows_in(root / "a")


class Export(Verb):
    target = "b.msgpack"

    def arguments(self, root: Path) -> list[str | Path]:
        return ["export", root / "a", root / self.target]

    def has_begun(self, root: Path, process: int) -> bool:
        return (root / f"{self.target}.part").exists()

    def is_done(self, root: Path) -> bool:
        here("import", root / "b", root / self.target)
        left = sorted(path.name for path in root.iterdir())
        return super().is_done(root) and left == ["a", "b", self.target]


class Import(Verb):
    def prepare(self, root: Path, mebibytes: int) -> None:
        super().prepare(root, mebibytes)
        here("export", root / "a", root / "a.msgpack")

    def arguments(self, root: Path) -> list[str | Path]:
        return ["import", root / "b", root / "a.msgpack"]

    def has_begun(self, root: Path, process: int) -> bool:
        return size_of(root / "b") > 1 << 20

    def check_stopped(self, root: Path) -> None:
        """The first of them are there, and can be used."""
        found = rows_in(root / "b")
        assert found == rows_in(root / "a")[: len(found)]


class Migrate(Verb):
    reads = ""

    def prepare(self, root: Path, mebibytes: int) -> None:
        old = queuelib.FifoDiskQueue(str(root / "a"))
        for some in payloads(mebibytes):
            for item in some:
                old.push(item)
        old.close()
        self.items = [item for some in payloads(mebibytes) for item in some]

    def arguments(self, root: Path) -> list[str | Path]:
        return ["migrate", root / "b", root / "a"]

    def has_begun(self, root: Path, process: int) -> bool:
        return size_of(root / "b") > 1 << 20

    def check_stopped(self, root: Path) -> None:
        found = [row.data for row in rows_in(root / "b")]
        assert found == self.items[: len(found)]

    def is_done(self, root: Path) -> bool:
        return [row.data for row in rows_in(root / "b")] == self.items


class Backup(Verb):
    def arguments(self, root: Path) -> list[str | Path]:
        return [*super().arguments(root), "--copy"]


class Restore(Verb):
    def prepare(self, root: Path, mebibytes: int) -> None:
        fill(root / "store", mebibytes)
        back_up(root / "store", root / "a")


class Repair(Verb):
    def prepare(self, root: Path, mebibytes: int) -> None:
        super().prepare(root, mebibytes)
        self.intact = rows_in(root / "a")[(1 << 20) // SIZE :]
        first = min((root / "a").glob("*.log"))
        data = bytearray(first.read_bytes())
        data[600] ^= 1
        first.write_bytes(data)

    def has_begun(self, root: Path, process: int) -> bool:
        return size_of(root / "b.partial") > 1 << 20

    def is_done(self, root: Path) -> bool:
        here("verify", root / "b")
        return rows_in(root / "b") == self.intact


class Verify(Verb):
    def arguments(self, root: Path) -> list[str | Path]:
        return ["verify", root / "a"]

    def has_begun(self, root: Path, process: int) -> bool:
        return any(name.endswith(".log") for name in open_files(process))

    def is_done(self, root: Path) -> bool:
        return not (root / "b").exists()


class Compact(Verb):
    """Of many small segments one record in four is left."""

    reads = ""

    def prepare(self, root: Path, mebibytes: int) -> None:
        with fifoq.sync.open_store(root / "a", segment_bytes=1 << 20) as store:
            main, other = store.queue("main"), store.queue("other")
            self.kept = []
            for some in payloads(mebibytes):
                for start in range(0, len(some), 4):
                    main.put(some[start], durability="os")
                    other.put_many(some[start + 1 : start + 4], durability="os")
                self.kept += some[::4]
            other.remove_upto(other.put(b"").counter)

    def arguments(self, root: Path) -> list[str | Path]:
        return ["compact", root / "a"]

    def has_begun(self, root: Path, process: int) -> bool:
        return any(name.endswith(".log") for name in open_files(process))

    def check_stopped(self, root: Path) -> None:
        assert [row.data for row in rows_in(root / "a")] == self.kept

    def is_done(self, root: Path) -> bool:
        self.check_stopped(root)
        here("verify", root / "a")
        return size_of(root / "a") <= 2 * sum(map(len, self.kept)) + (4 << 20)


class Replay(Verb):
    reads = ""

    def prepare(self, root: Path, mebibytes: int) -> None:
        self.items = [item for some in payloads(mebibytes) for item in some]
        with fifoq.sync.open_store(root / "a") as store:
            letters = store.queue("main.dlq")
            for some in payloads(mebibytes):
                letters.put_many(some, durability="os")
        self.size = size_of(root / "a")

    def arguments(self, root: Path) -> list[str | Path]:
        return ["dlq", "replay", root / "a", "--all"]

    def has_begun(self, root: Path, process: int) -> bool:
        return size_of(root / "a") > self.size + (2 << 20)

    def check_stopped(self, root: Path) -> None:
        """Each is in one of the two queues, in order."""
        found = {name: [r.data for r in rows_in(root / "a") if r.queue == name] for name in BOTH}
        assert found["main"] + found["main.dlq"] == self.items

    def is_done(self, root: Path) -> bool:
        found = [(row.queue, row.data) for row in rows_in(root / "a")]
        return found == [("main", item) for item in self.items]


class Archive(Verb):
    """By Spark: the archive may be read while it is half there, and has each record once."""

    warnings = "default"  # Spark's own sockets are never closed.
    starts_others = True  # The JVM, and its workers in Python: theirs is a broken pipe.

    def arguments(self, root: Path) -> list[str | Path]:
        return ["spark", "archive", root / "a", root / "b", "--tail", "--master", "local[1]"]

    def has_begun(self, root: Path, process: int) -> bool:
        return any((root / "b").rglob("*.parquet"))

    def check_stopped(self, root: Path) -> None:
        assert (root / "b").is_dir()

    def is_done(self, root: Path) -> bool:
        import pyarrow.parquet

        table: Any = pyarrow.parquet.read_table(root / "b", columns=["counter"])
        counters = sorted(table.column("counter").to_pylist())
        return counters == [row.counter for row in rows_in(root / "a")]


BOTH = ("main", "main.dlq")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
IN_THE_SUITE = {
    Export: signal.SIGKILL,
    Migrate: signal.SIGTERM,
    Backup: signal.SIGINT,
    Restore: signal.SIGKILL,
    Repair: signal.SIGINT,
    Verify: signal.SIGTERM,
    Compact: signal.SIGTERM,
    Replay: signal.SIGKILL,
}
"""Each verb by one signal; by all of them, and with more to do, among the deep tests."""


def size_of(path: Path) -> int:
    """Bytes of the log."""
    total = 0
    for segment in path.glob("*.log"):
        with suppress(FileNotFoundError):
            total += segment.stat().st_size
    return total


def open_files(process: int) -> list[str]:
    found = []
    with suppress(FileNotFoundError):
        for link in Path(f"/proc/{process}/fd").iterdir():
            with suppress(FileNotFoundError):
                found.append(os.readlink(link))
    return found


def stop_in_the_middle(verb: Verb, root: Path, number: signal.Signals) -> bool:
    """Whether it was stopped before it was done."""
    with subprocess.Popen(
        command(*verb.arguments(root)),
        env=environment(PYTHONWARNINGS=verb.warnings),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        while is_running(process) and not verb.has_begun(root, process.pid):
            continue
        said = said_so_far(process)
        process.send_signal(number)
        _, rest = process.communicate(timeout=PATIENCE_SECONDS)
    if not (verb.starts_others and number is signal.SIGKILL):
        # Else the verb itself said no more.
        said += rest
    assert b"Traceback" not in said, said
    assert process.returncode in (0, -number, 128 + number), said
    return process.returncode != 0


def said_so_far(process: subprocess.Popen[bytes]) -> bytes:
    """What is in the pipe of stderr by now."""
    assert process.stderr is not None
    descriptor = process.stderr.fileno()
    os.set_blocking(descriptor, False)
    try:
        return os.read(descriptor, 1 << 20)
    except BlockingIOError:
        return b""
    finally:
        os.set_blocking(descriptor, True)


def stop_and_repeat(verb: Verb, root: Path, number: signal.Signals, mebibytes: int) -> bool:
    """Whether there was anything left to do for the repeat."""
    verb.prepare(root, mebibytes)
    before = contents(root / verb.reads) if verb.reads else {}
    stopped = stop_in_the_middle(verb, root, number)
    if stopped:
        verb.check_stopped(root)
        here(*verb.arguments(root))
    assert not verb.reads or contents(root / verb.reads) == before
    return stopped


def contents(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.iterdir() if each.is_file()}


@pytest.mark.parametrize(
    ("kind", "number"),
    IN_THE_SUITE.items(),
    ids=lambda of: of.__name__.lower() if isinstance(of, type) else of.name,
)
def test_what_is_stopped_in_the_middle_is_finished_by_a_repeat(
    kind: Callable[[], Verb], number: signal.Signals
) -> None:
    with scratch() as root:
        verb = kind()
        stop_and_repeat(verb, root, number, 4)
        assert verb.is_done(root)


IN_THE_THIRD_COMMIT = """
import os, sys
from contextlib import nullcontext
import fifoq.cli, fifoq.cli.progress
number, calls = int(sys.argv.pop()), []
def progress(done, total):
    calls.append(done)
    if len(calls) == 2:
        os.kill(os.getpid(), number)
fifoq.cli.progress.progress = lambda verb, unit: nullcontext(progress)
fifoq.cli.main()
"""


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_repair_goes_on_where_it_was_stopped(number: signal.Signals) -> None:
    """It began anew."""
    with scratch() as root:
        verb = Repair()
        verb.prepare(root, 12)
        before = contents(root / "a")
        words = [*map(str, verb.arguments(root)), str(int(number))]
        stopped = subprocess.run(
            [sys.executable, "-c", IN_THE_THIRD_COMMIT, *words],
            env=environment(),
            capture_output=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert stopped.returncode in (-number, 128 + number), stopped.stderr
        verb.check_stopped(root)
        there = len(rows_in(root / "b.partial"))
        assert 0 < there < len(verb.intact)
        saved, lost = len(verb.intact), (1 << 20) // SIZE
        last = here(*verb.arguments(root)).lines[-1]
        assert last == f"{root}/b: {saved} records saved, {there} of them before, {lost} lost"
        assert verb.is_done(root)
        assert contents(root / "a") == before
        assert sorted(path.name for path in root.iterdir()) == ["a", "b"]


@pytest.mark.deep
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("kind", [*IN_THE_SUITE, Import], ids=lambda kind: kind.__name__.lower())
def test_the_same_by_every_signal_with_more_to_do(
    kind: Callable[[], Verb], number: signal.Signals
) -> None:
    with scratch() as root:
        verb = kind()
        assert stop_and_repeat(verb, root, number, 96), "it was done before it was stopped"
        assert verb.is_done(root)


@pytest.mark.deep
@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_the_same_of_a_job_of_spark(number: signal.Signals) -> None:
    with scratch() as root:
        verb = Archive()
        assert stop_and_repeat(verb, root, number, 16), "it was done before it was stopped"
        assert verb.is_done(root)
