"""One queue among those of a store: its options, and what it adds to a line."""

from __future__ import annotations

import asyncio
import copy
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from fifoq.attributes import Attributes
from fifoq.codec import Codec
from fifoq.committer import Committer
from fifoq.histogram import Histogram
from fifoq.jobs import Waiter
from fifoq.line import Line
from fifoq.options import LEVELS, MEMORY, Durability, QueueOptions
from fifoq.runs import Batch, Returned
from fifoq.shelf import Shelf
from store import FifoqError, Retention
from store.compression import compression_of
from store.state import QueueState

if TYPE_CHECKING:
    from fifoq.asyncio_queue import AsyncioQueue
    from fifoq.dedup import Dedup
    from fifoq.lease import Leases
    from fifoq.turns import Turn

T = TypeVar("T")

SMALL_BYTES: Final = 4096
"""Records up to this size are counted only when the window closes."""
DRAINING: Final = 1
AT_ONCE: Final = 2
"""What `_shutdown` is after an immediate one."""


class Closable(Protocol):
    """What a queue needs of the store that it opened."""

    async def close(self, timeout: float | None = None) -> None: ...


class Member(Line, Generic[T]):
    """One queue among those of a store."""

    __slots__ = (
        "_asyncio",
        "_bytes",
        "_committer",
        "_lost",
        "_putters",
        "_shelf_timer",
        "_shelf_timer_due",
        "_shutdown",
        "_state",
        "_takers",
        "_trouble",
        "_written",
        "absent",
        "arriving",
        "blocked",
        "blocked_count",
        "codec",
        "dedup",
        "due",
        "expired_count",
        "fast",
        "fetching",
        "keys_out",
        "leasing",
        "level",
        "options",
        "owner",
        "picky",
        "pressed",
        "shelf",
        "stops",
        "takes_plain_bytes",
        "totals",
        "unlimited",
    )

    def __init__(
        self, committer: Committer, state: QueueState, options: QueueOptions, codec: Codec[T]
    ) -> None:
        genesis = state.genesis
        super().__init__(
            state.name,
            next_counter=genesis.next_counter,
            floor=genesis.floor,
            size=genesis.queue_size,
            last_put_time=genesis.last_put_time,
        )
        self.high, self.high_time = genesis.high_water_mark, genesis.high_water_time
        self.low, self.low_time = genesis.low_water_mark, genesis.low_water_time
        self.totals = copy.copy(genesis)
        """As of opening."""
        self._state = state
        self._lost = genesis.total_put_count - genesis.total_take_count - genesis.queue_size
        self._committer = committer
        self.codec = codec
        self._takers: deque[Turn] = deque()
        self._putters: dict[asyncio.Future[None], tuple[int, int] | None] = {}
        """Those who wait to put, in order: how many records of which size, None to look only."""
        self._shutdown = 0
        self._asyncio: AsyncioQueue[T] | None = None
        self.pressed = False
        self.absent: set[int] = set()
        """Records that nobody had come to when somebody picked them."""
        self.arriving = 0
        """Records of joints that wait for their frame."""
        self._trouble: FifoqError | None = None
        self._bytes = self._written = genesis.queue_bytes
        self.owner: Closable | None = None
        """The store, if closing the queue closes it."""
        self.dedup: Dedup | None = None
        """Ids of puts, once there was one."""
        self.leasing: Leases[T]
        self.shelf = Shelf()
        self._shelf_timer: asyncio.TimerHandle | None = None
        self._shelf_timer_due = 0
        self.due: list[int] = []
        """Records that wait no more and are only on disk; a heap."""
        self.fetching: set[int] = set()
        """Records that belong to their places and are being read."""
        self.picky = False
        """Some records must be looked at before somebody gets them."""
        self.stops: list[int] = []
        """Records of a strict queue that wait for their next attempt, and that nobody passes."""
        self.keys_out: dict[bytes, int] = {}
        """Ordering keys, and the record of each that is handed out or on its way back."""
        self.blocked: dict[bytes, list[int]] = {}
        """Records that wait for such a key, a heap for each."""
        self.blocked_count = 0
        self.expired_count = 0
        self.options = options

    def use(self, options: QueueOptions) -> None:
        self.close_windows()
        # What was taken so far counts, or does not, by the settings of then.
        self.close_run()
        if options.max_bytes is not None and self.options.max_bytes is None:
            # Nobody counted them while there was no limit.
            self.leasing.hand_over()
            self._bytes = self._written + self.unwritten_bytes()
        self.options = options
        if self.dedup is not None:
            self.dedup.seconds = options.dedup_window
        self.level = LEVELS[options.durability]
        self.picky = self.picky or options.strict
        self.fast = self.level == MEMORY and options.max_bytes is None and not self.picky
        self.drops_expired = options.on_expire == "drop"
        self.takes_plain_bytes = not self.codec.typed and options.max_item_bytes >= SMALL_BYTES
        self.unlimited = (
            self.takes_plain_bytes
            and self.level > MEMORY
            and options.maxsize is options.max_bytes is options.pressure_high is None
        )
        # Here and now, and not in the log's own time: what is removed from now on goes by it.
        keep_removed(self._state, options.retention)
        compression = compression_of(options.compression, options.compression_level)
        self._state.compress_by(compression)
        if not options.statistics:
            self.delays = None
        elif self.delays is None:
            self.delays = Histogram()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "shut down" if self._shutdown else "open"
        return f"<Queue {self.name!r} depth={len(self)} leased={self.leasing.count} {state}>"

    @property
    def closed(self) -> bool:
        return self._committer.closed

    @property
    def closing(self) -> bool:
        """Whether the store is closed or being closed."""
        return self._committer.closed or self._committer.closing

    @property
    def shut_down(self) -> bool:
        """Whether it takes no more records."""
        return bool(self._shutdown)

    @property
    def durability(self) -> Durability:
        return self.options.durability

    def byte_count(self) -> int:
        """Bytes of the records that are there, as far as commits and limits know."""
        return (
            self._bytes if self.options.max_bytes is not None else self._state.genesis.queue_bytes
        )

    def bytes_went(self, count: int) -> None:
        """Payload bytes are gone for good, or are about to be given back."""
        self._bytes -= count

    def touch(self) -> None:
        """Have what changed in memory written in time."""
        options, committer = self.options, self._committer
        committer.touch(self, options.flush_interval if options.auto_flush else None)
        if options.auto_flush and (
            len(self.tail) >= options.buffer_size or self.tail_bytes >= options.buffer_bytes
        ):
            committer.commit_soon()

    async def next_commit(self) -> None:
        """Wait until what changed so far is written."""
        committer = self._committer
        committer.require_usable()
        waiter = Waiter(committer.loop.create_future(), self)
        committer.touch(self, None)
        committer.wait(waiter, MEMORY)
        await waiter.future

    # The line, with what a queue adds to it.

    def __len__(self) -> int:
        """Records that are there: ready, leased and delayed."""
        return self.next - self.head + self.bias

    def seal(self, *, puts: bool = True) -> Batch:
        self.leasing.hand_over()
        batch = super().seal(puts=puts)
        if self.dedup is not None and batch.upto:
            states = self.dedup.seal(batch, self._committer.loop.time())
            batch.marks.update((-at, entry) for at, entry in enumerate(states, 1))
        return batch

    def unseal(self) -> None:
        if self.dedup is not None and self.sealed is not None:
            self.dedup.unseal(self.sealed)
            marks = self.sealed.marks
            # Those of ids are made anew for the next frame.
            self.sealed.marks = {counter: marks[counter] for counter in marks if counter >= 0}
        super().unseal()

    @property
    def only_puts(self) -> bool:
        return not (self.leasing.given or self.leasing.acked) and super().only_puts

    @property
    def dirty(self) -> bool:
        return bool(self.leasing.given or self.leasing.acked) or super().dirty

    def confirm(self) -> None:
        now = time.time_ns()
        self.note_size(now)
        super().confirm()
        self.note_size(now)
        self._written = self._state.genesis.queue_bytes

    def withdraw(self, first: int, count: int) -> bool:
        dedup = self.dedup
        if dedup is not None and first >= self.tail_first and not dedup.leave(first):
            # Somebody else put the same, and still wants it.
            return True
        at = max(0, first - self.tail_first)
        size = sum(len(payload or b"") for payload in self.tail[at : at + count])
        withdrawn = super().withdraw(first, count)
        if withdrawn:
            self._bytes -= size
        return withdrawn

    def expect(self, count: int) -> None:
        self.close_windows()
        self.arriving += count

    def arrive(self, payload: bytes, attributes: Attributes | None) -> tuple[int, int]:
        if self.options.max_bytes is not None:
            self._bytes += len(payload)
        return super().arrive(payload, attributes)

    def depart(self, records: Sequence[tuple[Returned, int]], now: int) -> None:
        super().depart(records, now)
        self._bytes -= sum(len(record.payload) for record, _ in records)
        self.taken_time = now

    def stay(self, record: Returned) -> None:
        super().stay(record)
        self._bytes += len(record.payload)

    def come_restored(self, records: list[Returned]) -> None:
        super().come_restored(records)
        for record in records:
            attempts = self.leasing.attempts_of(record.counter)
            if attempts:
                # The log forgot them with the record.
                self.leases[record.counter] = attempts

    def come_back(self, record: Returned) -> None:
        """Give back what was never away from the size of the queue."""
        self.bytes_went(len(record.payload))
        self.give_back(record)
        self.bias -= 1

    def give_back(self, record: Returned) -> None:
        # The size turns here: what it was must be seen, and no window may pass the record by.
        self.look(time.time_ns())
        super().give_back(record)
        self._bytes += len(record.payload)


def keep_removed(state: QueueState, retention: str | Retention) -> None:
    """Let the queue's removed records stay as long as its option says."""
    state.retention = retention if isinstance(retention, Retention) else None
    state.retained = retention != "acked"
