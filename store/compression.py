"""Compression: the payloads of a block as fewer bytes, and how far they may unfold again.

zlib is always there. zstd needs a module: that of Python 3.14, or one of the packages that are
named where it is missing. Whoever reads needs it as well.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from store.checksum import Buffer
from store.errors import FormatError

ZLIB: Final = 1
ZSTD: Final = 2
ALGORITHMS: Final = {"zlib": ZLIB, "zstd": ZSTD}
LEVELS_MAX: Final = {ZLIB: 9, ZSTD: 19}
"""Levels start at 1. Those of zstd above 19 would need more memory to read than we give."""
LEVELS_DEFAULT: Final = {ZLIB: 1, ZSTD: 3}

COMPRESSED_FROM_BYTES: Final = 1 << 10
"""Payloads of a block that are together smaller are stored as they are."""
SAVED_MIN: Final = 20
"""One part of so many must be saved, or they are stored as they are."""
DECOMPRESSED_BYTES_MAX: Final = 100_000_000
"""No block unfolds to more. A commit holds less, so only a forged one would."""
STEP_BYTES: Final = 4 << 20
"""Decompressed at a time, so that a length that lies is met before it has cost much memory."""
WINDOW_LOG_MAX: Final = 26

ZSTD_MODULES: Final = ("compression.zstd", "zstandard", "pyzstd")
ZSTD_MISSING: Final = (
    "zstd needs Python 3.14, or one of the packages zstandard and pyzstd: `pip install zstandard`"
)


class Compression(msgspec.Struct, frozen=True):
    """How a queue's new blocks are compressed."""

    algorithm: int
    level: int


class Unfolding(Protocol):
    """Gives compressed bytes back step by step."""

    def read(self, size: int) -> bytes:
        """At most so many of the next bytes; none at the end."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the end was reached, and nothing lies behind it."""
        ...


class BadData(Exception):
    """Bytes that do not decompress to what they must; only for callers who say where."""


def wrong_compression(name: object, level: object) -> str | None:
    """What is wrong with the two settings, in words, or None."""
    if name is None:
        return None if level is None else f"compression_level={level!r} without a compression"
    if not isinstance(name, str) or name not in ALGORITHMS:
        return f"compression={name!r} is none of None, {', '.join(ALGORITHMS)}"
    most = LEVELS_MAX[ALGORITHMS[name]]
    if level is not None and (type(level) is not int or not 1 <= level <= most):
        return f"compression_level={level!r} is not one of 1 to {most}, which {name} has"
    if name == "zstd" and not readable(ZSTD):
        return f"compression='zstd' cannot be had: {ZSTD_MISSING}"
    return None


def compression_of(name: str | None, level: int | None = None) -> Compression | None:
    """The compression of that name. ValueError if there is none, or none here."""
    wrong = wrong_compression(name, level)
    if wrong is not None:
        raise ValueError(wrong)
    if name is None:
        return None
    algorithm = ALGORITHMS[name]
    return Compression(algorithm, level or LEVELS_DEFAULT[algorithm])


def compress(data: Buffer, compression: Compression) -> bytes | None:
    """The same in fewer bytes; None where that saves too little to be worth the reading."""
    if len(data) < COMPRESSED_FROM_BYTES:
        return None
    if compression.algorithm == ZLIB:
        smaller = zlib.compress(data, compression.level)
    else:
        smaller = _zstd().compress(data, compression.level)
    saved = len(data) - len(smaller)
    return smaller if saved * SAVED_MIN >= len(data) else None


def readable(algorithm: int) -> bool:
    """Whether what it compressed can be read here."""
    if algorithm == ZSTD:
        try:
            _zstd()
        except FormatError:
            return False
    return algorithm in LEVELS_MAX


def decompress(data: Buffer, algorithm: int, size: int) -> Buffer:
    """The `size` bytes that were compressed to `data`.

    BadData unless they are exactly so many. FormatError if this version, or this machine, does
    not have the algorithm.
    """
    if algorithm not in LEVELS_MAX:
        raise FormatError(f"compression {algorithm} is from a newer version")
    if not 0 <= size <= DECOMPRESSED_BYTES_MAX:
        raise BadData(f"{size} decompressed bytes are over the limit {DECOMPRESSED_BYTES_MAX}")
    zstd = _zstd() if algorithm == ZSTD else None
    wrong: type[Exception] = zlib.error if zstd is None else zstd.error
    try:
        unfolding = _Zlib(data) if zstd is None else zstd.unfold(data)
        found = _read(unfolding, size)
        whole = len(found) == size and unfolding.ended
    except wrong as error:
        raise BadData(f"payloads do not decompress: {error}") from None
    if not whole:
        raise BadData(f"payloads do not decompress to the {size} bytes that they must")
    return found


def _read(unfolding: Unfolding, size: int) -> Buffer:
    """At most `size` bytes, and one more if there is one."""
    found: bytes | bytearray = unfolding.read(min(STEP_BYTES, size + 1))
    while len(found) <= size:
        more = unfolding.read(min(STEP_BYTES, size + 1 - len(found)))
        if not more:
            break
        if isinstance(found, bytes):
            found = bytearray(found)
        found += more
    return found


class _Zlib:
    def __init__(self, data: Buffer) -> None:
        self._object = zlib.decompressobj()
        self._rest: Buffer = data

    def read(self, size: int) -> bytes:
        found = self._object.decompress(self._rest, size)
        self._rest = self._object.unconsumed_tail
        return found

    @property
    def ended(self) -> bool:
        return self._object.eof and not self._object.unused_data


class _Zstd(msgspec.Struct, frozen=True):
    """What is used of a module, whichever it is."""

    error: type[Exception]
    compress: Callable[[Buffer, int], bytes]
    unfold: Callable[[Buffer], Unfolding]


_found: dict[tuple[str, ...], _Zstd] = {}


def _zstd() -> _Zstd:
    """The first module that is there. FormatError if none is."""
    zstd = _found.get(ZSTD_MODULES)
    if zstd is not None:
        return zstd
    for name in ZSTD_MODULES:
        try:
            module: Any = importlib.import_module(name)
        except ImportError:
            continue
        zstd = _found[ZSTD_MODULES] = _of_package(module) if name == "zstandard" else _of(module)
        return zstd
    raise FormatError(f"payloads are compressed, and {ZSTD_MISSING}. Nothing was changed.")


def _of(module: Any) -> _Zstd:
    """Of Python's own module, or of pyzstd, which it was made from."""

    def unfold(data: Buffer) -> Unfolding:
        parameter = getattr(module, "DecompressionParameter", None) or module.DParameter
        window = getattr(parameter, "window_log_max", None) or parameter.windowLogMax
        limits = {window: WINDOW_LOG_MAX}
        return _Stepwise(module.ZstdDecompressor(None, limits), data)

    return _Zstd(module.ZstdError, lambda data, level: bytes(module.compress(data, level)), unfold)


class _Stepwise:
    """A decompressor that keeps what it was given until it is asked for more."""

    def __init__(self, decompressor: Any, data: Buffer) -> None:
        self._decompressor = decompressor
        self._data: Buffer = data

    def read(self, size: int) -> bytes:
        if self._decompressor.eof:
            return b""
        data, self._data = self._data, b""
        return bytes(self._decompressor.decompress(data, size))

    @property
    def ended(self) -> bool:
        return self._decompressor.eof and not self._decompressor.unused_data


def _of_package(module: Any) -> _Zstd:
    """Of the package zstandard."""

    def compress(data: Buffer, level: int) -> bytes:
        return bytes(module.ZstdCompressor(level=level).compress(data))

    def unfold(data: Buffer) -> Unfolding:
        decompressor = module.ZstdDecompressor(max_window_size=1 << WINDOW_LOG_MAX)
        return _Stream(decompressor.stream_reader(data, read_across_frames=False))

    return _Zstd(module.ZstdError, compress, unfold)


class _Stream:
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, size: int) -> bytes:
        return bytes(self._stream.read(size))

    @property
    def ended(self) -> bool:
        return not self._stream.read(1)
