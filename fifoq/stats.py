"""Statistics: a frozen snapshot of one queue and of the store that it shares."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec

from fifoq.histogram import Histogram
from fifoq.holding import ConsumerStats
from fifoq.pins import Pin

if TYPE_CHECKING:
    from fifoq.committer import Committer
    from fifoq.queue import Queue

_SECOND = 1e9


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """One queue at one moment. Times are nanoseconds since the epoch, delays are seconds.

    Water marks are None until the first put. Delays are None without `statistics`, or before
    anything was taken.
    """

    name: str
    current_size: int
    ready: int
    leased: int
    delayed: int
    expired: int
    dead_lettered: int
    duplicates: int
    ack_floor: int
    high_water_mark: int | None
    high_water_time: int
    low_water_mark: int | None
    low_water_time: int
    last_put_time: int
    last_take_time: int
    total_put_count: int
    total_take_count: int
    average_delay: float | None
    delay_p50: float | None
    delay_p95: float | None
    delay_p99: float | None
    bytes: int
    under_pressure: bool
    commits: int
    records_per_commit: float | None
    linger_turns: int
    fsync_p50: float | None
    fsync_p99: float | None
    segments: int
    errors: int
    writer: str
    consumers: tuple[ConsumerStats, ...]
    pins: tuple[Pin, ...]


def collect(queue: Queue[Any], committer: Committer) -> QueueStats:
    """The snapshot. Reads what the last commit left and what has happened in memory since."""
    totals = queue.totals
    put_count, take_count, last_take = queue.counts()
    delays = queue.delays
    log = committer.log
    return QueueStats(
        name=queue.name,
        current_size=len(queue),
        ready=queue.ready_count,
        leased=queue.leasing.count,
        delayed=queue.waiting_count,
        expired=queue.expired_count,
        dead_lettered=queue.leasing.burials.count,
        duplicates=queue.dedup.hits if queue.dedup is not None else 0,
        ack_floor=queue.removed_upto,
        high_water_mark=queue.high,
        high_water_time=queue.high_time,
        low_water_mark=queue.low,
        low_water_time=queue.low_time,
        last_put_time=queue.put_time,
        last_take_time=max(last_take, totals.last_take_time),
        total_put_count=put_count,
        total_take_count=take_count,
        average_delay=_average(queue),
        delay_p50=_seconds(delays, 0.50),
        delay_p95=_seconds(delays, 0.95),
        delay_p99=_seconds(delays, 0.99),
        bytes=queue.byte_count(),
        under_pressure=queue.pressed,
        commits=committer.commit_count,
        records_per_commit=(
            committer.record_count / committer.commit_count if committer.commit_count else None
        ),
        linger_turns=committer.linger_turns,
        fsync_p50=_seconds(committer.syncs, 0.50),
        fsync_p99=_seconds(committer.syncs, 0.99),
        segments=len(log.state.segments) if log is not None else 0,
        errors=committer.error_count,
        writer=committer.runner.kind if committer.runner is not None else "",
        consumers=committer.consumers.of(queue.name, queue.next, time.time_ns()),
        pins=committer.pins(queue.name, queue.leasing.held),
    )


def _average(queue: Queue[Any]) -> float | None:
    totals = queue.totals
    count = totals.total_take_count + queue.delay_count
    if queue.delays is None or not count:
        return None
    return (totals.total_delay_ns + queue.delay_total_ns) / count / _SECOND


def _seconds(histogram: Histogram | None, share: float) -> float | None:
    value = histogram.percentile(share) if histogram is not None else None
    return None if value is None else value / _SECOND


async def watch(queue: Queue[Any], interval: float) -> AsyncIterator[QueueStats]:
    """See Queue.watch."""
    if not interval > 0:
        raise ValueError(f"interval={interval} is not above 0")
    while not queue.closing:
        yield queue.stats()
        await queue.until_closed(interval)
