"""The other end of a frame server: a blocking client that checks everything that comes.

What it hands out passed two checks: the server's, of the frame on its disk, and its own, of every
byte that came over the wire. It knows nothing of Spark.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from typing import Final, TypeVar

import msgspec

from fifoq.consumers import Position
from fifoq.description import QueueDescription
from fifoq.server.failures import BUSY
from fifoq.server.link import BROKEN, Link, ServerError
from fifoq.server.protocol import (
    ADVANCE,
    ATTEMPTS,
    BLOCKS,
    DESCRIPTION,
    END,
    FOUND,
    LEASED,
    NAMES,
    PAGE,
    POSITION,
    QUEUE,
    QUEUES,
    RANGES,
    REMOVED,
    SEEK,
    STANDING,
    AdvanceRequest,
    AttemptsRequest,
    BlocksRequest,
    End,
    Found,
    Header,
    Leased,
    Names,
    PositionRequest,
    ProtocolError,
    QueueRequest,
    QueuesRequest,
    Ranges,
    RemovedRequest,
    SeekRequest,
    Standing,
    check_token,
    decode_blocks,
)
from store import RecordBlock

CONNECT_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 60.0
BUSY_PAUSE_SECONDS: Final = 0.1

S = TypeVar("S", bound=msgspec.Struct)


class FrameClient:
    """Reads one store through its frame server. One thread at a time; no lock."""

    def __init__(
        self,
        host: str,
        port: int,
        token: str,
        *,
        connect_seconds: float = CONNECT_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        """Connect and be let in. ServerError says why if not; ValueError for an unlikely token.

        While the server has all the connections that it allows, that is tried again for
        `connect_seconds`.
        """
        self.host, self.port = host, port
        self._token = check_token(token)
        self._connect_seconds = connect_seconds
        self._answer_seconds = answer_seconds
        self._idle: list[Link] = []
        self._closed = False
        self.store_id: str | None = None
        first = self._connect()
        self.address = first.address
        self._idle.append(first)

    def __repr__(self) -> str:
        return f"<FrameClient {self.address} {'closed' if self._closed else 'open'}>"

    def close(self) -> None:
        """Give every connection back. Twice is fine."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def __enter__(self) -> FrameClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # What is there.

    def queues(self) -> list[str]:
        """Names of the queues that hold anything or ever did, in order."""
        return self._ask(QUEUES, QueuesRequest(), NAMES, Names).queues

    def describe(self, queue: str, *, fresh: bool = False) -> QueueDescription:
        """A queue as it is now; one that is not there is empty. InvalidName, ServerError

        With `fresh` it holds all that was confirmed, at "sync", before the call.
        """
        return self._ask(QUEUE, QueueRequest(queue, fresh), DESCRIPTION, QueueDescription)

    def seek(self, queue: str, time_ns: int) -> int:
        """Counter of the first retained record put then or later, else the next one."""
        return self._ask(SEEK, SeekRequest(queue, time_ns), FOUND, Found).counter

    def attempts(self, queue: str, first: int, last: int) -> list[tuple[int, int]]:
        """Counters within first..last that were leased, in order, each with how often."""
        found: list[tuple[int, int]] = []
        while first <= last:
            part = self._ask(ATTEMPTS, AttemptsRequest(queue, first, last), LEASED, Leased)
            found += part.attempts
            if part.whole or not part.attempts:
                break
            first = max(first, part.attempts[-1][0]) + 1
        return found

    def removed(self, queue: str, first: int, last: int) -> list[tuple[int, int]]:
        """Inclusive ranges of counters within first..last that were removed, in order."""
        found: list[tuple[int, int]] = []
        while first <= last:
            asked = RemovedRequest(queue, first, last)
            part = self._ask(REMOVED, asked, RANGES, Ranges)
            found += part.ranges
            if part.whole or not part.ranges:
                break
            first = max(first, part.ranges[-1][1]) + 1
        return found

    def position(self, consumer: str) -> Position | None:
        """How far a consumer is, or None if there is none of that name. InvalidName"""
        return self._ask(POSITION, PositionRequest(consumer), STANDING, Standing).position

    def advance(self, consumer: str, position: Position) -> None:
        """Make this the consumer's position: durable on return. InvalidName, ServerError"""
        self._ask(ADVANCE, AdvanceRequest(consumer, position), STANDING, Standing)

    def blocks(
        self, queue: str, first: int, last: int, *, removed: bool = True
    ) -> Iterator[RecordBlock]:
        """Retained records first..last in order, as `store.Reader.blocks` gives them.

        RangeGone and CorruptionError are the server's, with their facts. ServerError if what came
        is not what was asked for, in order and complete; blocks before it were whole.
        """
        while first <= last:
            end = yield from self._part(BlocksRequest(queue, first, last, removed))
            if end.whole:
                return
            first = end.following

    def _part(self, asked: BlocksRequest) -> Generator[RecordBlock, None, End]:
        """One answer of the server, which may end before the last record."""
        link, header, body = self._begin(BLOCKS, asked)
        records, counter = 0, asked.first
        try:
            while header.kind == PAGE:
                for block in _page(link, asked.queue, header, body):
                    if not counter <= block.first <= block.last <= asked.last:
                        raise link.broken(
                            f"records {block.first} to {block.last} came where {counter} to "
                            f"{asked.last} were to follow"
                        )
                    counter = block.last + 1
                    records += block.count
                    yield block
                header, body = link.receive()
            end = link.decoded(header, body, END, End)
            if end.records != records:
                raise link.broken(f"{records} records came, and the server sent {end.records}")
            if not (end.whole or counter == end.following > asked.first):
                raise link.broken(f"the rest behind {counter - 1} starts at {end.following}")
            return end
        finally:
            self._end(link)

    # Connections.

    def _ask(self, kind: int, values: msgspec.Struct, answer: int, type: type[S]) -> S:
        """One request with one message as its answer."""
        link, header, body = self._begin(kind, values)
        try:
            return link.decoded(header, body, answer, type)
        finally:
            self._end(link)

    def _begin(self, kind: int, values: msgspec.Struct) -> tuple[Link, Header, memoryview]:
        """Send a request; returns the connection and the first message of the answer.

        A connection that lay idle may have been closed by the server: then another one is tried.
        """
        if self._closed:
            raise ServerError(self.address, BROKEN, "the client is closed")
        while self._idle:
            link = self._idle.pop()
            try:
                return link, *self._first(link, kind, values)
            except ServerError:
                if link.answered:
                    raise
        link = self._connect()
        return link, *self._first(link, kind, values)

    def _first(self, link: Link, kind: int, values: msgspec.Struct) -> tuple[Header, memoryview]:
        try:
            link.send(kind, values)
            return link.receive()
        except BaseException:
            self._end(link)
            raise

    def _end(self, link: Link) -> None:
        """Keep a connection whose answer was read to its end; no other can be used again."""
        if link.answered and not self._closed:
            self._idle.append(link)
        else:
            link.close()

    def _connect(self) -> Link:
        deadline = time.monotonic() + self._connect_seconds
        while True:
            try:
                link = Link(
                    self.host,
                    self.port,
                    self._token,
                    connect_seconds=max(0.001, deadline - time.monotonic()),
                    answer_seconds=self._answer_seconds,
                )
                break
            except ServerError as error:
                if error.code != BUSY or time.monotonic() + BUSY_PAUSE_SECONDS > deadline:
                    raise
            time.sleep(BUSY_PAUSE_SECONDS)
        if self.store_id not in (None, link.store_id):
            link.close()
            reason = f"the server has another store now: {link.store_id}, not {self.store_id}"
            raise ServerError(link.address, BROKEN, reason)
        self.store_id = link.store_id
        return link


def _page(link: Link, queue: str, header: Header, body: memoryview) -> Iterator[RecordBlock]:
    try:
        yield from decode_blocks(queue, header, body)
    except ProtocolError as error:
        raise link.broken(str(error)) from None
