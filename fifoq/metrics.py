"""Metrics: a store's statistics as text in the Prometheus exposition format, version 0.0.4.

Names and labels are part of the interface: they are only ever added. Counters that end in `_total`
count since the queue came to be, where genesis keeps them, or since the store was opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

if TYPE_CHECKING:
    from fifoq.committer import Committer
    from fifoq.queue import Queue
    from fifoq.stats import QueueStats
    from store.genesis import Genesis
    from store.segment_state import SegmentState

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""What an HTTP server says of it."""

Kind = Literal["counter", "gauge", "summary"]
Sample = tuple[str, Mapping[str, str], float]
"""What follows the name (`_count` and the like), labels, value."""
_SECOND: Final = 1e9


class Metric(msgspec.Struct, frozen=True):
    """A name, what it is, and what it says."""

    name: str
    kind: Kind
    help: str


def _of_queue(suffix: str, kind: Kind, help: str) -> Metric:
    return Metric(f"fifoq_queue_{suffix}", kind, help)


QUEUE_RECORDS: Final = _of_queue("records", "gauge", "Records that are in the queue.")
QUEUE_BYTES: Final = _of_queue("payload_bytes", "gauge", "Their payload bytes.")
QUEUE_PUT: Final = _of_queue("put_total", "counter", "Records ever put.")
QUEUE_TAKEN: Final = _of_queue("taken_total", "counter", "Records ever removed, however.")
QUEUE_HIGH: Final = _of_queue("high_water_mark", "gauge", "Most records that were ever in it.")
QUEUE_LOW: Final = _of_queue("low_water_mark", "gauge", "Fewest records since the first put.")
QUEUE_PUT_TIME: Final = _of_queue(
    "last_put_timestamp_seconds", "gauge", "When the newest record was put."
)
QUEUE_TAKE_TIME: Final = _of_queue(
    "last_take_timestamp_seconds", "gauge", "When a record was last removed."
)
QUEUE_DELAY: Final = _of_queue(
    "delay_seconds", "summary", "Time from the put of a record to its end."
)
QUEUE_READY: Final = _of_queue("ready", "gauge", "Records that may be handed out.")
QUEUE_LEASED: Final = _of_queue("leased", "gauge", "Records that are handed out.")
QUEUE_DELAYED: Final = _of_queue("delayed", "gauge", "Records that wait for their time.")
QUEUE_PRESSURE: Final = _of_queue("under_pressure", "gauge", "1 while puts wait for takes.")
QUEUE_EXPIRED: Final = _of_queue("expired_total", "counter", "Records that expired.")
QUEUE_DEAD: Final = _of_queue("dead_lettered_total", "counter", "Records that became dead letters.")
QUEUE_DUPLICATES: Final = _of_queue("duplicates_total", "counter", "Puts that were made before.")
LAG_RECORDS: Final = Metric("fifoq_consumer_lag_records", "gauge", "Records it has yet to read.")
LAG_SECONDS: Final = Metric("fifoq_consumer_lag_seconds", "gauge", "Age of the oldest of them.")
LAG_BYTES: Final = Metric("fifoq_consumer_held_bytes", "gauge", "Bytes that are kept for it alone.")
MAILBOXES: Final = Metric("fifoq_mailboxes", "gauge", "Durable mailboxes of actors.")
MAILBOX_MESSAGES: Final = Metric("fifoq_mailbox_messages", "gauge", "Messages in all of them.")
COMMITS: Final = Metric("fifoq_store_commits_total", "counter", "Frames committed.")
COMMITTED: Final = Metric("fifoq_store_committed_records_total", "counter", "Records in them.")
SYNCS: Final = Metric("fifoq_store_sync_seconds", "summary", "Time that a sync of the disk takes.")
SEGMENTS: Final = Metric("fifoq_store_segments", "gauge", "Segments on disk.")
DISK_BYTES: Final = Metric("fifoq_store_disk_bytes", "gauge", "Bytes of log on disk.")
LIVE_BYTES: Final = Metric(
    "fifoq_store_live_bytes", "gauge", "Bytes of records not removed, about."
)
UNWRITTEN: Final = Metric("fifoq_store_unwritten_bytes", "gauge", "Bytes that wait for the writer.")
ERRORS: Final = Metric("fifoq_store_errors_total", "counter", "Commits that the disk refused.")
FAILED: Final = Metric("fifoq_store_failed", "gauge", "1 once a failed sync has stopped the store.")
INFO: Final = Metric("fifoq_store_info", "gauge", "Always 1; its labels say which store this is.")

METRICS: Final[tuple[Metric, ...]] = (
    *(QUEUE_RECORDS, QUEUE_READY, QUEUE_LEASED, QUEUE_DELAYED, QUEUE_BYTES),
    *(QUEUE_PUT, QUEUE_TAKEN, QUEUE_EXPIRED, QUEUE_DEAD, QUEUE_DUPLICATES),
    *(QUEUE_HIGH, QUEUE_LOW, QUEUE_PUT_TIME, QUEUE_TAKE_TIME, QUEUE_DELAY, QUEUE_PRESSURE),
    *(LAG_RECORDS, LAG_SECONDS, LAG_BYTES, MAILBOXES, MAILBOX_MESSAGES),
    *(COMMITS, COMMITTED, SYNCS, UNWRITTEN, ERRORS, FAILED),
    *(SEGMENTS, DISK_BYTES, LIVE_BYTES, INFO),
)
"""All of them, in the order of the text."""


class Samples:
    """Values by metric, gathered in any order and told in that of `METRICS`."""

    def __init__(self) -> None:
        self._found: dict[str, list[Sample]] = {}

    def add(self, metric: Metric, value: float | None, suffix: str = "", **labels: str) -> None:
        """Note a value; None is one that is not known, and is left out."""
        if value is not None:
            self._found.setdefault(metric.name, []).append((suffix, labels, value))

    def text(self) -> str:
        return "".join(
            line
            for metric in METRICS
            if metric.name in self._found
            for line in _lines(metric, self._found[metric.name])
        )


def of_owner(committer: Committer, queues: Iterable[Queue[Any]]) -> str:
    """The metrics of an open store; those of its open queues know more than genesis does."""
    log = committer.log
    assert log is not None
    samples = Samples()
    opened = {queue.name: queue for queue in queues if not _is_mailbox(queue.name)}
    # In one step: the writer may be making a queue.
    states = list(log.state.queues.values())
    for queue in opened.values():
        _add_open(samples, queue.stats())
    _add_genesis(samples, [state.genesis for state in states if state.name not in opened])
    samples.add(COMMITS, committer.commit_count)
    samples.add(COMMITTED, committer.record_count)
    for share in (0.5, 0.99):
        samples.add(SYNCS, _seconds(committer.syncs.percentile(share)), quantile=str(share))
    samples.add(SYNCS, committer.syncs.count, "_count")
    samples.add(UNWRITTEN, committer.waiting_bytes + committer.sealed_bytes)
    samples.add(ERRORS, committer.error_count)
    samples.add(FAILED, committer.failure is not None)
    _add_segments(samples, list(log.state.segments.values()))
    samples.add(INFO, 1, path=committer.path, id=log.store_id.hex())
    return samples.text()


def of_reader(
    path: str, store_id: bytes, genesis: Iterable[Genesis], segments: Iterable[SegmentState]
) -> str:
    """The metrics of a store seen from outside: what genesis and the log say."""
    samples = Samples()
    _add_genesis(samples, genesis)
    _add_segments(samples, list(segments))
    samples.add(INFO, 1, path=path, id=store_id.hex())
    return samples.text()


def _add_open(samples: Samples, stats: QueueStats) -> None:
    name = stats.name
    _add_common(
        samples,
        name,
        size=stats.current_size,
        payload_bytes=stats.bytes,
        put=stats.total_put_count,
        taken=stats.total_take_count,
        high=stats.high_water_mark,
        low=stats.low_water_mark,
        put_time=stats.last_put_time,
        take_time=stats.last_take_time,
        delay=stats.average_delay,
    )
    samples.add(QUEUE_READY, stats.ready, queue=name)
    samples.add(QUEUE_LEASED, stats.leased, queue=name)
    samples.add(QUEUE_DELAYED, stats.delayed, queue=name)
    samples.add(QUEUE_PRESSURE, stats.under_pressure, queue=name)
    samples.add(QUEUE_EXPIRED, stats.expired, queue=name)
    samples.add(QUEUE_DEAD, stats.dead_lettered, queue=name)
    samples.add(QUEUE_DUPLICATES, stats.duplicates, queue=name)
    shares = (("0.5", stats.delay_p50), ("0.95", stats.delay_p95), ("0.99", stats.delay_p99))
    for share, delay in shares:
        samples.add(QUEUE_DELAY, delay, queue=name, quantile=share)
    for consumer in stats.consumers:
        labels = {"queue": name, "consumer": consumer.name}
        samples.add(LAG_RECORDS, consumer.lag_records, **labels)
        samples.add(LAG_SECONDS, consumer.lag_seconds, **labels)
        samples.add(LAG_BYTES, consumer.held_bytes, **labels)


def _add_genesis(samples: Samples, queues: Iterable[Genesis]) -> None:
    """Queues of which only genesis is known; mailboxes, which may be many, are summed up."""
    mailboxes = messages = 0
    for genesis in queues:
        if _is_mailbox(genesis.name):
            mailboxes += 1
            messages += genesis.queue_size
            continue
        taken = genesis.total_take_count
        _add_common(
            samples,
            genesis.name,
            size=genesis.queue_size,
            payload_bytes=genesis.queue_bytes,
            put=genesis.total_put_count,
            taken=taken,
            high=genesis.high_water_mark,
            low=genesis.low_water_mark,
            put_time=genesis.last_put_time,
            take_time=genesis.last_take_time,
            delay=genesis.total_delay_ns / taken / _SECOND if taken else None,
        )
    if mailboxes:
        samples.add(MAILBOXES, mailboxes)
        samples.add(MAILBOX_MESSAGES, messages)


def _is_mailbox(name: str) -> bool:
    """Whether it is a queue with a prefix, which is no user's own."""
    return "/" in name


def _add_common(
    samples: Samples,
    name: str,
    *,
    size: int,
    payload_bytes: int,
    put: int,
    taken: int,
    high: int | None,
    low: int | None,
    put_time: int,
    take_time: int,
    delay: float | None,
) -> None:
    samples.add(QUEUE_RECORDS, size, queue=name)
    samples.add(QUEUE_BYTES, payload_bytes, queue=name)
    samples.add(QUEUE_PUT, put, queue=name)
    samples.add(QUEUE_TAKEN, taken, queue=name)
    samples.add(QUEUE_HIGH, high, queue=name)
    samples.add(QUEUE_LOW, low, queue=name)
    samples.add(QUEUE_PUT_TIME, _seconds(put_time or None), queue=name)
    samples.add(QUEUE_TAKE_TIME, _seconds(take_time or None), queue=name)
    if delay is not None:
        samples.add(QUEUE_DELAY, delay * taken, "_sum", queue=name)
        samples.add(QUEUE_DELAY, taken, "_count", queue=name)


def _add_segments(samples: Samples, segments: list[SegmentState]) -> None:
    samples.add(SEGMENTS, len(segments))
    samples.add(DISK_BYTES, sum(segment.length for segment in segments))
    samples.add(LIVE_BYTES, sum(segment.live_bytes for segment in segments))


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / _SECOND


def _lines(metric: Metric, samples: list[Sample]) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.help}\n"
    yield f"# TYPE {metric.name} {metric.kind}\n"
    for suffix, labels, value in samples:
        told = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
        braces = f"{{{told}}}" if told else ""
        yield f"{metric.name}{suffix}{braces} {_number(value)}\n"


def _escaped(text: str) -> str:
    # A path may hold bytes that are no text, which no scraper takes.
    text = text.encode(errors="backslashreplace").decode()
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
