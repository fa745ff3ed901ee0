"""What the queue promises, shown: a service under load, kill -9, reopen, compare.

A service in a process of its own has 32 producers that each await their puts, and a consumer that
leases and acks. It says on a pipe what it begins and what was confirmed to it. It is killed with
SIGKILL in the middle. Then the queue is opened again and compared with what was said: three times
over, in a temporary directory that is removed at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple

import uvloop
from rich.console import Console

import fifoq
from store.check import check_store

PRODUCERS = 32
LIVES = 3
SECONDS = 0.8
SLICES = 24
"""Into how many pieces the chart cuts a life."""
PUT, PUT_DONE, ACK, ACK_DONE = b"p", b"P", b"a", b"A"

Name = tuple[int, int, int]
"""A record: the life, the producer, its number there."""
_NAME = struct.Struct("<HHI")
_SAID = struct.Struct("<cHHIQ")


class Signs(NamedTuple):
    """Heights of the chart, lowest first, and the end of a life."""

    heights: str
    end: str


class Books:
    """What all services said so far."""

    def __init__(self) -> None:
        self.put: set[Name] = set()
        self.confirmed: dict[Name, tuple[int, int]] = {}
        """With the moments, in nanoseconds, at which the put began and returned."""
        self.acking: set[Name] = set()
        self.acked: set[Name] = set()
        self._begun: dict[Name, int] = {}

    def note(self, said: bytes) -> tuple[int, int]:
        """One life; how many puts and acks were under way at its end."""
        kinds = [kind for kind, *_ in _SAID.iter_unpack(said)]
        for kind, life, producer, number, moment in _SAID.iter_unpack(said):
            name = (life, producer, number)
            if kind == PUT:
                self.put.add(name)
                self._begun[name] = moment
            elif kind == PUT_DONE:
                self.confirmed[name] = (self._begun.pop(name), moment)
            else:
                (self.acking if kind == ACK else self.acked).add(name)
        puts, acks = kinds.count(PUT), kinds.count(ACK)
        return puts - kinds.count(PUT_DONE), acks - kinds.count(ACK_DONE)

    def broken(self, found: list[Name]) -> list[str]:
        """Every promise that these records, found in this order, break."""
        there = set(found)
        wrong = {
            "twice": len(found) - len(there),
            "confirmed, not acked, and gone": len(self.confirmed.keys() - self.acking - there),
            "acked, and there again": len(self.acked & there),
            "never put": len(there - self.put),
            "out of order": sum(later < first for first, later in _neighbours(found)),
        }
        return [f"{count} records {text}" for text, count in wrong.items() if count]


def _neighbours(found: list[Name]) -> Iterator[tuple[Name, Name]]:
    """Each record with the next one of the same producer."""
    last: dict[tuple[int, int], Name] = {}
    for name in found:
        if name[:2] in last:
            yield last[name[:2]], name
        last[name[:2]] = name


# The service.


async def serve(path: str, life: int) -> None:
    async with fifoq.open(path) as q, asyncio.TaskGroup() as tasks:
        for producer in range(PRODUCERS):
            tasks.create_task(_produce(q, life, producer))
        tasks.create_task(_consume(q))


async def _produce(q: fifoq.Queue[bytes], life: int, producer: int) -> None:
    number = 0
    while True:
        number += 1
        name = (life, producer, number)
        _say(PUT, name)
        await q.put(_NAME.pack(*name).ljust(100, b"."))
        _say(PUT_DONE, name)


async def _consume(q: fifoq.Queue[bytes]) -> None:
    while True:
        delivery = await q.lease()
        name = _name(delivery.item)
        _say(ACK, name)
        await delivery.ack()
        _say(ACK_DONE, name)


def _name(item: bytes) -> Name:
    life, producer, number = _NAME.unpack_from(item)
    return life, producer, number


def _say(kind: bytes, name: Name) -> None:
    os.write(1, _SAID.pack(kind, *name, time.monotonic_ns()))


# Who kills it and looks.


def main(arguments: list[str] | None = None) -> int:
    """Run the demonstration; the exit status says whether every promise was kept."""
    parser = argparse.ArgumentParser(
        prog="./dev demo",
        description=__doc__,
        epilog="Exit status: 0 every promise was kept, 1 one was broken, 130 interrupted.",
    )
    parser.add_argument("--serve", nargs=2, metavar=("PATH", "LIFE"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.serve:
        # Ctrl-C reaches both processes; the other one tells about it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        uvloop.run(serve(given.serve[0], int(given.serve[1])))
    console = Console(highlight=False, width=80)
    try:
        return _demonstrate(console, _signs(console.encoding))
    except KeyboardInterrupt:
        console.print("\ninterrupted; the service is dead and its files are gone")
        return 130


def _signs(encoding: str) -> Signs:
    try:
        "▁▂▃▄▅▆▇█✗".encode(encoding)
    except UnicodeEncodeError:
        return Signs("_.-=+*#%", "x")
    return Signs("▁▂▃▄▅▆▇█", "✗")


def _demonstrate(console: Console, signs: Signs) -> int:
    console.print(
        f"{PRODUCERS} producers and a consumer await the disk for every record. kill -9, reopen."
    )
    books = Books()
    with tempfile.TemporaryDirectory(prefix="fifoq-demo-") as directory:
        path = f"{directory}/store"
        kept = [_one_life(console, signs, path, books, life) for life in range(1, LIVES + 1)]
        sound = _check(console, path) and _drain(console, path, books)
    if all(kept) and sound:
        text = "Nothing confirmed was lost, nothing came twice, nothing was invented."
        console.print(f"\n[bold green]{text}[/]")
        return 0
    console.print("\n[bold red]A promise was broken.[/]")
    return 1


def _one_life(console: Console, signs: Signs, path: str, books: Books, life: int) -> bool:
    console.print(f"\n[bold]Life {life}[/]: {SECONDS} s under load, then kill -9 ...")
    puts, acks = _serve_until_killed(path, books, life)
    confirmed = [times for name, times in books.confirmed.items() if name[0] == life]
    delays = statistics.quantiles([(end - begin) / 1e6 for begin, end in confirmed], n=100)
    console.print(f"  confirmed  [cyan]{_chart([end for _, end in confirmed], signs)}[/]")
    console.print(
        f"             {len(confirmed):,} puts; each waited {delays[49]:.1f} ms (median), "
        f"{delays[98]:.1f} ms (p99)"
    )
    console.print(f"  cut short  puts under way: {puts}, acks under way: {acks}")
    start = time.perf_counter()
    found = asyncio.run(_look(path))
    seconds = time.perf_counter() - start
    broken = books.broken(found)
    verdict = "; ".join(broken) or "every confirmed one once, no acked one"
    console.print(f"  reopened   {len(found):,} records in {seconds:.2f} s: {verdict}")
    return not broken


def _chart(moments: list[int], signs: Signs) -> str:
    """Puts that were confirmed in each slice of the time, and the kill at the end."""
    first, last = min(moments), max(moments)
    counts = [0] * SLICES
    for moment in moments:
        counts[min(SLICES - 1, (moment - first) * SLICES // (last - first + 1))] += 1
    top = len(signs.heights) - 1
    bars = "".join(signs.heights[count * top // max(counts)] for count in counts)
    return f"{bars}{signs.end}"


def _serve_until_killed(path: str, books: Books, life: int) -> tuple[int, int]:
    """Run a service, note what it says, kill it; how many puts and acks that cut short."""
    command = [sys.executable, __file__, "--serve", path, str(life)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as service:
        assert service.stdout is not None
        try:
            said = os.read(service.stdout.fileno(), 1 << 16)
            deadline = time.monotonic() + SECONDS
            while said and time.monotonic() < deadline:
                said += os.read(service.stdout.fileno(), 1 << 16)
        finally:
            service.kill()
        said += service.stdout.read()
    if len(said) < _SAID.size:
        raise RuntimeError("the service ended by itself")
    # What the kill cut short was never said.
    return books.note(said[: len(said) - len(said) % _SAID.size])


async def _look(path: str) -> list[Name]:
    """Open the queue as its owner, which recovers it, and look at every record."""
    async with fifoq.open(path) as q:
        return [_name(record.item) async for record in q.browse()]


def _check(console: Console, path: str) -> bool:
    report = check_store(path)
    commits = sum(segment.frames for segment in report.segments)
    records = sum(segment.records for segment in report.segments)
    console.print("\n[bold]The check[/], as by `python -m store check`")
    console.print(
        f"  {len(report.segments)} segments, {commits:,} commits, {records:,} records: "
        f"{'sound' if report.sound else 'DAMAGED'}"
    )
    return report.sound


def _drain(console: Console, path: str, books: Books) -> bool:
    """Take everything, and compare once more."""

    async def drain() -> list[Name]:
        taken = []
        async with fifoq.open(path) as q:
            while not q.empty():
                taken += await q.take_many(1000)
        return [_name(item) for item in taken]

    taken = asyncio.run(drain())
    broken = books.broken(taken)
    console.print(f"  taken to the end: {len(taken):,} records; {'; '.join(broken) or 'as found'}")
    return not broken


if __name__ == "__main__":
    sys.exit(main())
