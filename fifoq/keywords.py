"""Keywords of opening, for editors and type checkers: the options of queues and of stores.

`QueueOptions` and `StoreOptions` say what they mean; names and types are the same, as a test holds.
"""

from __future__ import annotations

from typing import TypedDict

from fifoq.options import Algorithm, Durability, Kept, OnExpire, Overflow
from fifoq.world import MakeRunner
from store import Retention
from store.files import Clock, Files
from store.opening import Recover


class QueueKeywords(TypedDict, total=False):
    """Options of a queue, for wrappers: `**options: Unpack[QueueKeywords]`."""

    durability: Durability
    buffer_size: int
    buffer_bytes: int
    flush_interval: float
    auto_flush: bool
    statistics: bool
    maxsize: int | None
    max_bytes: int | None
    overflow: Overflow
    pressure_high: int | None
    pressure_low: int | None
    max_item_bytes: int
    lease_seconds: float
    max_retries: int | None
    retry_backoff: float
    retry_backoff_max: float
    strict: bool
    priorities: bool
    priority_aging: float | None
    priority_weights: tuple[int, ...] | None
    on_expire: OnExpire
    retention: Kept | Retention
    compression: Algorithm | None
    compression_level: int | None
    dedup_window: float


class StoreKeywords(TypedDict, total=False):
    """Options of a store, for wrappers: `**options: Unpack[StoreKeywords]`."""

    segment_bytes: int
    segment_records: int
    segment_seconds: float
    sync_interval: float | None
    sync_every: int | None
    cursor_cap_bytes: int


class OpenKeywords(QueueKeywords, StoreKeywords, total=False):
    """What `fifoq.open` takes beside path, type and queue."""

    recover: Recover
    files: Files | None
    clock: Clock | None
    runner: MakeRunner | None
