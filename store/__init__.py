"""The crash-safe record log below fifoq: one directory, many queues, one commit for all of them.

Knows files and bytes; knows no asyncio and no actors. `open_log` gives the owner's `Log`.
"""

from store.errors import (
    AccessError,
    AlreadyOpen,
    CorruptionError,
    CounterExhausted,
    DamageError,
    DiskFull,
    DurabilityError,
    FifoqError,
    ForkError,
    FormatError,
    InvalidName,
    ItemTooLarge,
    Quarantine,
    RangeGone,
    StoreClosed,
    StoreFailed,
)
from store.keys import Key
from store.log import Log, Status
from store.opening import open_log
from store.options import LogOptions, Retention

__all__ = [
    "AccessError",
    "AlreadyOpen",
    "CorruptionError",
    "CounterExhausted",
    "DamageError",
    "DiskFull",
    "DurabilityError",
    "FifoqError",
    "ForkError",
    "FormatError",
    "InvalidName",
    "ItemTooLarge",
    "Key",
    "Log",
    "LogOptions",
    "Quarantine",
    "RangeGone",
    "Retention",
    "Status",
    "StoreClosed",
    "StoreFailed",
    "open_log",
]
