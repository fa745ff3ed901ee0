"""Dead letters of one queue: look at them, replay them, purge them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fifoq.attributes import NONE
from fifoq.browse import PAGE_BYTES, read
from fifoq.burying import ORIGINAL_KEY, PREFIX, SUFFIX
from fifoq.codec import decode_headers, encode_own_headers
from fifoq.joint import Joint
from fifoq.options import OS
from fifoq.picking import Pick, Picked, Unpick
from fifoq.runs import Returned
from store import Key
from store.blocks import ACKED, PURGED

if TYPE_CHECKING:
    from fifoq.committer import Committer
    from fifoq.queue import Queue

LIST_MAX: Final = 1000
"""Dead letters that one call lists."""


class DeadLetter(msgspec.Struct, frozen=True):
    """A record that nobody could handle. Times are nanoseconds since the epoch.

    `key` is its own among the dead letters, `original_key` that of the record in its queue.
    """

    key: Key
    payload: bytes
    headers: dict[str, str]
    """Those that the record had; what became of it is in the other fields."""
    queue: str
    original_key: Key
    attempts: int
    cause: str
    """rejected, max-retries or expired; empty if somebody put it here."""
    reason: str
    error_type: str
    traceback: str
    time: int
    """When it was moved."""
    told: dict[str, str] = {}
    """All that was told of its end, by name: of a letter to an actor more than the other fields."""


def letter_of(key: Key, payload: bytes, encoded: bytes | None, queue: str) -> DeadLetter:
    """A record of the dead letters of that queue, as one reads it."""
    headers = decode_headers(encoded)
    told = {
        name.removeprefix(PREFIX): text for name, text in headers.items() if name.startswith(PREFIX)
    }
    return DeadLetter(
        key,
        payload,
        own_headers(headers),
        told.get("queue", queue),
        Key.from_bytes(bytes.fromhex(told["key"])) if "key" in told else key,
        int(told.get("attempts", "0")),
        told.get("cause", ""),
        told.get("reason", ""),
        told.get("error_type", ""),
        told.get("traceback", ""),
        int(told.get("time", str(key.timestamp))),
        told,
    )


def own_headers(headers: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in headers.items() if not name.startswith(PREFIX)}


class DeadLetters:
    """What `Store.dead_letters` gives: the dead letters of one queue.

    It may be used beside whoever takes or leases them from their queue.
    """

    def __init__(self, name: str, queue: Queue[Any], committer: Committer) -> None:
        self.name = name
        """Of the queue whose dead letters they are."""
        self.queue = queue
        """They themselves, as a queue."""
        self._committer = committer

    def __repr__(self) -> str:
        return f"<DeadLetters of {self.name!r} {len(self)}>"

    def __len__(self) -> int:
        return len(self.queue)

    async def list(self, *, start: int = 1, count: int = 100) -> Sequence[DeadLetter]:
        """The oldest ones from counter `start` on, `count` (at most 1000) of them; nothing changes.

        What somebody has leased is among them. For the next ones start behind the last counter.
        """
        if not 0 < count <= LIST_MAX:
            raise ValueError(f"count={count} is not one of 1 to {LIST_MAX}. Nothing was changed.")
        await self._written()
        letters: list[DeadLetter] = []
        last = self.queue.next - 1
        while start <= last and len(letters) < count:
            page, start = await read(self._committer, self.queue.name, start, last)
            letters += [letter_of(*record, self.name) for record in page]
        return letters[:count]

    async def get(self, counter: int) -> DeadLetter | None:
        """The one with that counter, or None; nothing changes."""
        found = await self.list(start=_checked(counter), count=1)
        return found[0] if found and found[0].key.counter == counter else None

    async def replay(self, *counters: int, dry_run: bool = False) -> int:
        """Put dead letters back into their queue; returns how many.

        Those with these counters, or all that are there now. Each has a new key, the headers that
        it had, the header `fifoq.original_key` with the key that it had first, and no attempts. It
        goes in frames of about 1 MiB, each whole: cancelled, or after DiskFull, some may have been
        done. What somebody has leased stays with them. No limit of the queue holds it up.
        With `dry_run` nothing changes.
        """
        return await self._move(self._replayed, counters, dry_run)

    async def purge(self, *counters: int, dry_run: bool = False) -> int:
        """Remove dead letters for good; returns how many. Which and how: as for `replay`."""
        return await self._move(_purged, counters, dry_run)

    async def _move(
        self,
        add: Callable[[Joint, Queue[Any], Returned], None],
        counters: tuple[int, ...],
        dry_run: bool,
    ) -> int:
        for counter in counters:
            _checked(counter)
        await self._written()
        if dry_run:
            return await self._count(counters)
        total = 0
        picked: list[Returned] = []
        try:
            for start, last in _ranges(counters, self.queue.next - 1):
                while start <= last:
                    more, start = await self._pick(start, last)
                    picked += more
                    if sum(len(record.payload) for record in picked) >= PAGE_BYTES:
                        batch, picked = picked, []
                        total += await self._commit(add, batch)
            batch, picked = picked, []
            return total + await self._commit(add, batch)
        except BaseException:
            self._unpick(picked)
            raise

    async def _count(self, counters: tuple[int, ...]) -> int:
        if not counters:
            return len(self.queue) - self.queue.leasing.count
        found = [await self.get(counter) for counter in set(counters)]
        held = self.queue.leasing.held
        return sum(letter is not None and letter.key.counter not in held for letter in found)

    async def _pick(self, first: int, last: int) -> tuple[Sequence[Returned], int]:
        committer = self._committer
        committer.require_usable()
        pick = Pick(self.queue, first, last, committer.loop.create_future())
        try:
            picked = await committer.run_call(pick)
        except asyncio.CancelledError:
            if not pick.future.cancel() and not pick.future.cancelled():
                # It was done as we left.
                self._unpick(_result(pick.future).records)
            raise
        assert isinstance(picked, Picked)
        return picked.records, picked.following

    def _unpick(self, picked: Sequence[Returned]) -> None:
        if picked:
            self._committer.run_call(Unpick(self.queue, picked))

    async def _commit(
        self, add: Callable[[Joint, Queue[Any], Returned], None], picked: Sequence[Returned]
    ) -> int:
        if not picked:
            return 0
        queue = self.queue
        joint = Joint(level=max(OS, queue.level))
        for record in picked:
            add(joint, queue, record)

        def done() -> None:
            for record in picked:
                queue.absent.discard(record.counter)
                queue.leasing.leaving.discard(record.counter)
                queue.gone(record)

        joint.done, joint.undone = done, lambda _: self._unpick(picked)
        await self._committer.joints.commit(joint)
        return len(picked)

    def _replayed(self, joint: Joint, queue: Queue[Any], record: Returned) -> None:
        key = Key(record.counter, record.time)
        letter = letter_of(key, record.payload, record.headers, self.name)
        headers = {ORIGINAL_KEY: bytes(letter.original_key).hex(), **letter.headers}
        attributes = msgspec.structs.replace(
            record.attributes or NONE,
            headers=encode_own_headers(headers),
            deliver_at=0,
            expires_at=0,
            dedup_id=b"",
        )
        joint.put(self.name, record.payload, attributes)
        joint.remove(queue, record, ACKED)
        origin = self._committer.lines.get(self.name)
        joint.level = max(joint.level, getattr(origin, "level", OS))

    async def _written(self) -> None:
        """What is in memory alone is written first."""
        self._committer.require_usable()
        if self.queue.tail:
            await self.queue.flush()


def _result(future: asyncio.Future[object]) -> Picked:
    """What was picked by the time; nothing if it could not be read."""
    picked = None if future.exception() is not None else future.result()
    return picked if isinstance(picked, Picked) else Picked([], 0)


def _purged(joint: Joint, queue: Queue[Any], record: Returned) -> None:
    joint.remove(queue, record, PURGED)


def _ranges(counters: tuple[int, ...], last: int) -> Sequence[tuple[int, int]]:
    """Counters as few ranges; all of them if none is given."""
    if not counters:
        return [(1, last)]
    ranges: list[tuple[int, int]] = []
    for counter in sorted(set(counters)):
        if ranges and ranges[-1][1] == counter - 1:
            ranges[-1] = (ranges[-1][0], counter)
        else:
            ranges.append((counter, counter))
    return ranges


def _checked(counter: int) -> int:
    if isinstance(counter, bool) or not isinstance(counter, int):
        raise TypeError(f"counter={counter!r} is not a whole number. Nothing was changed.")
    if counter < 1:
        raise ValueError(f"counter={counter} is below 1. Nothing was changed.")
    return counter


def name_of_letters(name: str) -> str:
    """The queue that holds the dead letters of a queue. ValueError if that holds them itself."""
    if name.endswith(SUFFIX):
        raise ValueError(
            f"queue {name!r} holds dead letters itself. Nothing was changed. Name the queue that "
            f"they came from: {name.removesuffix(SUFFIX)!r}."
        )
    return name + SUFFIX
