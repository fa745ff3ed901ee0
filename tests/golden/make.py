"""Makes the golden stores: small ones of each format version, pinned byte for byte.

`python -m tests.golden.make` writes them anew. They are made once for each version of the format
and then kept: a test opens copies of them, and makes them again to see that the writer still
writes the same bytes.

- `closed`: every kind of block and column, three segments, closed.
- `crashed`: never closed. Behind the last commit lies half of another frame.
- `compressed`: blocks compressed in each way, some of them moved. Other builds of zlib and zstd may
  write other bytes for the same, so only what is in it is compared.

Each comes with `<name>.json`, what a reader must find in it. `v1_earlier` and `v1_apart` hold
stores that earlier writers of the same format made; they are only opened, never made again.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import msgspec

from store import LogOptions, open_log
from store.blocks import (
    ACKED,
    DEDUP_ID,
    DELIVER_AT,
    EXPIRES_AT,
    HEADERS,
    ORDERING_KEY,
    PRIORITY,
    Column,
    records_weight,
)
from store.compression import compression_of
from store.frames import FORMAT_VERSION
from store.log import Log
from store.osfiles import OsFiles
from tests.support.clock import ManualClock

HERE = Path(__file__).parent
OPTIONS = LogOptions(fill_bytes=512, reserve_bytes=512)
STATES = ("timer", "gone", "note")


def golden(version: int = FORMAT_VERSION) -> Path:
    """Where the stores of a version lie."""
    return HERE / f"v{version}"


def make(where: Path) -> None:
    """Make both stores and what is in them; `where` must not exist."""
    where.mkdir()
    closed, clock = where / "closed", ManualClock(seed=1)
    with open_log(str(closed), files=OsFiles(), clock=clock, options=OPTIONS) as log:
        _first_segment(log, clock)
        _second_segment(log, clock)
        _third_segment(log, clock)
        _write(where / "closed.json", contents(log))
    _make_crashed(where)
    _make_compressed(where)


def _first_segment(log: Log, clock: ManualClock) -> None:
    """Plain puts, all optional columns, a configuration, states, and records to be left behind."""
    log.put("orders", [b"first", b"", b"third"])
    clock.advance(seconds=1.5)
    now = clock.wall()
    draft = log.draft()
    draft.put(
        log.queue("jobs"),
        [b"small", b"urgent"],
        times=[now, now + 2**33],
        columns={
            DELIVER_AT: [now, now + 10],
            EXPIRES_AT: [now + 100, now + 200],
            PRIORITY: [1, 255],
            HEADERS: [b"", b'{"a":1}'],
            DEDUP_ID: [b"id-1", b"id-2"],
            ORDERING_KEY: [b"customer", b""],
        },
    )
    draft.configure(log.queue("jobs"), '{"limit":10,"note":"ä"}'.encode())
    draft.set_states([("timer", b"\0\1\2"), ("gone", b"soon")])
    log.commit(draft)
    log.put("orders", [bytes([number]) * 300 for number in range(20)])
    log.rotate()


def _second_segment(log: Log, clock: ManualClock) -> None:
    """Removals of several kinds, leases, a deletion, the dead letters; the clock goes back."""
    clock.set_wall(clock.wall() - 10**9)
    log.take("orders", 2)
    draft = log.draft()
    orders = log.queue("orders")
    draft.remove(
        orders,
        [(5, 19, 15 * records_weight(300, 1)), (21, 22, 2 * records_weight(300, 1))],
        reason=ACKED,
        delay_ns=5,
    )
    draft.lease(orders, [3, 4, 20], [1, 2, 1], clock.wall() + 30 * 10**9)
    draft.set_states([("gone", None), ("note", b"text")])
    draft.put(log.queue("orders.dlq"), [b"poison"])
    log.commit(draft)
    log.put("archive", [bytes([number]) * 150 for number in range(9)])
    log.rotate()


def _third_segment(log: Log, clock: ManualClock) -> None:
    """Records copied forward, one restored, counters that leave a gap, commits without a sync."""
    clock.advance(seconds=3600)
    while log.compact():
        pass
    draft = log.draft()
    draft.move(log.queue("orders"), [1], [clock.wall()], [b"first"])
    draft.put(log.queue("jobs"), [b"after a gap"], first=7)
    log.commit(draft)
    log.put("orders", [b"unsynced"], sync=False)
    log.flush()
    log.seal()


def _make_crashed(where: Path) -> None:
    """A process that dies while it writes: the last frame is cut in half."""
    crashed, clock = where / "crashed", ManualClock(seed=2)
    log = open_log(str(crashed), files=OsFiles(), clock=clock, options=OPTIONS)
    log.put("orders", [b"one", b"two", b"three"])
    log.checkpoint()
    log.take("orders")
    log.put("orders", [b"four"])
    segment = crashed / "00000000000000000001.log"
    _write(where / "crashed.json", contents(log))
    end = log.tail.length
    log.put("orders", [b"never confirmed"])
    frame_bytes = log.tail.length - end
    log.release()
    data = segment.read_bytes()
    half = end + frame_bytes // 2
    segment.write_bytes(data[:half] + bytes(len(data) - half))


def _make_compressed(where: Path) -> None:
    """One queue that compresses, one that no longer does, and a segment whose rest was moved."""
    clock = ManualClock(seed=3)
    alike = [b'{"event":"page_view","user":%d}' % (number % 7) for number in range(40)]
    with open_log(str(where / "compressed"), files=OsFiles(), clock=clock, options=OPTIONS) as log:
        for queue, name in (("orders", "zlib"), ("jobs", "zstd")):
            log.compress(queue, compression_of(name))
            log.put(queue, alike)
            columns: dict[int, Column] = {HEADERS: [b"h"] * 40}
            draft = log.draft()
            draft.put(log.queue(queue), alike[::-1], columns=columns)
            log.commit(draft)
        log.compress("orders", None)
        log.put("orders", alike)
        log.rotate()
        for queue in ("orders", "jobs"):
            log.take(queue, 50)
        while log.compact():
            pass
        log.put("orders", [b"small"])
        _write(where / "compressed.json", contents(log))


def contents(log: Log) -> dict[str, object]:
    """Everything a caller can read, in plain values."""
    return {
        "queues": {
            name: {
                "records": [
                    [key.counter, key.timestamp, payload.hex()]
                    for block in log.read(name)
                    for key, payload in zip(block.keys(), block.payloads(), strict=True)
                ],
                "columns": [
                    {
                        str(bit): column.tolist()
                        if isinstance(column, memoryview)
                        else [value.hex() for value in column]
                        for bit, column in sorted(block.columns.items())
                    }
                    for block in log.read(name)
                ],
                "genesis": {
                    field: getattr(queue.genesis, field)
                    for field in queue.genesis.__struct_fields__
                    if field not in ("configuration", "reserved_upto")
                },
                "configuration": queue.configuration and queue.configuration.decode(),
                "attempts": sorted(map(list, queue.attempts.items())),
            }
            for name, queue in sorted(log.state.queues.items())
        },
        "states": {name: (log.state_of(name) or b"").hex() for name in STATES},
    }


def _write(path: Path, value: object) -> None:
    text = msgspec.json.format(msgspec.json.encode(value), indent=1)
    path.write_bytes(text + b"\n")


def main() -> int:
    """Write the stores of this version anew."""
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch) / "fresh"
        make(fresh)
        shutil.rmtree(golden(), ignore_errors=True)
        shutil.copytree(fresh, golden())
    size = sum(path.stat().st_size for path in golden().rglob("*") if path.is_file())
    print(f"{golden()}: {size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
