"""What putting and taking share: a queue's place in its store, its limits, and who waits."""

from __future__ import annotations

import asyncio
import contextlib
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
from fifoq.runs import COLUMN_BYTES, Batch, Returned
from fifoq.shelf import Shelf
from store import FifoqError, ItemTooLarge, Retention
from store.compression import compression_of
from store.state import QueueState

if TYPE_CHECKING:
    from fifoq.asyncio_queue import AsyncioQueue
    from fifoq.dedup import Dedup
    from fifoq.lease import Leases

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
        "_append",
        "_asyncio",
        "_bytes",
        "_committer",
        "_lost",
        "_new_future",
        "_pop",
        "_putters",
        "_shelf_timer",
        "_shelf_timer_at",
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
        self._append = self.tail.append
        self._pop = self.ready.popleft
        self._new_future = committer.loop.create_future
        self._takers: deque[asyncio.Future[None]] = deque()
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
        self._shelf_timer_at = 0.0
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

    def look(self, now: int) -> None:
        self.leasing.acks_pass = False
        super().look(now)

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

    # Limits.

    def _fits(self, count: int, size: int) -> bool:
        options = self.options
        if options.maxsize is not None:
            if count > options.maxsize:
                raise ItemTooLarge(
                    f"queue {self.name!r}: {count} records at once never fit into "
                    f"maxsize={options.maxsize}. Nothing was stored."
                )
            if self._depth() + count > options.maxsize and count:
                return False
        if options.max_bytes is not None:
            payload = size - COLUMN_BYTES * count
            if payload > options.max_bytes:
                raise too_large(self.name, payload, options.max_bytes)
            return self._bytes + payload <= options.max_bytes or not payload
        return True

    def _fits_exactly(self, payloads: Sequence[bytes]) -> bool:
        return self._fits(len(payloads), sum(map(len, payloads)) + COLUMN_BYTES * len(payloads))

    def _depth(self) -> int:
        """Records, those included that nobody may take before their commit."""
        sealed = self.sealed.hidden if self.sealed is not None else 0
        return len(self) + self.hidden + sealed + self.arriving

    def _has_room(self) -> bool:
        maxsize, max_bytes = self.options.maxsize, self.options.max_bytes
        return (
            (maxsize is None or self._depth() < maxsize)
            and (max_bytes is None or self._bytes < max_bytes)
            and not self._under_pressure()
        )

    def _under_pressure(self) -> bool:
        high = self.options.pressure_high
        if high is None:
            return False
        low = self.options.pressure_floor()
        assert low is not None
        depth = self._depth()
        self.pressed = depth > low if self.pressed else depth >= high
        return self.pressed

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

    # Waking.

    def records_came(self) -> None:
        if self._takers and (self._committer.failure is not None or self.closed):
            wake_all(self._takers)
            self._wake_putters()
        elif self._takers and self.has_ready():
            wake_one(self._takers)
        elif self._takers:
            self.read_on()
        if self._committer.failure is not None:
            self._wake_putters()
        elif self._putters:
            # What came may be dropped for what waits.
            self._pass_on_room()

    def records_went(self) -> None:
        """Let those who wait to put look again, and the next taker if there is more."""
        if self._putters and not self._under_pressure():
            self._wake_putter()
        if self._takers and self.has_ready():
            wake_one(self._takers)
        elif self._shutdown and not self._depth():
            wake_all(self._takers)

    def read_ended(self, error: FifoqError | None) -> None:
        self._trouble = error
        if error is not None:
            wake_all(self._takers)
            self._wake_putters()
        else:
            self.records_came()

    @property
    def lacks(self) -> bool:
        """Whether what comes next in the line is only on disk."""
        return self.gap is not None and not self.chunks and self.head >= self.run_end

    def read_on(self) -> None:
        """Have it read then. Not more: nobody may want what is there for long."""
        if self.lacks:
            self._committer.request_read(self)

    @property
    def has_putters(self) -> bool:
        """Whether somebody must hear of an ack: putters, or takers after a shutdown."""
        return bool(self._putters or self._shutdown)

    def _pass_on_room(self) -> None:
        """One wake-up stands for all the room there is: the next in line may fit as well."""
        room = self._fits(1, COLUMN_BYTES)
        if not room and self.options.overflow == "drop-oldest":
            room = self.has_ready()
        if room and not self._under_pressure():
            self._wake_putter()

    def _wake_putter(self) -> None:
        """Let the first go on whose records fit; those that are too many yet keep their place."""
        for future, need in self._putters.items():
            if not future.done() and (need is None or self._may_fit(*need)):
                del self._putters[future]
                future.set_result(None)
                return

    def _may_fit(self, count: int, size: int) -> bool:
        """Whether it is worth another look, be it only to hear that they never will."""
        try:
            return self.options.overflow == "drop-oldest" or self._fits(count, size)
        except ItemTooLarge:
            return True

    def _wake_putters(self) -> None:
        waiting, self._putters = self._putters, {}
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def _wait_for_room(self, need: tuple[int, int] | None) -> None:
        future = self._committer.loop.create_future()
        self._putters[future] = need
        try:
            await future
        except BaseException:
            if future in self._putters:
                del self._putters[future]
            else:
                # It was our turn, and we leave: somebody else must not sleep through it.
                self._wake_putter()
            raise

    async def _wait_turn(
        self, waiting: deque[asyncio.Future[None]], future: asyncio.Future[None]
    ) -> None:
        try:
            await future
        except BaseException:
            if future.done() and not future.cancelled():
                # It was our turn, and we leave: somebody else must not sleep through it.
                wake_one(waiting)
            else:
                with contextlib.suppress(ValueError):
                    waiting.remove(future)
            raise

    def store_closed(self) -> None:
        self.close_windows()
        self.leasing.stop()
        self._wake_putters()
        wake_all(self._takers)

    # The line, with what a queue adds to it.

    def __len__(self) -> int:
        """Records that are there: ready, leased and delayed."""
        return self.next - self.head + self.bias

    def close_windows(self) -> None:
        super().close_windows()
        self.leasing.acks_pass = False

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


def wake_one(waiting: deque[asyncio.Future[None]]) -> None:
    while waiting:
        future = waiting.popleft()
        if not future.done():
            future.set_result(None)
            return


def wake_all(waiting: deque[asyncio.Future[None]]) -> None:
    while waiting:
        wake_one(waiting)


def too_large(name: str, size: int, limit: int) -> ItemTooLarge:
    return ItemTooLarge(
        f"queue {name!r}: a record of {size} bytes is over the limit of {limit}. "
        f"Nothing was stored."
    )
