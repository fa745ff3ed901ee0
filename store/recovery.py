"""Recovery: from the files of a directory to a state, and a verdict on the last segment's end.

Nothing here writes. What it reads it first makes durable and then reads again from the disk: after
a crash the page cache can show bytes that a failed sync dropped.

A bad frame is a torn tail only if it stands behind everything that any witness calls durable: the
checkpoint, the next segment's header, or `durable_upto` of a frame behind it. Otherwise it is
damage, and opening raises.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from store.checkpoint import CHECKPOINT_NAMES, Checkpoint
from store.directory import Directory, Names, sync_file
from store.errors import CorruptionError, DamageError, FormatError
from store.frames import SEGMENT_HEADER_BYTES, FrameHeader, SegmentHeader
from store.replay import apply_frame
from store.segment import Frame, SegmentFile, read_exactly, segment_name
from store.segment_state import SegmentState
from store.state import State

logger = logging.getLogger("store")

ASTRAY_BYTES: Final = (512, -512, 1024, -1024)
"""How far from its place a misdirected witness is looked for."""


class Position(NamedTuple):
    """Where the log ends: behind frame `sequence`, at `offset` of `segment`."""

    segment: int
    offset: int
    sequence: int
    checksum: int


class Recovered(NamedTuple):
    """What a directory holds."""

    store_id: bytes
    state: State
    end: Position
    checkpoint_number: int
    checkpoint_name: str | None
    clean: bool
    """The end is as a close left it: writing may go on right there."""
    torn_bytes: int
    """Bytes behind the end that a crash cut short; they stay in their segment, never delivered."""
    leftovers: list[int]
    """Numbers of segments that were reclaimed, index alone included, or never got their header."""
    is_cut: bool = False
    """The checkpoint's own segment is lost: the next one to be made has its number."""


def recover(directory: Directory, names: Names) -> Recovered | None:
    """Read a store. None if it was never completely made, so that nothing can be in it.

    Every file is made durable before it is believed. CorruptionError for damage, FormatError for
    a newer format or for a directory of another kind.
    """
    directory.sync()
    for name in names.checkpoints:
        _settle(directory, name)
    copies = read_checkpoints(directory, names)
    if not copies:
        if is_half_made(directory, names):
            return None
        return _full_scan(directory, names, None)
    name, store_id, checkpoint = copies[0]
    for number in names.segments:
        if number >= checkpoint.segment:
            _settle(directory, segment_name(number))
    try:
        return _replay(directory, names, store_id, checkpoint, name)
    except _MissingSegment:
        if len(copies) == len(CHECKPOINT_NAMES):
            raise
        # The copy that is damaged may have been the one that no longer needs that segment.
        return _full_scan(directory, names, checkpoint)


class _MissingSegment(CorruptionError):
    """A segment that must be there is not."""


def _settle(directory: Directory, name: str) -> None:
    """Make a file durable, then drop what the cache holds of it, which may be less true."""
    with directory.reading(name) as handle:
        sync_file(directory.files, handle, f"{directory.path}/{name}")
        directory.files.forget_cache(handle)


def read_checkpoints(directory: Directory, names: Names) -> list[tuple[str, bytes, Checkpoint]]:
    """The sound copies, the newest first."""
    copies = []
    for name in names.checkpoints:
        try:
            copies.append((name, *directory.read_checkpoint(name)))
        except DamageError as error:
            logger.warning("%s/%s: %s", directory.path, name, error.reason)
    copies.sort(key=lambda copy: copy[2].number, reverse=True)
    if len({store_id for _, store_id, _ in copies}) > 1:
        path = f"{directory.path}/{copies[-1][0]}"
        raise CorruptionError(path, 0, "the two checkpoints belong to different stores")
    return copies


def is_half_made(directory: Directory, names: Names) -> bool:
    """Whether making the store stopped before anything could be put into it."""
    if names.segments not in ([], [1]):
        return False
    if not names.segments:
        if names.others and not names.checkpoints:
            raise FormatError(
                f"{directory.path}: not a store, but not empty either (it holds "
                f"{names.others[0]!r}). Nothing was changed. Give an empty or a new directory."
            )
        if names.checkpoints:
            raise CorruptionError(_path(directory, 1), 0, "every segment is missing")
        return True
    with directory.reading(segment_name(1)) as handle:
        file = SegmentFile(directory.files, handle, 1, bytes(16))
        return file.is_zero(SEGMENT_HEADER_BYTES, directory.files.size(handle))


def _path(directory: Directory, number: int) -> str:
    return f"{directory.path}/{segment_name(number)}"


def _replay(
    directory: Directory, names: Names, store_id: bytes, checkpoint: Checkpoint, name: str
) -> Recovered:
    """The checkpoint's state and everything behind it."""
    start = Position(
        checkpoint.segment, checkpoint.offset, checkpoint.sequence, checkpoint.last_checksum
    )
    state = State()
    state.load(checkpoint)
    for number, segment in state.segments.items():
        if number not in names.segments:
            raise _MissingSegment(_path(directory, number), 0, "the segment is missing")
        known = [(first, end) for n, first, end in state.damage if n == number]
        _check_sealed(directory, store_id, number, segment.length, known)
    later = [number for number in names.segments if number > start.segment]
    headers = _read_headers(directory, store_id, later)
    for expected, number in enumerate(headers, start.segment + 1):
        if number != expected:
            raise _MissingSegment(_path(directory, expected), 0, "the segment is missing")
    end, torn_bytes = _apply_log(directory, store_id, state, start, headers)
    leftovers = [
        number
        for number in {*names.segments, *names.indexes}
        if number not in state.segments and number not in headers
    ]
    # A clean close cuts the segment to its frames: zeros ahead were written after it.
    clean = checkpoint.clean and end == start and not headers and _ends_at(directory, start)
    return Recovered(store_id, state, end, checkpoint.number, name, clean, torn_bytes, leftovers)


def _ends_at(directory: Directory, end: Position) -> bool:
    with directory.reading(segment_name(end.segment)) as handle:
        return directory.files.size(handle) == end.offset


def _full_scan(directory: Directory, names: Names, older: Checkpoint | None) -> Recovered:
    """The state from frames alone; accepted only if it agrees with the last genesis entries.

    A sound `older` checkpoint cannot be the base of it, but is a witness of what was durable.
    """
    logger.warning("%s: checkpoints do not suffice, reading the whole log", directory.path)
    if not names.segments:
        raise CorruptionError(_path(directory, 1), 0, "every segment is missing")
    for number in names.segments:
        _settle(directory, segment_name(number))
    store_id = find_store_id(directory, names)
    headers = _read_headers(directory, store_id, names.segments)
    if not headers:
        raise CorruptionError(_path(directory, 1), 0, "no segment has a sound header")
    state = State()
    first = min(headers)
    start_segment(state, headers[first])
    start = start_of(headers[first])
    end, torn_bytes = _apply_log(directory, store_id, state, start, headers)
    wrong = state.disagreements(state.queues)
    if older is not None and end.sequence < older.sequence:
        wrong = [f"a checkpoint says that frames up to {older.sequence} were durable"]
    if wrong:
        raise CorruptionError(
            _path(directory, end.segment),
            end.offset,
            f"no newest checkpoint is sound and the log alone is not enough: {wrong[0]}",
        )
    leftovers = [n for n in {*names.segments, *names.indexes} if n not in headers]
    number = older.number if older is not None else 0
    return Recovered(store_id, state, end, number, None, False, torn_bytes, leftovers)


def find_store_id(directory: Directory, names: Names) -> bytes:
    for number in names.segments:
        with directory.reading(segment_name(number)) as handle:
            data = read_exactly(directory.files, handle, SEGMENT_HEADER_BYTES, 0)
            try:
                return SegmentHeader.decode(data).store_id
            except DamageError:
                continue
    raise CorruptionError(_path(directory, names.segments[0]), 0, "no segment header is sound")


def _check_sealed(
    directory: Directory, store_id: bytes, number: int, length: int, known: list[tuple[int, int]]
) -> None:
    """A segment of the checkpoint must have its header and length, but for `known` damage."""
    with directory.reading(segment_name(number)) as handle:
        size = directory.files.size(handle)
        try:
            if not any(first == 0 for first, _ in known):
                SegmentFile(directory.files, handle, number, store_id).header()
            if size < length and not any(first <= size and length <= end for first, end in known):
                raise DamageError(size, f"the file ends here, {length - size} bytes early")
        except DamageError as error:
            raise CorruptionError(_path(directory, number), error.offset, error.reason) from None


def _read_headers(
    directory: Directory, store_id: bytes, numbers: list[int]
) -> dict[int, SegmentHeader]:
    """Headers by number; the last segment may never have got one and is then left out."""
    headers: dict[int, SegmentHeader] = {}
    for number in numbers:
        with directory.reading(segment_name(number)) as handle:
            file = SegmentFile(directory.files, handle, number, store_id)
            try:
                headers[number] = file.header()
            except DamageError as error:
                size = directory.files.size(handle)
                frame = next(file.sound_headers(SEGMENT_HEADER_BYTES, size), None)
                if number != numbers[-1] or frame is not None:
                    path = _path(directory, number)
                    raise CorruptionError(path, error.offset, error.reason) from None
    return headers


def start_segment(state: State, header: SegmentHeader) -> None:
    state.segments[header.number] = SegmentState(
        header.number, SEGMENT_HEADER_BYTES, header.first_sequence, header.created_at
    )


def start_of(header: SegmentHeader) -> Position:
    return Position(
        header.number, SEGMENT_HEADER_BYTES, header.first_sequence - 1, header.previous_checksum
    )


def _apply_log(
    directory: Directory,
    store_id: bytes,
    state: State,
    start: Position,
    headers: dict[int, SegmentHeader],
) -> tuple[Position, int]:
    """Apply every frame behind `start`; returns the log's end and how many torn bytes follow it."""
    position = start
    touched: set[str] = set()
    for number in [start.segment, *(n for n in headers if n > start.segment)]:
        if number != start.segment:
            start_segment(state, headers[number])
            position = start_of(headers[number])
        following = headers.get(number + 1)
        with directory.reading(segment_name(number)) as handle:
            file = SegmentFile(directory.files, handle, number, store_id)
            size = directory.files.size(handle)
            limit = size if following is None else following.previous_length
            position, damage = _apply_segment(
                _path(directory, number), file, state, position, limit, touched
            )
            if following is None:
                torn_bytes = _judge_tail(directory, file, position, size, damage)
            elif damage is not None:
                raise CorruptionError(_path(directory, number), position.offset, damage.reason)
            elif (position.offset, position.checksum, position.sequence + 1) != (
                following.previous_length,
                following.previous_checksum,
                following.first_sequence,
            ):
                reason = f"it does not end where segment {number + 1} says"
                raise CorruptionError(_path(directory, number), position.offset, reason)
    wrong = state.disagreements(touched)
    if wrong:
        raise CorruptionError(_path(directory, position.segment), position.offset, wrong[0])
    return position, torn_bytes


def _apply_frame(path: str, state: State, number: int, frame: Frame) -> list[str]:
    """Apply a frame whose checksums are sound: if it makes no sense, a crash was not the cause."""
    try:
        return apply_frame(state, number, frame, None)
    except DamageError as error:
        raise CorruptionError(path, error.offset, error.reason) from None


def _apply_segment(
    path: str,
    file: SegmentFile,
    state: State,
    position: Position,
    limit: int,
    touched: set[str],
) -> tuple[Position, DamageError | None]:
    """Apply frames up to `limit` or the first bad one; the damage is returned, not raised."""
    frames = file.frames(
        position.offset, limit, sequence=position.sequence + 1, previous=position.checksum
    )
    while True:
        try:
            frame = next(frames, None)
        except DamageError as error:
            return position, error
        if frame is None:
            return position, None
        touched.update(_apply_frame(path, state, file.number, frame))
        position = Position(file.number, frame.end, frame.header.sequence, frame.checksum)


def _judge_tail(
    directory: Directory,
    file: SegmentFile,
    position: Position,
    size: int,
    damage: DamageError | None,
) -> int:
    """How many bytes behind the end are torn: none if only zeros follow. Damage raises."""
    if damage is None or file.is_zero(position.offset, size):
        return 0
    witness = find_witness(file, position.offset, size, position.sequence)
    if witness is not None:
        offset, header = witness
        raise CorruptionError(
            _path(directory, file.number),
            position.offset,
            f"{damage.reason}, yet frame {header.sequence} at byte {offset} says that "
            f"frames up to {header.durable_upto} were durable",
        )
    logger.warning(
        "%s: torn tail behind frame %d, %d bytes set aside",
        _path(directory, file.number),
        position.sequence,
        size - position.offset,
    )
    return size - position.offset


def find_witness(
    file: SegmentFile, start: int, end: int, sequence: int
) -> tuple[int, FrameHeader] | None:
    """A header between `start` and `end`, and its place, that calls more than `sequence` durable.

    A witness may itself have been written to a sector beside its own.
    """
    for astray in (0, *ASTRAY_BYTES):
        for offset, header in file.sound_headers(start, end, astray=astray):
            if header.durable_upto > sequence:
                return offset, header
    return None
