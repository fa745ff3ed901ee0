"""Transactions: puts, leases and acks over queues of one store that are one frame, or nothing."""

from __future__ import annotations

from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from fifoq.attributes import Attributes, PutKeywords, size_of
from fifoq.burying import bury, refuse_burial
from fifoq.delivery import Delivery, Leasing
from fifoq.joint import Joint
from fifoq.options import OS
from fifoq.runs import COLUMN_BYTES, FRAME_BYTES_MAX, LINES_PER_FRAME_MAX
from store import FifoqError, ItemTooLarge, Key
from store.blocks import ACKED

if TYPE_CHECKING:
    from fifoq.committer import Committer
    from fifoq.putting import Putting
    from fifoq.queue import Queue

    Needs = list[tuple[Putting[Any], int, int]]

T = TypeVar("T")


class Transaction:
    """What `Store.transaction` gives, for one `async with`.

    Nothing that is put or acked in the block happens before its end: then all of it is committed in
    one frame, at the strongest durability among its queues. After an exception, a cancellation, or
    an error of the commit itself, nothing of it happened, and what was leased in the block is back
    at its place; the attempt counts. Cancelled while the frame is being written, it is committed.

    A commit that puts into a full queue waits for room, as `put` does, with what the transaction
    itself removes counted; with `overflow="fail"` or "drop-newest" it raises QueueFull.
    """

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._state = "new"
        self._joint = Joint(level=OS)
        self._queues: dict[str, Putting[Any]] = {}
        self._leased: list[Delivery[Any]] = []
        self._acked: list[Delivery[Any]] = []
        self._nacked: list[Delivery[Any]] = []
        self._rejected: list[Delivery[Any]] = []
        self._reasons: list[str] = []
        self._put_count = 0
        self.keys: list[Key] = []
        """Of the records put, in the order of the puts, once the block has ended well."""

    def __repr__(self) -> str:
        return f"<Transaction puts={len(self._joint.puts)} acks={len(self._acked)} {self._state}>"

    async def __aenter__(self) -> Transaction:
        self._committer.require_usable()
        if self._state != "new":
            raise RuntimeError(f"the transaction is {self._state}. Begin a new one.")
        self._state = "open"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self._roll_back(error)
            return
        try:
            await self._commit()
        except BaseException as failure:
            self._roll_back(failure)
            raise

    def put(self, queue: Putting[T], item: T, **options: Unpack[PutKeywords]) -> None:
        """Put a record when the transaction commits. Keywords as for `Queue.put`.

        With a `dedup_id` that is known by then nothing is stored, and `keys` has the first key. The
        id is remembered with the transaction, or not at all.
        """
        self._require_open(queue)
        payload, attributes, level = queue._prepare(item, **options)
        self._put(queue, [(payload, attributes)], level)

    def _put(
        self, queue: Putting[Any], records: list[tuple[bytes, Attributes | None]], level: int
    ) -> None:
        size = self._joint.size
        for payload, attributes in records:
            size += len(payload) + size_of(attributes) + COLUMN_BYTES
        names = {*self._queues, queue.name}
        alone = len(records) == 1 and not self._joint.puts
        if (size > FRAME_BYTES_MAX and not alone) or len(names) > LINES_PER_FRAME_MAX:
            raise ItemTooLarge(
                f"a transaction of {size} bytes in {len(names)} queues is over the limits of "
                f"{FRAME_BYTES_MAX} and {LINES_PER_FRAME_MAX}. This is not in it. Put less at once."
            )
        for payload, attributes in records:
            self._joint.put(queue.name, payload, attributes)
        self._queues[queue.name] = queue
        self._joint.level = max(self._joint.level, level, queue.level)

    async def lease(
        self, queue: Queue[T], *, seconds: float | None = None, timeout: float | None = None
    ) -> Delivery[T]:
        """Hand out the oldest record until the transaction ends; waits for one.

        Unless it is acked here, it is back at its place then.
        """
        return await self.start(queue, queue.lease(seconds=seconds, timeout=timeout))

    async def start(self, queue: Queue[T], leasing: Leasing[T]) -> Delivery[T]:
        """The same for a lease that was asked for before."""
        self._require_open(queue)
        delivery = await leasing.start()
        if self._state != "open":
            delivery.nack(delay=0)
            self._require_open(queue)
        leasing.keep()
        self._leased.append(delivery)
        return delivery

    async def take(self, queue: Queue[T], *, timeout: float | None = None) -> T:
        """The oldest record, which is removed when the transaction commits; waits for one."""
        delivery = await self.lease(queue, timeout=timeout)
        self.ack(delivery)
        return delivery.item

    def ack(self, delivery: Delivery[Any]) -> None:
        """The record is done for good when the transaction commits.

        It may have been leased anywhere. StaleLease if that lease has ended, here or when the
        transaction commits.
        """
        self._settle(delivery, self._acked)
        self._joint.level = max(self._joint.level, delivery._leases.queue.level)

    def nack(self, delivery: Delivery[Any]) -> None:
        """The record is back at its place, for another attempt, when the transaction commits."""
        self._settle(delivery, self._nacked)

    def reject(self, delivery: Delivery[Any], reason: str = "") -> None:
        """The record goes to the dead letters of its queue when the transaction commits."""
        delivery._leases.require_removes()
        refuse_burial(delivery._leases.queue.name, reason)
        self._settle(delivery, self._rejected)
        self._reasons.append(reason)
        self._joint.level = max(self._joint.level, delivery._leases.queue.level)

    def _settle(self, delivery: Delivery[Any], into: list[Delivery[Any]]) -> None:
        delivery._leases.require_removes()
        self._require_open(delivery._leases.queue)
        delivery._leases._require_held(delivery)
        if delivery in (*self._acked, *self._nacked, *self._rejected):
            raise ValueError(
                f"{delivery!r} is settled in this transaction already. Nothing was changed."
            )
        into.append(delivery)

    def _require_open(self, queue: Putting[Any]) -> None:
        if self._state != "open":
            raise RuntimeError(
                f"the transaction is {self._state}: it can be used inside its `async with` alone. "
                f"Nothing was changed."
            )
        if queue._committer is not self._committer:
            raise ValueError(
                f"queue {queue.name!r} belongs to another store; a transaction is one frame of one "
                f"store. Nothing was changed."
            )
        self._committer.require_usable()

    # The end.

    async def _commit(self) -> None:
        self._state = "being committed"
        await self._wait_for_room()
        joint = self._joint
        for delivery in (*self._acked, *self._nacked, *self._rejected):
            # All before the first is parted with: a stale one must change nothing.
            delivery._leases._require_held(delivery)
        if not (joint.puts or self._acked or self._rejected):
            self._done()
            return
        self._put_count = len(joint.puts)
        for delivery in self._acked:
            leases = delivery._leases
            joint.remove(leases.queue, leases.part_with(delivery), ACKED)
        for delivery, reason in zip(self._rejected, self._reasons, strict=True):
            leases, attempts = delivery._leases, delivery.attempt
            record = leases.part_with(delivery)
            bury(joint, leases.queue, record, "rejected", attempts=attempts, reason=reason)
        joint.done, joint.undone = self._done, self._undone
        await self._committer.joints.commit(joint)

    async def _wait_for_room(self) -> None:
        """Until every queue can take what is put; nobody else runs between that and the commit."""
        committer = self._committer
        while True:
            committer.require_usable()
            if not committer.has_room(self._joint.size):
                await committer.wait_for_room()
                continue
            needs = self._needs()
            for queue, count, size in needs:
                if not queue._admits(count, size, self._joint.level):
                    _pass_on_room(needs)
                    await queue._wait_to_put(count, size)
                    break
                if queue.options.overflow == "drop-newest" and not queue._fits(count, size):
                    raise queue._full(count, size)
            else:
                _pass_on_room(needs)
                return

    def _needs(self) -> Needs:
        """Records and bytes that queues must have room for, less what the transaction removes."""
        counts, sizes = Counter[str](), Counter[str]()
        ids = set()
        for put in self._joint.puts:
            id = put.attributes.dedup_id if put.attributes is not None else b""
            if id:
                if (put.name, id) in ids or self._queues[put.name]._knows(id):
                    continue
                ids.add((put.name, id))
            counts[put.name] += 1
            sizes[put.name] += len(put.payload)
        for delivery in (*self._acked, *self._rejected):
            name = delivery._leases.queue.name
            counts[name] -= 1
            sizes[name] -= len(delivery._payload)
        needs = []
        for name, queue in self._queues.items():
            count = max(0, counts[name])
            needs.append((queue, count, max(0, sizes[name]) + COLUMN_BYTES * count))
        return needs

    def _done(self) -> None:
        self._state = "committed"
        self.keys = self._joint.keys[: self._put_count]
        for delivery in self._acked:
            delivery._leases.parted(delivery, "acked")
        for delivery in self._rejected:
            delivery._leases.parted(delivery, "dead-lettered")
            delivery._leases.burials.count += 1
        for delivery in self._nacked:
            if delivery.state == "leased":
                delivery.nack()
        self._give_back(None)

    def _undone(self, error: FifoqError | None) -> None:
        for delivery in (*self._acked, *self._rejected):
            delivery._leases.take_back(delivery)
        self._give_back(error)

    def _roll_back(self, error: BaseException) -> None:
        self._state = "rolled back"
        self._give_back(error)

    def _give_back(self, error: BaseException | None) -> None:
        """What was leased here is back at its place; what somebody else leased stays with them."""
        for delivery in self._leased:
            delivery.keeper = None
            delivery._leases.give_up(delivery, error)


def _pass_on_room(needs: Needs) -> None:
    """We may go on waiting elsewhere: nobody is to sleep through what room is left."""
    for queue, _, _ in needs:
        if queue._putters:
            queue._pass_on_room()
