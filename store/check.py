"""The check: every frame, chain, index and genesis of a store, offline or beside a live owner.

It reads and changes nothing. Damage is told with its exact place and, where a checkpoint or genesis
knows them, the counters that are lost with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from store.checkpoint import CHECKPOINT_NAMES
from store.directory import Directory, Names
from store.errors import CorruptionError, DamageError, FormatError
from store.files import Clock, Files
from store.frames import SEGMENT_HEADER_BYTES, SegmentHeader
from store.index import SegmentIndex
from store.osfiles import OsFiles
from store.ranges import RangeSet
from store.reader import Reader
from store.recovery import find_store_id, read_checkpoints
from store.replay import extend_index
from store.segment import SegmentFile, index_name, segment_name
from store.state import QueueState, State
from store.survey import Survey, survey

Progress = Callable[[int, int], None]


class Damage(msgspec.Struct, frozen=True):
    """One damaged stretch: bytes offset..end of a file, and why they are not believed."""

    file: str
    offset: int
    end: int
    reason: str


class SegmentReport(msgspec.Struct, frozen=True):
    """What one segment holds."""

    number: int
    bytes: int
    frames: int
    records: int
    live: int
    index: str


class Report(msgspec.Struct):
    """What the check found. `missing` maps a queue to the inclusive counter ranges it lost."""

    path: str
    segments: list[SegmentReport]
    damage: list[Damage]
    missing: dict[str, list[tuple[int, int]]]
    warnings: list[str]

    @property
    def sound(self) -> bool:
        return not self.damage and not self.missing


def check_store(
    path: str,
    *,
    files: Files | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> Report:
    """Read the whole store. FormatError or AccessError if there is none to read."""
    files = files or OsFiles()
    report = Report(path, [], [], {}, [])
    try:
        with Reader(path, files=files, clock=clock) as reader:
            _check(reader.directory, reader.state, reader.store_id, report, progress)
    except CorruptionError as error:
        _blame(report, error)
        directory = Directory(files, path)
        try:
            _check_unreadable(directory, report, progress)
        finally:
            directory.close()
    return report


def _check(
    directory: Directory,
    state: State,
    store_id: bytes,
    report: Report,
    progress: Progress | None,
) -> None:
    names = directory.names()
    _check_checkpoints(directory, names, report)
    lengths = {number: segment.length for number, segment in state.segments.items()}
    surveys = _survey_all(directory, store_id, lengths, report, state, progress)
    _check_chain(directory, store_id, surveys, report)
    known = {(number, start, end) for number, start, end in state.damage}
    report.damage = [
        damage
        for damage in report.damage
        if not any(
            damage.file == segment_name(number) and start <= damage.offset and damage.end <= end
            for number, start, end in known
        )
    ]
    for queue in state.queues.values():
        lost = unseen(queue, surveys)
        if lost:
            report.missing[queue.name] = list(lost)
    for text in state.disagreements(state.queues):
        report.damage.append(Damage("genesis", 0, 0, text))


def _check_unreadable(directory: Directory, report: Report, progress: Progress | None) -> None:
    """Survey every segment of a store whose state cannot be told."""
    names = directory.names()
    try:
        copies = read_checkpoints(directory, names)
        store_id = copies[0][1] if copies else find_store_id(directory, names)
    except CorruptionError as error:
        _blame(report, error)
        return
    lengths = {}
    for number in names.segments:
        with directory.reading(segment_name(number)) as handle:
            lengths[number] = directory.files.size(handle)
    state = State()
    if copies:
        state.load(copies[0][2])
    surveys = _survey_all(directory, store_id, lengths, report, state, progress)
    for queue in state.queues.values():
        lost = unseen(queue, surveys)
        if lost:
            report.missing[queue.name] = list(lost)


def _blame(report: Report, error: CorruptionError) -> None:
    name = error.path.rpartition("/")[2]
    report.damage.append(Damage(name, error.offset, error.offset, error.reason))


def _check_checkpoints(directory: Directory, names: Names, report: Report) -> None:
    for name in CHECKPOINT_NAMES:
        if name not in names.checkpoints:
            continue
        try:
            directory.read_checkpoint(name)
        except (DamageError, FormatError) as error:
            # A live owner may be writing this copy; the other one is whole then.
            report.warnings.append(f"{name}: {error}")


def _survey_all(
    directory: Directory,
    store_id: bytes,
    lengths: dict[int, int],
    report: Report,
    state: State,
    progress: Progress | None,
) -> dict[int, Survey]:
    surveys: dict[int, Survey] = {}
    total = sum(lengths.values())
    done = 0
    for number, length in sorted(lengths.items()):
        try:
            with directory.reading(segment_name(number)) as handle:
                file = SegmentFile(directory.files, handle, number, store_id)
                surveys[number] = _survey_one(directory, file, length, report, state)
        except FileNotFoundError:
            report.warnings.append(f"{segment_name(number)}: reclaimed while it was checked")
        done += length
        if progress is not None:
            progress(done, total)
    return surveys


def _survey_one(
    directory: Directory, file: SegmentFile, length: int, report: Report, state: State
) -> Survey:
    name = segment_name(file.number)
    try:
        file.header()
    except (DamageError, FormatError) as error:
        report.damage.append(Damage(name, 0, SEGMENT_HEADER_BYTES, str(error)))
    found, frames = survey(file, SEGMENT_HEADER_BYTES, length)
    rebuilt = SegmentIndex(SEGMENT_HEADER_BYTES)
    stored = directory.read_index(file.number, file.store_id)
    matches = "none" if stored is None else "sound"
    if stored is None and file.number in directory.names().indexes:
        report.warnings.append(f"{index_name(file.number)}: damaged; it is built again when needed")
    for frame in frames:
        extend_index(rebuilt, frame)
        if stored is None or frame.end != stored.length or not found.sound:
            continue
        if stored.queues != rebuilt.queues:
            matches = "wrong"
    for offset, end, reason in found.damage:
        if not file.is_zero(offset, end) or end < length:
            report.damage.append(Damage(name, offset, end, reason))
    if matches == "wrong":
        report.damage.append(Damage(index_name(file.number), 0, 0, "does not fit the segment"))
    place = state.segments.get(file.number)
    live = place.live_count if place is not None else 0
    report.segments.append(
        SegmentReport(file.number, length, found.frame_count, found.record_count, live, matches)
    )
    return found


def _check_chain(
    directory: Directory, store_id: bytes, surveys: dict[int, Survey], report: Report
) -> None:
    for number, found in surveys.items():
        before = surveys.get(number - 1)
        if before is None or not before.sound or not found.sound:
            continue
        header = _header(directory, store_id, number)
        if header is not None and before.frame_count:
            wanted = (before.end, before.last_checksum, before.last_sequence + 1)
            said = (header.previous_length, header.previous_checksum, header.first_sequence)
            if wanted != said:
                reason = f"segment {number - 1} does not end as this header says"
                report.damage.append(Damage(segment_name(number), 0, SEGMENT_HEADER_BYTES, reason))


def _header(directory: Directory, store_id: bytes, number: int) -> SegmentHeader | None:
    try:
        with directory.reading(segment_name(number)) as handle:
            return SegmentFile(directory.files, handle, number, store_id).header()
    except (DamageError, FormatError, FileNotFoundError):
        return None


def unseen(queue: QueueState, surveys: dict[int, Survey]) -> RangeSet:
    """Live counters of a queue that no intact frame of their segment holds."""
    lost = RangeSet()
    for span in queue.spans:
        if not span.live:
            continue
        found = surveys.get(span.segment)
        seen = found.seen.get(queue.name, RangeSet()) if found is not None else RangeSet()
        for first, last in live_ranges(queue, span.first, span.last):
            for start, end in seen.missing(first, last):
                lost.add(start, end)
    return lost


def live_ranges(queue: QueueState, first: int, last: int) -> Iterable[tuple[int, int]]:
    """The live stretches of counters first..last."""
    return queue.removed.missing(max(first, queue.genesis.floor + 1), last)
