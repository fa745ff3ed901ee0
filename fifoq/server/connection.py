"""One client of a frame server: the greeting, then one request and its answer after the other."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from asyncio import timeout
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

import msgspec

from fifoq.server.failures import (
    BUSY,
    CLOSING,
    FAILED,
    MALFORMED,
    TIMEOUT,
    TOKEN,
    UNKNOWN,
    VERSION,
    failure_of,
)
from fifoq.server.limits import ServerLimits
from fifoq.server.protocol import (
    ADVANCE,
    ATTEMPTS,
    BLOCKS,
    DESCRIPTION,
    END,
    FAILURE,
    FOUND,
    GREETING_BYTES,
    LEASED,
    MESSAGE_HEADER_BYTES,
    NAMES,
    NONCE_BYTES,
    PAGE,
    POSITION,
    PROOF,
    PROOF_BYTES,
    PROTOCOL_VERSION,
    QUEUE,
    QUEUES,
    RANGES,
    REMOVED,
    SEEK,
    STANDING,
    WELCOME,
    AdvanceRequest,
    AttemptsRequest,
    BlocksRequest,
    End,
    Failure,
    Header,
    PositionRequest,
    ProtocolError,
    QueueRequest,
    QueuesRequest,
    RemovedRequest,
    SeekRequest,
    Welcome,
    check_body,
    decode_greeting,
    decode_header,
    decode_values,
    encode_greeting,
    encode_message,
    encode_values,
    prove,
)
from fifoq.server.served import Served
from store import FifoqError
from store.checksum import Buffer
from store.reader import UNWITNESSED_SECONDS

PIECE_BYTES: Final = 64 << 10
"""What is handed to the kernel at once; the next piece waits until most of it has gone."""
LINGER_BYTES: Final = 1 << 20
LINGER_SECONDS: Final = 1.0
"""How long we listen after an error, so that it is not lost to what the client still sends."""

_log = logging.getLogger("fifoq.server")


# What is asked, the kind of the answer, and who gives it.
_PLAIN: Final[dict[int, tuple[type[Any], int, Callable[[Served, Any], msgspec.Struct]]]] = {
    QUEUE: (QueueRequest, DESCRIPTION, Served.describe),
    SEEK: (SeekRequest, FOUND, Served.seek),
    QUEUES: (QueuesRequest, NAMES, Served.queues),
    REMOVED: (RemovedRequest, RANGES, Served.removed),
    ATTEMPTS: (AttemptsRequest, LEASED, Served.attempts),
    POSITION: (PositionRequest, STANDING, Served.position),
    ADVANCE: (AdvanceRequest, STANDING, Served.advance),
}


class Traffic:
    """What a server has done so far; connections add to it."""

    def __init__(self) -> None:
        self.requests = 0
        self.records = 0
        self.bytes = 0
        self.refused = 0


class Refused(FifoqError):
    """The connection ends, and the client is told why."""

    def __init__(self, code: str, message: str, request: int = 0) -> None:
        super().__init__(message)
        self.code, self.request = code, request


class Connection:
    """Answers one client. Holds at most one page and one piece of it in the kernel's way."""

    def __init__(
        self,
        served: Served,
        token: str,
        limits: ServerLimits,
        traffic: Traffic,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._served = served
        self._token = token
        self._limits = limits
        self._traffic = traffic
        self._reader = reader
        self._writer = writer
        self._greeted = False
        self._amid = False
        """Whether a message was begun and is not whole: nothing may come between."""
        self.peer = str(writer.get_extra_info("peername"))
        writer.transport.set_write_buffer_limits(high=PIECE_BYTES, low=PIECE_BYTES // 4)

    async def run(self, *, too_many: bool) -> None:
        """Serve until the client goes or breaks a rule; then the connection is closed."""
        try:
            await self._run(too_many)
        except Refused as refused:
            self._traffic.refused += 1
            _log.warning("%s: refused (%s): %s", self.peer, refused.code, refused)
            await self._say_why(refused)
        except (ConnectionError, TimeoutError, asyncio.IncompleteReadError) as error:
            _log.info("%s: gone (%s)", self.peer, type(error).__name__)
        except asyncio.CancelledError:
            self._send_at_once(Failure(CLOSING, "the server is closing"))
            raise
        finally:
            await self._hang_up()

    async def _hang_up(self) -> None:
        """Let what is on its way arrive, but do not wait for a client that takes nothing."""
        self._writer.close()
        try:
            async with timeout(LINGER_SECONDS):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self._writer.transport.abort()

    async def _run(self, too_many: bool) -> None:
        try:
            async with timeout(self._limits.greeting_seconds):
                await self._greet(too_many)
        except TimeoutError:
            self._refuse(TIMEOUT, "no greeting and proof came in time")
        except asyncio.IncompleteReadError:
            self._refuse(MALFORMED, "the greeting or the proof is cut off")
        while (message := await self._next_request()) is not None:
            self._traffic.requests += 1
            header, body = message
            try:
                await self._answer(header, body)
            except ProtocolError as error:
                # The message itself was whole, so the next one can be read.
                await self._send_failure(header.request, Failure(MALFORMED, str(error)))
            except FifoqError as error:
                _log.info("%s: request failed (%s)", self.peer, type(error).__name__)
                await self._send_failure(header.request, failure_of(error))
            except (ConnectionError, TimeoutError):
                raise
            except Exception:
                # Our own mistake. The client learns that there was one, and the log which.
                _log.exception("%s: request of kind %d failed", self.peer, header.kind)
                failure = Failure(FAILED, "the server failed; its log says why")
                await self._send_failure(header.request, failure)

    # The greeting.

    async def _greet(self, too_many: bool) -> None:
        nonce = secrets.token_bytes(NONCE_BYTES)
        await self._send([encode_greeting(nonce)])
        self._greeted = True
        if too_many:
            most = self._limits.connections
            self._refuse(BUSY, f"the server has its {most} connections; try again later")
        try:
            version, client_nonce = decode_greeting(await self._reader.readexactly(GREETING_BYTES))
            if version != PROTOCOL_VERSION:
                self._refuse(
                    VERSION,
                    f"the client speaks version {version} of the protocol, this server version "
                    f"{PROTOCOL_VERSION}; use the same fifoq on both sides",
                )
            header = decode_header(
                await self._reader.readexactly(MESSAGE_HEADER_BYTES), PROOF_BYTES
            )
            body = await self._reader.readexactly(header.body_bytes)
            check_body(header, body)
        except ProtocolError as error:
            self._refuse(MALFORMED, str(error))
        expected = prove(self._token, "client", nonce, client_nonce)
        if header.kind != PROOF or not hmac.compare_digest(body, expected):
            self._refuse(TOKEN, "the token is not the one of this server")
        proof = prove(self._token, "server", nonce, client_nonce).hex()
        welcome = Welcome(proof, self._served.store_id.hex())
        await self._send(encode_values(WELCOME, welcome, request=header.request))

    # Requests.

    async def _next_request(self) -> tuple[Header, bytes] | None:
        """The next request, or None if the client has gone between two of them."""
        try:
            async with timeout(self._limits.idle_seconds):
                first = await self._reader.read(1)
        except TimeoutError:
            self._refuse(TIMEOUT, f"no request came for {self._limits.idle_seconds:g} seconds")
        if not first:
            return None
        try:
            async with timeout(self._limits.request_seconds):
                head = first + await self._reader.readexactly(MESSAGE_HEADER_BYTES - 1)
                header = decode_header(head, self._limits.request_bytes)
                body = await self._reader.readexactly(header.body_bytes)
                check_body(header, body)
        except TimeoutError:
            seconds = self._limits.request_seconds
            self._refuse(TIMEOUT, f"a request did not end within {seconds:g} seconds")
        except asyncio.IncompleteReadError:
            self._refuse(MALFORMED, "a request is cut off")
        except ProtocolError as error:
            self._refuse(MALFORMED, str(error))
        return header, body

    async def _answer(self, header: Header, body: bytes) -> None:
        if header.kind == BLOCKS:
            await self._send_records(header.request, decode_values(body, BlocksRequest))
            return
        known = _PLAIN.get(header.kind)
        if known is None:
            failure = Failure(UNKNOWN, f"requests of kind {header.kind} are unknown here")
            await self._send_failure(header.request, failure)
            return
        type, kind, answer = known
        asked = decode_values(body, type)
        if isinstance(asked, QueueRequest) and asked.fresh:
            await self._catch_up()
        values = await self._served.run(answer, self._served, asked)
        await self._send(encode_values(kind, values, request=header.request))

    async def _catch_up(self) -> None:
        """Let what was confirmed before the request be seen, as a new reader does."""
        if await self._served.run(self._served.waits):
            await asyncio.sleep(UNWITNESSED_SECONDS)
            # This look may have to sync the segment itself; the answer's own sees what that gave.
            await self._served.run(self._served.waits)

    async def _send_records(self, number: int, request: BlocksRequest) -> None:
        run = self._served.run
        answer = await run(self._served.answer, request, self._limits.page_bytes)
        sent = records = 0
        following = request.first
        while sent < self._limits.answer_bytes:
            page = await run(answer.next_page)
            if page is None:
                end = End(records, max(following, request.last + 1), True)
                await self._send(encode_values(END, end, request=number))
                return
            message = encode_message(PAGE, page.parts, request=number, block_count=page.block_count)
            await self._send(message)
            sent += page.bytes
            records += page.record_count
            following = page.last + 1
            self._traffic.records += page.record_count
        end = End(records, following, False)
        await self._send(encode_values(END, end, request=number))

    # Sending.

    async def _send(self, parts: Sequence[Buffer]) -> None:
        """Hand a message to the kernel, as fast as the client takes it. ConnectionError if not."""
        self._amid = True
        for piece in _pieces(parts):
            self._writer.write(piece)
            self._traffic.bytes += len(piece)
            try:
                async with timeout(self._limits.send_seconds):
                    await self._writer.drain()
            except TimeoutError:
                _log.warning("%s: takes nothing, dropped", self.peer)
                self._writer.transport.abort()
                raise
        self._amid = False

    async def _send_failure(self, number: int, failure: Failure) -> None:
        await self._send(encode_values(FAILURE, failure, request=number))

    def _send_at_once(self, failure: Failure) -> None:
        if self._greeted and not self._amid and not self._writer.is_closing():
            self._writer.writelines(encode_values(FAILURE, failure, request=0))

    def _refuse(self, code: str, message: str) -> NoReturn:
        raise Refused(code, message) from None

    async def _say_why(self, refused: Refused) -> None:
        self._send_at_once(Failure(refused.code, str(refused)))
        try:
            async with timeout(LINGER_SECONDS):
                await self._writer.drain()
                self._writer.write_eof()
                # Closing with unread bytes would make the kernel take the error back.
                for _ in range(LINGER_BYTES // PIECE_BYTES):
                    if not await self._reader.read(PIECE_BYTES):
                        break
        except (OSError, TimeoutError):
            pass


def _pieces(parts: Sequence[Buffer]) -> list[Buffer]:
    """The same bytes in pieces near PIECE_BYTES: small parts together, large ones cut."""
    pieces: list[Buffer] = []
    small: list[Buffer] = []
    small_bytes = 0
    for part in parts:
        if small_bytes + len(part) > PIECE_BYTES and small:
            pieces.append(b"".join(small))
            small, small_bytes = [], 0
        if len(part) > PIECE_BYTES:
            view = memoryview(part)
            pieces += [view[at : at + PIECE_BYTES] for at in range(0, len(view), PIECE_BYTES)]
        else:
            small.append(part)
            small_bytes += len(part)
    if small:
        pieces.append(b"".join(small))
    return pieces
