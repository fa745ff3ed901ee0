"""The desk: what a visitor asks for is done on an open store.

A visitor is a client of the socket, or the command line itself when it owns the store. Records that
he leased and did not ack go back to their places when he leaves, however he leaves.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, assert_never

import msgspec

from fifoq.compacting import Compacted
from fifoq.control.messages import (
    Ack,
    Compact,
    Count,
    Explain,
    Forget,
    GetMark,
    GetStats,
    Lease,
    Leased,
    LeasedRecord,
    MarkOf,
    Moved,
    NotThere,
    Placed,
    Pour,
    Purge,
    Put,
    RemoveUpto,
    Replay,
    Request,
    Seek,
    Stats,
)
from fifoq.control.shapes import type_of
from fifoq.cursor import Cursor, Start
from fifoq.dead_letters import DeadLetters, name_of_letters
from fifoq.delivery import Delivery
from fifoq.errors import SchemaMismatch, StaleLease
from fifoq.explain import Explanation
from fifoq.marked import keep_mark, mark_of, pour
from fifoq.queue import Queue
from fifoq.store import Store
from fifoq.view import stats_of
from store import FifoqError
from store.genesis import check_name

HAND_OUT_SECONDS: Final = 5.0
"""How long handing out a record that is ready may take on a slow disk, if nobody wants to wait."""

_SECOND: Final = 1e9

Answer = MarkOf | Stats | Placed | Leased | Count | Moved | Compacted | Explanation


class Visit:
    """One visitor of an open store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._leased: dict[str, list[Delivery[Any]]] = {}

    async def answer(self, request: Request) -> Answer:
        """Do what is asked. Errors of the store and ValueError as they come; cancelling is safe."""
        match request:
            case GetStats():
                return self._stats()
            case Put():
                return await self._put(request)
            case Lease():
                return await self._lease(request)
            case Ack():
                return await self._ack(request)
            case Replay():
                letters = await self._letters(request.queue)
                if letters is None:
                    return Count(count=0)
                moved = await letters.replay(*request.counters, dry_run=request.dry_run)
                return Count(count=moved)
            case Purge():
                letters = await self._letters(request.queue)
                if letters is None:
                    return Count(count=0)
                purged = await letters.purge(*request.counters, dry_run=request.dry_run)
                return Count(count=purged)
            case Seek():
                return await self._seek(request)
            case Forget():
                cursor = await self._cursor(request.queue, request.cursor)
                await cursor.delete()
                return Count(count=1)
            case RemoveUpto():
                queue = await self._store.lend(request.queue)
                return Count(count=await queue.remove_upto(request.counter))
            case Compact():
                return await self._store.compact()
            case Explain():
                return await self._store.explain(request.counter, queue=request.queue)
            case GetMark():
                return MarkOf(mark=await mark_of(self._store, request.name))
            case Pour():
                return await self._pour(request)
            case _:
                assert_never(request)

    def leave(self) -> None:
        """Give back what is leased, for anybody else, at once."""
        leased, self._leased = self._leased, {}
        for deliveries in leased.values():
            for delivery in deliveries:
                # Its time may be over, or the store closed: then it is back already.
                with suppress(FifoqError):
                    delivery.nack(delay=0)

    def _names(self) -> set[str]:
        return {*self._store.queues(), *self._store.opened}

    def _require(self, name: str) -> None:
        """NotThere without such a queue: a name that was mistyped must not make one. InvalidName"""
        check_name(name)
        if name not in (names := self._names()):
            there = f"There are: {', '.join(sorted(names))}." if names else "There is none."
            raise NotThere(f"there is no queue {name!r}. Nothing was changed. {there}")

    async def _letters(self, name: str) -> DeadLetters | None:
        """The dead letters of a queue; None if it never had one."""
        if name_of_letters(name) not in self._names():
            self._require(name)
            return None
        return await self._store.lend_dead_letters(name)

    def _stats(self) -> Stats:
        from fifoq import __version__

        opened = {name: queue.stats() for name, queue in self._store.opened.items()}
        queues = stats_of(self._store.state)
        return Stats(process=os.getpid(), version=__version__, opened=opened, queues=queues)

    async def _pour(self, request: Pour) -> Count:
        if not request.payloads:
            # Of no queue: one that is only named here would be made.
            await keep_mark(self._store, request.name, request.mark)
            return Count(count=0)
        queue = await self._store.lend(request.queue)
        await pour(
            self._store, queue, request.name, request.mark, request.payloads, request.attributes
        )
        return Count(count=len(request.payloads))

    async def _put(self, request: Put) -> Placed:
        queue = await self._store.lend(request.queue)
        items = [_item(queue, payload, text=request.text) for payload in request.payloads]
        keywords: dict[str, Any] = {
            name: value
            for name in ("headers", "delay", "ttl", "priority", "ordering_key", "dedup_id")
            if (value := getattr(request, name)) is not None
        }
        if len(items) == 1:
            key = await queue.put(items[0], **keywords)
            return Placed(first=key.counter, count=1, time=key.timestamp)
        keys = await queue.put_many(items, **keywords)
        return Placed(first=keys[0].counter, count=len(keys), time=keys[0].timestamp)

    async def _lease(self, request: Lease) -> Leased:
        timeout = request.timeout
        if timeout == 0:
            self._require(request.queue)
        queue = await self._store.lend(request.queue)
        deliveries: list[Delivery[Any]] = []
        if timeout != 0 or queue.stats().ready:
            with suppress(TimeoutError):
                deliveries = await queue.lease_many(
                    request.count,
                    seconds=request.seconds,
                    timeout=HAND_OUT_SECONDS if timeout == 0 else timeout,
                    max_bytes=request.max_bytes,
                )
        self._leased.setdefault(request.queue, []).extend(deliveries)
        typed = queue.codec.schema is not None
        return Leased(records=[_record(delivery) for delivery in deliveries], typed=typed)

    async def _ack(self, request: Ack) -> Count:
        deliveries = self._leased.get(request.queue, [])
        if not deliveries:
            return Count(count=0)
        queue = await self._store.lend(request.queue)
        try:
            count = await queue.ack_many(deliveries)
        except StaleLease:
            self.leave()
            raise
        del self._leased[request.queue]
        return Count(count=count)

    async def _seek(self, request: Seek) -> Moved:
        if not request.make:
            self._require(request.queue)
        queue = await self._store.lend(request.queue)
        if request.cursor not in queue.cursors():
            if not request.make:
                raise _no_cursor(request.queue, request.cursor)
            made = await queue.cursor(request.cursor, _start(request))
            return Moved(counter=made.position, before=None)
        cursor = await queue.cursor(request.cursor)
        before = cursor.position
        if request.counter is not None:
            counter = await cursor.seek(counter=request.counter)
        elif request.end == "latest":
            await queue.flush()
            counter = await cursor.seek(counter=queue.next)
        else:
            counter = await cursor.seek(timestamp=request.time or 0)
        return Moved(counter=counter, before=before)

    async def _cursor(self, name: str, cursor: str) -> Cursor[Any]:
        self._require(name)
        queue = await self._store.lend(name)
        if cursor not in queue.cursors():
            raise _no_cursor(name, cursor)
        return await queue.cursor(cursor)


def _no_cursor(queue: str, cursor: str) -> NotThere:
    return NotThere(f"queue {queue!r} has no cursor {cursor!r}. Nothing was changed.")


def _start(request: Seek) -> Start:
    if request.counter is not None:
        return request.counter
    if request.time is not None:
        return datetime.fromtimestamp(request.time / _SECOND, UTC)
    return "latest" if request.end == "latest" else "earliest"


def _item(queue: Queue[Any], payload: bytes, *, text: bool) -> Any:
    """What is to be put for a payload. SchemaMismatch if it is not of the queue's type."""
    codec = queue.codec
    if codec.schema is None:
        return payload
    decode = msgspec.json.decode if text else msgspec.msgpack.decode
    try:
        if codec.typed:
            return decode(payload, type=codec.type)
        # Nobody here has the type itself: what is kept of it says what a record looks like.
        checked = decode(payload, type=type_of(codec.shape) if codec.shape else Any)
        return msgspec.msgpack.encode(checked) if text else payload
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SchemaMismatch(
            f"queue {queue.name!r} has a type, and a record is not of it ({error}). Nothing was "
            f"stored."
        ) from None


def _record(delivery: Delivery[Any]) -> LeasedRecord:
    return LeasedRecord(
        counter=delivery.key.counter,
        time=delivery.key.timestamp,
        payload=delivery.record().payload,
        headers=delivery.headers,
        attempt=delivery.attempt,
    )
