"""The frame protocol: what a frame server and its clients say to each other, as bytes.

Both sides begin with a greeting. Then everything is a message:

    body bytes: u32 | kind: u8 | 0: u8 | blocks: u16 | request: u32 | checksum: u32 | body

Integers are little-endian. The checksum is the crc32c of the 12 bytes before it and then of the
body. Bodies are JSON, except for the proof (32 bytes) and for records, which are blocks in the
encoding of the log. The token itself never travels: each side proves to the other that it has it.

Pure: bytes in, values out. `docs/reference/frame_server.md` is the same for people.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import msgspec

from fifoq.consumers import Position
from store.blocks import BLOCK_HEADER_BYTES, MOVED, RECORDS, RecordBlock, block_headers
from store.blocks import decode_block as _decode_block
from store.checksum import CRC32C, Buffer, check_function
from store.errors import DamageError, FifoqError, FormatError
from store.frames import BODY_BYTES_MAX
from store.keys import COUNTER_MAX

PROTOCOL_MAGIC: Final = b"FIFOQNET"
PROTOCOL_VERSION: Final = 1
NONCE_BYTES: Final = 16
PROOF_BYTES: Final = 32
TOKEN_BYTES_MIN: Final = 16
TOKEN_BYTES_MAX: Final = 1024
REQUEST_BYTES_MAX: Final = 64 << 10
"""No request's body is larger; a server may set less."""
ANSWER_BYTES_MAX: Final = BODY_BYTES_MAX + (1 << 20)
"""No answer's body is larger: one block of the largest frame, or a page of smaller ones."""
BLOCK_COUNT_MAX: Final = 0xFFFF
RANGE_COUNT_MAX: Final = 50_000
"""Ranges of one answer."""

# What clients send.
PROOF: Final = 1
QUEUE: Final = 2
SEEK: Final = 3
BLOCKS: Final = 4
QUEUES: Final = 5
REMOVED: Final = 6
POSITION: Final = 7
ADVANCE: Final = 8
ATTEMPTS: Final = 9

# What servers send.
WELCOME: Final = 65
DESCRIPTION: Final = 66
FOUND: Final = 67
PAGE: Final = 68
END: Final = 69
NAMES: Final = 70
RANGES: Final = 71
STANDING: Final = 72
LEASED: Final = 73
FAILURE: Final = 127

_GREETING = struct.Struct("<8sHH16s")
_HEADER = struct.Struct("<IBBHII")
_HEAD = struct.Struct("<IBBHI")
"""A message's header without its checksum."""
_U32 = struct.Struct("<I")
GREETING_BYTES: Final = _GREETING.size
MESSAGE_HEADER_BYTES: Final = _HEADER.size

_check = check_function(CRC32C)
S = TypeVar("S", bound=msgspec.Struct)


class ProtocolError(FifoqError):
    """The other side sent what the protocol does not allow; the connection is of no use."""


class Header(msgspec.Struct, frozen=True, gc=False):
    """The fixed part of a message. Its checksum covers the body too, so it is checked later."""

    body_bytes: int
    kind: int
    block_count: int
    request: int
    checksum: int
    start: int
    """Checksum of the header's own bytes, which that of the body continues."""


class QueuesRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which queues are there?"""


class QueueRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is there of a queue?

    With `fresh` the server waits, up to 0.1 s, for what was confirmed just now to be witnessed.
    """

    queue: str
    fresh: bool = False


class SeekRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which counter has the first record that was put at `time` (ns) or later?"""

    queue: str
    time: int


class RemovedRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which counters of first..last were removed?"""

    queue: str
    first: int
    last: int

    def __post_init__(self) -> None:
        _check_range(self.first, self.last)


class AttemptsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often were records first..last leased that are in the queue?"""

    queue: str
    first: int
    last: int

    def __post_init__(self) -> None:
        _check_range(self.first, self.last)


class PositionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far is a consumer?"""

    consumer: str


class AdvanceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """This is a consumer's position from now on."""

    consumer: str
    position: Position


class BlocksRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The retained records first..last; with `removed` false only those not taken yet."""

    queue: str
    first: int
    last: int
    removed: bool

    def __post_init__(self) -> None:
        _check_range(self.first, self.last)


class Welcome(msgspec.Struct, frozen=True):
    """The client has the token; `proof` shows that the server has it too."""

    proof: str
    store: str


class Names(msgspec.Struct, frozen=True):
    """The answer to `QueuesRequest`, in order."""

    queues: list[str]


class Found(msgspec.Struct, frozen=True):
    """The answer to `SeekRequest`."""

    counter: int


class Ranges(msgspec.Struct, frozen=True):
    """The answer to `RemovedRequest`: inclusive ranges in order.

    `whole` is false when there were too many: the rest starts behind the last one.
    """

    ranges: list[tuple[int, int]]
    whole: bool


class Leased(msgspec.Struct, frozen=True):
    """The answer to `AttemptsRequest`: counters, in order, with attempts; others have none.

    `whole` is false when there were too many: the rest starts behind the last one.
    """

    attempts: list[tuple[int, int]]
    whole: bool


class Standing(msgspec.Struct, frozen=True):
    """The answer to `PositionRequest` and, with what is durable now, to `AdvanceRequest`."""

    position: Position | None


class End(msgspec.Struct, frozen=True):
    """The answer to `BlocksRequest` is complete up to the counter before `following`.

    `whole` is false when the answer reached its limit: the rest starts at `following`.
    """

    records: int
    following: int
    whole: bool


class Failure(msgspec.Struct, frozen=True):
    """Why a request, or the connection, has failed. `facts` are the attributes of the error."""

    code: str
    message: str
    facts: dict[str, str | int] = {}


def _check_range(first: int, last: int) -> None:
    if not 1 <= first <= last <= COUNTER_MAX:
        raise ValueError(f"counters {first} to {last} are no range within 1 to {COUNTER_MAX}")


def encode_greeting(nonce: bytes, version: int = PROTOCOL_VERSION) -> bytes:
    return _GREETING.pack(PROTOCOL_MAGIC, version, 0, nonce)


def decode_greeting(data: bytes) -> tuple[int, bytes]:
    """The other side's version and nonce. ProtocolError if it speaks something else."""
    magic, version, _, nonce = _GREETING.unpack(data)
    if magic != PROTOCOL_MAGIC:
        raise ProtocolError("the other side does not speak the frame protocol of fifoq")
    return version, nonce


def prove(token: str, role: str, server_nonce: bytes, client_nonce: bytes) -> bytes:
    """What only somebody with the token can say, as `role`, in this connection."""
    said = b"fifoq " + role.encode() + server_nonce + client_nonce
    return hmac.digest(token.encode(), said, "sha256")


def check_token(token: str) -> str:
    """The token itself. ValueError, without it, if it is too short or too long."""
    size = len(token.encode())
    if not TOKEN_BYTES_MIN <= size <= TOKEN_BYTES_MAX:
        raise ValueError(
            f"the token has {size} bytes; it needs {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX}. "
            f"`python -c 'import secrets; print(secrets.token_urlsafe(32))'` makes one."
        )
    return token


def encode_message(
    kind: int, parts: Sequence[Buffer], *, request: int, block_count: int = 0
) -> list[Buffer]:
    """One message, as a header and the given parts of its body, which are not copied."""
    head = _HEAD.pack(sum(map(len, parts)), kind, 0, block_count, request)
    checksum = _check(head, 0)
    for part in parts:
        checksum = _check(part, checksum)
    return [head + _U32.pack(checksum), *parts]


def encode_values(kind: int, values: msgspec.Struct, *, request: int) -> list[Buffer]:
    """One message whose body is JSON."""
    return encode_message(kind, [msgspec.json.encode(values)], request=request)


def decode_header(data: bytes, bytes_max: int) -> Header:
    """A message's header. ProtocolError before a length over `bytes_max` is believed."""
    body_bytes, kind, zero, block_count, request, checksum = _HEADER.unpack(data)
    if zero:
        raise ProtocolError(f"byte 5 of a message's header is {zero}, not 0")
    if body_bytes > bytes_max:
        raise ProtocolError(f"a message of {body_bytes} bytes is over the limit of {bytes_max}")
    start = _check(data[: _HEAD.size], 0)
    return Header(body_bytes, kind, block_count, request, checksum, start)


def check_body(header: Header, body: Buffer) -> None:
    """ProtocolError unless header and body are the ones that were sent."""
    if _check(body, header.start) != header.checksum:
        raise ProtocolError(f"the checksum of message {header.request} does not match")


def decode_values(body: Buffer, type: type[S]) -> S:
    """The values of a JSON body. ProtocolError if they are not those of the type."""
    try:
        return msgspec.json.decode(body, type=type)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ProtocolError(f"{type.__name__}: {error}") from None


def decode_blocks(queue: str, header: Header, body: memoryview) -> Iterable[RecordBlock]:
    """The blocks of a page, which share its bytes. ProtocolError unless they are record blocks."""
    try:
        for block_header in block_headers(body, header.block_count, 0):
            block = _decode_block(body, block_header, [queue])
            if not isinstance(block, RecordBlock) or block.kind not in (RECORDS, MOVED):
                raise ProtocolError(f"a block of kind {block_header.kind} is none of records")
            yield block.decompressed()
    except (DamageError, FormatError) as error:
        raise ProtocolError(f"a page of queue {queue!r} does not decode: {error}") from None


assert MESSAGE_HEADER_BYTES % 8 == 0, "columns stay aligned behind a header"
assert BLOCK_HEADER_BYTES % 8 == 0
