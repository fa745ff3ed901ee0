"""Puts with an id: what was put before within the window is not put again.

A put that finds its id waits for the first one's commit and returns its key. Which ids are in the
window is for `dedup` to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from fifoq.attributes import NONE, checked_id
from fifoq.dedup import Known, digest_of
from fifoq.jobs import Waiter
from fifoq.keys import GivenKeys, Keys
from fifoq.options import MEMORY, SYNC
from fifoq.runs import COLUMN_BYTES
from fifoq.transaction import Transaction
from store import Key

if TYPE_CHECKING:
    from fifoq.attributes import PutKeywords, RecordKeywords
    from fifoq.options import Durability
    from fifoq.putting import Putting


async def put_once(queue: Putting[Any], item: Any, options: PutKeywords) -> Key:
    """`put` with a `dedup_id`."""
    once = _Once(queue, item, options)
    while once.known() is None:
        if not once.others_wait:
            key = await once.come_in()
            if key is not None:
                if key.counter and once.level:
                    await queue._committed(key.counter, 1, once.level)
                return key
        else:
            await once.wait_for_others()
    waiter = once.join()
    if waiter is not None:
        try:
            await waiter.future
        except BaseException:
            waiter.future.cancel()
            queue.take_back(waiter)
            raise
    return once.key


def put_once_now(
    queue: Putting[Any], item: Any, options: PutKeywords, *, level: int | None = None
) -> tuple[Key, Waiter | None]:
    """The same without waiting: the key, and who is told when it is committed, unless it is."""
    once = _Once(queue, item, options)
    if level is not None:
        once.level = level
    if once.known() is not None:
        return once.key, once.join()
    if not queue._admits(1, once.size, once.level, pressure=False):
        raise queue._full(1, once.size)
    key = once.store()
    if not (key.counter and once.level):
        return key, None
    return key, queue._waiter(key.counter, 1, once.level)


async def put_many_once(
    queue: Putting[Any],
    items: Iterable[Any],
    ids: Sequence[str | None] | None,
    keywords: RecordKeywords,
    durability: Durability | None,
) -> Keys:
    """`put_many` with ids: a transaction, so that nobody else's put is held up by one who leaves.

    TypeError or ValueError unless there is an id, or None, for each item: nothing was stored.
    """
    if ids is None or isinstance(ids, str | bytes) or "dedup_id" in keywords:
        raise TypeError(
            "put_many takes dedup_ids, a list with an id or None for each record. Nothing was "
            "stored."
        )
    payloads, _, _ = queue._prepare_many(items)
    if len(ids) != len(payloads):
        raise ValueError(
            f"{len(ids)} dedup_ids are given for {len(payloads)} records. Nothing was stored."
        )
    shared = queue._attributes_of(keywords)
    records = [
        (payload, shared if id is None else replace(shared or NONE, dedup_id=checked_id(id)))
        for payload, id in zip(payloads, ids, strict=True)
    ]
    transaction = Transaction(queue._committer)
    async with transaction:
        if records:
            transaction._put(queue, records, queue._level_of(durability))
    return GivenKeys(transaction.keys)


class _Once:
    """One put with an id."""

    def __init__(self, queue: Putting[Any], item: Any, options: PutKeywords) -> None:
        self._payload, self._attributes, self.level = queue._prepare(item, **options)
        assert self._attributes is not None
        self._id = digest_of(self._attributes.dedup_id)
        self.size = len(self._payload) + COLUMN_BYTES
        self._queue = queue
        self._dedup = queue.dedup or queue.remember_ids()
        self.key = Key(0, 0)

    def known(self) -> Known | None:
        """The first put with this id, if the window has it."""
        self._queue._committer.require_usable()
        known = self._dedup.find(self._id, self._now())
        if known is not None:
            self.key = Key(known.counter, known.time)
        return known

    @property
    def others_wait(self) -> bool:
        """Whether a put with the same id waits for room."""
        return self._id in self._dedup.coming

    async def wait_for_others(self) -> None:
        """Until it has come in, or has left."""
        future = self._queue._committer.loop.create_future()
        self._dedup.coming[self._id].append(future)
        await future

    async def come_in(self) -> Key | None:
        """Store the record as soon as there is room; None if somebody else came first."""
        queue, coming = self._queue, self._dedup.coming
        if queue._admits(1, self.size, self.level):
            return self._pass_on(self.store())
        coming[self._id] = []
        try:
            while True:
                await queue._wait_to_put(1, self.size)
                if self.known() is not None:
                    return self._pass_on(None)
                if queue._admits(1, self.size, self.level):
                    return self._pass_on(self.store())
        finally:
            for future in coming.pop(self._id):
                if not future.done():
                    future.set_result(None)

    def _pass_on(self, key: Key | None) -> Key | None:
        if self._queue._putters:
            self._queue._pass_on_room()
        return key

    def store(self) -> Key:
        queue = self._queue
        key = Key(*queue._store([self._payload], self._attributes, self.level))
        if key.counter:
            self._dedup.add(self._id, key.counter, key.timestamp, self._now())
        return key

    def join(self) -> Waiter | None:
        """Want the record of the first put as well; None if it is as durable as it must be.

        Until it is written, whoever put it may leave, or be refused: what it becomes then is what
        it becomes for us, and it stays as long as one of us waits for it.
        """
        queue, dedup, counter = self._queue, self._dedup, self.key.counter
        committer = queue._committer
        dedup.hits += 1
        if not dedup.is_written(counter):
            dedup.hold(counter)
            if self.level == MEMORY:
                return None
            waiter = Waiter(committer.loop.create_future(), queue, counter, 1)
        elif self.level == SYNC and not committer.all_durable:
            waiter = Waiter(committer.loop.create_future())
        else:
            return None
        committer.wait(waiter, self.level)
        return waiter

    def _now(self) -> float:
        return self._queue._committer.loop.time()
