"""Readers: the committed prefix of a store, live or not, from any process and without a lock.

A reader believes a frame only when something later calls it durable: a frame's `durable_upto` or
the next segment's header. So it never shows what a power cut could undo. A tail that nobody
witnesses for `UNWITNESSED_SECONDS` belongs to an owner that died, or that does not sync: the
reader then syncs the segment itself, looks again at what the disk holds, and believes that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final, TypeVar

from store.blocks import RecordBlock
from store.cache import SegmentCache
from store.directory import Directory, access_error, path_text, sync_file
from store.errors import (
    AccessError,
    CorruptionError,
    DamageError,
    FormatError,
    RangeGone,
    StoreClosed,
)
from store.files import Clock, Files
from store.frames import FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader
from store.genesis import Genesis, check_name
from store.index import QueueIndex
from store.journey import Journey, journey
from store.keys import COUNTER_MAX, Key
from store.lookup import Lookup
from store.osfiles import OsFiles, SystemClock
from store.recovery import Position, is_half_made, read_checkpoints, start_of, start_segment
from store.replay import apply_frame
from store.segment import Frame, SegmentFile, read_exactly, segment_name, segment_number
from store.state import QueueState, State

R = TypeVar("R")

UNWITNESSED_SECONDS: Final = 0.1
SEGMENTS_SPARE: Final = 32
"""How many segments beyond twice those of the last checkpoint are followed without a new one."""
LOAD_TRIES_MAX: Final = 20
LOAD_PAUSE_SECONDS: Final = 0.01


class _TakenBack(CorruptionError):
    """The segment that was entered is not the one that lies there now."""


class Reader:
    """A store as of one moment; `refresh` moves it on. Nothing it does disturbs the owner.

    Where the operating system refuses a file, every call raises AccessError and may be tried again.
    How far it lags: a commit becomes visible with the next commit or seal, and if none comes, about
    100 ms (`UNWITNESSED_SECONDS`) after a refresh met it, when the reader syncs the segment itself.
    """

    def __init__(
        self, path: str, *, files: Files | None = None, clock: Clock | None = None
    ) -> None:
        """Open for reading. FormatError or AccessError if there is no store."""
        self.path = path = path_text(path)
        self._clock = clock or SystemClock()
        self._files = files or OsFiles()
        self.state = State()
        self._segments_max = SEGMENTS_SPARE
        self.store_id = b""
        self._end = Position(0, 0, 0, 0)
        self._entered: Position | None = None
        """Where the last segment starts that was entered by its header, and no checkpoint knew."""
        self._cache: SegmentCache | None = None
        self._lookup: Lookup
        self._waiting_since: tuple[Position, float] | None = None
        self._searched: tuple[Position, int, bytes] | None = None
        self._closed = False
        try:
            self.directory = Directory(self._files, path)
        except OSError as error:
            raise access_error(path, error) from error
        try:
            self._load()
            if self.waiting:
                self._clock.sleep(UNWITNESSED_SECONDS)
                self.refresh()
            self.refresh()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give every handle back. Twice is fine."""
        if not self._closed:
            self._closed = True
            if self._cache is not None:
                self._cache.close()
            self.directory.close()

    # What is there.

    def queues(self) -> dict[str, Genesis]:
        """Genesis of every queue, as of the last refresh."""
        return {name: queue.genesis for name, queue in self.state.queues.items()}

    def blocks(
        self, name: str, first: int = 1, last: int = COUNTER_MAX, *, removed: bool = True
    ) -> Iterator[RecordBlock]:
        """Retained records first..last in order, taken or not, as whole blocks.

        With `removed` false only those that are live. CorruptionError where damage is reached.

        A `first` of 1 means the oldest there is. Any other must be there, unless it is still to
        come: RangeGone if it was reclaimed, and then names the next one that is there. So it does
        for counters that the owner skipped after a crash, which look the same; and for what is
        reclaimed during the reading. Only removed records between two that were compacted together
        are passed over in silence.
        """
        wanted = first if removed and first > 1 else 0
        yield from self._blocks(name, first, last, removed=removed, wanted=wanted)

    def _blocks(
        self, name: str, first: int, last: int, *, removed: bool, wanted: int
    ) -> Iterator[RecordBlock]:
        """The same; `wanted`, if it is not 0, is the counter that must be there."""
        counter = first
        while True:
            queue = self._queue(name)
            self._check_there(queue, wanted)
            last_known = min(last, queue.genesis.next_counter - 1)
            lookup = self._lookup
            find = lookup.blocks if removed else lookup.live_blocks
            try:
                for block in find(queue, counter, last_known):
                    yield block
                    counter = block.last + 1
                return
            except FileNotFoundError as error:
                # The owner reclaimed or compacted the segment: read where its records went.
                if removed and counter > 1:
                    wanted = max(counter, queue.spans[queue.span_index(counter)].first)
                self._look_again(lookup, error)
            except OSError as error:
                raise access_error(self.path, error) from error

    def get(self, name: str, counter: int) -> tuple[Key, bytes] | None:
        """One retained record by its counter, or None. RangeGone as for `blocks`."""
        for block in self.blocks(name, counter, counter):
            return block.keys()[0], block.payloads()[0]
        return None

    def follow(self, name: str, first: int = 1, *, pause: float = 0.01) -> Iterator[RecordBlock]:
        """Records from `first` on, as they are committed, for ever. RangeGone as for `blocks`."""
        counter = first
        lookup = None
        while True:
            queue = self.state.queues.get(name)
            # Fixed here: while we pause at a block, another reading may move the state on.
            upto = queue.genesis.next_counter if queue is not None else counter
            if upto > counter:
                # Counters that a state lacks were skipped, not reclaimed, if it has seen them pass.
                wanted = counter if counter > 1 and lookup is not self._lookup else 0
                lookup = self._lookup
                for block in self._blocks(name, counter, upto - 1, removed=True, wanted=wanted):
                    yield block
                    counter = block.last + 1
                counter = max(counter, upto)
            if not self.refresh():
                self._clock.sleep(pause)

    def seek(self, name: str, time: int) -> int:
        """Counter of the first retained record put at `time` (ns) or later, else the next one."""
        return self._found(lambda lookup: lookup.counter_at(self._queue(name), time))

    def state_of(self, name: str) -> bytes | None:
        """Newest value of a state entry, or None."""
        self._require_open()
        return self._found(lambda lookup: lookup.state_value(name))

    def _found(self, find: Callable[[Lookup], R]) -> R:
        """What there is to find, wherever it went meanwhile."""
        while True:
            lookup = self._lookup
            try:
                return find(lookup)
            except FileNotFoundError as error:
                self._look_again(lookup, error)
            except OSError as error:
                raise access_error(self.path, error) from error

    def journey(self, name: str, counter: int) -> Journey:
        """What the frames that are left say of one record of a queue, as of the last refresh.

        What was reclaimed, and what damage hides, is said to be so. InvalidName, ValueError.
        """
        self._require_open()
        return journey(self, name, counter)

    def frames(self, number: int, start: int = 0) -> Iterator[Frame]:
        """The committed frames of one segment, as of the last refresh, in order.

        `start` is where one of them begins, if it is to be the first.
        Damage that was set aside is passed over; CorruptionError where other damage is reached.
        AccessError if the segment is not there: it was reclaimed, or never was.
        """
        self._require_open()
        path = f"{self.path}/{segment_name(number)}"
        place = self.state.segments.get(number)
        end = place.length if place is not None else 0
        skip = [(start, end) for n, start, end in self.state.damage if n == number]
        try:
            with self.directory.reading(segment_name(number)) as handle:
                file = SegmentFile(self._files, handle, number, self.store_id)
                yield from file.frames(max(start, SEGMENT_HEADER_BYTES), end, skip=skip)
        except DamageError as error:
            raise CorruptionError(path, error.offset, error.reason) from None
        except FileNotFoundError as error:
            raise AccessError(
                f"{path}: the segment is not there; if it ever was, the owner has reclaimed it. "
                f"Nothing was changed. Refresh, and read one that is there."
            ) from error
        except OSError as error:
            raise access_error(path, error) from error

    def entries(self, name: str, segment: int) -> QueueIndex | None:
        """Where in a segment the queue's records start, one entry for about 4 KiB.

        None if there is no such place any more: `blocks` finds where the records went.
        """
        self._require_open()
        assert self._cache is not None
        if segment not in self.state.segments:
            return None
        try:
            _, index = self._cache.open(segment)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise access_error(self.path, error) from error
        return index.queues.get(name)

    def _queue(self, name: str) -> QueueState:
        self._require_open()
        queue = self.state.queues.get(name)
        return queue if queue is not None else QueueState(Genesis(check_name(name)))

    def _check_there(self, queue: QueueState, wanted: int) -> None:
        following = queue.genesis.next_counter
        if not 0 < wanted < following:
            return
        at = queue.span_index(wanted)
        there = queue.spans[at].first if at < len(queue.spans) else following
        if wanted < there:
            raise RangeGone(queue.name, wanted, there)

    def _look_again(self, lookup: Lookup, error: FileNotFoundError) -> None:
        """Start anew, as the segment is not there. CorruptionError if nobody reclaimed it."""
        self._require_open()
        if lookup is not self._lookup:
            return
        for number in self.start_anew([segment_number(error.filename) or 0]):
            path = f"{self.path}/{segment_name(number)}"
            raise CorruptionError(path, 0, "the segment is missing") from error

    def _require_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"{self.path}: the reader is closed. Open another one.")

    # Moving on.

    @property
    def waiting(self) -> bool:
        """Whether something lay at the tail, at the last refresh, that nothing witnesses yet."""
        return self._waiting_since is not None

    def refresh(self) -> bool:
        """Apply what has been committed since; returns whether there was anything."""
        self._require_open()
        before = self._end
        try:
            self._advance()
            if len(self.state.segments) > self._segments_max:
                # Most of them were reclaimed by now, which only a checkpoint tells.
                self._load()
        except (FileNotFoundError, _TakenBack):
            self._load()
        except OSError as error:
            raise access_error(self.path, error) from error
        return self._end != before

    def start_anew(self, gone: Collection[int]) -> list[int]:
        """Begin again at the newest checkpoint, for one who did not find the segments `gone`.

        Returns those of them that the store needs all the same; the others were reclaimed.
        """
        missing: list[int] = []
        for _ in range(LOAD_TRIES_MAX):
            self._load()
            there = self._segments_there()
            missing = [n for n in gone if n in self.state.segments and n not in there]
            if not missing:
                break
            # Perhaps the checkpoint that no longer needs them was being overwritten just now.
            self._clock.sleep(LOAD_PAUSE_SECONDS)
        return missing

    def _segments_there(self) -> list[int]:
        try:
            return self.directory.names().segments
        except OSError as error:
            raise access_error(self.path, error) from error

    def _load(self) -> None:
        """Start from the newest checkpoint. The owner may be at work: look again if files move."""
        tries_left = LOAD_TRIES_MAX
        while True:
            tries_left -= 1
            try:
                self._load_once()
                self._advance()
                return
            except (FileNotFoundError, CorruptionError) as error:
                if not tries_left:
                    if isinstance(error, OSError):
                        path = f"{self.path}/{error.filename}"
                        raise CorruptionError(path, 0, "the segment is missing") from error
                    raise
                self._clock.sleep(LOAD_PAUSE_SECONDS)
            except OSError as error:
                raise access_error(self.path, error) from error

    def _load_once(self) -> None:
        directory = self.directory
        names = directory.names()
        copies = read_checkpoints(directory, names)
        state = State()
        self._entered = None
        if copies:
            _, self.store_id, checkpoint = copies[0]
            state.load(checkpoint)
            self._end = Position(
                checkpoint.segment, checkpoint.offset, checkpoint.sequence, checkpoint.last_checksum
            )
        elif names.segments and not is_half_made(directory, names):
            header = self._header_of(names.segments[0])
            if header is None:
                path = f"{self.path}/{segment_name(names.segments[0])}"
                raise CorruptionError(path, 0, "neither checkpoint nor segment header is sound")
            self.store_id = header.store_id
            start_segment(state, header)
            self._end = start_of(header)
        else:
            raise FormatError(f"{self.path}: there is no store here. Nothing was changed.")
        if self._cache is not None:
            self._cache.close()
        self.state = state
        self._segments_max = 2 * len(state.segments) + SEGMENTS_SPARE
        self._cache = SegmentCache(directory, state, self.store_id)
        self._lookup = Lookup(self.path, state, self._cache.open)

    def _header_of(self, number: int) -> SegmentHeader | None:
        """A segment's header, or None while there is none that is sound."""
        try:
            with self.directory.reading(segment_name(number)) as handle:
                data = read_exactly(self._files, handle, SEGMENT_HEADER_BYTES, 0)
            header = SegmentHeader.decode(data)
        except (DamageError, FileNotFoundError):
            return None
        if self.store_id and header.store_id != self.store_id:
            return None
        return header

    def _advance(self) -> None:
        """Apply every frame that something later witnesses, over as many segments as there are."""
        while True:
            number = self._end.segment
            following = self._header_of(number + 1)
            with self.directory.reading(segment_name(number)) as handle:
                file = SegmentFile(self._files, handle, number, self.store_id)
                self._check_entered(file)
                if following is None:
                    self._advance_tail(file, self._files.size(handle))
                    return
                limit = following.previous_length
                damage = self._apply(file, limit, following.first_sequence - 1)
            if damage is not None or self._end.offset != limit:
                reason = damage.reason if damage is not None else "the segment ends early"
                path = f"{self.path}/{segment_name(number)}"
                raise CorruptionError(path, self._end.offset, reason)
            start_segment(self.state, following)
            self._end = self._entered = start_of(following)

    def _check_entered(self, file: SegmentFile) -> None:
        """The segment where nothing was read yet must be the one that was entered.

        An owner without space takes a new segment back, goes on in the old one, and makes another
        of that number later.
        """
        if self._end != self._entered:
            return
        try:
            same = start_of(file.header()) == self._end
        except DamageError:
            same = False
        if not same:
            path = f"{self.path}/{segment_name(file.number)}"
            raise _TakenBack(path, 0, "its header is not the one that it had when it was made")

    def _advance_tail(self, file: SegmentFile, size: int) -> None:
        newest, witness = self._look_ahead(file, size)
        self._apply(file, size, witness)
        if newest <= witness:
            self._waiting_since = None
            self._search_beyond(file, size)
            return
        now = self._clock.monotonic()
        if self._waiting_since is None or self._waiting_since[0] != self._end:
            self._waiting_since = self._end, now
        elif now - self._waiting_since[1] >= UNWITNESSED_SECONDS:
            sync_file(self._files, file.handle, f"{self.path}/{segment_name(file.number)}")
            self._files.forget_cache(file.handle)
            # Only as far as we had looked before the sync: the owner may have written on since.
            self._apply(file, size, newest)
            self._waiting_since = None

    def _search_beyond(self, file: SegmentFile, size: int) -> None:
        """Nothing came: make sure that it is not damage that hides what was committed.

        That is done once, and again when something came to lie at the end, or the file grew.
        """
        head = read_exactly(self._files, file.handle, FRAME_HEADER_BYTES, self._end.offset)
        if self._searched == (self._end, size, head):
            return
        hidden = [
            header.sequence
            for _, header in file.sound_headers(self._end.offset, size)
            if header.durable_upto > self._end.sequence
        ]
        if self._look_ahead(file, size)[0]:
            # It was committed while we read, and is whole by now.
            return
        if hidden:
            raise CorruptionError(
                f"{self.path}/{segment_name(file.number)}",
                self._end.offset,
                f"the frame here is damaged, yet frame {hidden[0]} behind it calls it durable",
            )
        self._searched = self._end, size, head

    def _look_ahead(self, file: SegmentFile, limit: int) -> tuple[int, int]:
        """Sequence of the newest sound frame behind the end, and what those frames witness."""
        newest = witness = 0
        try:
            for frame in self._frames(file, limit):
                newest = frame.header.sequence
                witness = max(witness, frame.header.durable_upto)
        except DamageError:
            pass
        return newest, witness

    def _frames(self, file: SegmentFile, limit: int) -> Iterator[Frame]:
        end = self._end
        skip = [(start, stop) for n, start, stop in self.state.damage if n == file.number]
        return file.frames(
            end.offset, limit, sequence=end.sequence + 1, previous=end.checksum, skip=skip
        )

    def _apply(self, file: SegmentFile, limit: int, witness: int) -> DamageError | None:
        """Apply frames up to `witness`; the damage that stopped that, if any, is returned."""
        try:
            for frame in self._frames(file, limit):
                if frame.header.sequence > witness:
                    break
                apply_frame(self.state, file.number, frame, None)
                self._end = Position(file.number, frame.end, frame.header.sequence, frame.checksum)
        except DamageError as error:
            return error
        return None
