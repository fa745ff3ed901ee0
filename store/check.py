"""The check: every frame, chain, index and genesis of a store, offline or beside a live owner.

It reads and changes nothing. Damage is told with its exact place and, where a checkpoint or genesis
knows them, the counters that are lost with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import msgspec

from store.checkpoint import CHECKPOINT_NAMES
from store.directory import Directory, Names, access_error
from store.errors import CorruptionError, DamageError, FormatError
from store.files import Clock, Files
from store.frames import FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader
from store.index import SegmentIndex
from store.osfiles import OsFiles
from store.ranges import RangeSet
from store.reader import Reader
from store.recovery import find_store_id, read_checkpoints
from store.replay import extend_index
from store.segment import READ_BYTES, SegmentFile, index_name, read_exactly, segment_name
from store.state import QueueState, State
from store.survey import Survey, survey

ROUNDS_MAX: Final = 8
"""How often the check reads on because the owner reclaimed a segment meanwhile."""

Progress = Callable[[int, int], None]


class Damage(msgspec.Struct, frozen=True):
    """One damaged stretch: bytes offset..end of a file, and why they are not believed."""

    file: str
    offset: int
    end: int
    reason: str


class SegmentReport(msgspec.Struct, frozen=True):
    """What one segment holds.

    `torn_bytes` lie behind its last commit and are not all zeros: a crash cut them short, or a
    live owner is writing them. `orphan_frames` counts the frame headers among them.
    """

    number: int
    bytes: int
    frames: int
    records: int
    live: int
    index: str
    torn_bytes: int = 0
    orphan_frames: int = 0


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
        try:
            with Reader(path, files=files, clock=clock) as reader:
                _check(reader, report, progress)
        except CorruptionError as error:
            _blame(report, error)
            directory = Directory(files, path)
            try:
                _check_unreadable(directory, report, progress)
            finally:
                directory.close()
    except OSError as error:
        raise access_error(path, error) from error
    return report


def _check(reader: Reader, report: Report, progress: Progress | None) -> None:
    directory = reader.directory
    _check_checkpoints(directory, directory.names(), report)
    segments = _Segments(directory, reader.store_id, progress)
    state, complete = _survey_beside_owner(reader, segments)
    segments.tell(report, state)
    _check_chain(directory, reader.store_id, segments.surveys, report)
    known = {(number, start, end) for number, start, end in state.damage}
    report.damage = [
        damage
        for damage in report.damage
        if not any(
            damage.file == segment_name(number) and start <= damage.offset and damage.end <= end
            for number, start, end in known
        )
    ]
    if complete:
        _tell_unseen(report, state, segments)
    else:
        report.warnings.append("the owner reclaims faster than this reads: counters not compared")
    for text in state.disagreements(state.queues):
        report.damage.append(Damage("genesis", 0, 0, text))


def _survey_beside_owner(reader: Reader, segments: _Segments) -> tuple[State, bool]:
    """Read every segment; returns the state they belong to, and whether all of it was read.

    A segment that the owner reclaims meanwhile is no loss. Its records were taken, or they lie
    where a newer state says: what that one has besides is read in another round.
    """
    state = reader.state
    for _ in range(ROUNDS_MAX):
        lengths = {number: segment.length for number, segment in state.segments.items()}
        absent = segments.survey(lengths)
        missing = reader.start_anew(absent) if absent else []
        segments.missing.update(missing)
        segments.reclaimed.update(number for number in absent if number not in missing)
        if len(missing) == len(absent):
            return state, True
        state = reader.state
    return state, False


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
        with suppress(FileNotFoundError), directory.reading(segment_name(number)) as handle:
            lengths[number] = directory.files.size(handle)
    state = State()
    if copies:
        state.load(copies[0][2])
    segments = _Segments(directory, store_id, progress, zeros_ahead=True)
    segments.reclaimed.update(segments.survey(lengths))
    blamed = {damage.file for damage in report.damage}
    segments.missing.update(
        number
        for number in state.segments
        if number not in lengths and segment_name(number) not in blamed
    )
    segments.tell(report, state)
    _tell_unseen(report, state, segments)


def _tell_unseen(report: Report, state: State, segments: _Segments) -> None:
    for queue in state.queues.values():
        lost = unseen(queue, segments.surveys)
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


class _Segments:
    """The segments that were read, and what was found in each, by number."""

    def __init__(
        self,
        directory: Directory,
        store_id: bytes,
        progress: Progress | None,
        *,
        zeros_ahead: bool = False,
    ) -> None:
        """With `zeros_ahead` lengths are those of files, whose ends may not be written yet."""
        self._zeros_ahead = zeros_ahead
        self._directory = directory
        self._store_id = store_id
        self._progress = progress
        self._done = 0
        self._indexes: dict[int, str] = {}
        self._behind: dict[int, tuple[int, int]] = {}
        self._damage: dict[int, list[Damage]] = {}
        self._warnings: dict[int, list[str]] = {}
        self.surveys: dict[int, Survey] = {}
        self.missing: set[int] = set()
        self.reclaimed: set[int] = set()

    def survey(self, lengths: dict[int, int]) -> list[int]:
        """Read segments up to those lengths, unless that was done; returns which are not there."""
        absent = []
        wanted = {
            number: length
            for number, length in sorted(lengths.items())
            if number not in self.missing
            and (number not in self.surveys or self.surveys[number].end < length)
        }
        total = self._done + sum(wanted.values())
        for number, length in wanted.items():
            try:
                with self._directory.reading(segment_name(number)) as handle:
                    file = SegmentFile(self._directory.files, handle, number, self._store_id)
                    is_last = number == max(lengths)
                    self.surveys[number] = self._survey_one(file, length, is_last)
            except FileNotFoundError:
                absent.append(number)
            self._done += length
            if self._progress is not None:
                self._progress(self._done, total)
        return absent

    def _survey_one(self, file: SegmentFile, length: int, is_last: bool) -> Survey:
        name = segment_name(file.number)
        damages = self._damage[file.number] = []
        warnings = self._warnings[file.number] = []
        try:
            file.header()
        except (DamageError, FormatError) as error:
            damages.append(Damage(name, 0, SEGMENT_HEADER_BYTES, str(error)))
        found, frames = survey(file, SEGMENT_HEADER_BYTES, length)
        rebuilt = SegmentIndex(SEGMENT_HEADER_BYTES)
        stored = self._directory.read_index(file.number, file.store_id)
        matches = "none" if stored is None else "sound"
        if stored is None and file.number in self._directory.names().indexes:
            warnings.append(f"{index_name(file.number)}: damaged; it is built again when needed")
        for frame in frames:
            extend_index(rebuilt, frame)
            if stored is None or frame.end != stored.length or not found.sound:
                continue
            if stored.queues != rebuilt.queues:
                matches = "wrong"
        for offset, end, reason in found.damage:
            if not self._zeros_ahead or end < length or not file.is_zero(offset, end):
                damages.append(Damage(name, offset, end, reason))
        if matches == "wrong":
            damages.append(Damage(index_name(file.number), 0, 0, "does not fit the segment"))
        self._indexes[file.number] = matches
        start = _end_of_commits(file, found) if is_last else length
        torn_bytes, orphans = self._behind[file.number] = _behind(file, start)
        if torn_bytes:
            warnings.append(
                f"{name}: {torn_bytes} bytes from byte {start} on belong to no commit "
                f"(frame headers among them: {orphans}): torn by a crash, or being written"
            )
        return found

    def tell(self, report: Report, state: State) -> None:
        """Put everything into the report."""
        for number, found in sorted(self.surveys.items()):
            place = state.segments.get(number)
            report.segments.append(
                SegmentReport(
                    number,
                    found.end,
                    found.frame_count,
                    found.record_count,
                    place.live_count if place is not None else 0,
                    self._indexes[number],
                    *self._behind[number],
                )
            )
            report.damage += self._damage[number]
            report.warnings += self._warnings[number]
            if found.unread_count:
                report.warnings.append(
                    f"{segment_name(number)}: {found.unread_count} records are compressed in a way "
                    f"that this machine cannot read; their checksums are sound"
                )
        for number in sorted(self.missing):
            report.damage.append(Damage(segment_name(number), 0, 0, "the segment is missing"))
        for number in sorted(self.reclaimed):
            report.warnings.append(f"{segment_name(number)}: reclaimed while it was checked")


def _end_of_commits(file: SegmentFile, found: Survey) -> int:
    """The end of the frames that continue the survey: commits that nothing calls durable yet."""
    offset, sequence, previous = found.end, None, None
    if found.frame_count:
        sequence, previous = found.last_sequence + 1, found.last_checksum
    size = file.files.size(file.handle)
    with suppress(DamageError):
        for frame in file.frames(offset, size, sequence=sequence, previous=previous):
            offset = frame.end
    return offset


def _behind(file: SegmentFile, start: int) -> tuple[int, int]:
    """How many bytes lie behind `start` up to the last that is not zero; frame headers in them."""
    end = offset = start
    while data := read_exactly(file.files, file.handle, READ_BYTES, offset):
        written = len(data.rstrip(b"\0"))
        if written:
            end = offset + written
        offset += len(data)
    # The last header may end in zeros of its own.
    return end - start, sum(1 for _ in file.sound_headers(start, end + FRAME_HEADER_BYTES))


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
        key = queue.name, span.moved
        seen = found.seen.get(key, RangeSet()) if found is not None else RangeSet()
        for first, last in live_ranges(queue, span.first, span.last):
            for start, end in seen.missing(first, last):
                lost.add(start, end)
    return lost


def live_ranges(queue: QueueState, first: int, last: int) -> Iterable[tuple[int, int]]:
    """The live stretches of counters first..last."""
    return queue.removed.missing(max(first, queue.genesis.floor + 1), last)
