"""Topics: queues of one store that share the records of one stream, by key.

The partitions of the topic "orders" are the queues "orders-0", "orders-1" and so on. How many there
are is kept with the store and never changes: another count would send keys to other partitions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, Unpack

import msgspec

from fifoq.attributes import PutKeywords
from fifoq.codec import NOTHING_KEPT, Codec, read_kept
from fifoq.murmur3 import murmur3
from fifoq.options import Durability, QueueOptions
from store import InvalidName, Key, Log

if TYPE_CHECKING:
    from fifoq.queue import Queue
    from fifoq.store import Store

T = TypeVar("T")

PARTITIONS_MAX: Final = 256
_PREFIX: Final = "topic/"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,59}")
"""So that the names of its partitions are names of queues."""


class _Kept(msgspec.Struct, frozen=True):
    """What the store keeps of a topic."""

    partitions: int


class Topic(Generic[T]):
    """A stream of records over several queues. Made by `Store.topic`.

    Records of one key are in one partition, in the order of their puts. Whoever takes does so from
    the partitions, which are queues like any other.
    """

    def __init__(self, store: Store, name: str, queues: list[Queue[T]]) -> None:
        self.name = name
        self._store = store
        self._queues = queues
        self._turn = 0

    def __repr__(self) -> str:
        return f"<Topic {self.name!r} partitions={self.partitions} depth={len(self)}>"

    @property
    def partitions(self) -> int:
        """How many there are."""
        return len(self._queues)

    def partition(self, index: int) -> Queue[T]:
        """The queue of a partition. ValueError if there is none of that number."""
        return self._queues[self._checked(index)]

    def partition_of(self, key: str | bytes) -> int:
        """The partition of a key: MurmurHash3 of its bytes (UTF-8), modulo the partitions."""
        if isinstance(key, str):
            key = key.encode()
        elif not isinstance(key, bytes):
            raise TypeError(
                f"a key is a string or bytes, not {type(key).__name__}. Nothing was stored."
            )
        return murmur3(key) % len(self._queues)

    async def put(
        self,
        item: T,
        *,
        key: str | bytes | None = None,
        partition: int | None = None,
        **options: Unpack[PutKeywords],
    ) -> tuple[int, Key]:
        """Put one record; returns its partition and its key there, as `Queue.put` does.

        Into the partition of `key`, or the one that is named, or the next one in turn. The key
        says where the record goes and is not kept with it.
        """
        index = self._choose(key, partition)
        return index, await self._queues[index].put(item, **options)

    async def put_many(
        self,
        items: Iterable[T],
        *,
        key: Callable[[T], str | bytes] | None = None,
        partition: int | None = None,
        durability: Durability | None = None,
    ) -> list[tuple[int, Key]]:
        """Put records in one commit, all or nothing; returns partition and key of each.

        `key` is a function of the item. What holds for `put` holds for all of them together.
        """
        listed = list(items)
        chosen = [self._choose(key(item) if key else None, partition) for item in listed]
        if len(set(chosen)) == 1:
            keys = await self._queues[chosen[0]].put_many(listed, durability=durability)
            return list(zip(chosen, keys, strict=True))
        async with self._store.transaction() as tx:
            for index, item in zip(chosen, listed, strict=True):
                tx.put(self._queues[index], item, durability=durability)
        return list(zip(chosen, tx.keys, strict=True))

    def _choose(self, key: str | bytes | None, partition: int | None) -> int:
        if partition is not None:
            if key is not None:
                raise ValueError("give a key or a partition, not both. Nothing was stored.")
            return self._checked(partition)
        if key is not None:
            return self.partition_of(key)
        index, self._turn = self._turn, (self._turn + 1) % len(self._queues)
        return index

    def _checked(self, partition: int) -> int:
        if isinstance(partition, bool) or not isinstance(partition, int):
            raise TypeError(f"partition={partition!r:.80} is no number. Nothing was changed.")
        if not 0 <= partition < len(self._queues):
            raise ValueError(
                f"topic {self.name!r} has the partitions 0 to {len(self._queues) - 1}, not "
                f"{partition}. Nothing was changed."
            )
        return partition

    def __len__(self) -> int:
        """Records that are there, in all partitions."""
        return sum(map(len, self._queues))


async def open_topic(
    store: Store, name: str, partitions: int | None, type: Any, options: dict[str, Any]
) -> Topic[Any]:
    """See `Store.topic`."""
    check_topic(name, partitions)
    # What is wrong is told before anything is made.
    QueueOptions().changed(options)
    Codec(type, read_kept(NOTHING_KEPT), name)
    count: Any = await store._committer.call(lambda log: _keep(log, name, partitions))
    store._committer.watch_idleness()
    names = partition_names(name, count)
    return Topic(store, name, [await store.queue(n, type=type, **options) for n in names])


def check_topic(name: str, partitions: int | None) -> None:
    """InvalidName, or ValueError for a count that is none."""
    if partitions is not None and not _is_count(partitions):
        raise ValueError(
            f"partitions={partitions!r:.80} is not 1 to {PARTITIONS_MAX}. Nothing was changed."
        )
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidName(
            f"topic name {name!r:.80}: it has 1 to 60 of a-z, 0-9 and -, and does not begin with "
            f"-. Nothing was changed."
        )


def _is_count(partitions: object) -> bool:
    whole = isinstance(partitions, int) and not isinstance(partitions, bool)
    return whole and 1 <= partitions <= PARTITIONS_MAX  # type: ignore[operator]


def partition_names(name: str, count: int) -> list[str]:
    return [f"{name}-{index}" for index in range(count)]


def _keep(log: Log, name: str, partitions: int | None) -> int:
    """On the writer: how many partitions there are, from now on if there were none."""
    value = log.state_of(_PREFIX + name)
    if value is not None:
        kept = msgspec.msgpack.decode(value, type=_Kept).partitions
        if partitions not in (None, kept):
            raise ValueError(
                f"topic {name!r} has {kept} partitions, not {partitions}. Nothing was changed. The "
                f"count stays, since keys would go elsewhere: make another topic, and drain this."
            )
        return kept
    if partitions is None:
        raise ValueError(
            f"there is no topic {name!r}: say how many partitions it is to have. Nothing was "
            f"changed."
        )
    there = [n for n in partition_names(name, partitions) if n in log.state.queues]
    if there:
        raise ValueError(
            f"topic {name!r} would take the queue {there[0]!r}, which is there already, for its "
            f"partition. Nothing was changed. Choose another name."
        )
    draft = log.draft()
    draft.set_states([(_PREFIX + name, msgspec.msgpack.encode(_Kept(partitions)))])
    log.commit(draft)
    return partitions
