"""The parts of a commit in the making: blocks, and the next genesis entry of each touched queue."""

from __future__ import annotations

from collections.abc import Sequence

from store.checksum import Buffer
from store.compression import Compression
from store.effects import Effect, apply
from store.encoding import block_bytes, compressed
from store.errors import ItemTooLarge, StaleDraft
from store.frames import BLOCK_COUNT_MAX, BODY_BYTES_MAX
from store.genesis import GENESIS_BYTES_MAX
from store.growth import QUEUE_GROWTH
from store.index import SegmentIndex
from store.plan import Plan
from store.repeats import Repeat
from store.state import QueueState, State


class Gathering:
    """Blocks that are added one by one, within the limits of a frame."""

    __slots__ = (
        "_compressible",
        "_effects",
        "_repeats",
        "_state",
        "block_count",
        "body_bytes",
        "committed",
        "frees_segment",
        "growth",
        "holds_records",
        "now",
        "only_drains",
        "only_removes",
        "parts",
        "plans",
        "size",
    )

    def __init__(self, state: State, now: int) -> None:
        self._state = state
        self.now = now
        self.parts: list[Buffer] = []
        self.body_bytes = 0
        """Of all blocks; `size` is what they and their metadata may come to."""
        self.block_count = 0
        self.committed = False
        self.size = 0
        self.holds_records = False
        self.growth = 0
        """Bytes of checkpoint that must be held for what it adds, at the most. Removals have it."""
        self.only_drains = True
        """It only takes away, or gives back what was taken: it may use the reserve."""
        self.frees_segment = False
        """It carries the rest out of a dead segment: it may use the reserve to the last byte."""
        self.only_removes = True
        """It holds nothing that a checkpoint does not: on a full disk one can stand for it."""
        self.plans: dict[str, Plan] = {}
        self._effects: list[Effect] = []
        self._repeats: Sequence[Repeat] = ()
        self._compressible: list[tuple[int, int, int, Compression]] = []

    def check_current(self, state: State) -> None:
        """StaleDraft unless every queue is as it was when the draft first touched it."""
        if self.committed or state is not self._state:
            raise StaleDraft(
                "the draft was committed before, or belongs to another store. Nothing was stored. "
                "Build a new one."
            )
        for plan in self.plans.values():
            queue = plan.queue
            if queue.genesis is not plan.base or state.queues.get(queue.name) is not queue:
                raise StaleDraft(
                    f"queue {queue.name!r} changed since the draft was begun, or belongs to "
                    f"another store. Nothing was stored. Build the draft anew and commit it at "
                    f"once; a store is used by one thread at a time."
                )

    def touch(self, queue: QueueState) -> None:
        """Write the queue's genesis entry, changed or not."""
        self._plan(queue)
        self._needs_space()

    def apply(self, segment: int, offset: int, index: SegmentIndex | None) -> None:
        """Carry the draft, now written at that place, into the state and the tail's index."""
        state = self._state
        for repeat in self._repeats:
            for first, last, weight in repeat.ranges:
                state.remove(repeat.queue, first, last, weight)
        apply(self._effects, state, segment, offset, index)
        for plan in self.plans.values():
            assert plan.queue.genesis.floor == plan.genesis.floor
            assert plan.queue.genesis.next_counter == plan.genesis.next_counter
            state.set_genesis(plan.queue, plan.genesis, segment)

    @property
    def compresses(self) -> bool:
        """Whether blocks are to be compressed when it is committed."""
        return bool(self._compressible)

    def compress(self) -> None:
        """Compress what is to be, where that saves enough.

        Whoever gathers a draft may be a loop that must not be held up; the one who writes it may
        take the time. Sizes that were promised before stay upper bounds.
        """
        later, self._compressible = self._compressible, []
        # From the end: what stands in front keeps its place.
        for start, part_count, payload_parts, compression in reversed(later):
            parts = self.parts[start : start + part_count]
            smaller = compressed(parts, payload_parts, compression)
            if smaller is not None:
                self.body_bytes -= block_bytes(parts) - block_bytes(smaller)
                self.parts[start : start + part_count] = smaller

    def _compress_later(
        self, part_count: int, payload_parts: int, compression: Compression
    ) -> None:
        """The block that was just added may be compressed when the draft is committed."""
        start = len(self.parts) - part_count
        self._compressible.append((start, part_count, payload_parts, compression))

    def _needs_space(self) -> None:
        self.only_drains = self.only_removes = False

    def _plan(self, queue: QueueState) -> Plan:
        plan = self.plans.get(queue.name)
        if plan is None:
            plan = self.plans[queue.name] = Plan(queue, len(self.plans))
            self._room(GENESIS_BYTES_MAX)
            if not queue.genesis_segment:
                self.growth += QUEUE_GROWTH
        return plan

    def _add(self, parts: list[Buffer]) -> None:
        size = block_bytes(parts)
        self._room(size)
        if self.block_count == BLOCK_COUNT_MAX:
            raise ItemTooLarge(f"a commit holds at most {BLOCK_COUNT_MAX} blocks; split it")
        self.parts += parts
        self.body_bytes += size
        self.block_count += 1

    def _room(self, size: int) -> None:
        if self.size + size > BODY_BYTES_MAX:
            raise ItemTooLarge(
                f"a commit of {self.size + size} bytes, columns and metadata included, is over the "
                f"limit of {BODY_BYTES_MAX}. Nothing was stored. Put fewer or smaller records at "
                f"once."
            )
        self.size += size
