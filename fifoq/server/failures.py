"""Errors that cross the wire: what a server says of one, and what a client raises for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fifoq.server.protocol import Failure
from store.errors import (
    AccessError,
    CorruptionError,
    FifoqError,
    FormatError,
    InvalidName,
    RangeGone,
    StoreClosed,
)

BUSY: Final = "busy"
CLOSING: Final = "closing"
FAILED: Final = "failed"
MALFORMED: Final = "malformed"
TIMEOUT: Final = "timeout"
TOKEN: Final = "token"
UNKNOWN: Final = "unknown"
VERSION: Final = "version"

_RANGE_GONE: Final = "range-gone"
_CORRUPTION: Final = "corruption"
_PLAIN: Final[dict[str, type[FifoqError]]] = {
    "access": AccessError,
    "format": FormatError,
    "invalid-name": InvalidName,
    "store-closed": StoreClosed,
}
CODES: Final = frozenset(
    (
        *(BUSY, CLOSING, FAILED, MALFORMED, TIMEOUT, TOKEN, UNKNOWN, VERSION),
        *(_RANGE_GONE, _CORRUPTION, *_PLAIN),
    )
)


def failure_of(error: FifoqError) -> Failure:
    """What a server says of an error of the store."""
    if isinstance(error, RangeGone):
        facts: dict[str, str | int] = {
            "queue": error.queue,
            "wanted": error.wanted,
            "oldest": error.oldest,
        }
        return Failure(_RANGE_GONE, str(error), facts)
    if isinstance(error, CorruptionError):
        facts = {"path": error.path, "offset": error.offset, "reason": error.reason}
        return Failure(_CORRUPTION, str(error), facts)
    for code, kind in _PLAIN.items():
        if isinstance(error, kind):
            return Failure(code, str(error))
    return Failure(FAILED, str(error))


def store_error_of(failure: Failure) -> FifoqError | None:
    """The store's error that a server told of, or None if it is none of the store's."""
    facts = failure.facts
    try:
        make = _WITH_FACTS.get(failure.code)
        if make is not None:
            return make(facts)
    except (KeyError, ValueError):
        # From a server that says less: its words are all there is.
        return FifoqError(failure.message)
    kind = _PLAIN.get(failure.code)
    return None if kind is None else kind(failure.message)


def _range_gone(facts: dict[str, str | int]) -> FifoqError:
    return RangeGone(str(facts["queue"]), int(facts["wanted"]), int(facts["oldest"]))


def _corruption(facts: dict[str, str | int]) -> FifoqError:
    return CorruptionError(str(facts["path"]), int(facts["offset"]), str(facts["reason"]))


_WITH_FACTS: Final[dict[str, Callable[[dict[str, str | int]], FifoqError]]] = {
    _RANGE_GONE: _range_gone,
    _CORRUPTION: _corruption,
}
