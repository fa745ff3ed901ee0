"""A record's journey: what the frames that are left say of one record, in their order.

A frame tells what it holds and when records were put and removed. It does not tell when it was
written itself, nor when a record that was handed out came back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from store.blocks import (
    DEAD_LETTERED,
    MOVED,
    RECORDS,
    REMOVED,
    STATE,
    BlockHeader,
    LeaseBlock,
    RecordBlock,
    RemovedBlock,
    block_headers,
    decode_block,
)
from store.checkpoint import UnloggedEntry
from store.errors import AccessError, CorruptionError, DamageError
from store.genesis import check_name, decode_genesis
from store.index import QueueIndex
from store.segment import Frame, segment_name

if TYPE_CHECKING:
    from store.reader import Reader

STEPS_MAX: Final = 1000
"""Steps that a journey lists; of more, the first and the last ones."""

Kind = Literal["put", "leased", "removed", "moved", "restored"]
Fate = Literal["", "not put", "skipped", "reclaimed"]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What one frame did with the record. Times are nanoseconds since the epoch; 0: not known."""

    kind: Kind
    segment: int
    offset: int
    sequence: int
    time: int = 0
    """When it was put, or removed."""
    size: int = 0
    columns: dict[int, int | bytes] = {}
    """Of a put: its optional columns."""
    frame_records: int = 0
    """Of a put: how many records its frame has."""
    frame_time: int = 0
    """Of a put: when its frame was put together, which it tells only if it holds more than puts."""
    attempt: int = 0
    deadline: int = 0
    reason: int = 0
    dead_letters: list[tuple[str, int, int]] = []
    """Of one that went to the dead letters: what its frame put elsewhere, as queue, first, last."""


class Journey(msgspec.Struct, frozen=True, kw_only=True):
    """All that the log tells of a counter."""

    queue: str
    counter: int
    steps: list[Step]
    left_out: int
    """Steps between those that are listed."""
    live: bool
    attempts: int
    """Of a live one: how often it was handed out, as far as that was recorded."""
    fate: Fate
    """Why there is no put: nobody has had the counter, or nobody got it, or its frame is gone."""
    unlogged: tuple[int, int] | None
    """Reason and time of a removal that a full disk left to the checkpoint, perhaps of this one."""
    damage: list[str]
    """Where the log can not be read: what was told there is not known."""


def journey(reader: Reader, name: str, counter: int) -> Journey:
    """Read what there is to tell of a counter of a queue, as of the reader's last refresh."""
    check_name(name)
    if not isinstance(counter, int) or counter < 1:
        raise ValueError(f"counter={counter!r:.80} is no counter: they are whole and start at 1")
    while True:
        trail = _Trail(reader, name, counter)
        try:
            trail.walk()
            return trail.result()
        except _Gone as gone:
            for number in reader.start_anew([gone.number]):
                path = f"{reader.path}/{segment_name(number)}"
                raise CorruptionError(path, 0, "the segment is missing") from None


class _Gone(Exception):
    """A segment is not there any more: it was reclaimed while we read."""

    def __init__(self, number: int) -> None:
        self.number = number


class _Trail:
    """One look at all segments that may tell something."""

    def __init__(self, reader: Reader, name: str, counter: int) -> None:
        self._reader = reader
        self._name = name
        self._encoded = name.encode()
        self._counter = counter
        queue = reader.state.queues.get(name)
        self._queue = queue if queue and counter < queue.genesis.next_counter else None
        self._live = self._queue is not None and self._queue.is_live(counter)
        self._first: list[Step] = []
        self._rest: deque[Step] = deque(maxlen=STEPS_MAX // 2)
        self._count = 0
        self._put = self._removed = False
        self._before = self._skipped = False
        """Whether a frame was seen that had not come to the counter yet, and one that passed it."""
        self._damage: list[str] = []

    def walk(self) -> None:
        """Go through the segments that may tell something."""
        queue, counter = self._queue, self._counter
        if queue is None:
            return
        at = queue.span_index(counter)
        spans = [span for span in queue.spans[at : at + 1] if span.first <= counter]
        # Where it was put, if it was never moved: nothing before that tells of it.
        start = next((span.segment for span in spans if not span.moved), 0)
        waits = self._live and start > 0 and counter not in queue.attempts
        for number in sorted(n for n in self._reader.state.segments if n >= start):
            settled = self._put and (waits or (self._removed and not self._live))
            entries = self._reader.entries(self._name, number)
            if settled and not (entries is not None and _may_move(entries, counter)):
                continue
            offset = entries.offset_of_counter(counter) if entries and number == start else 0
            self._follow(number, offset or 0)

    def _follow(self, number: int, start: int) -> None:
        try:
            for frame in self._reader.frames(number, start):
                self._note_frame(number, frame)
        except (CorruptionError, DamageError) as error:
            self._damage.append(str(error))
        except AccessError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise _Gone(number) from None
            raise

    def _note_frame(self, number: int, frame: Frame) -> None:
        header, body = frame.header, frame.body
        # Far quicker than to decode it, and most frames are not about this queue.
        if self._encoded not in bytes(body[len(body) - header.genesis_bytes :]):
            return
        genesis = {entry.name: entry for entry in decode_genesis(body, header.genesis_bytes)}
        if self._name not in genesis:
            return
        for step in self._steps(number, frame, list(genesis)):
            self._note(step)
        # Whether this frame passed the counter without a record for it.
        if genesis[self._name].next_counter <= self._counter:
            self._before = True
        elif self._before and not self._count:
            self._skipped = True

    def _steps(self, number: int, frame: Frame, names: list[str]) -> Iterator[Step]:
        header, counter = frame.header, self._counter
        headers = list(block_headers(frame.body, header.block_count, header.genesis_bytes))
        mine = names.index(self._name)
        place = _Place(number, frame.offset, header.sequence)
        for block_header in headers:
            if block_header.queue != mine:
                continue
            block = decode_block(frame.body, block_header, names)
            if isinstance(block, RecordBlock):
                if block.first <= counter <= block.last and counter in block.counters():
                    yield self._record_step(block, place, headers)
            elif isinstance(block, LeaseBlock):
                for attempt in dict(zip(block.counters, block.attempts, strict=True)).items():
                    if attempt[0] == counter:
                        yield place.step("leased", attempt=attempt[1], deadline=block.deadline)
            else:
                assert isinstance(block, RemovedBlock)
                if any(first <= counter <= last for first, last, _ in block.ranges):
                    beside = [
                        (names[h.queue], h.first, h.first + h.count - 1)
                        for h in headers
                        if h.kind == RECORDS and block.reason == DEAD_LETTERED and h.queue != mine
                    ]
                    yield place.step(
                        "removed", time=block.time, reason=block.reason, dead_letters=beside
                    )

    def _record_step(self, block: RecordBlock, place: _Place, headers: list[BlockHeader]) -> Step:
        at = block.counters().index(self._counter)
        time, size = block.times()[at], block.record_bytes(at)
        if block.kind == MOVED:
            return place.step("restored" if self._removed else "moved", time=time, size=size)
        told = max((h.time for h in headers if h.kind in (REMOVED, STATE)), default=0)
        return place.step(
            "put",
            time=time,
            size=size,
            columns={bit: column[at] for bit, column in block.columns.items()},
            frame_records=sum(h.count for h in headers if h.kind == RECORDS),
            # What is older tells of something else, such as a removal that is told once more.
            frame_time=told if told >= time else 0,
        )

    def _note(self, step: Step) -> None:
        if step.kind == "removed" and self._removed:
            # One that a full disk had left to the checkpoint is told again, and maybe again.
            return
        self._put |= step.kind == "put"
        self._removed = step.kind == "removed" or (self._removed and step.kind != "restored")
        self._count += 1
        if len(self._first) < STEPS_MAX - STEPS_MAX // 2:
            self._first.append(step)
        else:
            self._rest.append(step)

    def result(self) -> Journey:
        queue, counter = self._queue, self._counter
        steps = [*self._first, *self._rest]
        unlogged = self._reader.state.unlogged.get(self._name)
        if self._live or self._removed or (unlogged and not _covers(unlogged, counter)):
            unlogged = None
        return Journey(
            queue=self._name,
            counter=counter,
            steps=steps,
            left_out=self._count - len(steps),
            live=self._live,
            attempts=queue.attempts.get(counter, 0) if queue is not None else 0,
            fate=self._fate(),
            unlogged=(unlogged.reason, unlogged.time) if unlogged is not None else None,
            damage=self._damage,
        )

    def _fate(self) -> Fate:
        if self._put:
            return ""
        if self._queue is None:
            return "not put"
        return "skipped" if self._skipped and not self._damage else "reclaimed"


class _Place(NamedTuple):
    """Where a frame is."""

    segment: int
    offset: int
    sequence: int

    def step(self, kind: Kind, **more: Any) -> Step:
        return Step(
            kind=kind, segment=self.segment, offset=self.offset, sequence=self.sequence, **more
        )


def _may_move(entries: QueueIndex, counter: int) -> bool:
    return any(entry.first <= counter <= entry.last for entry in entries.moved)


def _covers(unlogged: UnloggedEntry, counter: int) -> bool:
    return unlogged.first <= counter <= unlogged.last
