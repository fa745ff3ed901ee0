"""Where an import comes from: a file of objects, a table, a directory of tables, or a pipe."""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import select
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from typing import IO, BinaryIO, Final, cast

import msgspec

from fifoq.store import DEFAULT_QUEUE
from fifoq.tools import arrow, streams
from fifoq.tools.exporting import format_of
from fifoq.tools.rows import End, Header, QueueHeader, Row, check_row
from fifoq.tools.sinks import PROGRESS_NAME, Format
from store import AccessError, FormatError
from store.genesis import check_name

CHUNK_BYTES: Final = 1 << 20
SPOOL_BYTES: Final = 64 << 20
"""A table that comes through a pipe lies in memory up to this size, and then in a file."""
LOOK_SECONDS: Final = 0.2
"""How often somebody who waits for a pipe looks whether to go on waiting."""
NAMED_BY_BYTES: Final = 64 << 10
"""A source without an id of its own is known by its first bytes, this many, and its size."""


class Incomplete(FormatError):
    """The source stops before its end. What there is of it is imported; the rest may follow."""


class Pipe:
    """A file that is open, such as standard input: read as it comes, until somebody stops it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._stopped = False

    def stop(self) -> None:
        """Whoever waits for the next bytes gets Stopped, soon. From any thread."""
        self._stopped = True

    def read(self, count: int) -> bytes:
        """Some bytes, as soon as there are any; none at the end."""
        try:
            descriptor = self._file.fileno()
        except (OSError, AttributeError):
            return self._file.read(count)
        while not self._stopped:
            if select.select([descriptor], [], [], LOOK_SECONDS)[0]:
                return os.read(descriptor, count)
        raise Stopped


class Stopped(Exception):
    """The reading was stopped."""


class Source:
    """An import's records, and what is known of them before they are read."""

    def __init__(
        self,
        path: str,
        format: Format,
        header: Header | None,
        items: Iterator[Row],
        name: str | None,
    ) -> None:
        self.path = path
        self.format = format
        self.header = header
        self._items = items
        self.nameless = name is None
        """Nobody can know it again."""
        self.name = name or f"pipe-{secrets.token_hex(8)}"

    @property
    def about_records(self) -> int:
        return self.header.about_records if self.header is not None else 0

    def queues(self, renamed: str | None) -> list[QueueHeader]:
        """What the source says of its queues; all of them are one if it is `renamed`."""
        known = self.header.queues if self.header is not None else []
        if renamed is None:
            return known
        check_name(renamed)
        configuration = known[0].configuration if len(known) == 1 else None
        return [QueueHeader(renamed, configuration)]

    def rows(self, renamed: str | None) -> Iterator[Row]:
        """Every record, each with its queue. FormatError, and Incomplete at an early end."""
        for number, row in enumerate(self._items, 1):
            queue = renamed or row.queue or DEFAULT_QUEUE
            if queue != row.queue:
                row = msgspec.structs.replace(row, queue=queue)
            yield check_row(row, number)


def open_source(
    source: str | os.PathLike[str] | Pipe,
    format: str | None,
    name: str | None,
    partial: bool,
    stack: ExitStack,
) -> Source:
    """Open a source and read its header; whatever is opened is closed with the stack.

    With `partial` one that stops before its end is taken for whole.
    """
    path = os.fspath(source) if isinstance(source, str | os.PathLike) else "-"
    chosen = format_of(path.rstrip("/"), format)
    try:
        if os.path.isdir(path):
            header, rows, known = _open_directory(path, chosen, partial)
        elif isinstance(source, Pipe):
            header, rows, known = _open_pipe(source, chosen, partial, stack)
        else:
            file = stack.enter_context(open(path, "rb"))  # noqa: SIM115
            known = _known_by(file)
            header, rows = _open_file(file, chosen, partial)
    except OSError as error:
        raise AccessError(
            f"{error.filename or path}: {error.strerror or error}. Nothing was changed. Check that "
            f"the path is right, and that this user may read it."
        ) from error
    if header is not None:
        known = header.id
    return Source(path, chosen, header, rows, name or known)


def _open_pipe(
    pipe: Pipe, format: Format, partial: bool, stack: ExitStack
) -> tuple[Header | None, Iterator[Row], str | None]:
    if format == "arrow" or format == "parquet":
        # The whole of it, to be read in any order.
        spool = stack.enter_context(tempfile.SpooledTemporaryFile(SPOOL_BYTES))  # noqa: SIM115
        shutil.copyfileobj(cast(BinaryIO, pipe), spool)
        spool.seek(0)
        return (*_open_file(cast(BinaryIO, spool), format, partial), None)
    return (*_open_file(cast(BinaryIO, pipe), format, partial), None)


def _open_file(
    file: BinaryIO, format: Format, partial: bool
) -> tuple[Header | None, Iterator[Row]]:
    if format == "arrow" or format == "parquet":
        return arrow.read_rows(format, file)
    items = streams.items(format, iter(lambda: file.read(CHUNK_BYTES), b""))
    first = next(items, None)
    header = first if isinstance(first, Header) else None
    rest = items if header is not None or first is None else chain([first], items)
    return header, _rows(rest, whole=header is not None and not partial)


def _rows(items: Iterator[streams.Item], *, whole: bool) -> Iterator[Row]:
    """The rows, up to the end if there is one; there must be one if it is to be `whole`."""
    count = 0
    for item in items:
        if isinstance(item, Row):
            count += 1
            yield item
        elif isinstance(item, End):
            if item.fifoq_end != count:
                raise FormatError(f"it ends with {item.fifoq_end} records, and has {count}")
            return
        else:
            raise FormatError(f"another export begins behind record {count}")
    if whole:
        raise Incomplete(
            f"it stops behind record {count}, before its end. They are in the store. Import the "
            f"whole of it, and this goes on behind them; or say that this is all."
        )


def _open_directory(
    path: str, format: Format, partial: bool
) -> tuple[Header | None, Iterator[Row], str | None]:
    if format != "arrow" and format != "parquet":
        raise FormatError(
            f"{path}: a directory holds Arrow or Parquet tables, not {format}. Nothing was "
            f"changed. Name a file."
        )
    names = sorted(name for name in os.listdir(path) if name.endswith(f".{format}"))
    names = [name for name in names if name[0] not in "._"]
    if not names:
        raise FormatError(f"{path}: there is no {format} table in it. Nothing was changed.")
    with open(f"{path}/{names[0]}", "rb") as file:
        header, _ = arrow.read_rows(format, file)

    def rows() -> Iterator[Row]:
        count = 0
        for name in names:
            with open(f"{path}/{name}", "rb") as file:
                for row in arrow.read_rows(format, file)[1]:
                    count += 1
                    yield row
        if os.path.exists(f"{path}/{PROGRESS_NAME}") and not partial:
            raise Incomplete(
                f"{path}: the export was interrupted behind record {count}. They are in the store. "
                f"Finish the export, and this goes on behind them; or say that this is all."
            )

    return header, rows(), None


def _known_by(file: IO[bytes]) -> str:
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    digest = hashlib.sha256(b"%d " % size + file.read(NAMED_BY_BYTES)).hexdigest()[:32]
    file.seek(0)
    return digest
