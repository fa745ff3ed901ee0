"""Damage to the files of a store: every kind of it, and the verdict on each case (T11).

A `Sample` is a store as bytes, with the truth about it. A `Case` is the same files with one thing
wrong. `judge` opens and reads a case: either nothing has changed, or an error of ours names a
damaged file and a byte in it. Anything else raises `WrongVerdict`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from fifoq.testing.image import Image
from fifoq.testing.pending import SECTOR_BYTES
from fifoq.testing.simfiles import SimFiles
from store import CorruptionError, Key, Log, LogOptions, open_log
from store.blocks import ACKED, BLOCK_HEADER_BYTES, block_headers, records_weight
from store.checkpoint import CHECKPOINT_HEADER_BYTES
from store.frames import FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader
from store.genesis import decode_genesis
from store.index import INDEX_HEADER_BYTES
from store.segment import SegmentFile, segment_name
from tests.support.clock import ManualClock

PATH = "/store"
OPTIONS = LogOptions(fill_bytes=512, reserve_bytes=512)
BYTE_VALUES = (0x00, 0x80, 0xFF)


class Ending(Enum):
    """How a sample was left."""

    CLOSED = "closed"
    AT_REST = "crashed at rest, with everything sealed"
    RECLAIMED = "crashed when only the newest checkpoint knew that a segment was gone"


class Verdict(Enum):
    """What a case of damage came to."""

    NO_EFFECT = "no effect"
    ERROR_AT_OPEN = "exact error at open"
    ERROR_AT_READ = "exact error at read"
    TAIL_GONE = "the end is as if it had never been written"


class WrongVerdict(AssertionError):
    """Silent loss, wrong bytes, an inexact error, or a change to the files."""


@dataclass(frozen=True)
class QueueTruth:
    """One queue, as far as a caller can see it."""

    records: list[tuple[Key, bytes]]
    attempts: dict[int, int]
    configuration: bytes | None
    totals: tuple[object, ...]


@dataclass(frozen=True)
class Truth:
    """Everything that can be read from a store."""

    queues: dict[str, QueueTruth]
    states: dict[str, bytes]


@dataclass(frozen=True)
class FrameExtent:
    """A frame of the intact sample: where it lies, whose it is, where its headers are."""

    file: str
    start: int
    end: int
    queues: frozenset[str]
    blocks: tuple[int, ...]


@dataclass
class Sample:
    """The files of a store by name, what they hold, and what they held before."""

    files: dict[str, bytes]
    truth: Truth
    earlier: list[Truth]
    """What it held after each commit since the newest checkpoint but one."""
    older: dict[str, list[bytes]]
    ending: Ending
    extents: list[FrameExtent] = field(default_factory=list)

    @property
    def segments(self) -> list[str]:
        return sorted(name for name in self.files if name.endswith(".log"))

    @property
    def size(self) -> int:
        return sum(len(self.files[name]) for name in self.segments)


@dataclass(frozen=True)
class Case:
    """A sample with one thing wrong."""

    kind: str
    damaged: frozenset[str]
    files: dict[str, bytes]
    note: str
    at: int | None = None
    """The one byte that is wrong, where it is one."""


# Building a sample.


def build_sample(ending: Ending) -> Sample:
    """A store of three segments and more than 16 KiB with everything in it, or the start of it."""
    files, clock = SimFiles(), ManualClock()
    older: dict[str, list[bytes]] = {}
    earlier: list[Truth] = []
    log = open_log(PATH, files=files, clock=clock, options=OPTIONS)
    for step in _story(log, ending):
        clock.advance(seconds=0.25)
        step()
        earlier.append(read_truth(log))
        for name, data in _named(files).items():
            versions = older.setdefault(name, [])
            if not versions or versions[-1] != data:
                versions.append(data)
    if ending is Ending.CLOSED:
        log.close()
    else:
        log.seal()
    content = _named(files)
    log.release()
    for name in older:
        older[name] = [version for version in older[name] if version != content.get(name)]
    sample = Sample(content, earlier[-1], earlier, older, ending)
    sample.extents = list(_extents(sample))
    return sample


def _story(log: Log, ending: Ending) -> Iterator[Callable[[], object]]:
    """Steps that leave live, removed, leased, moved and restored records, states and seals."""
    pad = b"payload"

    def remove(name: str, *counters: int) -> None:
        draft = log.draft()
        found = {key.counter: payload for key, payload in _records(log, name)}
        ranges = [(c, c, records_weight(len(found[c]), 1)) for c in counters]
        draft.remove(log.queue(name), ranges, reason=ACKED)
        log.commit(draft)

    def both() -> None:
        draft = log.draft()
        draft.put(log.queue("a"), [b"both-a" * 9, b"both-a2"])
        draft.put(log.queue("b"), [b"both-b" * 30])
        draft.set_states([("s1", b"one" * 20), ("s2", b"two")])
        log.commit(draft)

    def states(*entries: tuple[str, bytes | None]) -> None:
        draft = log.draft()
        draft.set_states(entries)
        log.commit(draft)

    def lease(name: str, *counters: int) -> None:
        draft = log.draft()
        draft.lease(log.queue(name), counters, [2] * len(counters), deadline=77)
        log.commit(draft, sync=False)

    def configure(name: str, text: bytes) -> None:
        draft = log.draft()
        draft.configure(log.queue(name), text)
        log.commit(draft)

    def restore(name: str) -> None:
        [(key, payload)] = log.take(name)
        draft = log.draft()
        draft.move(log.queue(name), [key.counter], [key.timestamp], [payload])
        log.commit(draft)

    # A segment that will be sparse: its last live records are moved, and it goes.
    yield lambda: log.put("a", [b"early%d" % i * 20 for i in range(9)])
    yield lambda: configure("a", b'{"maxDeliveries": 3}')
    yield lambda: log.put("b", [pad * 300])
    yield lambda: remove("a", 1, 2, 4, 5, 6, 7)
    yield lambda: log.take("b")
    yield log.rotate
    yield lambda: log.put("b", [b"b%d" % i * 250 for i in range(6)])
    while log.compact(200):
        yield lambda: None
    yield lambda: log.put("b", [b"after the reclaiming" * 3])
    if ending is Ending.RECLAIMED:
        return
    yield both
    yield lambda: lease("a", 9)
    yield log.seal
    yield lambda: log.put("a", [pad * n for n in range(1, 30)])
    yield lambda: states(("s1", b"newer"), ("s3", b"three" * 40))
    yield log.rotate
    yield lambda: log.put("b", [pad * 40, b"", b"x" * 1900])
    yield lambda: log.put("a", [b"one by one" * 12], sync=False)
    yield lambda: log.put("a", [b"unsynced" * 12], sync=False)
    yield lambda: restore("b")
    yield lambda: states(("s2", None))
    yield log.flush
    yield log.rotate
    yield lambda: log.put("a", [b"late" * 400])
    yield lambda: remove("a", 3, 12, 13)
    yield log.checkpoint
    yield lambda: lease("b", 3, 4)
    yield lambda: log.put("b", [b"last words" * 60, b"of b"])
    yield both
    yield lambda: log.put("a", [b"a goes last" * 5])


def _named(files: SimFiles) -> dict[str, bytes]:
    prefix = PATH + "/"
    return {path.removeprefix(prefix): data for path, data in files.image().files.items()}


def _extents(sample: Sample) -> Iterator[FrameExtent]:
    disk = disk_of(sample.files)
    directory = disk.open_dir(PATH)
    for name in sample.segments:
        handle = disk.open(directory, name, write=False)
        header = SegmentHeader.decode(sample.files[name])
        file = SegmentFile(disk, handle, header.number, header.store_id)
        content = sample.files[name]
        end = len(content.rstrip(b"\0")) + 7 & ~7
        for frame in file.frames(SEGMENT_HEADER_BYTES, end):
            head = frame.header
            names = frozenset(e.name for e in decode_genesis(frame.body, head.genesis_bytes))
            blocks: tuple[int, ...] = ()
            if not head.flags:
                start = frame.offset + FRAME_HEADER_BYTES
                found = block_headers(frame.body, head.block_count, head.genesis_bytes)
                blocks = tuple(start + block.at for block in found)
            yield FrameExtent(name, frame.offset, frame.end, names, blocks)


def _records(log: Log, name: str) -> list[tuple[Key, bytes]]:
    return [pair for b in log.read(name) for pair in zip(b.keys(), b.payloads(), strict=True)]


def read_truth(log: Log) -> Truth:
    """Read everything. Whatever a read raises comes through."""
    queues = {
        name: _queue_truth(log, name, _records(log, name)) for name in sorted(log.state.queues)
    }
    states = {name: log.state_of(name) for name in sorted(log.state.states)}
    return Truth(queues, {name: value for name, value in states.items() if value is not None})


def _queue_truth(log: Log, name: str, records: list[tuple[Key, bytes]]) -> QueueTruth:
    queue = log.state.queues[name]
    genesis = queue.genesis
    totals = (
        genesis.version,
        genesis.queue_size,
        genesis.queue_bytes,
        genesis.total_put_count,
        genesis.total_take_count,
        genesis.total_delay_ns,
        genesis.last_put_time,
        genesis.last_take_time,
        genesis.high_water_mark,
        genesis.low_water_mark,
        genesis.high_water_time,
        genesis.low_water_time,
        genesis.floor,
    )
    return QueueTruth(records, dict(queue.attempts), queue.configuration, totals)


# Cases.


def flips(sample: Sample, *, bit: int | None = None) -> Iterator[Case]:
    """That bit of every byte of every file, or a bit that changes from byte to byte."""
    for name, content in sample.files.items():
        for offset, value in enumerate(content):
            which = (offset * 5 + offset // 8) % 8 if bit is None else bit
            yield _byte_case("flip", sample, name, offset, value ^ 1 << which)


def header_bytes(sample: Sample, values: Iterable[int] | None = None) -> Iterator[Case]:
    """Every byte of every header, set to many values, or to those given."""
    for name, content in sample.files.items():
        for offset in sorted(_header_offsets(sample, name)):
            old = content[offset]
            chosen = values or {*BYTE_VALUES, old ^ 0xFF, (old + 1) % 256}
            for value in sorted(set(chosen) - {old}):
                yield _byte_case("header byte", sample, name, offset, value)


def truncations(sample: Sample, *, stride: int) -> Iterator[Case]:
    """Cut each file at every `stride`-th length and at and beside every boundary."""
    for name, content in sample.files.items():
        lengths = set(range(0, len(content), stride))
        for boundary in _boundaries(sample, name):
            lengths.update((boundary - 1, boundary, boundary + 1))
        for length in sorted(length for length in lengths if 0 <= length < len(content)):
            changed = {**sample.files, name: content[:length]}
            yield Case("truncate", frozenset({name}), changed, f"{name} cut to {length}", length)


def sectors(sample: Sample) -> Iterator[Case]:
    """Each sector zeroed, copied over its neighbour, swapped with it, and stale."""
    for name, content in sample.files.items():
        for start in range(0, len(content), SECTOR_BYTES):
            here = content[start : start + SECTOR_BYTES]
            yield from _sector_case("zero", sample, name, start, bytes(len(here)))
            following = content[start + SECTOR_BYTES : start + 2 * SECTOR_BYTES]
            if len(following) == SECTOR_BYTES:
                yield from _sector_case("duplicate", sample, name, start + SECTOR_BYTES, here)
                yield from _sector_case("duplicate", sample, name, start, following)
                yield from _sector_case("swap", sample, name, start, following + here)
            stale = {
                version[start : start + SECTOR_BYTES].ljust(len(here), b"\0")[: len(here)]
                for version in sample.older.get(name, ())
            }
            for old in sorted(stale):
                yield from _sector_case("stale", sample, name, start, old)


def whole_files(sample: Sample) -> Iterator[Case]:
    """Each file dropped, copied or moved to another name, swapped with one of its kind, or old."""
    names = sorted(sample.files)
    for name in names:
        rest = {other: data for other, data in sample.files.items() if other != name}
        yield Case("drop", frozenset({name}), rest, f"{name} dropped")
        for other in _other_names(sample, name):
            note = f"{name} as {other}"
            both = frozenset({name, other})
            yield Case("duplicate file", both, {**sample.files, other: sample.files[name]}, note)
            yield Case("rename file", both, {**rest, other: sample.files[name]}, note)
        for other in names:
            if name < other and _suffix(name) == _suffix(other):
                swapped = {name: sample.files[other], other: sample.files[name]}
                note = f"{name} and {other} swapped"
                yield Case("swap files", frozenset(swapped), {**sample.files, **swapped}, note)


def _other_names(sample: Sample, name: str) -> list[str]:
    suffix = _suffix(name)
    if suffix not in (".log", ".idx"):
        return [other for other in ("checkpoint.a", "checkpoint.b") if other != name]
    numbers = [int(segment.partition(".")[0]) for segment in sample.segments]
    wanted = {1, *numbers, max(numbers) + 1, max(numbers) + 2}
    others = [segment_name(number).replace(".log", suffix) for number in sorted(wanted)]
    return [other for other in others if other != name]


def _suffix(name: str) -> str:
    return name[-4:] if name.endswith((".log", ".idx")) else "checkpoint"


def _byte_case(kind: str, sample: Sample, name: str, offset: int, value: int) -> Case:
    content = sample.files[name]
    changed = content[:offset] + bytes([value]) + content[offset + 1 :]
    note = f"{name} byte {offset}: {content[offset]:#04x} to {value:#04x}"
    return Case(kind, frozenset({name}), {**sample.files, name: changed}, note, offset)


def _sector_case(kind: str, sample: Sample, name: str, start: int, data: bytes) -> Iterator[Case]:
    content = sample.files[name]
    changed = content[:start] + data + content[start + len(data) :]
    if changed != content:
        note = f"{name} sector at {start}"
        yield Case(f"{kind} sector", frozenset({name}), {**sample.files, name: changed}, note)


def _header_offsets(sample: Sample, name: str) -> set[int]:
    if name.endswith(".idx"):
        return set(range(INDEX_HEADER_BYTES))
    if not name.endswith(".log"):
        return set(range(CHECKPOINT_HEADER_BYTES))
    offsets = set(range(SEGMENT_HEADER_BYTES))
    for extent in sample.extents:
        if extent.file == name:
            offsets.update(range(extent.start, extent.start + FRAME_HEADER_BYTES))
            for block in extent.blocks:
                offsets.update(range(block, block + BLOCK_HEADER_BYTES))
    return offsets


def _boundaries(sample: Sample, name: str) -> set[int]:
    found = {len(sample.files[name]), *range(0, len(sample.files[name]), SECTOR_BYTES)}
    for extent in sample.extents:
        if extent.file == name:
            found.update((extent.start, extent.start + FRAME_HEADER_BYTES, extent.end))
            found.update(extent.blocks)
    return found | {SEGMENT_HEADER_BYTES, CHECKPOINT_HEADER_BYTES, INDEX_HEADER_BYTES}


# The verdict.


def judge(sample: Sample, case: Case) -> Verdict:
    """Open the case and read everything. WrongVerdict if that is neither the truth nor exact."""
    disk = disk_of(case.files)
    try:
        log = open_log(PATH, files=disk, clock=ManualClock(), options=OPTIONS)
    except CorruptionError as error:
        _check_exact(sample, case, error)
        if _named(disk) != case.files:
            raise WrongVerdict(f"{case.note}: a failed open changed the files") from error
        if disk._handles:
            raise WrongVerdict(f"{case.note}: a failed open left handles open") from error
        return Verdict.ERROR_AT_OPEN
    try:
        return _judge_contents(sample, case, log)
    finally:
        log.release()


def _judge_contents(sample: Sample, case: Case, log: Log) -> Verdict:
    failed: set[str] = set()
    queues: dict[str, QueueTruth] = {}
    for name in sorted(log.state.queues):
        records: list[tuple[Key, bytes]] = []
        try:
            for block in log.read(name):
                records += zip(block.keys(), block.payloads(), strict=True)
        except CorruptionError as error:
            _check_exact(sample, case, error)
            failed.add(name)
            truth = sample.truth.queues[name].records
            if records != truth[: len(records)]:
                raise WrongVerdict(f"{case.note}: wrong records before the error") from error
            records = truth
        queues[name] = _queue_truth(log, name, records)
    states: dict[str, bytes] = {}
    for name in sorted(log.state.states):
        try:
            value = log.state_of(name)
        except CorruptionError as error:
            _check_exact(sample, case, error)
            failed.add(f"state {name}")
            value = sample.truth.states[name]
        if value is not None:
            states[name] = value
    found = Truth(queues, states)
    if found == sample.truth:
        _check_others(sample, case, failed)
        return Verdict.ERROR_AT_READ if failed else Verdict.NO_EFFECT
    if _may_lose_tail(sample, case) and not failed and found in sample.earlier:
        return Verdict.TAIL_GONE
    raise WrongVerdict(f"{case.note}: {case.kind}: not the truth: {_difference(found, sample)}")


def _check_exact(sample: Sample, case: Case, error: CorruptionError) -> None:
    name = error.path.rpartition("/")[2]
    # An old checkpoint in a new one's place asks for segments that were reclaimed since.
    misled = "checkpoint" in "".join(case.damaged) and name not in sample.files
    if name not in case.damaged and not misled:
        raise WrongVerdict(f"{case.note}: the error names another file: {error}") from error
    size = max(len(sample.files.get(name, b"")), len(case.files.get(name, b"")))
    if not 0 <= error.offset <= size:
        raise WrongVerdict(f"{case.note}: no such byte: {error}") from error


def _check_others(sample: Sample, case: Case, failed: set[str]) -> None:
    """Damage to a frame stops only the queues that are in it."""
    if case.at is None or case.kind == "truncate" or not failed:
        return
    (name,) = case.damaged
    for extent in sample.extents:
        if extent.file == name and extent.start <= case.at < extent.end:
            others = {queue for queue in failed if queue in sample.truth.queues} - extent.queues
            if others:
                raise WrongVerdict(f"{case.note}: damage to {set(extent.queues)} stops {others}")


def _may_lose_tail(sample: Sample, case: Case) -> bool:
    """Whether the end of the last segment is cut off, together with all that could tell of it.

    A store that was not closed has its last witness there; no file elsewhere knows its length.
    """
    cut_short = case.kind == "truncate" and sample.segments[-1] in case.damaged
    return cut_short and sample.ending is not Ending.CLOSED


def _difference(found: Truth, sample: Sample) -> str:
    lines = []
    for name in sorted({*found.queues, *sample.truth.queues}):
        mine, true = found.queues.get(name), sample.truth.queues.get(name)
        if mine is None or true is None:
            lines.append(f"queue {name}: found {mine is not None}")
        elif mine != true:
            counts = (len(mine.records), len(true.records))
            lines.append(f"queue {name}: records {counts}, {mine.totals} for {true.totals}")
            lines.append(f"attempts {mine.attempts} for {true.attempts}")
    if found.states != sample.truth.states:
        lines.append(f"states {found.states}")
    return "; ".join(lines)


def disk_of(files: dict[str, bytes]) -> SimFiles:
    """A machine just started on a store with these files."""
    return SimFiles.from_image(Image.of({f"{PATH}/{name}": data for name, data in files.items()}))
