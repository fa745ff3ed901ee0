"""Store rows: the record log alone, against bare file calls; `python -m benchmarks.store`.

`python -m benchmarks` runs these and then the rows of the queue, in one report.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial

from fifoq.bench.backlog import open_rows
from fifoq.bench.command import run
from fifoq.bench.measure import (
    BATCH,
    BATCH_BYTES,
    BATCH_RECORDS,
    Absent,
    Group,
    Row,
    Setting,
    duration,
)
from fifoq.bench.resources import space_row
from fifoq.bench.yardsticks import bare_append
from store import LogOptions, open_log
from store.blocks import RecordBlock, block_headers, decode_block
from store.checksum import CRC32C, check_function, segment_seed
from store.encoding import encode_records
from store.frames import check_body, decode_header, encode_frame
from store.genesis import Genesis, decode_genesis, encode_genesis


def commits(setting: Setting) -> list[Row | Absent]:
    """Commits of 100 records, with and without a sync, and without filling ahead."""
    count = setting.count(400)
    burst = setting.count(4000)
    synced, filled_less, bare_synced, written, bare_written = [], [], [], [], []
    no_fill = LogOptions(fill_bytes=0, reserve_bytes=0)
    for _ in range(setting.rounds):
        bare_synced.append(_bare(setting, count, sync=True))
        synced.append(_log_commits(setting, count, sync=True))
        filled_less.append(_log_commits(setting, count, sync=True, options=no_fill))
        bare_written.append(_bare(setting, burst, sync=False))
        written.append(_log_commits(setting, burst, sync=False))
    median = statistics.median
    commit, bare = median(written), median(bare_written)
    return [
        Row(
            "sync commit of 100, of bare append + fdatasync",
            median(b / s for b, s in zip(bare_synced, synced, strict=True)),
            "×",
            0.9,
            True,
            f"{duration(median(synced))} against {duration(median(bare_synced))}",
        ),
        Row(
            "  zero-fill ahead, of the same without it",
            median(f / s for f, s in zip(filled_less, synced, strict=True)),
            "×",
            1.0,
            True,
            f"{duration(median(filled_less))} without",
        ),
        Row("commit of 100 without sync", BATCH_RECORDS / commit / 1e6, "M rec/s", 3.0, True),
        Row(
            "  of a bare write of the same bytes",
            median(b / w for b, w in zip(bare_written, written, strict=True)),
            "×",
            0.3,
            True,
            f"{duration(commit)} against {duration(bare)}",
        ),
    ]


def codec(setting: Setting) -> list[Row | Absent]:
    """Encoding and decoding, with no file."""
    payloads = BATCH * 10
    loops = setting.count(300)
    frame = bytes(_encode(payloads))

    def per_record(name: str, work: Callable[[], object], target: float) -> Row:
        each = []
        for _ in range(setting.rounds):
            start = time.perf_counter()
            for _ in range(loops):
                work()
            each.append((time.perf_counter() - start) / loops / len(payloads) * 1e9)
        return Row(name, statistics.median(each), "ns/rec", target, False)

    return [
        per_record("encode, batches of 1000", lambda: _encode(payloads), 150),
        per_record("decode to a list", lambda: _decode(frame).payloads(), 300),
        per_record("scan to (offsets, buffer)", lambda: _decode(frame), 40),
    ]


def space(setting: Setting) -> list[Row | Absent]:
    """What lies on the disk for each byte that was put."""
    count = setting.count(2000)
    with setting.fresh("space") as path:
        with open_log(str(path)) as log:
            for _ in range(count):
                log.put("orders", BATCH, sync=False)
        return [space_row("disk bytes per payload byte, 100 × 100", path, count * BATCH_RECORDS)]


def opens(setting: Setting) -> list[Row | Absent]:
    """Opening after a crash."""
    records = setting.count(1_000_000)
    queues = setting.count(10_000)
    backlog = f"backlog of {records:,}"
    rows: list[Row | Absent] = []
    for batch in (1, 1000):
        name = f"open, {backlog} in frames of {batch}"
        fill = _backlog(records, batch)
        rows += _open_rows(setting, name, fill, seconds=0.2, megabytes=32)
    name = f"open, {backlog} in {queues:,} queues"
    fill = _many_queues(queues, records // queues)
    return rows + _open_rows(setting, name, fill, seconds=1.0, megabytes=64)


GROUPS = (
    Group("store-commits", commits),
    Group("store-codec", codec),
    Group("store-space", space),
    Group("store-opens", opens),
)


def store_rows() -> Sequence[Group]:
    """The rows of the store."""
    return GROUPS


def _log_commits(
    setting: Setting, count: int, *, sync: bool, options: LogOptions | None = None
) -> float:
    """Seconds of one commit."""
    with setting.fresh("log") as path, open_log(str(path), options=options) as log:
        log.put("orders", BATCH, sync=sync)
        start = time.perf_counter()
        for _ in range(count):
            log.put("orders", BATCH, sync=sync)
        return (time.perf_counter() - start) / count


def _bare(setting: Setting, count: int, *, sync: bool) -> float:
    """Seconds of one append of the same bytes."""
    with setting.fresh("bare") as path:
        return sum(bare_append(path, BATCH_BYTES, count, sync=sync)) / count


def _open_rows(
    setting: Setting,
    name: str,
    fill: Callable[[str], None],
    *,
    seconds: float,
    megabytes: float,
) -> list[Row]:
    command = [sys.executable, "-m", "benchmarks.store_open"]
    return open_rows(
        setting, name, partial(_in_child, fill), command, seconds=seconds, megabytes=megabytes
    )


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


def _encode(payloads: list[bytes]) -> bytearray:
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


def _decode(frame: bytes | bytearray) -> RecordBlock:
    header = decode_header(frame, 0, check=_CHECK, seed=_SEED, offset=80)
    body, _ = check_body(frame, 0, header, check=_CHECK, offset=80)
    names = [entry.name for entry in decode_genesis(body, header.genesis_bytes)]
    (block_header,) = block_headers(body, header.block_count, header.genesis_bytes)
    block = decode_block(body, block_header, names)
    assert isinstance(block, RecordBlock)
    return block


if __name__ == "__main__":
    run(store_rows)
