"""What a client and the owner of a store say to each other over its socket.

    body bytes: u32 | kind: u8 | body

Integers are little-endian, bodies msgpack. A client sends one request and waits for its answer, or
for a failure; then it may send the next one. What a request is answered with is written beside it.
Pure: bytes in, values out.
"""

from __future__ import annotations

import struct
from typing import Final, TypeVar

import msgspec

from fifoq.attributes import Attributes
from fifoq.options import ITEM_BYTES_MAX
from fifoq.stats import QueueStats
from fifoq.view import ReadOnlyStats
from store import FifoqError

REQUEST: Final = 1
ANSWER: Final = 2
FAILURE: Final = 3

BODY_BYTES_MAX: Final = ITEM_BYTES_MAX + (1 << 20)
"""No message is larger: the largest record there can be, and what belongs to it."""
PAGE_BYTES: Final = 1 << 20
"""What a client puts, or has leased to it, at once, about; one record may be larger."""
PAGE_RECORDS: Final = 1000

_HEADER = struct.Struct("<IB")
HEADER_BYTES: Final = _HEADER.size

A = TypeVar("A")


class MessageError(FifoqError):
    """The other side sent what the protocol does not allow; the connection is of no use."""


class NotThere(FifoqError):
    """What was asked for is not there. Nothing was changed."""


class _Request(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="ask"
):
    """What all requests have: a name of their own."""


class GetStats(_Request, frozen=True, tag="stats"):
    """Statistics of all queues. → Stats"""


class Put(_Request, frozen=True, tag="put"):
    """Put records in one commit, with the same attributes for each. → Placed

    With `text` a queue that has a type takes each payload as JSON; others take bytes as they are.
    """

    queue: str
    payloads: list[bytes]
    text: bool = False
    headers: dict[str, str] | None = None
    delay: float | None = None
    ttl: float | None = None
    priority: int | None = None
    ordering_key: str | None = None
    dedup_id: str | None = None


class Lease(_Request, frozen=True, tag="lease"):
    """Hand out 1 to `count` records, which come back if the client goes without an ack. → Leased

    Waits `timeout` seconds for the first (None: for ever); then there may be none.
    """

    queue: str
    count: int
    seconds: float
    timeout: float | None
    max_bytes: int = PAGE_BYTES


class Ack(_Request, frozen=True, tag="ack"):
    """Every record that this client has leased from the queue is done for good. → Count"""

    queue: str


class Replay(_Request, frozen=True, tag="replay"):
    """Put dead letters of a queue back into it; without counters all of them. → Count"""

    queue: str
    counters: list[int]
    dry_run: bool = False


class Purge(_Request, frozen=True, tag="purge"):
    """Remove dead letters of a queue for good; without counters all of them. → Count"""

    queue: str
    counters: list[int]
    dry_run: bool = False


class Seek(_Request, frozen=True, tag="seek"):
    """Move a cursor; `make` makes one that is not there. One of the targets is given. → Moved"""

    queue: str
    cursor: str
    make: bool = False
    end: str | None = None
    """earliest or latest"""
    counter: int | None = None
    time: int | None = None
    """Nanoseconds since the epoch."""


class Forget(_Request, frozen=True, tag="forget"):
    """Delete a cursor for good. → Count"""

    queue: str
    cursor: str


class RemoveUpto(_Request, frozen=True, tag="remove-upto"):
    """Remove every record whose counter is not above this one. → Count"""

    queue: str
    counter: int


class Compact(_Request, frozen=True, tag="compact"):
    """Give back the space of what is removed. → fifoq.Compacted"""


class Explain(_Request, frozen=True, tag="explain"):
    """What became of a record. → fifoq.Explanation"""

    queue: str
    counter: int


class GetMark(_Request, frozen=True, tag="mark"):
    """How far something is that is poured in, by its name. → MarkOf"""

    name: str


class Pour(_Request, frozen=True, tag="pour"):
    """Put records, attributes by index, together with how far their source is by then. → Count

    One synced commit; no limit of the queue holds them up. Without records only the mark is kept.
    """

    name: str
    mark: bytes | None
    """None forgets it."""
    queue: str
    payloads: list[bytes]
    attributes: dict[int, Attributes]


Request = (
    GetStats
    | Put
    | Lease
    | Ack
    | Replay
    | Purge
    | Seek
    | Forget
    | RemoveUpto
    | Compact
    | Explain
    | GetMark
    | Pour
)


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """The owner; its open queues by name; and of all queues what their last commit says."""

    process: int
    version: str
    opened: dict[str, QueueStats]
    queues: list[ReadOnlyStats]


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """Records that were put, of consecutive counters; 0 if the queue dropped them."""

    first: int
    count: int
    time: int


class LeasedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One record, with the bytes that the log has of it."""

    counter: int
    time: int
    payload: bytes
    headers: dict[str, str]
    attempt: int


class Leased(msgspec.Struct, frozen=True, kw_only=True):
    """What was handed out; `typed` says that payloads are msgpack of the queue's type."""

    records: list[LeasedRecord]
    typed: bool


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """How many."""

    count: int


class MarkOf(msgspec.Struct, frozen=True, kw_only=True):
    """What was kept last; None if nothing ever was."""

    mark: bytes | None


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """Where a cursor is now, and where it was; None if it was made."""

    counter: int
    before: int | None


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no answer: the name of the error's class, and its text."""

    kind: str
    message: str


_encode = msgspec.msgpack.Encoder().encode
_request: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_failure = msgspec.msgpack.Decoder(Failure)


def encode_message(kind: int, value: msgspec.Struct) -> bytes:
    """One whole message. MessageError if it is over the limit."""
    body = _encode(value)
    if len(body) > BODY_BYTES_MAX:
        raise MessageError(
            f"a message of {len(body)} bytes is over the limit of {BODY_BYTES_MAX}. Nothing was "
            f"sent."
        )
    return _HEADER.pack(len(body), kind) + body


def decode_header(data: bytes) -> tuple[int, int]:
    """How many bytes the body has, and its kind. MessageError before a length is believed."""
    body_bytes, kind = _HEADER.unpack(data)
    if body_bytes > BODY_BYTES_MAX or kind not in (REQUEST, ANSWER, FAILURE):
        raise MessageError(f"kind {kind} with {body_bytes} bytes is no message of this protocol")
    return body_bytes, kind


def decode_request(body: bytes) -> Request:
    """MessageError if it is none."""
    try:
        return _request.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MessageError(f"not a request that this owner knows: {error}") from None


def decode_answer(body: bytes, type: type[A]) -> A:
    """MessageError if it is not of that type."""
    try:
        return msgspec.msgpack.decode(body, type=type)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MessageError(f"not the answer that was asked for: {error}") from None


def decode_failure(body: bytes) -> Failure:
    try:
        return _failure.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MessageError(f"a failure that cannot be read: {error}") from None
