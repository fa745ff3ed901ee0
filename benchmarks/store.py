"""Store benchmarks: `python -m benchmarks.store [--json] [--quick] [--strict] [--directory DIR]`.

Each row is measured beside its yardstick in the same run, in turns, and reported as the median of
at least three rounds. Ratios are what counts; absolute figures hold for this machine and disk only.
Exit status 1 with `--strict` when a row misses its target.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from store import LogOptions, open_log
from store.blocks import RecordBlock, block_headers, decode_block, encode_records
from store.checksum import CRC32C, check_function, segment_seed
from store.frames import check_body, decode_header, encode_frame
from store.genesis import Genesis, decode_genesis, encode_genesis

ROUNDS = 7
OPEN_ROUNDS = 3
PAYLOAD_BYTES = 100
BATCH = [os.urandom(PAYLOAD_BYTES) for _ in range(100)]


class Row(NamedTuple):
    """One line of the table. `value` is measured against `target`; more is better if `more`."""

    name: str
    value: float
    unit: str
    target: float
    more: bool
    detail: str

    @property
    def met(self) -> bool:
        return self.value >= self.target if self.more else self.value <= self.target


def main(arguments: list[str] | None = None) -> int:
    """Run every row and print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")
    parser.add_argument("--quick", action="store_true", help="small counts, to see that it runs")
    parser.add_argument("--strict", action="store_true", help="status 1 when a row misses")
    parser.add_argument("--directory", default=".", help="where the scratch files go")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=options.directory) as scratch:
        bench = Bench(Path(scratch), quick=options.quick, quiet=options.json)
        rows = bench.run()
        place = bench.place()
    if options.json:
        print(json.dumps({"place": place, "rows": [_as_json(row) for row in rows]}, indent=2))
    else:
        print("  ".join(f"{name}: {value}" for name, value in place.items()))
        for row in rows:
            print(_line(row))
    return 1 if options.strict and not all(row.met for row in rows) else 0


def _as_json(row: Row) -> dict[str, object]:
    return {**row._asdict(), "value": round(row.value, 4), "met": row.met}


def _line(row: Row) -> str:
    share = row.value / row.target if row.more else row.target / max(row.value, 1e-9)
    bar = "█" * min(20, max(1, round(share * 10)))
    sign = "≥" if row.more else "≤"
    mark = "ok  " if row.met else "MISS"
    return (
        f"{mark} {row.name:<46} {row.value:>9.2f} {row.unit:<10} ({sign} {row.target:g})  "
        f"{bar:<20} {row.detail}"
    )


class Bench:
    """Runs the rows in one scratch directory."""

    def __init__(self, scratch: Path, *, quick: bool, quiet: bool) -> None:
        self._scratch = scratch
        self._quick = quick
        self._quiet = quiet
        self._rounds = 1 if quick else ROUNDS

    def place(self) -> dict[str, str]:
        """Where this was measured."""
        kind = subprocess.run(
            ["stat", "-f", "-c", "%T", str(self._scratch)],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.strip()
        return {
            "file system": kind,
            "fdatasync of an append": f"{self._bare_sync(50) * 1e6:.0f} µs",
            "payload": f"{PAYLOAD_BYTES} bytes",
            "cores": str(os.cpu_count()),
            "python": sys.version.split()[0],
        }

    def run(self) -> list[Row]:
        rows: list[Row] = []
        for part in (self._commits, self._codec, self._space, self._opens):
            if not self._quiet:
                print(f"measuring {part.__name__.strip('_')} …", file=sys.stderr)
            rows += part()
        return rows

    # Commits of 100 records.

    def _commits(self) -> list[Row]:
        count = 20 if self._quick else 400
        burst = 50 if self._quick else 4000
        synced, filled_less, bare_synced, written, bare_written = [], [], [], [], []
        no_fill = LogOptions(fill_bytes=0, reserve_bytes=0)
        for _ in range(self._rounds):
            bare_synced.append(self._bare_sync(count))
            synced.append(self._log_commits(count, sync=True))
            filled_less.append(self._log_commits(count, sync=True, options=no_fill))
            bare_written.append(self._bare_write(burst))
            written.append(self._log_commits(burst, sync=False))
        median = statistics.median
        commit, bare = median(written), median(bare_written)
        return [
            Row(
                "sync commit of 100, of bare append + fdatasync",
                median(b / s for b, s in zip(bare_synced, synced, strict=True)),
                "×",
                0.9,
                True,
                f"{median(synced) * 1e6:.0f} µs against {median(bare_synced) * 1e6:.0f} µs",
            ),
            Row(
                "  zero-fill ahead, of the same without it",
                median(f / s for f, s in zip(filled_less, synced, strict=True)),
                "×",
                1.0,
                True,
                f"{median(filled_less) * 1e6:.0f} µs without",
            ),
            Row("commit of 100 without sync", 100 / commit / 1e6, "M rec/s", 3.0, True, ""),
            Row(
                "  of a bare write of the same bytes",
                median(b / w for b, w in zip(bare_written, written, strict=True)),
                "×",
                0.3,
                True,
                f"{commit * 1e6:.1f} µs against {bare * 1e6:.1f} µs",
            ),
        ]

    def _log_commits(self, count: int, *, sync: bool, options: LogOptions | None = None) -> float:
        path = self._scratch / "log"
        with open_log(str(path), options=options) as log:
            log.put("orders", BATCH, sync=sync)
            start = time.perf_counter()
            for _ in range(count):
                log.put("orders", BATCH, sync=sync)
            seconds = time.perf_counter() - start
        shutil.rmtree(path)
        return seconds / count

    def _bare_sync(self, count: int) -> float:
        return self._bare(count, os.fdatasync)

    def _bare_write(self, count: int) -> float:
        return self._bare(count, None)

    def _bare(self, count: int, sync: Callable[[int], None] | None) -> float:
        path = self._scratch / "bare"
        data = b"".join(BATCH)
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        try:
            start = time.perf_counter()
            for _ in range(count):
                os.write(descriptor, data)
                if sync is not None:
                    sync(descriptor)
            return (time.perf_counter() - start) / count
        finally:
            os.close(descriptor)
            path.unlink()

    # Encoding and decoding, with no file.

    def _codec(self) -> list[Row]:
        payloads = BATCH * 10
        loops = 5 if self._quick else 300
        frame = bytes(_encode(payloads))

        def per_record(work: Callable[[], object]) -> float:
            each = []
            for _ in range(self._rounds):
                start = time.perf_counter()
                for _ in range(loops):
                    work()
                each.append((time.perf_counter() - start) / loops / len(payloads) * 1e9)
            return statistics.median(each)

        return [
            Row(
                "encode, batches of 1000",
                per_record(lambda: _encode(payloads)),
                "ns/rec",
                150,
                False,
                "",
            ),
            Row(
                "decode to a list",
                per_record(lambda: _decode(frame).payloads()),
                "ns/rec",
                300,
                False,
                "",
            ),
            Row(
                "scan to (offsets, buffer)",
                per_record(lambda: _decode(frame)),
                "ns/rec",
                40,
                False,
                "",
            ),
        ]

    def _space(self) -> list[Row]:
        path = self._scratch / "space"
        commits = 10 if self._quick else 2000
        with open_log(str(path)) as log:
            for _ in range(commits):
                log.put("orders", BATCH, sync=False)
        size = sum(
            file.stat().st_size for file in path.iterdir() if file.suffix in (".log", ".idx")
        )
        shutil.rmtree(path)
        ratio = size / (commits * len(BATCH) * PAYLOAD_BYTES)
        return [Row("disk bytes per payload byte, 100 × 100", ratio, "×", 1.1, False, "")]

    # Opening after a crash.

    def _opens(self) -> list[Row]:
        records = 2000 if self._quick else 1_000_000
        queues = 20 if self._quick else 10_000
        backlog = f"backlog of {records:,}"
        rows = []
        for batch in (1, 1000):
            name = f"open, {backlog} in frames of {batch}"
            rows += self._open_rows(name, _backlog(records, batch), seconds=0.2, megabytes=32)
        name = f"open, {backlog} in {queues:,} queues"
        fill = _many_queues(queues, records // queues)
        return rows + self._open_rows(name, fill, seconds=1.0, megabytes=64)

    def _open_rows(
        self, name: str, fill: Callable[[str], None], *, seconds: float, megabytes: float
    ) -> list[Row]:
        """Fill a store, leave it without a close, and open copies of it in fresh processes."""
        path = self._scratch / "filled"
        _in_child(fill, str(path))
        rounds = [self._open_copy(path) for _ in range(min(self._rounds, OPEN_ROUNDS))]
        shutil.rmtree(path)
        opened, taken, grown = map(statistics.median, zip(*rounds, strict=True))
        detail = f"and {taken * 1000:.1f} ms for the first take"
        return [
            Row(name, opened, "s", seconds, False, detail),
            Row("  more memory, first take included", grown, "MB", megabytes, False, ""),
        ]

    def _open_copy(self, path: Path) -> tuple[float, float, float]:
        """Seconds to open, seconds for the first take, megabytes more, with a warm page cache.

        It opens a copy, because opening changes a store.
        """
        copy = self._scratch / "opened"
        shutil.copytree(path, copy)
        for file in copy.iterdir():
            # Opening syncs what it finds; the copy's own pages are not to be counted.
            _sync_file(file)
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.store_open", str(copy)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        shutil.rmtree(copy)
        opened, taken, grown = map(float, done.stdout.split())
        return opened, taken, grown


def _in_child(fill: Callable[[str], None], path: str) -> None:
    """Fill a store in a process that then ends without a close. RuntimeError if it could not."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            fill(path)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        raise RuntimeError(f"the process that fills {path} ended with status {status}")


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _backlog(records: int, batch: int) -> Callable[[str], None]:
    def fill(path: str) -> None:
        log = open_log(path)
        payloads = (BATCH * (batch // len(BATCH) + 1))[:batch]
        for _ in range(records // batch):
            log.put("orders", payloads, sync=False)
        log.flush()

    return fill


def _many_queues(queues: int, records: int) -> Callable[[str], None]:
    """So many queues with so many records each, which lie in ten frames all over the log."""
    rounds, together = 10, 100
    payloads = BATCH[: records // rounds]

    def fill(path: str) -> None:
        log = open_log(path)
        for start in [*range(0, queues, together)] * rounds:
            draft = log.draft()
            for number in range(start, min(start + together, queues)):
                draft.put(log.queue(f"queue-{number}"), payloads)
            log.commit(draft, sync=False)
        log.flush()
        held = sum(queue.genesis.queue_size for queue in log.state.queues.values())
        assert (len(log.state.queues), held) == (queues, queues * records)

    return fill


_CHECK = check_function(CRC32C)
_SEED = segment_seed(_CHECK, bytes(16), 1)
_GENESIS = Genesis("orders")


def _encode(payloads: list[bytes]) -> bytes:
    parts, _ = encode_records(payloads, queue=0, first=1, time=1)
    frame, _ = encode_frame(
        parts,
        encode_genesis([_GENESIS]),
        block_count=1,
        flags=0,
        sequence=1,
        durable_upto=0,
        previous=0,
        check=_CHECK,
        seed=_SEED,
        offset=80,
    )
    return frame


def _decode(frame: bytes) -> RecordBlock:
    header = decode_header(frame, 0, check=_CHECK, seed=_SEED, offset=80)
    body, _ = check_body(frame, 0, header, check=_CHECK, offset=80)
    names = [entry.name for entry in decode_genesis(body, header.genesis_bytes)]
    (block_header,) = block_headers(body, header.block_count, header.genesis_bytes)
    block = decode_block(body, block_header, names)
    assert isinstance(block, RecordBlock)
    return block


if __name__ == "__main__":
    sys.exit(main())
