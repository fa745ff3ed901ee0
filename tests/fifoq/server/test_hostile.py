"""Whatever comes over the wire, the server says why it refuses it, goes on, and never hangs."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import struct
import threading
from pathlib import Path

import pytest

from fifoq.description import QueueDescription, describe
from fifoq.server import FrameServer
from fifoq.server.client import FrameClient
from fifoq.server.connection import LINGER_SECONDS
from fifoq.server.link import ServerError
from fifoq.server.protocol import (
    BLOCKS,
    FAILURE,
    GREETING_BYTES,
    MESSAGE_HEADER_BYTES,
    PAGE,
    PROOF,
    PROTOCOL_VERSION,
    QUEUE,
    SEEK,
    decode_greeting,
    decode_header,
    encode_greeting,
    encode_message,
)
from store import Reader, open_log
from store.keys import COUNTER_MAX
from tests.fifoq.loops import LOOPS, PATIENCE_SECONDS
from tests.fifoq.server.support import (
    LIMITS,
    NONCE,
    TOKEN,
    Deadlines,
    Raw,
    client_of,
    fill,
    payloads_of,
    proxy,
    serving,
    until,
)
from tests.support import figures


def works(server: FrameServer) -> bool:
    with client_of(server) as client:
        return len(payloads_of(client.blocks("main", 1, 3))) == 3


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(tmp_path)
    return tmp_path


# The greeting.


def test_a_wrong_token_is_refused_and_never_shown(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = "quite another token"
    with serving(path) as server, caplog.at_level(logging.DEBUG):
        with pytest.raises(ServerError, match="the token is not the one") as error:
            client_of(server, token=wrong)
        assert (error.value.code, error.value.address) == ("token", f"127.0.0.1:{server.port}")
        assert "option `token`, or FIFOQ_TOKEN" in str(error.value)
        until(lambda: server.stats().refused == 1)
        assert works(server)
        for said in (str(error.value), repr(server), caplog.text):
            assert TOKEN not in said
            assert wrong not in said
        assert "main 3" not in caplog.text
    assert TOKEN not in repr(FrameClient.__init__.__doc__)


def test_the_token_does_not_travel(path: Path) -> None:
    seen = bytearray()

    def watch(place: int, data: bytes) -> bytes:
        seen.extend(data)
        return data

    with (
        serving(path) as server,
        proxy(server, watch) as port,
        FrameClient("127.0.0.1", port, TOKEN) as client,
    ):
        assert client.describe("main").exists
    assert len(seen) > 100
    assert TOKEN.encode() not in seen


def test_a_server_without_the_token_is_not_believed(path: Path) -> None:
    """It lets everybody in, but cannot prove that it is the one that was meant."""
    with serving(path) as server:
        welcome = b'{"proof":"%s","store":"00"}' % (b"0" * 64)

        def pretend() -> None:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                port.append(listener.getsockname()[1])
                ready.set()
                connection, _ = listener.accept()
                with connection:
                    connection.recv(GREETING_BYTES)
                    connection.sendall(encode_greeting(NONCE))
                    connection.recv(MESSAGE_HEADER_BYTES + 32)
                    connection.sendall(b"".join(encode_message(65, [welcome], request=0)))
                    connection.recv(1)

        port: list[int] = []
        ready = threading.Event()
        thread = threading.Thread(target=pretend)
        thread.start()
        ready.wait()
        with pytest.raises(ServerError, match="the server has not got the token") as error:
            FrameClient("127.0.0.1", port[0], TOKEN)
        assert error.value.code == "token"
        thread.join()
        assert works(server)


def test_another_version_is_told_on_both_sides(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(path) as server, Raw(server) as raw:
        raw.socket.sendall(encode_greeting(NONCE, 7))
        version, _ = decode_greeting(raw.read(GREETING_BYTES))
        assert version == PROTOCOL_VERSION
        failure = raw.failure()
        assert failure.code == "version"
        assert "version 7 of the protocol, this server version 1" in failure.message
        assert raw.is_closed()
        monkeypatch.setattr(
            "fifoq.server.link.encode_greeting", lambda nonce: encode_greeting(nonce, 7)
        )
        with pytest.raises(ServerError, match="Install the same version") as error:
            client_of(server)
        assert error.value.code == "version"


def test_somebody_else_who_connects_is_told_apart(path: Path) -> None:
    with serving(path) as server, Raw(server) as raw:
        raw.socket.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        raw.read(GREETING_BYTES)
        assert "does not speak the frame protocol" in raw.failure().message
        assert raw.is_closed()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with listener.accept()[0] as connection:
                connection.sendall(b"HTTP/1.1 400 " * 5)
                connection.recv(1)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ServerError, match="does not speak the frame protocol") as error:
            FrameClient("127.0.0.1", listener.getsockname()[1], TOKEN)
        assert error.value.code == "broken"
        thread.join()


@pytest.mark.parametrize("loop", list(LOOPS))
def test_a_client_that_never_proves_itself_is_dropped_in_time(
    path: Path, loop: str, deadlines: Deadlines
) -> None:
    with serving(path, loop=loop) as server, Raw(server) as raw:
        raw.read(GREETING_BYTES)
        deadlines.come(LIMITS.greeting_seconds)
        failure = raw.failure()
        assert (failure.code, failure.message) == ("timeout", "no greeting and proof came in time")
        assert raw.is_closed()


def test_nothing_there_is_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ServerError, match="Connection refused") as error:
        FrameClient("127.0.0.1", port, TOKEN)
    assert error.value.code == "unreachable"
    assert "Check host and port" in str(error.value)


def test_a_server_that_is_silent_is_given_up(path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(ServerError, match="no answer came in time") as error,
    ):
        FrameClient("127.0.0.1", listener.getsockname()[1], TOKEN, connect_seconds=0.5)
    assert error.value.code == "unreachable"


# Too many.


def test_connections_over_the_limit_are_told_and_wait_for_their_turn(path: Path) -> None:
    with serving(path, connections=2) as server:
        first, second = client_of(server), client_of(server)
        with pytest.MonkeyPatch.context() as patch:
            # The next try would come too late.
            patch.setattr("fifoq.server.client.BUSY_PAUSE_SECONDS", 2 * PATIENCE_SECONDS)
            with pytest.raises(ServerError, match="has its 2 connections") as error:
                client_of(server, connect_seconds=PATIENCE_SECONDS)
        assert error.value.code == "busy"
        found: list[FrameClient] = []
        waiting = threading.Thread(
            target=lambda: found.append(client_of(server, connect_seconds=PATIENCE_SECONDS))
        )
        refused = server.stats().refused
        waiting.start()
        until(lambda: server.stats().refused > refused)
        first.close()
        waiting.join()
        assert found[0].describe("main").exists
        for each in (second, *found):
            each.close()


def test_a_flood_of_connections_is_cut_off(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were told why stay a while; when they are many enough, no more is told."""
    monkeypatch.setattr("fifoq.server.server.TOLD_MAX", 2)
    with serving(path, connections=2) as server:
        good = [client_of(server) for _ in range(2)]
        told = [Raw(server) for _ in range(2)]
        for raw in told:
            raw.read(GREETING_BYTES)
            assert raw.failure().code == "busy"
        with Raw(server) as more:
            assert more.is_closed()
        assert server.stats().connections == 2
        for raw in told:
            raw.socket.close()
        for client in good:
            assert client.describe("main").exists
            client.close()


# Requests.


@pytest.mark.parametrize("loop", list(LOOPS))
@pytest.mark.parametrize("cut", [1, MESSAGE_HEADER_BYTES - 1, MESSAGE_HEADER_BYTES, 20])
def test_half_a_request_is_told_apart(
    path: Path, cut: int, loop: str, deadlines: Deadlines
) -> None:
    whole = b"".join(encode_message(QUEUE, [b'{"queue":"main"}'], request=1))
    with serving(path, loop=loop) as server:
        with Raw(server) as raw:
            raw.greet()
            raw.socket.sendall(whole[:cut])
            raw.socket.shutdown(socket.SHUT_WR)
            failure = raw.failure()
            assert (failure.code, failure.message) == ("malformed", "a request is cut off")
            assert raw.is_closed()
        with Raw(server) as raw:
            raw.greet()
            raw.socket.sendall(whole[:cut])
            deadlines.come(LIMITS.request_seconds)
            failure = raw.failure()
            assert (failure.code, failure.message) == (
                "timeout",
                "a request did not end within 10 seconds",
            )
            assert raw.is_closed()
        assert works(server)


def test_a_length_is_not_believed_before_it_is_checked(path: Path) -> None:
    with serving(path, request_bytes=1000) as server, Raw(server) as raw:
        raw.greet()
        raw.socket.sendall(struct.pack("<IBBHII", 2**32 - 1, QUEUE, 0, 0, 1, 0))
        assert "a message of 4294967295 bytes is over the limit of 1000" in raw.failure().message
        assert raw.is_closed()


def test_a_request_whose_checksum_is_wrong_ends_the_connection(path: Path) -> None:
    message = bytearray(b"".join(encode_message(QUEUE, [b'{"queue":"main"}'], request=1)))
    message[-3] ^= 4
    with serving(path) as server, Raw(server) as raw:
        raw.greet()
        raw.socket.sendall(message)
        assert "checksum of message 1 does not match" in raw.failure().message
        assert raw.is_closed()


def test_a_sound_message_that_makes_no_sense_is_answered_and_the_next_one_too(path: Path) -> None:
    with serving(path) as server, Raw(server) as raw:
        raw.greet()
        for number, (kind, body, code) in enumerate(
            (
                (99, b"{}", "unknown"),
                (PROOF, b"{}", "unknown"),
                (FAILURE, b"{}", "unknown"),
                (QUEUE, b"", "malformed"),
                (QUEUE, b"[", "malformed"),
                (QUEUE, b'{"queue":3}', "malformed"),
                (QUEUE, b'{"queue":"main","more":1}', "malformed"),
                (QUEUE, b'{"queue":"\xff"}', "malformed"),
                (SEEK, b'{"queue":"main"}', "malformed"),
                (SEEK, b'{"queue":"main","time":1e999}', "malformed"),
                (BLOCKS, b"[" * 60000, "malformed"),
                (QUEUE, b'{"queue":"a/b/c"}', "invalid-name"),
            ),
            1,
        ):
            raw.send(kind, body, request=number)
            header, _ = answer = raw.message()
            assert header.request == number
            assert f'"code":"{code}"' in answer[1].decode()
        raw.send(QUEUE, b'{"queue":"main"}')
        assert raw.message()[0].kind != FAILURE


def test_random_bytes_never_hang_the_server_or_stop_it(path: Path) -> None:
    """Noise before the greeting, instead of a request, and sound requests with flipped bits."""
    chance = random.Random(20261117)
    good = b"".join(
        encode_message(BLOCKS, [b'{"queue":"main","first":1,"last":9,"removed":true}'], request=5)
    )
    count = 0
    with serving(path) as server:
        for round_number in range(90):
            noise = chance.randbytes(chance.choice((1, 15, 16, 28, 60, 300, 5000)))
            with Raw(server) as raw:
                if round_number % 3:
                    raw.greet()
                if round_number % 3 == 2:
                    flipped = bytearray(good)
                    flipped[chance.randrange(len(good))] ^= 1 << chance.randrange(8)
                    noise = bytes(flipped)
                try:
                    raw.socket.sendall(noise)
                    raw.socket.shutdown(socket.SHUT_WR)
                except OSError:
                    pass
                # It answers or not, and in any case it ends.
                while raw.read(65536):
                    pass
            count += 1
        until(lambda: server.stats().connections == 0)
        assert works(server)
        assert server.stats().refused >= 60
    figures.record("frame server noise", connections=count)


# Clients that are slow, or go.


def big_store(path: Path, megabytes: int = 24) -> None:
    fill(path, frames=1, each=1)
    with open_log(str(path)) as log:
        for _ in range(megabytes):
            log.put("big", [bytes(1 << 18)] * 4, sync=False)


@pytest.mark.parametrize("loop", list(LOOPS))
def test_a_client_that_reads_nothing_stops_the_reading_and_is_dropped(
    tmp_path: Path, loop: str, deadlines: Deadlines
) -> None:
    """No more is read from disk than one page beyond what the kernel's buffers took."""
    big_store(tmp_path)
    with serving(tmp_path, loop=loop) as server, Raw(server) as raw:
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        raw.greet()
        raw.send(BLOCKS, b'{"queue":"big","first":1,"last":99999,"removed":true}')
        deadlines.come(LIMITS.send_seconds)
        until(lambda: server.stats().connections == 0)
        assert 0 < server.stats().bytes < 16 << 20
        with client_of(server) as client:
            assert sum(block.count for block in client.blocks("big", 1, COUNTER_MAX)) == 96


@pytest.mark.parametrize("loop", list(LOOPS))
def test_a_client_that_reads_nothing_does_not_hold_up_the_closing(
    tmp_path: Path, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fifoq.server.connection.timeout", asyncio.timeout)
    big_store(tmp_path)
    with serving(tmp_path, loop=loop) as server:
        raw = Raw(server)
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        raw.greet()
        raw.send(BLOCKS, b'{"queue":"big","first":1,"last":99999,"removed":true}')
        until(lambda: server.stats().bytes > 100_000)
        assert server.stats().connections == 1
    assert server.stats().connections == 0
    raw.socket.close()


@pytest.mark.parametrize("loop", list(LOOPS))
def test_a_client_that_goes_amid_an_answer_leaves_nothing_behind(tmp_path: Path, loop: str) -> None:
    big_store(tmp_path, megabytes=8)
    with serving(tmp_path, loop=loop) as server:
        for linger in (False, True):
            raw = Raw(server)
            raw.greet()
            raw.send(BLOCKS, b'{"queue":"big","first":1,"last":99999,"removed":true}')
            raw.read(100_000)
            if linger:
                # The kernel sends a reset instead of an orderly end.
                raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raw.socket.close()
            until(lambda: server.stats().connections == 0)
        with client_of(server) as client:
            blocks = client.blocks("big", 1, COUNTER_MAX)
            assert next(blocks).count == 4
            # Left amid its answer, the connection is given up and another one takes its place.
            assert client.describe("big").next == 33
            blocks.close()  # type: ignore[attr-defined]
            assert client.describe("big").next == 33


def test_an_idle_connection_is_closed_and_the_client_makes_another(
    path: Path, deadlines: Deadlines
) -> None:
    with serving(path) as server:
        with client_of(server) as client:
            deadlines.come(LIMITS.idle_seconds)
            deadlines.come(LINGER_SECONDS)
            until(lambda: server.stats().connections == 0)
            assert client.describe("main").exists
        until(lambda: server.stats().connections == 0)
        with Raw(server) as raw:
            raw.greet()
            deadlines.come(LIMITS.idle_seconds)
            assert raw.failure().code == "timeout"


def test_a_closing_server_tells_its_clients(path: Path) -> None:
    with serving(path) as server:
        raw = Raw(server)
        raw.greet()
    assert raw.failure().code == "closing"
    assert raw.is_closed()
    raw.socket.close()


def test_a_reader_that_hangs_does_not_hold_up_the_loop(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, let_go = threading.Event(), threading.Event()

    def hang(reader: Reader, name: str) -> QueueDescription:
        held.set()
        let_go.wait(PATIENCE_SECONDS)
        return describe(reader, name)

    monkeypatch.setattr("fifoq.server.served.describe", hang)
    with serving(path) as server, client_of(server) as client:
        answers: list[QueueDescription] = []
        asking = threading.Thread(target=lambda: answers.append(client.describe("main")))
        asking.start()
        assert held.wait(PATIENCE_SECONDS)
        with Raw(server) as raw:
            raw.greet()  # which needs the loop alone
        assert not answers
        let_go.set()
        asking.join()
    assert len(answers) == 1


def test_a_mistake_of_ours_is_told_without_its_words(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> QueueDescription:
        raise RuntimeError("details")

    monkeypatch.setattr("fifoq.server.served.describe", fail)
    with serving(path) as server, client_of(server) as client:
        with pytest.raises(ServerError, match="its log says why") as error:
            client.describe("main")
        assert error.value.code == "failed"
        assert "details" not in str(error.value)
        assert "details" in caplog.text
        assert client.queues() == ["main"]


# The wire.


def test_a_flipped_bit_anywhere_on_the_way_is_noticed(path: Path) -> None:
    """Greeting, welcome, page or end: never is a wrong record handed out."""
    with serving(path) as server, client_of(server) as client:
        wanted = payloads_of(client.blocks("main", 1, 200))
        whole = server.stats().bytes
        noticed = 0
        flip = [0]

        def change(place: int, data: bytes) -> bytes:
            at = flip[0] - place
            if not 0 <= at < len(data):
                return data
            changed = bytearray(data)
            changed[at] ^= 0x10
            return bytes(changed)

        with proxy(server, change) as port:
            for at in range(0, whole, max(1, whole // 150)):
                flip[0] = at
                try:
                    with FrameClient(
                        "127.0.0.1", port, TOKEN, connect_seconds=1, answer_seconds=1
                    ) as through:
                        found = payloads_of(through.blocks("main", 1, 200))
                except ServerError:
                    noticed += 1
                else:
                    assert found == wanted
    figures.record("frame server bits flipped on the wire", noticed=noticed)
    assert noticed > 100


@pytest.mark.parametrize(
    ("times", "said"),
    [(0, "records came, and the server sent 200"), (2, "were to follow")],
    ids=["missing", "again"],
)
def test_a_page_that_is_missing_or_comes_again_is_noticed(
    path: Path, times: int, said: str
) -> None:
    """All that comes is sound, and so is each of its messages."""
    rest = bytearray()

    def change(place: int, data: bytes) -> bytes:
        """Passes whole messages on once each, but for the second page."""
        rest.extend(data)
        out = bytearray()
        at = GREETING_BYTES if place == 0 else 0
        out += rest[:at]
        while len(rest) - at >= MESSAGE_HEADER_BYTES:
            header = decode_header(bytes(rest[at : at + MESSAGE_HEADER_BYTES]), 1 << 26)
            end = at + MESSAGE_HEADER_BYTES + header.body_bytes
            if end > len(rest):
                break
            seen.append(header.kind)
            second = header.kind == PAGE and seen.count(PAGE) == 2
            out += rest[at:end] * (times if second else 1)
            at = end
        del rest[:at]
        return bytes(out)

    seen: list[int] = []
    with (
        serving(path, page_bytes=1000) as server,
        proxy(server, change, whole=False) as port,
        FrameClient("127.0.0.1", port, TOKEN) as client,
        pytest.raises(ServerError, match=said) as error,
    ):
        list(client.blocks("main", 1, 200))
    assert error.value.code == "broken"
    assert seen.count(PAGE) > 1


def test_a_connection_cut_anywhere_is_noticed(path: Path) -> None:
    with serving(path) as server, client_of(server) as client:
        wanted = payloads_of(client.blocks("main", 1, 200))
        whole = server.stats().bytes
        cut = [0]

        def change(place: int, data: bytes) -> bytes:
            return data[: max(0, cut[0] - place)]

        with proxy(server, change) as port:
            for at in range(0, whole, max(1, whole // 40)):
                cut[0] = at
                with pytest.raises(ServerError), FrameClient("127.0.0.1", port, TOKEN) as through:
                    assert payloads_of(through.blocks("main", 1, 200)) != wanted
