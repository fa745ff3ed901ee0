"""What the store promises, shown: commit, kill -9 in mid-batch, reopen, check what survived.

A writer process puts batches of records, each batch one commit, and says so on a pipe before and
after. It is killed with SIGKILL while it writes. Then the store is opened again and compared with
what the writer said.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from store import open_log
from store.check import check_store

BATCH = 100
RECORD_BYTES = 100
ATTEMPT, CONFIRM = b"a", b"c"
_SAID = struct.Struct("<cI")


def main() -> int:
    """Run the demonstration; the exit status says whether every promise was kept."""
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="fifoq-demo-") as directory:
        path = f"{directory}/store"
        kept = [_one_life(console, path, life) for life in range(1, 4)]
        console.print("\n[bold]The check[/] (python -m store check)")
        report = check_store(path)
        frames = sum(segment.frames for segment in report.segments)
        records = sum(segment.records for segment in report.segments)
        verdict = "sound" if report.sound else "DAMAGED"
        console.print(
            f"  {len(report.segments)} segments, {frames} commits, {records} records: {verdict}"
        )
        files = sorted(Path(path).iterdir())
        console.print("  " + ", ".join(f"{file.name} {file.stat().st_size:,} B" for file in files))
    all_kept = all(kept) and report.sound
    console.print(
        "\n[bold green]Nothing confirmed was lost, nothing was torn, nothing was invented.[/]"
        if all_kept
        else "\n[bold red]A promise was broken.[/]"
    )
    return 0 if all_kept else 1


def _one_life(console: Console, path: str, life: int) -> bool:
    before = _records(path)
    console.print(f"\n[bold]Life {life}[/]: a writer puts batches of {BATCH}, one commit each …")
    attempted, confirmed = _kill_in_mid_batch(path, seconds=0.4)
    start = time.perf_counter()
    found = _records(path) - before
    opened = (time.perf_counter() - start) * 1000
    table = Table(show_header=False, box=None, pad_edge=False)
    longest = max(attempted, 1)
    for name, batches, why in (
        ("begun", attempted, "about to commit when kill -9 came"),
        ("confirmed", confirmed, "put() had returned: must survive"),
        ("found", found / BATCH, "read back after the restart"),
    ):
        bar = "█" * max(1, round(16 * batches / longest))
        table.add_row(f"  {name}", f"{batches * BATCH:>8,.0f}", f"[cyan]{bar}[/]", f"[dim]{why}[/]")
    console.print(table)
    whole = found % BATCH == 0
    survived = confirmed * BATCH <= found <= attempted * BATCH
    if attempted == confirmed:
        fate = "kill -9 came between two commits."
    elif found > confirmed * BATCH:
        fate = "The batch under way had reached the file whole: it counts."
    else:
        fate = "The batch under way left no trace: all or nothing."
    console.print(f"  reopened in {opened:.0f} ms. {fate}")
    return whole and survived


def _kill_in_mid_batch(path: str, *, seconds: float) -> tuple[int, int]:
    """Run a writer and kill it; returns how many batches it began and how many it confirmed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            _write_until_killed(path, writing)
        finally:
            os._exit(1)
    os.close(writing)
    said = {ATTEMPT: 0, CONFIRM: 0}
    deadline = time.monotonic() + seconds
    with open(reading, "rb") as pipe:
        while time.monotonic() < deadline or said[ATTEMPT] == said[CONFIRM]:
            _listen(pipe.read(_SAID.size), said)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for start in range(0, len(rest := pipe.read()), _SAID.size):
            _listen(rest[start : start + _SAID.size], said)
    return said[ATTEMPT], said[CONFIRM]


def _listen(message: bytes, said: dict[bytes, int]) -> None:
    kind, number = _SAID.unpack(message)
    said[kind] = number


def _write_until_killed(path: str, pipe: int) -> None:
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
