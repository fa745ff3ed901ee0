"""Durable queues and durable actors for asyncio, in the process, with no server.

async with fifoq.open("data/orders") as q:
    await q.put(b"hello")
    item = await q.take()
"""

from fifoq._shadow import check_packages

check_packages()

from actors import Actor, Context, Ref  # noqa: E402
from fifoq.asyncio_queue import AsyncioQueue  # noqa: E402
from fifoq.attributes import PutKeywords  # noqa: E402
from fifoq.browse import Record  # noqa: E402
from fifoq.compacting import Compacted  # noqa: E402
from fifoq.cursor import Cursor, Lag  # noqa: E402
from fifoq.dead_letters import DeadLetter, DeadLetters  # noqa: E402
from fifoq.delivery import Delivery, Leasing, LeasingMany  # noqa: E402
from fifoq.durable import ActorSystem, AskFailed, DurableMailbox  # noqa: E402
from fifoq.errors import (  # noqa: E402
    QueueClosed,
    QueueEmpty,
    QueueFull,
    QueueShutDown,
    SchemaMismatch,
    StaleLease,
    WrongLoop,
)
from fifoq.explain import Event, Explanation  # noqa: E402
from fifoq.holding import ConsumerStats  # noqa: E402
from fifoq.keys import Keys  # noqa: E402
from fifoq.options import QueueOptions, StoreOptions  # noqa: E402
from fifoq.pins import Pin  # noqa: E402
from fifoq.queue import Queue  # noqa: E402
from fifoq.readonly import ReadOnlyQueue, ReadOnlyStore  # noqa: E402
from fifoq.receipt import Receipt  # noqa: E402
from fifoq.recurring import Schedule  # noqa: E402
from fifoq.stats import QueueStats  # noqa: E402
from fifoq.store import Opening, Store, open, open_store  # noqa: E402
from fifoq.topic import Topic  # noqa: E402
from fifoq.transaction import Transaction  # noqa: E402
from fifoq.view import ReadOnlyStats  # noqa: E402
from store import (  # noqa: E402
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
    "Opening",
    "Pin",
    "PutKeywords",
    "Quarantine",
    "Queue",
    "QueueClosed",
    "QueueEmpty",
    "QueueFull",
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
    "StoreOptions",
    "Topic",
    "Transaction",
    "WrongLoop",
    "open",
    "open_store",
]
