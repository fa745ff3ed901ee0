"""Durable queues and durable actors for asyncio, in the process, with no server.

async with fifoq.open("data/orders") as q:
    await q.put(b"hello")
    item = await q.take()
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

from fifoq._shadow import check_packages

check_packages()

if TYPE_CHECKING:
    from actors import Actor, Context, Ref
    from fifoq.asyncio_queue import AsyncioQueue
    from fifoq.attributes import PutKeywords
    from fifoq.browse import Record
    from fifoq.compacting import Compacted
    from fifoq.cursor import Cursor, Lag
    from fifoq.dead_letters import DeadLetter, DeadLetters
    from fifoq.delivery import Delivery, Leasing, LeasingMany
    from fifoq.durable import ActorSystem, AskFailed, DurableMailbox
    from fifoq.errors import (
        QueueClosed,
        QueueEmpty,
        QueueFull,
        QueueShutDown,
        SchemaMismatch,
        StaleLease,
        WrongLoop,
    )
    from fifoq.explain import Event, Explanation
    from fifoq.holding import ConsumerStats
    from fifoq.keys import Keys
    from fifoq.keywords import OpenKeywords, QueueKeywords, StoreKeywords
    from fifoq.opening import Opening, open, open_store
    from fifoq.options import QueueOptions, StoreOptions
    from fifoq.pins import Pin
    from fifoq.queue import Queue
    from fifoq.readonly import ReadOnlyQueue, ReadOnlyStore
    from fifoq.receipt import Receipt
    from fifoq.recurring import Schedule
    from fifoq.stats import QueueStats
    from fifoq.store import Store
    from fifoq.topic import Topic
    from fifoq.transaction import Transaction
    from fifoq.view import ReadOnlyStats
    from store import (
        AccessError,
        AlreadyOpen,
        CorruptionError,
        CounterExhausted,
        DiskFull,
        DurabilityError,
        FifoqError,
        ForkError,
        FormatError,
        InvalidName,
        ItemTooLarge,
        Key,
        Quarantine,
        RangeGone,
        Retention,
        StoreClosed,
        StoreFailed,
    )

_HOMES: Final = {
    "actors": ("Actor", "Context", "Ref"),
    "fifoq.asyncio_queue": ("AsyncioQueue",),
    "fifoq.attributes": ("PutKeywords",),
    "fifoq.browse": ("Record",),
    "fifoq.compacting": ("Compacted",),
    "fifoq.cursor": ("Cursor", "Lag"),
    "fifoq.dead_letters": ("DeadLetter", "DeadLetters"),
    "fifoq.delivery": ("Delivery", "Leasing", "LeasingMany"),
    "fifoq.durable": ("ActorSystem", "AskFailed", "DurableMailbox"),
    "fifoq.errors": (
        "QueueClosed",
        "QueueEmpty",
        "QueueFull",
        "QueueShutDown",
        "SchemaMismatch",
        "StaleLease",
        "WrongLoop",
    ),
    "fifoq.explain": ("Event", "Explanation"),
    "fifoq.holding": ("ConsumerStats",),
    "fifoq.keys": ("Keys",),
    "fifoq.keywords": ("OpenKeywords", "QueueKeywords", "StoreKeywords"),
    "fifoq.opening": ("Opening", "open", "open_store"),
    "fifoq.options": ("QueueOptions", "StoreOptions"),
    "fifoq.pins": ("Pin",),
    "fifoq.queue": ("Queue",),
    "fifoq.readonly": ("ReadOnlyQueue", "ReadOnlyStore"),
    "fifoq.receipt": ("Receipt",),
    "fifoq.recurring": ("Schedule",),
    "fifoq.stats": ("QueueStats",),
    "fifoq.store": ("Store",),
    "fifoq.topic": ("Topic",),
    "fifoq.transaction": ("Transaction",),
    "fifoq.view": ("ReadOnlyStats",),
    "store": (
        "AccessError",
        "AlreadyOpen",
        "CorruptionError",
        "CounterExhausted",
        "DiskFull",
        "DurabilityError",
        "FifoqError",
        "ForkError",
        "FormatError",
        "InvalidName",
        "ItemTooLarge",
        "Key",
        "Quarantine",
        "RangeGone",
        "Retention",
        "StoreClosed",
        "StoreFailed",
    ),
}
"""Where each name is from. It is imported when it is first used: most programs need a part."""
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}

__version__ = "0.1.0.dev0"

__all__ = [
    "AccessError",
    "Actor",
    "ActorSystem",
    "AlreadyOpen",
    "AskFailed",
    "AsyncioQueue",
    "Compacted",
    "ConsumerStats",
    "Context",
    "CorruptionError",
    "CounterExhausted",
    "Cursor",
    "DeadLetter",
    "DeadLetters",
    "Delivery",
    "DiskFull",
    "DurabilityError",
    "DurableMailbox",
    "Event",
    "Explanation",
    "FifoqError",
    "ForkError",
    "FormatError",
    "InvalidName",
    "ItemTooLarge",
    "Key",
    "Keys",
    "Lag",
    "Leasing",
    "LeasingMany",
    "OpenKeywords",
    "Opening",
    "Pin",
    "PutKeywords",
    "Quarantine",
    "Queue",
    "QueueClosed",
    "QueueEmpty",
    "QueueFull",
    "QueueKeywords",
    "QueueOptions",
    "QueueShutDown",
    "QueueStats",
    "RangeGone",
    "ReadOnlyQueue",
    "ReadOnlyStats",
    "ReadOnlyStore",
    "Receipt",
    "Record",
    "Ref",
    "Retention",
    "Schedule",
    "SchemaMismatch",
    "StaleLease",
    "Store",
    "StoreClosed",
    "StoreFailed",
    "StoreKeywords",
    "StoreOptions",
    "Topic",
    "Transaction",
    "WrongLoop",
    "open",
    "open_store",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """A name that is used for the first time."""
        home = _HOME_OF.get(name)
        if home is None:
            raise AttributeError(f"module 'fifoq' has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(home), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
