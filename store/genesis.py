"""Genesis: a queue's metadata. The entry that closes a frame is the commit point.

Inside frames an entry is a msgpack array in the order of the fields below; fields are only ever
added at the end, with a default. The checkpoint holds it as readable JSON under the seed's names,
times in milliseconds, with the exact nanoseconds beside them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from store.errors import DamageError, InvalidName

GENESIS_VERSION: Final = 1
NAME_RULE: Final = "^(?:[a-z]{1,8}/)?[a-z0-9][a-z0-9-]{0,63}(?:\\.dlq)?$"
_NAME = re.compile(NAME_RULE)
_MILLISECOND = 1_000_000

GENESIS_BYTES_MAX: Final = 1 << 10
"""Room that is kept for each genesis entry, configuration aside."""


def check_name(name: str) -> str:
    """The name itself, or InvalidName. Names are data: none ever becomes a path."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidName(
            f"queue name {name!r:.80} is not allowed: 1 to 64 of a-z, 0-9 and '-', starting with a "
            f"letter or digit; '.dlq' may follow, and a prefix of 1 to 8 letters and '/' may stand "
            f"before it. Nothing was changed."
        )
    return name


class Genesis(msgspec.Struct, array_like=True, gc=False):
    """State of one queue as of one commit. `configuration` is there only when it changed."""

    name: str
    version: int = GENESIS_VERSION
    next_counter: int = 1
    queue_size: int = 0
    queue_bytes: int = 0
    total_put_count: int = 0
    total_take_count: int = 0
    total_delay_ns: int = 0
    last_put_time: int = 0
    last_take_time: int = 0
    high_water_mark: int | None = None
    low_water_mark: int | None = None
    high_water_time: int = 0
    low_water_time: int = 0
    floor: int = 0
    reserved_upto: int = 0
    configuration: bytes | None = None

    if TYPE_CHECKING:

        def __copy__(self) -> Genesis: ...


class GenesisView(msgspec.Struct, rename="camel", frozen=True):
    """Genesis as JSON for people, with the seed's names; times in milliseconds."""

    version: int
    high_water_mark: int | None
    low_water_mark: int | None
    last_put_time: int
    last_take_time: int
    total_put_count: int
    total_take_count: int
    next_counter: int
    queue_size: int
    total_delay_ns: int
    queue_bytes: int
    floor: int
    reserved_upto: int
    high_water_time_ns: int
    low_water_time_ns: int
    last_put_time_ns: int
    last_take_time_ns: int
    configuration: str | None

    @classmethod
    def of(cls, genesis: Genesis, configuration: bytes | None) -> GenesisView:
        return cls(
            version=genesis.version,
            high_water_mark=genesis.high_water_mark,
            low_water_mark=genesis.low_water_mark,
            last_put_time=genesis.last_put_time // _MILLISECOND,
            last_take_time=genesis.last_take_time // _MILLISECOND,
            total_put_count=genesis.total_put_count,
            total_take_count=genesis.total_take_count,
            next_counter=genesis.next_counter,
            queue_size=genesis.queue_size,
            total_delay_ns=genesis.total_delay_ns,
            queue_bytes=genesis.queue_bytes,
            floor=genesis.floor,
            reserved_upto=genesis.reserved_upto,
            high_water_time_ns=genesis.high_water_time,
            low_water_time_ns=genesis.low_water_time,
            last_put_time_ns=genesis.last_put_time,
            last_take_time_ns=genesis.last_take_time,
            configuration=None if configuration is None else configuration.decode(),
        )

    def genesis(self, name: str) -> Genesis:
        return Genesis(
            name=name,
            version=self.version,
            next_counter=self.next_counter,
            queue_size=self.queue_size,
            queue_bytes=self.queue_bytes,
            total_put_count=self.total_put_count,
            total_take_count=self.total_take_count,
            total_delay_ns=self.total_delay_ns,
            last_put_time=self.last_put_time_ns,
            last_take_time=self.last_take_time_ns,
            high_water_mark=self.high_water_mark,
            low_water_mark=self.low_water_mark,
            high_water_time=self.high_water_time_ns,
            low_water_time=self.low_water_time_ns,
            floor=self.floor,
            reserved_upto=self.reserved_upto,
        )


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(list[Genesis])


def encode_genesis(entries: Sequence[Genesis]) -> bytes:
    """The genesis entries of one frame."""
    return _encode(entries)


def decode_genesis(body: memoryview, genesis_bytes: int) -> list[Genesis]:
    """The genesis entries at the end of a body that passed its checksum."""
    if genesis_bytes == 0:
        return []
    at = len(body) - genesis_bytes
    try:
        entries = _decoder.decode(body[at:])
        for entry in entries:
            check_name(entry.name)
            if entry.configuration is not None:
                entry.configuration.decode()
    except (ValueError, RecursionError) as error:
        raise DamageError(at, f"genesis entries do not decode: {error}") from None
    return entries
