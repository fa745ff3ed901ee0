"""Settings of a queue and of a store: frozen, with defaults, every wrong one named at once."""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

import msgspec

from store import LogOptions, Retention
from store.compression import wrong_compression
from store.options import refuse, wrong_number

Durability = Literal["memory", "os", "sync"]
Overflow = Literal["block", "fail", "drop-oldest", "drop-newest"]
Algorithm = Literal["zlib", "zstd"]
OnExpire = Literal["drop", "dlq"]
Kept = Literal["acked", "all"]
"""What is kept without limits of its own: records until they are removed, or all of them."""

MEMORY: Final = 0
OS: Final = 1
SYNC: Final = 2
LEVELS: Final[dict[Durability, int]] = {"memory": MEMORY, "os": OS, "sync": SYNC}

PRIORITY_COUNT: Final = 10
ITEM_BYTES_MAX: Final = 60 << 20
"""No record can be larger: a commit holds 64 MiB with its columns and metadata."""


class QueueOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How one queue behaves. ValueError names every wrong setting.

    All but `durability` are kept with the queue; given ones replace kept ones on the next open.
    """

    durability: Durability = "sync"
    buffer_size: int = 100
    buffer_bytes: int = 65536
    flush_interval: float = 0.1
    auto_flush: bool = True
    statistics: bool = True
    maxsize: int | None = None
    max_bytes: int | None = None
    overflow: Overflow = "block"
    pressure_high: int | None = None
    pressure_low: int | None = None
    max_item_bytes: int = 16 << 20
    lease_seconds: float = 30.0
    max_retries: int | None = 3
    retry_backoff: float = 1.0
    retry_backoff_max: float = 300.0
    strict: bool = False
    priorities: bool = False
    priority_aging: float | None = 30.0
    priority_weights: tuple[int, ...] | None = None
    on_expire: OnExpire = "drop"
    retention: Kept | Retention = "acked"
    compression: Algorithm | None = None
    compression_level: int | None = None
    dedup_window: float = 300.0

    def __post_init__(self) -> None:
        refuse(
            _one_of("durability", self.durability, get_args(Durability)),
            wrong_number("buffer_size", self.buffer_size, 1),
            wrong_number("buffer_bytes", self.buffer_bytes, 1),
            wrong_number("flush_interval", self.flush_interval, 0, whole=False),
            _flag("auto_flush", self.auto_flush),
            _flag("statistics", self.statistics),
            wrong_number("maxsize", self.maxsize, 1, optional=True),
            wrong_number("max_bytes", self.max_bytes, 1, optional=True),
            _one_of("overflow", self.overflow, get_args(Overflow)),
            wrong_number("pressure_high", self.pressure_high, 1, optional=True),
            wrong_number("pressure_low", self.pressure_low, 0, optional=True),
            self._wrong_pressure(),
            wrong_number("max_item_bytes", self.max_item_bytes, 1),
            _most("max_item_bytes", self.max_item_bytes, ITEM_BYTES_MAX),
            wrong_number("lease_seconds", self.lease_seconds, 0.001, whole=False),
            wrong_number("max_retries", self.max_retries, 0, optional=True),
            wrong_number("retry_backoff", self.retry_backoff, 0, whole=False),
            wrong_number("retry_backoff_max", self.retry_backoff_max, 0, whole=False),
            _flag("strict", self.strict),
            _flag("priorities", self.priorities),
            wrong_number("priority_aging", self.priority_aging, 0.001, whole=False, optional=True),
            self._wrong_lanes(),
            _one_of("on_expire", self.on_expire, get_args(OnExpire)),
            self._wrong_retention(),
            wrong_compression(self.compression, self.compression_level),
            wrong_number("dedup_window", self.dedup_window, 0.001, whole=False),
        )

    def _wrong_pressure(self) -> str | None:
        high, low = self.pressure_high, self.pressure_low
        if low is None:
            return None
        if high is None:
            return f"pressure_low={low} needs a pressure_high"
        if isinstance(high, int) and isinstance(low, int) and low >= high:
            return f"pressure_low={low} is not below pressure_high={high}"
        return None

    def _wrong_lanes(self) -> str | None:
        weights = self.priority_weights
        if self.strict and self.priorities:
            return "strict=True and priorities=True exclude each other"
        if weights is None:
            return None
        if not isinstance(weights, tuple | list) or len(weights) != PRIORITY_COUNT:
            return f"priority_weights={weights!r} is not {PRIORITY_COUNT} whole numbers"
        if any(isinstance(w, bool) or not isinstance(w, int) or w < 1 for w in weights):
            return f"priority_weights={weights!r} are not all 1 or more"
        return None

    def _wrong_retention(self) -> str | None:
        if isinstance(self.retention, Retention) or self.retention in get_args(Kept):
            return None
        return f"retention={self.retention!r} is none of acked, all and a Retention"

    def changed(self, changes: dict[str, Any]) -> QueueOptions:
        """The same with some settings replaced. TypeError for a name that is none."""
        known = self.__struct_fields__
        unknown = [name for name in changes if name not in known]
        if unknown:
            raise TypeError(
                f"unknown queue option {', '.join(map(repr, unknown))}"
                f"{_meant(unknown, known)}; there are {', '.join(known)}. Nothing was changed."
            )
        return msgspec.structs.replace(self, **changes)

    def pressure_floor(self) -> int | None:
        """The size at which puts go on once they wait."""
        if self.pressure_high is None:
            return None
        return self.pressure_low if self.pressure_low is not None else self.pressure_high // 2


class StoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a store writes, for all its queues. ValueError names every wrong setting.

    `sync_interval` bounds in seconds what a power cut can take of the weaker levels (None: they
    are never synced on their own), `sync_every` does so in records. `cursor_cap_bytes` bounds how
    much stays on disk only because a consumer has not passed it.
    """

    segment_bytes: int = 64 << 20
    segment_records: int = 1_000_000
    segment_seconds: float = 24 * 3600
    sync_interval: float | None = 0.1
    sync_every: int | None = None
    cursor_cap_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        refuse(
            wrong_number("sync_interval", self.sync_interval, 0, whole=False, optional=True),
            wrong_number("sync_every", self.sync_every, 1, optional=True),
            wrong_number("cursor_cap_bytes", self.cursor_cap_bytes, 0),
        )
        self.log_options()

    def log_options(self) -> LogOptions:
        return LogOptions(
            segment_bytes=self.segment_bytes,
            segment_records=self.segment_records,
            segment_seconds=self.segment_seconds,
        )


def _meant(unknown: list[str], known: tuple[str, ...]) -> str:
    """What somebody who gave such options may have wanted."""
    if "read_only" in unknown:
        return ", which is one of open_store(path, read_only=True)"
    # Not at the top: it is wanted by mistakes alone.
    import difflib

    close = [match for name in unknown for match in difflib.get_close_matches(name, known, 1)]
    return f" (did you mean {', '.join(close)}?)" if close else ""


def store_options(given: dict[str, Any]) -> StoreOptions:
    """Options for a store. TypeError for a name that is none, and where it belongs."""
    known = StoreOptions.__struct_fields__
    unknown = [name for name in given if name not in known]
    if unknown and unknown[0] in QueueOptions.__struct_fields__:
        raise TypeError(
            f"{unknown[0]!r} is an option of a queue: give it to store.queue, or to fifoq.open. "
            f"Nothing was changed."
        )
    if unknown:
        raise TypeError(
            f"unknown store option {unknown[0]!r}; there are {', '.join(known)}. "
            f"Nothing was changed."
        )
    return StoreOptions(**given)


STORE_OPTION_NAMES: Final = frozenset(StoreOptions.__struct_fields__)


def _most(name: str, value: object, most: int) -> str | None:
    over = isinstance(value, int) and value > most
    return f"{name}={value} is over {most}" if over else None


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> str | None:
    return None if value in allowed else f"{name}={value!r} is none of {', '.join(allowed)}"


def _flag(name: str, value: object) -> str | None:
    return None if isinstance(value, bool) else f"{name}={value!r} is neither True nor False"
