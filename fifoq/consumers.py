"""Consumers: named readers of a queue outside its process, and what they have proved to be done.

Each has a file `consumers/NAME.json` in the store's directory that says from which counter on it
still needs the queue's records, removed or not. A streaming query of Spark proves more than it
writes there: its checkpoint directory holds `offsets/N`, planned before batch N is run, and
`commits/N`, written once its output is safe. So the file names that directory, and whoever wants to
know how far the consumer is reads both. Nothing here needs Spark.

A position is written by the consumer alone, with plain files; it is read through `Files`, so that
the owner's side runs on a simulated disk as well.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from store import InvalidName
from store.directory import NO_FILE_ERRNOS
from store.files import Files, Handle
from store.keys import COUNTER_MAX
from store.osfiles import OsFiles

CONSUMERS: Final = "consumers"
"""The directory of the positions, inside the store's."""
POSITION_BYTES_MAX: Final = 64 << 10
CHECKPOINT_FILE_BYTES_MAX: Final = 1 << 20
"""No file that is larger is taken for a position, or for one of Spark's."""
NAME_RULE: Final = "^[a-z0-9][a-z0-9-]{0,63}$"
_NAME = re.compile(NAME_RULE)
_BATCH = re.compile("^[0-9]{1,18}$")
_SUFFIX: Final = ".json"
_NOT_THERE: Final = (FileNotFoundError, NotADirectoryError)


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """How far a consumer is: every record of `queue` below `counter` is done.

    `store` is the store's id as text, `checkpoint` where the query keeps its own proofs (or ""),
    `query` the query's id, for people; `written_at` is in milliseconds since the epoch.
    """

    queue: str
    counter: int
    store: str
    checkpoint: str = ""
    query: str = ""
    written_at: int = 0


class _Offset(msgspec.Struct):
    """What a stream of ours writes as its offset into Spark's checkpoint."""

    counter: int
    store: str
    queue: str | None = None


_position = msgspec.json.Decoder(Position)
_offset = msgspec.json.Decoder(_Offset)
_UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def check_consumer_name(name: str, what: str = "consumer") -> str:
    """The name itself, or InvalidName. It becomes the name of a file."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidName(
            f"{what} name {name!r:.80} is not allowed: 1 to 64 of a-z, 0-9 and '-', starting "
            f"with a letter or digit. Nothing was changed."
        )
    return name


def id_text(store_id: bytes) -> str:
    """A store's id as positions and offsets write it."""
    return store_id.hex()


# Writing: by the consumer.


def write_position(path: str, name: str, position: Position) -> None:
    """Make this the consumer's position; on return it is durable.

    Whatever happens, the file holds the old position or the new one. OSError as it comes.
    """
    check_consumer_name(name)
    directory = f"{path}/{CONSUMERS}"
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory, 0o700)
        _sync_dir(path)
    made = f"{directory}/.{name}.{os.getpid()}.tmp"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(made)
    descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            _write_all(descriptor, msgspec.json.encode(position))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(made, f"{directory}/{name}{_SUFFIX}")
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(made)
        raise
    _sync_dir(directory)


def remove_position(path: str, name: str) -> bool:
    """Forget a consumer for good, durably: it holds nothing any more. False if there is none."""
    check_consumer_name(name)
    try:
        os.unlink(f"{path}/{CONSUMERS}/{name}{_SUFFIX}")
    except _NOT_THERE:
        return False
    _sync_dir(f"{path}/{CONSUMERS}")
    return True


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        count = os.write(descriptor, data)
        if not count:
            raise OSError(errno.ENOSPC, "a write made no progress")
        data = data[count:]


def _sync_dir(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Reading: by anybody.


def read_position(path: str, name: str, files: Files | None = None) -> Position | None:
    """The consumer's position, or None if there is none that makes sense. OSError as it comes."""
    check_consumer_name(name)
    return _read_position(files or OsFiles(), f"{path}/{CONSUMERS}", name)


def read_positions(path: str, files: Files | None = None) -> dict[str, Position | None]:
    """All consumers of the store at `path` by name; None for a file that makes no sense.

    No directory is no consumers. An OSError tells that it is not known who there is.
    """
    files = files or OsFiles()
    directory = f"{path}/{CONSUMERS}"
    names = [
        name.removesuffix(_SUFFIX)
        for name in _names(files, directory)
        if name.endswith(_SUFFIX) and _NAME.fullmatch(name.removesuffix(_SUFFIX))
    ]
    return {name: _read_position(files, directory, name) for name in sorted(names)}


def _read_position(files: Files, directory: str, name: str) -> Position | None:
    try:
        data = _content(files, directory, name + _SUFFIX, POSITION_BYTES_MAX)
    except OSError as error:
        if error.errno not in NO_FILE_ERRNOS:
            raise
        return None
    if data is None:
        return None
    try:
        position = _position.decode(data)
    except _UNDECODABLE:
        return None
    return position if is_possible(position) else None


def is_possible(position: Position) -> bool:
    """Whether a consumer can be there: its counter is one, and its checkpoint may be a path."""
    return 1 <= position.counter <= COUNTER_MAX and "\0" not in position.checkpoint


def proved(
    checkpoint: str, store: str, queue: str, *, above: int = 0, files: Files | None = None
) -> int | None:
    """Up to which counter a query's checkpoint directory proves that records are done.

    The number is that of a position: every record below it. None if the directory proves nothing:
    it is not there, or elsewhere than in a local file system, or no batch of it is committed, or
    none of its sources reads this store; also if it proves nothing `above` what is known. On return
    the proof is durable, since Spark leaves it to the kernel. OSError as it comes.
    """
    root = local_path(checkpoint)
    if root is None:
        return None
    files = files or OsFiles()
    planned = _batches(files, f"{root}/offsets")
    committed = _batches(files, f"{root}/commits")
    for batch in sorted(planned & committed, reverse=True):
        # A power cut can leave a name without its content.
        done = _content(files, f"{root}/commits", str(batch), CHECKPOINT_FILE_BYTES_MAX)
        data = _content(files, f"{root}/offsets", str(batch), CHECKPOINT_FILE_BYTES_MAX)
        counters = list(_counters(data or b"", store, queue)) if done else []
        if counters:
            # Two sources of the query may read this store: then it is done with what both passed.
            counter = min(counters)
            if counter <= above:
                return None
            _make_durable(files, f"{root}/offsets", str(batch))
            _make_durable(files, f"{root}/commits", str(batch))
            return counter
    return None


def _make_durable(files: Files, directory: str, name: str) -> None:
    with _opened_dir(files, directory) as opened:
        if opened is None:
            raise FileNotFoundError(errno.ENOENT, "it went while it was read", directory)
        handle = files.open(opened, name, write=False)
        try:
            files.datasync(handle)
        finally:
            files.close(handle)
        try:
            files.sync_dir(opened)
        except OSError as error:
            # That file system has no sync of directories.
            if error.errno != errno.EINVAL:
                raise


def local_path(checkpoint: str) -> str | None:
    """Where a checkpointLocation lies in the local file system; None if it does not, or is ""."""
    if checkpoint.startswith("/"):
        return checkpoint.rstrip("/") or "/"
    try:
        address = urlsplit(checkpoint)
    except ValueError:
        return None
    if address.scheme == "file" and address.netloc in ("", "localhost"):
        return unquote(address.path).rstrip("/") or None
    return None if address.scheme or not checkpoint else os.path.abspath(checkpoint)


def _counters(data: bytes, store: str, queue: str) -> Iterator[int]:
    """Of a file `offsets/N`: a version, a line about the batch, a line for each source."""
    for line in data.split(b"\n")[2:]:
        try:
            offset = _offset.decode(line)
        except _UNDECODABLE:
            # Another kind of source, or one that has no offset yet.
            continue
        if offset.store == store and offset.queue in (None, queue):
            yield offset.counter


def _batches(files: Files, directory: str) -> set[int]:
    return {int(name) for name in _names(files, directory) if _BATCH.fullmatch(name)}


def _names(files: Files, directory: str) -> list[str]:
    with _opened_dir(files, directory) as handle:
        return [] if handle is None else files.list_dir(handle)


def _content(files: Files, directory: str, name: str, most: int) -> bytes | None:
    """What a file holds; None if it is gone by now, or is too large to be one of these."""
    with _opened_dir(files, directory) as opened:
        if opened is None:
            return None
        try:
            handle = files.open(opened, name, write=False)
        except FileNotFoundError:
            return None
        try:
            size = files.size(handle)
            if size > most:
                return None
            data = bytearray()
            while len(data) < size and (more := files.pread(handle, size - len(data), len(data))):
                data += more
            return bytes(data)
        finally:
            files.close(handle)


@contextlib.contextmanager
def _opened_dir(files: Files, directory: str) -> Iterator[Handle | None]:
    try:
        handle = files.open_dir(directory)
    except _NOT_THERE:
        yield None
        return
    try:
        yield handle
    finally:
        files.close(handle)
