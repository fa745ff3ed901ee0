"""A store seen from outside: what its owner has committed, read without a lock, by any process.

Blocking, and safe for threads. `fifoq.readonly` gives it to event loops, `fifoq.sync` to threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from fifoq.browse import Record, read_page
from fifoq.codec import Codec, decode_headers, read_kept
from fifoq.explain import Explanation, explain
from store import ForkError, Key, Reader, RecordBlock
from store.directory import access_error
from store.files import Clock, Files
from store.genesis import Genesis, check_name
from store.state import State

_SECOND = 1e9


class ReadOnlyStats(msgspec.Struct, frozen=True, kw_only=True):
    """What a queue's last durable commit says of it, under the names of QueueStats.

    Times are nanoseconds since the epoch, delays are seconds. Water marks are None until the
    first put. What only the owner knows (leases, delays' percentiles, syncs) is not here.
    """

    name: str
    current_size: int
    high_water_mark: int | None
    high_water_time: int
    low_water_mark: int | None
    low_water_time: int
    last_put_time: int
    last_take_time: int
    total_put_count: int
    total_take_count: int
    average_delay: float | None
    bytes: int
    segments: int


class View:
    """The store at `path` as its owner's last durable commit left it; each look is a new one."""

    def __init__(self, path: str, *, files: Files | None = None, clock: Clock | None = None):
        """FormatError or AccessError if there is no store. Nothing is ever changed."""
        self.path = path
        self._process = os.getpid()
        self._lock = threading.Lock()
        try:
            self._reader = Reader(path, files=files, clock=clock)
        except OSError as error:
            raise access_error(path, error) from error
        self.closed = False

    @property
    def of_another_process(self) -> bool:
        """Whether this is the child of a fork: handles and threads are the parent's."""
        return os.getpid() != self._process

    def require_this_process(self) -> None:
        """ForkError in a child."""
        if self.of_another_process:
            raise ForkError(
                f"{self.path}: this view was opened before a fork, and only the parent may use "
                f"it. Nothing was changed. Open it in the child, after forking."
            )

    @contextmanager
    def _looking(self) -> Iterator[Reader]:
        """The reader, moved on to what is committed by now, for one thread at a time."""
        self.require_this_process()
        with self._lock:
            try:
                self._reader.refresh()
                yield self._reader
            except OSError as error:
                raise access_error(self.path, error) from error

    def queues(self) -> list[str]:
        """Names of the queues that hold anything or ever did, in order."""
        with self._looking() as reader:
            return sorted(reader.state.queues)

    def check(self, name: str, type: Any) -> None:
        """InvalidName, or SchemaMismatch if the queue's records are of another type."""
        check_name(name)
        with self._looking() as reader:
            _codec(reader, name, type)

    def stats(self, name: str) -> ReadOnlyStats:
        with self._looking() as reader:
            return _stats(_genesis(reader, name), len(reader.state.segments))

    def metrics(self) -> str:
        """What the log says of the store and its queues, for Prometheus."""
        from fifoq.metrics import of_reader

        with self._looking() as reader:
            genesis = [reader.state.queues[name].genesis for name in sorted(reader.state.queues)]
            segments = reader.state.segments.values()
            return of_reader(self.path, reader.store_id, genesis, segments)

    def every_stats(self) -> list[ReadOnlyStats]:
        """Of all queues, as of one moment, by name."""
        with self._looking() as reader:
            return stats_of(reader.state)

    def last(self, name: str) -> int:
        """The newest counter that is committed, or 0."""
        with self._looking() as reader:
            return _genesis(reader, name).next_counter - 1

    def peek(self, name: str, type: Any) -> Any:
        """The oldest record's item, or None."""
        with self._looking() as reader:
            for block in reader.blocks(name, removed=False):
                return _codec(reader, name, type).decode(block.payloads()[0])
            return None

    def raw_page(
        self, name: str, start: int, last: int
    ) -> tuple[list[tuple[Key, bytes, bytes | None]], int]:
        """Some records from `start` on that are not removed, and where the next page starts.

        Each with its key, its bytes and its headers as they are encoded.
        """
        with self._looking() as reader:
            return read_page(_Live(reader), name, start, last)

    def page(self, name: str, type: Any, start: int, last: int) -> tuple[list[Record[Any]], int]:
        """The same, decoded."""
        with self._looking() as reader:
            found, following = read_page(_Live(reader), name, start, last)
            codec = _codec(reader, name, type)
        page = [Record(key, codec.decode(data), decode_headers(more)) for key, data, more in found]
        return page, following

    def explain(self, name: str, counter: int) -> Explanation:
        """What became of a record; one that is there is just that: only its owner knows more."""
        with self._looking() as reader:
            return explain(reader, name, counter)

    def close(self) -> None:
        """Give every handle back. Twice is fine; in the child of a fork nothing happens."""
        if not self.of_another_process:
            with self._lock:
                self.closed = True
                self._reader.close()


class _Live:
    """A reader in the shape that pages are read from: records that are there."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def read(self, name: str, first: int, last: int) -> Iterator[RecordBlock]:
        return self._reader.blocks(name, first, last, removed=False)


def _genesis(reader: Reader, name: str) -> Genesis:
    queue = reader.state.queues.get(name)
    return queue.genesis if queue is not None else Genesis(name)


def _codec(reader: Reader, name: str, type: Any) -> Codec[Any]:
    """Made anew each time: the queue may have come to be, with another type, since."""
    queue = reader.state.queues.get(name)
    return Codec(type, read_kept(queue.configuration if queue is not None else None), name)


def stats_of(state: State) -> list[ReadOnlyStats]:
    """What a state says of all its queues, by name."""
    segments = len(state.segments)
    # A copy at once: whoever writes the log may add to them meanwhile.
    return [_stats(queue.genesis, segments) for _, queue in sorted([*state.queues.items()])]


def _stats(genesis: Genesis, segments: int) -> ReadOnlyStats:
    taken = genesis.total_take_count
    return ReadOnlyStats(
        name=genesis.name,
        current_size=genesis.queue_size,
        high_water_mark=genesis.high_water_mark,
        high_water_time=genesis.high_water_time,
        low_water_mark=genesis.low_water_mark,
        low_water_time=genesis.low_water_time,
        last_put_time=genesis.last_put_time,
        last_take_time=genesis.last_take_time,
        total_put_count=genesis.total_put_count,
        total_take_count=taken,
        average_delay=genesis.total_delay_ns / taken / _SECOND if taken else None,
        bytes=genesis.queue_bytes,
        segments=segments,
    )
