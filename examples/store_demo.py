"""What the store promises, shown: commit, kill -9 in mid-batch, reopen, check what survived.

A writer process puts batches of records, each batch one commit, and says so on a pipe before and
after. It is killed with SIGKILL while it writes. Then the store is opened again and compared with
what the writer said: three times over, in a temporary directory that is removed at the end.
"""

from __future__ import annotations

import argparse
import os
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from rich.console import Console

from store import open_log
from store.check import check_store

BATCH = 100
RECORD_BYTES = 100
LIVES = 3
SECONDS = 0.4
SHOWN = 10
"""How many of the last batches are drawn."""
ATTEMPT, CONFIRM = b"a", b"c"
_SAID = struct.Struct("<cI")


class Signs(NamedTuple):
    """How a batch is drawn: all there, begun and not confirmed, not there."""

    whole: str
    begun: str
    absent: str


class Said(NamedTuple):
    """How many batches the writer said it had begun, and how many it said were confirmed."""

    begun: int
    confirmed: int


def main(arguments: list[str] | None = None) -> int:
    """Run the demonstration; the exit status says whether every promise was kept."""
    parser = argparse.ArgumentParser(
        prog="./dev demo",
        description=__doc__,
        epilog="Exit status: 0 every promise was kept, 1 one was broken, 130 interrupted.",
    )
    parser.parse_args(arguments)
    console = Console(highlight=False, width=80)
    try:
        return _demonstrate(console, _signs(console.encoding))
    except KeyboardInterrupt:
        console.print("\ninterrupted; the writer is dead and its files are gone")
        return 130


def _signs(encoding: str) -> Signs:
    try:
        "■□·".encode(encoding)
    except UnicodeEncodeError:
        return Signs("#", "o", ".")
    return Signs("■", "□", "·")


def _demonstrate(console: Console, signs: Signs) -> int:
    console.print(
        f"A cell is one commit of {BATCH} records: "
        f"{signs.whole} there, {signs.begun} only begun, {signs.absent} not there"
    )
    with tempfile.TemporaryDirectory(prefix="fifoq-demo-") as directory:
        path = f"{directory}/store"
        kept = [_one_life(console, signs, path, life) for life in range(1, LIVES + 1)]
        sound = _check(console, path)
    if all(kept) and sound:
        text = "Nothing confirmed was lost, nothing was torn, nothing was invented."
        console.print(f"\n[bold green]{text}[/]")
        return 0
    console.print("\n[bold red]A promise was broken.[/]")
    return 1


def _one_life(console: Console, signs: Signs, path: str, life: int) -> bool:
    before = _records(path)
    console.print(f"\n[bold]Life {life}[/]: a writer puts batches of {BATCH}, then kill -9 ...")
    said = _kill_in_mid_batch(path)
    start = time.perf_counter()
    found = _records(path) - before
    milliseconds = (time.perf_counter() - start) * 1000
    batches, torn = divmod(found, BATCH)
    numbers = range(max(1, said.begun - SHOWN + 1), said.begun + 1)
    console.print(
        f"  writer said  [cyan]{_row(numbers, said.confirmed, signs.whole, signs.begun)}[/]  "
        f"{said.confirmed} batches confirmed, {said.begun} begun"
    )
    console.print(
        f"  found        [cyan]{_row(numbers, batches, signs.whole, signs.absent)}[/]  "
        f"{batches} batches; reopened in {milliseconds:.0f} ms"
    )
    console.print(f"  {_fate(said, batches)}")
    return not torn and said.confirmed <= batches <= said.begun


def _row(numbers: range, upto: int, there: str, beyond: str) -> str:
    cells = " ".join(there if number <= upto else beyond for number in numbers)
    return cells.ljust(2 * SHOWN - 1)


def _fate(said: Said, batches: int) -> str:
    if said.begun == said.confirmed:
        return "kill -9 came between two commits."
    if batches > said.confirmed:
        return "The batch under way had reached the file whole: it counts."
    return "The batch under way left no trace: all or nothing."


def _check(console: Console, path: str) -> bool:
    report = check_store(path)
    frames = sum(segment.frames for segment in report.segments)
    records = sum(segment.records for segment in report.segments)
    files = [file.stat().st_size for file in Path(path).iterdir()]
    console.print("\n[bold]The check[/], as by `python -m store check`")
    console.print(
        f"  {len(report.segments)} segments, {frames:,} commits, {records:,} records: "
        f"{'sound' if report.sound else 'DAMAGED'}"
    )
    console.print(f"  {sum(files):,} bytes in {len(files)} files")
    return report.sound


def _kill_in_mid_batch(path: str) -> Said:
    """Run a writer and kill it while a batch is under way; returns what it said until then."""
    with _writer(path) as (child, pipe):
        said = Said(0, 0)
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline or said.begun == said.confirmed:
            said = _listen(pipe.read(_SAID.size), said)
        os.kill(child, signal.SIGKILL)
        while message := pipe.read(_SAID.size):
            said = _listen(message, said)
        return said


@contextmanager
def _writer(path: str) -> Iterator[tuple[int, BinaryIO]]:
    """A process that writes until it is killed, and what it says; it never outlives the block."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            _write_until_killed(path, writing)
        finally:
            os._exit(1)
    try:
        os.close(writing)
        with open(reading, "rb") as pipe:
            yield child, pipe
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _listen(message: bytes, said: Said) -> Said:
    if len(message) < _SAID.size:
        raise RuntimeError("the writer ended by itself")
    kind, number = _SAID.unpack(message)
    return said._replace(begun=number) if kind == ATTEMPT else said._replace(confirmed=number)


def _write_until_killed(path: str, pipe: int) -> None:
    # Ctrl-C reaches both processes; the other one tells about it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log = open_log(path)
    number = 0
    while True:
        number += 1
        batch = [f"record {number}/{i} ".encode().ljust(RECORD_BYTES, b".") for i in range(BATCH)]
        os.write(pipe, _SAID.pack(ATTEMPT, number))
        log.put("orders", batch)
        os.write(pipe, _SAID.pack(CONFIRM, number))


def _records(path: str) -> int:
    """Open the store as its owner, which recovers it, and count what is there."""
    with open_log(path) as log:
        return sum(block.count for block in log.read("orders"))


if __name__ == "__main__":
    sys.exit(main())
