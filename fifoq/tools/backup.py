"""Backup and restore: a store as of one commit, taken while its owner works.

A backup is itself a store. It holds the newest checkpoint, every segment that it needs and those
behind it; the last one is cut where the last commit ends that a reader believes: that is the commit
point. Sealed segments never change, so they only get a second name; the last one is copied, and
everything is, where that cannot be. The owner is not asked and does not wait.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from fifoq.consumers import CONSUMERS
from fifoq.staged import MANIFEST_SUFFIX, STAGED_DIRECTORY, decode_manifest
from fifoq.tools.copying import (
    begin_directory,
    copy_file,
    end_directory,
    link_or_copy,
    sync_directory,
    write_file,
)
from store import CorruptionError, DamageError, FifoqError, FormatError, InvalidName, Reader
from store.check import Report, check_store
from store.checkpoint import CHECKPOINT_NAMES, Checkpoint
from store.directory import Directory, access_error
from store.osfiles import OsFiles
from store.reader import UNWITNESSED_SECONDS
from store.recovery import read_checkpoints
from store.segment import index_name, segment_name

DESCRIPTION: Final = "backup.json"
TRIES_MAX: Final = 100
"""How often it begins again because the owner reclaimed a segment meanwhile."""

Progress = Callable[[int, int], None]
"""Called with how many bytes are done, and how many there are."""


class BackedUpQueue(msgspec.Struct, frozen=True):
    """A queue at the commit point."""

    name: str
    records: int
    next_counter: int


class Backup(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup says of itself in `backup.json`. Times are nanoseconds since the epoch."""

    fifoq_backup: int = 1
    source: str
    store: str
    taken_at: int
    segment: int
    offset: int
    """The commit point: where the last commit ends, in the last segment."""
    bytes: int
    linked: int
    copied: int
    """How many segments only have a second name, and how many are copies."""
    queues: list[BackedUpQueue]


class TooBusy(FifoqError):
    """The owner reclaims segments faster than they can be linked. Nothing was changed."""


class NoBackup(FifoqError):
    """There is no backup, or not the whole of one."""


class _Gone(Exception):
    """A segment that the checkpoint needs was reclaimed: there is a newer checkpoint."""


class _Point(NamedTuple):
    """What belongs to the backup."""

    checkpoint: str
    store_id: bytes
    sealed: list[int]
    tail: int
    offset: int
    queues: list[BackedUpQueue]


def back_up(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    copy: bool = False,
    progress: Progress | None = None,
) -> Backup:
    """Back up the store at `path`, live or not, to the new directory `target`.

    On return it is whole and durable, and holds everything that was durable when this was called.
    With `copy` no file is shared with the store. Interrupted, it leaves `TARGET.partial`, which the
    next run takes up. TargetExists, TargetInside, CorruptionError, FormatError, AccessError: there
    is no backup.
    """
    path, target = os.fspath(path), os.fspath(target)
    try:
        partial = begin_directory(target, source=path)
        with Reader(path) as reader:
            done = _Work(path, partial, reader, copy, progress).run()
        end_directory(partial, target)
    except OSError as error:
        raise access_error(error.filename or target, error) from error
    return done


class _Work:
    """One backup under way."""

    def __init__(
        self, path: str, partial: str, reader: Reader, copy: bool, progress: Progress | None
    ) -> None:
        self._path = path
        self._partial = partial
        self._reader = reader
        self._copy = copy
        self._progress = progress
        self._done = self._total = 0
        self._linked = self._copied = 0

    def run(self) -> Backup:
        for _ in range(TRIES_MAX):
            try:
                self._take_along(CONSUMERS)
                staged = self._take_staged()
                point = self._point()
                self._take_segments(point)
                if self._still_there(staged):
                    return self._finish(point)
                # What was staged is in the log by now, a moment later for readers as well.
                time.sleep(2 * UNWITNESSED_SECONDS)
            except _Gone:
                continue
        raise TooBusy(
            f"{self._path}: its owner reclaims segments faster than they can be linked. Nothing "
            f"was changed. Try again when it is less busy, or to the same file system."
        )

    def _point(self) -> _Point:
        """The newest checkpoint, and how far a reader believes the log behind it."""
        files = OsFiles()
        directory = Directory(files, self._path)
        try:
            copies = read_checkpoints(directory, directory.names())
        finally:
            directory.close()
        if not copies:
            raise FormatError(
                f"{self._path}: it has no sound checkpoint. Nothing was changed. Open and close "
                f"the store once, then back it up."
            )
        name, store_id, checkpoint = copies[0]
        self._reader.refresh()
        if self._reader.waiting:
            time.sleep(UNWITNESSED_SECONDS)
            self._reader.refresh()
        state = self._reader.state
        tail = max(state.segments)
        if tail < checkpoint.segment:
            raise _Gone
        needed = {entry.number for entry in checkpoint.segments}
        sealed = sorted(needed | set(range(checkpoint.segment, tail)))
        copy_file(f"{self._path}/{name}", f"{self._partial}/{CHECKPOINT_NAMES[0]}")
        if not self._is_same(checkpoint):
            raise _Gone
        queues = [
            BackedUpQueue(queue.name, queue.genesis.queue_size, queue.genesis.next_counter)
            for _, queue in sorted(state.queues.items())
        ]
        sealed = [number for number in sealed if number != tail]
        return _Point(name, store_id, sealed, tail, state.segments[tail].length, queues)

    def _is_same(self, checkpoint: Checkpoint) -> bool:
        """Whether the copy is that checkpoint: its owner may have been writing another there."""
        directory = Directory(OsFiles(), self._partial)
        try:
            return directory.read_checkpoint(CHECKPOINT_NAMES[0])[1].number == checkpoint.number
        except DamageError:
            return False
        finally:
            directory.close()

    def _take_segments(self, point: _Point) -> None:
        wanted = {segment_name(number) for number in (*point.sealed, point.tail)}
        for name in os.listdir(self._partial):
            # Of an earlier run, or of an earlier try.
            if name.endswith((".log", ".idx", ".new")) and name not in wanted:
                os.unlink(f"{self._partial}/{name}")
        try:
            sizes = {n: os.path.getsize(f"{self._path}/{segment_name(n)}") for n in point.sealed}
            self._total = sum(sizes.values()) + point.offset
            self._done = self._linked = self._copied = 0
            for number, size in sizes.items():
                self._take_sealed(number, size, beside_tail=number == point.tail - 1)
            name = segment_name(point.tail)
            size = copy_file(f"{self._path}/{name}", f"{self._partial}/{name}", size=point.offset)
        except FileNotFoundError:
            raise _Gone from None
        if size < point.offset:
            raise _Gone
        self._count(point.offset)

    def _take_sealed(self, number: int, size: int, *, beside_tail: bool) -> None:
        """Link or copy a segment, unless a run before this one did.

        The one before the last is copied too: an owner without space may take the last one back
        and go on writing there.
        """
        source, target = (f"{d}/{segment_name(number)}" for d in (self._path, self._partial))
        copy = self._copy or beside_tail
        if self._is_there(source, target, size, copy):
            self._count(size)
            linked = os.path.samefile(source, target)
        else:
            linked = link_or_copy(source, target, copy=copy, counted=self._count)
            if linked:
                self._count(size)
        self._linked += linked
        self._copied += not linked
        with suppress(FileNotFoundError):
            index = index_name(number)
            link_or_copy(f"{self._path}/{index}", f"{self._partial}/{index}", copy=self._copy)

    def _is_there(self, source: str, target: str, size: int, copy: bool) -> bool:
        try:
            if os.path.samefile(source, target):
                return not copy
            return os.path.getsize(target) == size and _head(source) == _head(target)
        except FileNotFoundError:
            return False

    def _count(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(self._done, self._total)

    # What other processes keep beside the log.

    def _take_along(self, name: str) -> None:
        """Copy the small files of a directory; those that vanish meanwhile are not needed."""
        target = f"{self._partial}/{name}"
        shutil.rmtree(target, ignore_errors=True)
        try:
            names = os.listdir(f"{self._path}/{name}")
        except (FileNotFoundError, NotADirectoryError):
            return
        os.mkdir(target, 0o700)
        for each in names:
            with suppress(FileNotFoundError, OSError):
                if not each.startswith("."):
                    copy_file(f"{self._path}/{name}/{each}", f"{target}/{each}")
        sync_directory(target)

    def _take_staged(self) -> list[str]:
        """Copy batches that wait to be taken in; returns their manifests."""
        source, target = (f"{d}/{STAGED_DIRECTORY}" for d in (self._path, self._partial))
        shutil.rmtree(target, ignore_errors=True)
        try:
            names = sorted(n for n in os.listdir(source) if n.endswith(MANIFEST_SUFFIX))
        except (FileNotFoundError, NotADirectoryError):
            return []
        os.mkdir(target, 0o700)
        taken = []
        for name in names:
            try:
                with open(f"{source}/{name}", "rb") as file:
                    manifest = decode_manifest(file.read())
                for part in manifest.parts:
                    copy_file(f"{source}/{part.name}", f"{target}/{part.name}")
                copy_file(f"{source}/{name}", f"{target}/{name}")
                taken.append(name)
            except (FileNotFoundError, DamageError, FormatError, InvalidName):
                # It was taken in just now, or its owner is going to refuse it.
                continue
        sync_directory(target)
        return taken

    def _still_there(self, manifests: list[str]) -> bool:
        """Whether no batch was taken in meanwhile, which the log may or may not hold."""
        names = (f"{self._path}/{STAGED_DIRECTORY}/{name}" for name in manifests)
        return all(map(os.path.exists, names))

    def _finish(self, point: _Point) -> Backup:
        done = Backup(
            source=os.path.abspath(self._path),
            store=point.store_id.hex(),
            taken_at=time.time_ns(),
            segment=point.tail,
            offset=point.offset,
            bytes=self._total,
            linked=self._linked,
            copied=self._copied + 1,
            queues=point.queues,
        )
        text = msgspec.json.format(msgspec.json.encode(done), indent=2)
        write_file(f"{self._partial}/{DESCRIPTION}", text)
        return done


def _head(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(80)


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What a restore did."""

    path: str
    backup: Backup
    checked: bool


def read_backup(path: str | os.PathLike[str]) -> Backup:
    """What a backup says of itself. NoBackup if it is none, AccessError."""
    try:
        with open(f"{os.fspath(path)}/{DESCRIPTION}", "rb") as file:
            return msgspec.json.decode(file.read(), type=Backup)
    except (FileNotFoundError, NotADirectoryError):
        told = f"it has no {DESCRIPTION}" if os.path.isdir(path) else "there is no such directory"
    except OSError as error:
        raise access_error(f"{os.fspath(path)}/{DESCRIPTION}", error) from error
    except msgspec.MsgspecError as error:
        told = f"{DESCRIPTION}: {error}"
    raise NoBackup(
        f"{os.fspath(path)}: this is no backup, or not the whole of one ({told}). Nothing was "
        f"changed. Name a directory that a backup made."
    )


def restore(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    link: bool = False,
    check: bool = True,
    progress: Progress | None = None,
) -> Restored:
    """Make a store of the backup at `path` in the new directory `target`.

    It is checked from end to end before it gets its name, unless `check` is false. With `link`
    sealed segments are shared with the backup. The backup stays as it is. NoBackup, TargetExists,
    TargetInside, CorruptionError: there is no store at `target`; what was copied is in
    `TARGET.partial`.
    """
    path, target = os.fspath(path), os.fspath(target)
    backup = read_backup(path)
    try:
        partial = begin_directory(target, source=path)
        names = [name for name in _files_of(path) if name != DESCRIPTION]
        for name in set(_files_of(partial)) - set(names):
            # Of a run before this one, and perhaps of another backup.
            os.unlink(f"{partial}/{name}")
        total = sum(os.path.getsize(f"{path}/{name}") for name in names)
        # To check means to read all of it once more.
        work = 2 * total if check else total
        done = 0

        def counted(count: int) -> None:
            nonlocal done
            done += count
            if progress is not None:
                progress(done, work)

        def read(count: int, of: int) -> None:
            if progress is not None:
                progress(work - max(of - count, 0), work)

        tail = segment_name(backup.segment)
        for name in names:
            os.makedirs(os.path.dirname(f"{partial}/{name}"), mode=0o700, exist_ok=True)
            shared = link and name.endswith(".log") and name != tail
            link_or_copy(f"{path}/{name}", f"{partial}/{name}", copy=not shared, counted=counted)
        for directory, _, _ in os.walk(partial):
            sync_directory(directory)
        if check:
            _require_sound(path, backup, check_store(partial, progress=read))
        end_directory(partial, target)
    except OSError as error:
        raise access_error(error.filename or target, error) from error
    return Restored(path=target, backup=backup, checked=check)


def _files_of(path: str) -> list[str]:
    """Every file below a directory, relative to it; not the socket that a dead owner left."""
    return sorted(
        os.path.relpath(f"{directory}/{name}", path)
        for directory, _, names in os.walk(path)
        for name in names
        if not stat.S_ISSOCK(os.lstat(f"{directory}/{name}").st_mode)
    )


def _require_sound(path: str, backup: Backup, report: Report) -> None:
    if report.sound:
        return
    for damage in report.damage:
        raise CorruptionError(f"{path}/{damage.file}", damage.offset, damage.reason)
    queue, ranges = next(iter(report.missing.items()))
    raise CorruptionError(
        f"{path}/{segment_name(backup.segment)}", 0, f"queue {queue!r} lacks {ranges[0]}"
    )
