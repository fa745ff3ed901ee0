"""Where an export goes: a file of objects, a directory of tables, or a pipe.

Each says from time to time how far it is durable, so that the next run can go on from there; a
pipe cannot. What is not whole is not taken for it: a file is `NAME.part` until then, and a
directory holds `_progress.json`.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import Any, BinaryIO, Final, Literal, Protocol

import aiofiles
import aiofiles.os
import msgspec

from fifoq.tools import arrow, streams
from fifoq.tools.copying import sync_directory
from fifoq.tools.rows import End, Header, Row
from fifoq.tools.snapshot import Bound, Place
from fifoq.tools.threads import on_thread
from store import FormatError

Format = Literal["ndjson", "msgpack", "arrow", "parquet"]
FORMATS: Final[tuple[Format, ...]] = ("ndjson", "msgpack", "arrow", "parquet")
TABLES: Final = frozenset(("arrow", "parquet"))

SAVE_BYTES: Final = 16 << 20
"""How much of a file is written between two points at which it can be taken up again."""
PART_BYTES: Final = 128 << 20
PART_RECORDS: Final = 1 << 18
"""What one table of a directory holds, about."""
PART_SUFFIX: Final = ".part"
PROGRESS_NAME: Final = "_progress.json"


class Saved(msgspec.Struct, kw_only=True):
    """What an export is of, and how far it is: `place` is where the next rows come from."""

    header: Header
    format: Format
    removed: bool
    bounds: list[Bound]
    place: Place | None = Place()
    records: int = 0
    bytes: int = 0
    """Of a file, up to there."""
    parts: int = 0
    """Tables of a directory."""


class Sink(Protocol):
    """Takes rows in order. Between `begin` or `resume` and `finish` it may be left at any time."""

    async def load(self) -> Saved | None:
        """What a run before this one left."""

    async def begin(self, saved: Saved) -> None:
        """Start anew, in place of whatever a run before this one left."""

    async def resume(self, saved: Saved) -> None:
        """Go on from there."""

    async def write(self, rows: list[Row]) -> None: ...

    @property
    def save_due(self) -> bool: ...

    async def save(self, saved: Saved) -> None:
        """Make what was written durable, then say so."""

    async def finish(self, saved: Saved) -> None:
        """All of it is there: make it durable, under the name that was asked for."""

    async def close(self) -> None:
        """Let go. Twice is fine."""


class FileSink:
    """One file of NDJSON or msgpack objects."""

    def __init__(self, target: str, format: streams.StreamFormat) -> None:
        self._target = target
        self._part = target + PART_SUFFIX
        self._progress = f"{self._part}.json"
        self._format = format
        self._file: Any = None
        self._bytes = self._saved_bytes = 0

    async def load(self) -> Saved | None:
        saved = await _load(self._progress)
        if saved is None or not os.path.isfile(self._part):
            return None
        return saved if os.path.getsize(self._part) >= saved.bytes else None

    async def begin(self, saved: Saved) -> None:
        with suppress(FileNotFoundError):
            await aiofiles.os.unlink(self._progress)
        self._file = await _opened(self._part, "wb")
        await self._append(streams.encode(self._format, saved.header))

    async def resume(self, saved: Saved) -> None:
        self._file = await _opened(self._part, "r+b")
        await self._file.truncate(saved.bytes)
        await self._file.seek(saved.bytes)
        self._bytes = self._saved_bytes = saved.bytes

    async def write(self, rows: list[Row]) -> None:
        await self._append(await on_thread(streams.encode_rows, self._format, rows))

    async def _append(self, data: bytes) -> None:
        await self._file.write(data)
        self._bytes += len(data)

    @property
    def save_due(self) -> bool:
        return self._bytes - self._saved_bytes >= SAVE_BYTES

    async def save(self, saved: Saved) -> None:
        await self._sync()
        saved.bytes = self._saved_bytes = self._bytes
        await _save(self._progress, saved)

    async def finish(self, saved: Saved) -> None:
        await self._append(streams.encode(self._format, End(saved.records)))
        await self._sync()
        await self.close()
        await aiofiles.os.rename(self._part, self._target)
        await on_thread(sync_directory, os.path.dirname(self._target) or ".")
        with suppress(FileNotFoundError):
            await aiofiles.os.unlink(self._progress)

    async def _sync(self) -> None:
        await self._file.flush()
        await on_thread(os.fsync, self._file.fileno())

    async def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            await file.close()


class TableSink:
    """A directory of Arrow or Parquet tables, named by number."""

    def __init__(self, target: str, format: arrow.TableFormat) -> None:
        self._target = target
        self._progress = f"{target}/{PROGRESS_NAME}"
        self._format = format
        self._schema: Any = None
        self._file: Any = None
        self._writer: Any = None
        self._parts = self._records = self._bytes = 0

    async def load(self) -> Saved | None:
        return await _load(self._progress)

    async def begin(self, saved: Saved) -> None:
        await aiofiles.os.makedirs(self._target, mode=0o700, exist_ok=True)
        await _save(self._progress, saved)
        await self.resume(saved)

    async def resume(self, saved: Saved) -> None:
        self._schema = arrow.schema(saved.header)
        self._parts = saved.parts
        known = {part_name(self._format, number) for number in range(1, saved.parts + 1)}
        for name in await aiofiles.os.listdir(self._target):
            # Written behind the last point that was saved; those rows come once more.
            if name not in known and name != PROGRESS_NAME:
                await aiofiles.os.unlink(f"{self._target}/{name}")

    async def write(self, rows: list[Row]) -> None:
        if rows:
            await on_thread(self._write, rows)

    def _write(self, rows: list[Row]) -> None:
        if self._writer is None:
            self._file = open(self._temporary, "wb")  # noqa: SIM115
            self._writer = arrow.open_writer(self._format, self._file, self._schema, stream=False)
        self._writer.write_batch(arrow.batch_of(rows, self._schema))
        self._records += len(rows)
        self._bytes += sum(len(row.data) for row in rows)

    @property
    def _temporary(self) -> str:
        return f"{self._target}/.{part_name(self._format, self._parts + 1)}"

    @property
    def save_due(self) -> bool:
        return self._records >= PART_RECORDS or self._bytes >= PART_BYTES

    async def save(self, saved: Saved) -> None:
        await on_thread(self._end_part)
        saved.parts = self._parts
        await _save(self._progress, saved)

    def _end_part(self) -> None:
        if self._writer is None:
            return
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        name = f"{self._target}/{part_name(self._format, self._parts + 1)}"
        os.rename(self._temporary, name)
        sync_directory(self._target)
        self._writer = self._file = None
        self._parts += 1
        self._records = self._bytes = 0

    async def finish(self, saved: Saved) -> None:
        if not self._parts and self._writer is None:
            # No records: a table without rows still says what the columns are.
            await on_thread(self._write, [])
        await self.save(saved)
        await aiofiles.os.unlink(self._progress)
        await on_thread(sync_directory, self._target)

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            await on_thread(writer.close)
            self._file.close()


class PipeSink:
    """Standard output, or any file that is open: written once, from beginning to end."""

    def __init__(self, target: BinaryIO, format: Format) -> None:
        self._target = target
        self._format = format
        self._schema: Any = None
        self._writer: Any = None

    async def load(self) -> Saved | None:
        return None

    async def begin(self, saved: Saved) -> None:
        if self._format == "arrow" or self._format == "parquet":
            self._schema = arrow.schema(saved.header)
            self._writer = arrow.open_writer(self._format, self._target, self._schema, stream=True)
        else:
            await self._put(streams.encode(self._format, saved.header))

    async def resume(self, saved: Saved) -> None:
        raise AssertionError("there is nothing to go on with")

    async def write(self, rows: list[Row]) -> None:
        if self._format == "ndjson" or self._format == "msgpack":
            await self._put(streams.encode_rows(self._format, rows))
        elif rows:
            await on_thread(self._writer.write_batch, arrow.batch_of(rows, self._schema))

    async def _put(self, data: bytes) -> None:
        await on_thread(self._target.write, data)

    @property
    def save_due(self) -> bool:
        return False

    async def save(self, saved: Saved) -> None: ...

    async def finish(self, saved: Saved) -> None:
        if self._format == "ndjson" or self._format == "msgpack":
            await self._put(streams.encode(self._format, End(saved.records)))
        await self.close()
        await on_thread(self._target.flush)

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


def part_name(format: Format, number: int) -> str:
    return f"part-{number:05d}.{format}"


async def _load(path: str) -> Saved | None:
    try:
        async with aiofiles.open(path, "rb") as file:
            return msgspec.json.decode(await file.read(), type=Saved)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except msgspec.MsgspecError as error:
        raise FormatError(
            f"{path}: it does not say how far an export is ({error}). Nothing was changed. Remove "
            f"it to begin anew."
        ) from None


async def _opened(path: str, mode: Literal["wb", "r+b"]) -> Any:
    """An open file. Whoever is cancelled meanwhile leaves none behind."""

    async def open_it() -> Any:
        return await aiofiles.open(path, mode)

    opening = asyncio.ensure_future(open_it())
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        await (await opening).close()
        raise


async def _save(path: str, saved: Saved) -> None:
    """Durable on return; whatever happens, the file says the old or the new."""
    temporary = f"{path}.new"
    async with aiofiles.open(temporary, "wb") as file:
        await file.write(msgspec.json.encode(saved))
        await file.flush()
        await on_thread(os.fsync, file.fileno())
    await aiofiles.os.rename(temporary, path)
    await on_thread(sync_directory, os.path.dirname(path) or ".")
