"""The same queues for blocking code and for any number of threads.

with fifoq.sync.open("data/orders") as q:
    q.put(b"hello")
    item = q.take(timeout=1.0)

Each open store has a thread of its own that runs its event loop (uvloop's, where it is installed).
One thread for all stores would be one less here and there, but a store that is slow or busy would
hold up the others, and nobody could say when that thread ends; this one ends with its store. All
calls may be made from any thread, also from one that runs an event loop of its own, which is
blocked meanwhile. Ctrl-C in a call that waits cancels it first: a record that was about to be taken
stays in the queue. A store that nobody closed is closed when the interpreter ends, so what was put
in memory is written then. The child of a fork must open its own: calls raise ForkError.
"""

from fifoq.sync.cursor import Cursor
from fifoq.sync.dead_letters import DeadLetters
from fifoq.sync.delivery import Delivery
from fifoq.sync.opening import open, open_store
from fifoq.sync.queue import Queue
from fifoq.sync.readonly import ReadOnlyQueue, ReadOnlyStore
from fifoq.sync.store import Store
from fifoq.sync.topic import Topic
from fifoq.sync.transaction import Transaction

__all__ = [
    "Cursor",
    "DeadLetters",
    "Delivery",
    "Queue",
    "ReadOnlyQueue",
    "ReadOnlyStore",
    "Store",
    "Topic",
    "Transaction",
    "open",
    "open_store",
]
