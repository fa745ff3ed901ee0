"""One blocking connection to a frame server: the greeting, requests out, checked messages in."""

from __future__ import annotations

import hmac
import secrets
import socket
import time
from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from fifoq.server.failures import BUSY, TOKEN, VERSION, store_error_of
from fifoq.server.protocol import (
    ANSWER_BYTES_MAX,
    FAILURE,
    GREETING_BYTES,
    MESSAGE_HEADER_BYTES,
    NONCE_BYTES,
    PROOF,
    PROTOCOL_VERSION,
    WELCOME,
    Failure,
    Header,
    ProtocolError,
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
from store.checksum import Buffer
from store.errors import FifoqError

UNREACHABLE: Final = "unreachable"
BROKEN: Final = "broken"
_ADVICE: Final = {
    UNREACHABLE: "Check host and port, and that `python -m fifoq.server` or serve() runs there.",
    TOKEN: "Give the server's token: option `token`, or FIFOQ_TOKEN on driver and executors.",
    VERSION: "Install the same version of fifoq on both sides.",
    BUSY: "Try again later, or raise ServerLimits.connections.",
}
_ADVICE_ELSE: Final = "Try again; the server's log says more."
_REQUEST_MAX: Final = 2**32 - 1

S = TypeVar("S", bound=msgspec.Struct)


class ServerError(FifoqError):
    """A frame server cannot be reached, refused us, or broke the protocol.

    `address` is "host:port"; `code` is "unreachable", "broken", or what the server said: "token",
    "version", "busy", "malformed", "timeout", "closing", "unknown", "failed".
    """

    def __init__(self, address: str, code: str, reason: str) -> None:
        advice = _ADVICE.get(code, _ADVICE_ELSE)
        super().__init__(f"fifoq://{address}: {reason}. Nothing was changed. {advice}")
        self.address, self.code, self.reason = address, code, reason


class Link:
    """A connection that was let in. Every error but the store's own is a ServerError."""

    def __init__(
        self, host: str, port: int, token: str, *, connect_seconds: float, answer_seconds: float
    ) -> None:
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.answered = True
        """Whether the last answer was read to its end: only then can there be another request."""
        self._request = 0
        deadline = time.monotonic() + connect_seconds
        try:
            self._socket = socket.create_connection((host, port), connect_seconds)
        except OSError as error:
            raise ServerError(self.address, UNREACHABLE, f"no connection: {error}") from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            self.store_id = self._greet(token)
            self._socket.settimeout(answer_seconds)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Twice is fine."""
        with suppress(OSError):
            self._socket.close()

    def broken(self, reason: str) -> ServerError:
        """What to raise when the server's bytes make no sense."""
        return ServerError(self.address, BROKEN, reason)

    def send(self, kind: int, values: msgspec.Struct) -> None:
        """Begin a request."""
        self.answered = False
        self._request = self._request % _REQUEST_MAX + 1
        self._send(b"".join(encode_values(kind, values, request=self._request)))

    def receive(self) -> tuple[Header, memoryview]:
        """The next message of the answer; raises what the server tells instead of it."""
        header, body = self._receive()
        if header.kind == FAILURE:
            failure = self._values(body, Failure)
            self.answered = header.request == self._request
            told = ServerError(self.address, failure.code, f"the server says: {failure.message}")
            error = store_error_of(failure) if self.answered else None
            if error is not None:
                raise error from told
            raise told
        if header.request != self._request:
            raise self.broken(f"message {header.request} came instead of {self._request}")
        return header, body

    def decoded(self, header: Header, body: Buffer, kind: int, type: type[S]) -> S:
        """The values of the message that ends an answer."""
        if header.kind != kind:
            raise self.broken(f"a message of kind {header.kind} came instead of {kind}")
        values = self._values(body, type)
        self.answered = True
        return values

    def _greet(self, token: str) -> str:
        """Prove that we have the token, and let the server do the same; returns the store's id."""
        client_nonce = secrets.token_bytes(NONCE_BYTES)
        self._send(encode_greeting(client_nonce))
        try:
            version, server_nonce = decode_greeting(bytes(self._read(GREETING_BYTES)))
        except ProtocolError as error:
            raise self.broken(str(error)) from None
        if version == PROTOCOL_VERSION:
            proof = prove(token, "client", server_nonce, client_nonce)
            self._send(b"".join(encode_message(PROOF, [proof], request=0)))
        # A server of another version says so itself, in a message, as one that is busy does.
        header, body = self.receive()
        welcome = self.decoded(header, body, WELCOME, Welcome)
        expected = prove(token, "server", server_nonce, client_nonce).hex()
        if not hmac.compare_digest(welcome.proof.encode(), expected.encode()):
            raise ServerError(self.address, TOKEN, "the server has not got the token")
        return welcome.store

    def _values(self, body: Buffer, type: type[S]) -> S:
        try:
            return decode_values(body, type)
        except ProtocolError as error:
            raise self.broken(str(error)) from None

    def _receive(self) -> tuple[Header, memoryview]:
        try:
            header = decode_header(bytes(self._read(MESSAGE_HEADER_BYTES)), ANSWER_BYTES_MAX)
            body = self._read(header.body_bytes)
            check_body(header, body)
        except ProtocolError as error:
            raise self.broken(str(error)) from None
        return header, body

    def _read(self, count: int) -> memoryview:
        """Exactly that many bytes, in a buffer of their own."""
        whole = memoryview(bytearray(count))
        rest = whole
        while rest:
            try:
                got = self._socket.recv_into(rest)
            except TimeoutError:
                raise self._unreachable("no answer came in time") from None
            except OSError as error:
                raise self._unreachable(f"the connection broke: {error}") from error
            if not got:
                raise self._unreachable("the server closed the connection")
            rest = rest[got:]
        return whole

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise self._unreachable("the request could not be sent in time") from None
        except OSError as error:
            raise self._unreachable(f"the connection broke: {error}") from error

    def _unreachable(self, reason: str) -> ServerError:
        return ServerError(self.address, UNREACHABLE, reason)
