"""The crash-safe record log below fifoq: one directory, many queues, one commit for all of them.

Knows files and bytes; knows no asyncio and no actors. `open_log` gives the owner's `Log`, which one
thread at a time may use; a `Reader` reads beside it from any process.
"""

from store.begun import Begun
from store.blocks import RecordBlock
from store.draft import Draft
from store.errors import (
    AccessError,
    AlreadyOpen,
    ConcurrentUse,
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
    StaleDraft,
    StoreClosed,
    StoreFailed,
)
from store.filling import Filling
from store.keys import Key
from store.life import Status
from store.log import Log
from store.opening import open_log
from store.options import LogOptions, Retention
from store.reader import Reader

__all__ = [
    "AccessError",
    "AlreadyOpen",
    "Begun",
    "ConcurrentUse",
    "CorruptionError",
    "CounterExhausted",
    "DamageError",
    "DiskFull",
    "Draft",
    "DurabilityError",
    "FifoqError",
    "Filling",
    "ForkError",
    "FormatError",
    "InvalidName",
    "ItemTooLarge",
    "Key",
    "Log",
    "LogOptions",
    "Quarantine",
    "RangeGone",
    "Reader",
    "RecordBlock",
    "Retention",
    "StaleDraft",
    "Status",
    "StoreClosed",
    "StoreFailed",
    "open_log",
]
