"""Export: records of a store, live or not, with every column, into a file, tables or a pipe.

The store is only read. An export that is interrupted, in whatever way, goes on when it is begun
again; the counters at which its queues end are fixed when it is begun first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from fifoq.tools import arrow
from fifoq.tools.copying import require_outside
from fifoq.tools.sinks import (
    FORMATS,
    PROGRESS_NAME,
    TABLES,
    FileSink,
    Format,
    PipeSink,
    Saved,
    Sink,
    TableSink,
)
from fifoq.tools.snapshot import Snapshot
from fifoq.tools.threads import on_thread
from store import AccessError, FifoqError

SUFFIXES: Final[dict[str, Format]] = {
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "ndjson",
    ".msgpack": "msgpack",
    ".arrow": "arrow",
    ".parquet": "parquet",
}

Progress = Callable[[int, int], None]
"""Called with how many records are done, and about how many there are."""


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What an export did. `resumed` records were there already, from a run that was interrupted."""

    path: str
    format: Format
    queues: list[str]
    records: int
    resumed: int = 0


class OtherExport(FifoqError):
    """What has that name is no beginning of this export. Nothing was changed."""


def format_of(name: str, given: str | None = None) -> Format:
    """The format that was asked for, or that the name's ending says. ValueError if neither does."""
    if given is not None:
        if given not in FORMATS:
            raise ValueError(
                f"format {given!r} is none of {', '.join(FORMATS)}. Nothing was changed."
            )
        return given
    found = SUFFIXES.get(Path(name).suffix.lower())
    if found is None:
        endings = ", ".join(f".{each}" for each in FORMATS)
        raise ValueError(
            f"{name}: its ending tells no format. Nothing was changed. Use one of {endings}, or "
            f"name the format."
        )
    return found


async def export_records(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str] | BinaryIO,
    *,
    queues: Sequence[str] | None = ("main",),
    format: str | None = None,
    removed: bool = False,
    restart: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write the records of some queues (None: of all of them) to `target`.

    That is a name which must not exist, or an open file, such as a pipe. With `removed` records
    come along that are only retained. On return a file is whole and durable. The same call goes on
    where one before was interrupted, unless `restart` is set; a pipe begins anew. ValueError,
    NotThere, InvalidName, OtherExport, TargetInside: nothing was changed. AccessError says whether
    anything was.
    """
    name = os.fspath(target) if isinstance(target, str | os.PathLike) else "-"
    chosen = format_of(name, format)
    if chosen in ("arrow", "parquet"):
        arrow.require_pyarrow()
    if isinstance(target, str | os.PathLike):
        require_outside(name, os.fspath(path))
        _require_directory(name, chosen)
    sink = _sink_for(target, chosen)
    snapshot = await on_thread(partial(Snapshot, os.fspath(path), removed=removed))
    begun = False
    try:
        saved = None if restart else await sink.load()
        if saved is None:
            _refuse_to_replace(name, chosen, restart)
            bounds = await on_thread(snapshot.bounds, queues)
            header = snapshot.header(bounds)
            saved = Saved(header=header, format=chosen, removed=removed, bounds=bounds)
            await sink.begin(saved)
        else:
            _require_same(name, saved, snapshot, chosen, queues, removed)
            await sink.resume(saved)
        begun = True
        resumed = saved.records
        await _pour(snapshot, sink, saved, progress)
        await sink.finish(saved)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise AccessError(
            f"{name}: {error.strerror or error}. The store was not changed. What is written so far "
            f"is kept; the same export goes on from there."
            if begun
            else f"{name}: {error.strerror or error}. Nothing was changed. Name a place in a "
            f"directory that this user may write to."
        ) from error
    finally:
        await sink.close()
        snapshot.close()
    return Exported(
        path=name,
        format=chosen,
        queues=[bound.queue for bound in saved.bounds],
        records=saved.records,
        resumed=resumed,
    )


def _sink_for(target: str | os.PathLike[str] | BinaryIO, format: Format) -> Sink:
    if not isinstance(target, str | os.PathLike):
        return PipeSink(target, format)
    if format == "arrow" or format == "parquet":
        return TableSink(os.fspath(target), format)
    return FileSink(os.fspath(target), format)


def _require_directory(name: str, format: Format) -> None:
    """AccessError if there is no directory for a file; that of tables is made."""
    directory = os.path.dirname(name) or "."
    if format not in TABLES and not os.path.isdir(directory):
        raise AccessError(
            f"{name}: there is no directory {directory}. Nothing was changed. Make it first, or "
            f"name another place."
        )


def _refuse_to_replace(name: str, format: Format, restart: bool) -> None:
    """OtherExport if somebody would miss what is there; a table directory may be begun anew."""
    if name == "-" or not os.path.lexists(name):
        return
    if format in ("arrow", "parquet") and os.path.isdir(name):
        unfinished = os.path.isfile(f"{name}/{PROGRESS_NAME}")
        if (restart and unfinished) or not os.listdir(name):
            return
    raise OtherExport(f"{name}: it exists. Nothing was changed. Remove it, or choose another name.")


def _require_same(
    name: str,
    saved: Saved,
    snapshot: Snapshot,
    format: Format,
    queues: Sequence[str] | None,
    removed: bool,
) -> None:
    begun = [bound.queue for bound in saved.bounds]
    same = (
        saved.header.store == snapshot.store_id
        and (saved.format, saved.removed) == (format, removed)
        and (queues is None or list(queues) == begun)
    )
    if not same:
        raise OtherExport(
            f"{name}: an export of other queues, of another kind or of another store was begun "
            f"there. Nothing was changed. Finish it as it was begun, or restart."
        )


async def _pour(snapshot: Snapshot, sink: Sink, saved: Saved, progress: Progress | None) -> None:
    total = saved.records + snapshot.count(saved.bounds, saved.place)
    while saved.place is not None:
        rows, saved.place = await on_thread(snapshot.page, saved.bounds, saved.place)
        await sink.write(rows)
        saved.records += len(rows)
        if sink.save_due:
            await sink.save(saved)
        if progress is not None:
            progress(saved.records, max(total, saved.records))
