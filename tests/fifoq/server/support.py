"""A frame server on a thread of its own, raw connections to it, and a proxy that tampers."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fifoq.server import FrameServer, ServerLimits, serve
from fifoq.server.client import FrameClient
from fifoq.server.protocol import (
    ANSWER_BYTES_MAX,
    FAILURE,
    GREETING_BYTES,
    MESSAGE_HEADER_BYTES,
    PROOF,
    Failure,
    Header,
    check_body,
    decode_greeting,
    decode_header,
    decode_values,
    encode_greeting,
    encode_message,
    prove,
)
from store import LogOptions, RecordBlock, open_log
from tests.fifoq.loops import LOOPS, PATIENCE_SECONDS

TOKEN = "a token that nobody guesses"
NONCE = b"0123456789abcdef"
LIMITS = ServerLimits()
TURNS = 20


class Deadlines:
    """The deadlines of servers: they come when a test says so, however slow the machine is."""

    def __init__(self) -> None:
        self._standing: list[_Deadline] = []

    @asynccontextmanager
    async def timeout(self, seconds: float) -> AsyncIterator[None]:
        """Instead of `asyncio.timeout`."""
        async with asyncio.timeout(None) as timeout:
            deadline = _Deadline(seconds, timeout, asyncio.get_running_loop())
            self._standing.append(deadline)
            try:
                yield
            finally:
                self._standing.remove(deadline)

    def come(self, seconds: float) -> None:
        """Let the deadline of that length come, once a connection does nothing but wait for it."""
        until(lambda: self._waited_for(seconds))
        deadline = self._waited_for(seconds)
        assert deadline is not None
        deadline.loop.call_soon_threadsafe(deadline.come)

    def _waited_for(self, seconds: float) -> _Deadline | None:
        """The one that stands now and still after some turns of its loop."""
        found = next((each for each in list(self._standing) if each.seconds == seconds), None)
        if found is not None:
            for _ in range(TURNS):
                turned = threading.Event()
                found.loop.call_soon_threadsafe(turned.set)
                turned.wait(PATIENCE_SECONDS)
        return found if found in self._standing else None


class _Deadline(NamedTuple):
    seconds: float
    timeout: asyncio.Timeout
    loop: asyncio.AbstractEventLoop

    def come(self) -> None:
        self.timeout.reschedule(self.loop.time())


@contextmanager
def serving(
    path: Path, *, loop: str = "asyncio", token: str = TOKEN, port: int = 0, **limits: Any
) -> Iterator[FrameServer]:
    """The store at `path`, served until the end of the block, which no connection outlives."""
    ready: list[FrameServer] = []
    begun, stop = threading.Event(), None

    async def run() -> None:
        nonlocal stop
        stop = asyncio.Event()
        async with serve(path, port=port, token=token, limits=ServerLimits(**limits)) as server:
            ready.append(server)
            begun.set()
            await stop.wait()
        assert server.stats().connections == 0

    runner = asyncio.Runner(loop_factory=LOOPS[loop])
    failed: list[BaseException] = []

    def work() -> None:
        try:
            with runner:
                runner.run(run())
        except BaseException as error:
            failed.append(error)
        finally:
            begun.set()

    # If it hangs the test fails, and the run goes on.
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    begun.wait(PATIENCE_SECONDS)
    try:
        if failed:
            raise failed[0]
        yield ready[0]
    finally:
        if stop is not None and ready:
            runner.get_loop().call_soon_threadsafe(stop.set)
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive(), "the server does not end"
    assert not failed, failed


def client_of(server: FrameServer, **options: Any) -> FrameClient:
    patience = {"connect_seconds": PATIENCE_SECONDS, "answer_seconds": PATIENCE_SECONDS}
    token = options.pop("token", TOKEN)
    return FrameClient(server.host, server.port, token, **{**patience, **options})


def fill(path: Path, *, name: str = "main", frames: int = 10, each: int = 20) -> list[bytes]:
    """A store of one queue; returns its payloads in order."""
    payloads = [f"{name} {i} ".encode() * (i % 5) for i in range(frames * each)]
    with open_log(str(path), options=LogOptions(segment_bytes=64 << 10)) as log:
        for at in range(0, len(payloads), each):
            log.put(name, payloads[at : at + each])
    return payloads


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.005)


def payloads_of(blocks: Iterator[RecordBlock]) -> list[bytes]:
    return [payload for block in blocks for payload in block.payloads()]


class Raw:
    """A connection on which a test may send anything."""

    def __init__(self, server: FrameServer) -> None:
        self.socket = socket.create_connection((server.host, server.port), PATIENCE_SECONDS)

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *error: object) -> None:
        self.socket.close()

    def read(self, count: int) -> bytes:
        """That many bytes, or fewer because the server closed the connection."""
        data = b""
        while len(data) < count:
            try:
                got = self.socket.recv(count - len(data))
            except ConnectionResetError:
                return data
            if not got:
                break
            data += got
        return data

    def greet(self) -> None:
        """Everything up to the welcome."""
        self.socket.sendall(encode_greeting(NONCE))
        _, server_nonce = decode_greeting(self.read(GREETING_BYTES))
        proof = prove(TOKEN, "client", server_nonce, NONCE)
        self.socket.sendall(b"".join(encode_message(PROOF, [proof], request=0)))
        self.message()

    def send(self, kind: int, body: bytes, *, request: int = 1) -> None:
        """A whole message, whatever its body says."""
        self.socket.sendall(b"".join(encode_message(kind, [body], request=request)))

    def message(self) -> tuple[Header, bytes]:
        header = decode_header(self.read(MESSAGE_HEADER_BYTES), ANSWER_BYTES_MAX)
        body = self.read(header.body_bytes)
        check_body(header, body)
        return header, body

    def failure(self) -> Failure:
        header, body = self.message()
        assert header.kind == FAILURE
        return decode_values(body, Failure)

    def is_closed(self) -> bool:
        """Whether the server ends the connection now."""
        return self.read(1) == b""


@contextmanager
def proxy(
    server: FrameServer, change: Callable[[int, bytes], bytes], *, whole: bool = True
) -> Iterator[int]:
    """A port that leads to the server; what comes back passes through `change`, with its place.

    When `change` makes it shorter, the connection ends behind it, unless `whole` is false.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def upward(client: socket.socket, upstream: socket.socket) -> None:
        try:
            while data := client.recv(65536):
                upstream.sendall(data)
            upstream.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def downward(client: socket.socket, upstream: socket.socket) -> None:
        place = 0
        try:
            while data := upstream.recv(65536):
                changed = change(place, data)
                client.sendall(changed)
                place += len(data)
                if whole and len(changed) < len(data):
                    break
        except OSError:
            pass
        for each in (client, upstream):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            upstream = socket.create_connection((server.host, server.port))
            pair = [
                threading.Thread(target=way, args=(client, upstream)) for way in (upward, downward)
            ]
            threads.extend(pair)
            opened.extend((client, upstream))
            for thread in pair:
                thread.start()

    opened: list[socket.socket] = []
    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()
        for each in opened:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in threads:
            thread.join()
        for each in opened:
            each.close()
