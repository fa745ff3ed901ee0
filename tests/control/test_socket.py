"""The socket of an owner: clients that lie, stall and leave, long paths, forks, closing."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import struct
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import msgspec
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

import fifoq
import fifoq.sync
from fifoq.control import listener, messages, place, serving
from fifoq.control.client import Client, NoAnswer, Refused, connect
from fifoq.control.messages import (
    ANSWER,
    BODY_BYTES_MAX,
    FAILURE,
    REQUEST,
    Ack,
    Count,
    GetStats,
    Lease,
    Leased,
    MessageError,
    Placed,
    Put,
    Stats,
    decode_header,
    decode_request,
    encode_message,
)

PATIENCE_SECONDS = 30.0


@pytest.fixture(autouse=True)
def listen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "LISTEN_AFTER_SECONDS", 0.0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[fifoq.sync.Store]:
    """A store with an owner in a thread of this process."""
    path = tmp_path / "store"
    with fifoq.sync.open_store(path) as opened:
        wait_for(path)
        yield opened


def wait_for(path: Path) -> None:
    """Until its owner listens."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    with socket.socket(socket.AF_UNIX) as probe:
        while time.monotonic() < deadline:
            try:
                with place.address(str(path)) as short:
                    probe.connect(short)
                return
            except (FileNotFoundError, ConnectionRefusedError):
                continue
    raise AssertionError("nobody listens")


def raw(path: str) -> socket.socket:
    plug = socket.socket(socket.AF_UNIX)
    plug.settimeout(PATIENCE_SECONDS)
    try:
        with place.address(path) as short:
            plug.connect(short)
    except OSError:
        plug.close()
        raise
    return plug


async def reached(path: str) -> Client:
    client = await connect(path)
    assert client is not None
    return client


def told(plug: socket.socket) -> tuple[int, bytes]:
    with plug.makefile("rb") as stream:
        size, kind = decode_header(stream.read(messages.HEADER_BYTES))
        return kind, stream.read(size)


def test_a_request_and_its_answer(store: fifoq.sync.Store) -> None:
    async def ask() -> None:
        async with await reached(store.path) as client:
            placed = await client.ask(Put(queue="main", payloads=[b"a", b"b"]), Placed)
            assert (placed.first, placed.count) == (1, 2)
            stats = await client.ask(GetStats(), Stats)
            assert (stats.process, list(stats.opened)) == (os.getpid(), ["main"])
            with pytest.raises(Refused, match="not allowed") as refused:
                await client.ask(Put(queue="No", payloads=[b"a"]), Placed)
            assert refused.value.kind == "InvalidName"
            # The connection is as good as before.
            await client.ask(GetStats(), Stats)

    asyncio.run(ask())
    assert store.queue().take_many(9) == [b"a", b"b"]


def test_what_a_client_holds_is_back_when_he_is_gone(store: fifoq.sync.Store) -> None:
    queue = store.queue()
    queue.put_many([b"a", b"b", b"c"])

    async def lease_and_go(*, ack: bool) -> None:
        client = await reached(store.path)
        leasing = Lease(queue="main", count=2, seconds=600.0, timeout=0)
        leased = await client.ask(leasing, Leased)
        assert [record.payload for record in leased.records] == [b"a", b"b"]
        if ack:
            await client.ask(Ack(queue="main"), Count)
        await client.close()

    asyncio.run(lease_and_go(ack=False))
    asyncio.run(lease_and_go(ack=True))
    assert queue.take(timeout=PATIENCE_SECONDS) == b"c"


def test_a_client_that_waits_and_goes_takes_nothing(store: fifoq.sync.Store) -> None:
    queue = store.queue()
    for _ in range(3):
        with raw(store.path) as plug:
            lease = Lease(queue="main", count=1, seconds=600.0, timeout=None)
            plug.sendall(encode_message(REQUEST, lease))
    queue.put(b"mine")
    assert queue.take(timeout=PATIENCE_SECONDS) == b"mine"


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("<IB", BODY_BYTES_MAX + 1, REQUEST),
        struct.pack("<IB", 10, ANSWER) + b"0123456789",
        struct.pack("<IB", 0xFFFFFFFF, REQUEST),
    ],
)
def test_whoever_does_not_speak_the_protocol_is_dropped(
    store: fifoq.sync.Store, said: bytes
) -> None:
    with raw(store.path) as plug:
        plug.sendall(said)
        try:
            assert plug.recv(100) == b""
        except ConnectionResetError:
            pass
    assert store.queue().put(b"still here").counter == 1


@pytest.mark.parametrize("body", [b"", b"\xc1", msgspec.msgpack.encode({"ask": "pickle"})])
def test_an_unknown_request_is_refused_and_the_next_one_answered(
    store: fifoq.sync.Store, body: bytes
) -> None:
    with raw(store.path) as plug:
        plug.sendall(struct.pack("<IB", len(body), REQUEST) + body)
        assert told(plug)[0] == FAILURE
        plug.sendall(encode_message(REQUEST, GetStats()))
        assert told(plug)[0] == ANSWER


def test_half_a_request_is_waited_for_only_so_long(
    store: fifoq.sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 0.01)
    with raw(store.path) as plug:
        plug.sendall(struct.pack("<IB", 100, REQUEST) + b"half")
        try:
            assert plug.recv(100) == b""
        except ConnectionResetError:
            pass


def test_a_client_that_takes_nothing_does_not_hold_up_the_owner(
    store: fifoq.sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "SEND_SECONDS", 0.01)
    queue = store.queue()
    queue.put(bytes(8 << 20))
    with raw(store.path) as plug:
        lease = Lease(queue="main", count=1, seconds=600.0, timeout=0)
        plug.sendall(encode_message(REQUEST, lease))
        # Nobody reads the answer: the client is dropped, and what he held is back.
        assert len(queue.take(timeout=PATIENCE_SECONDS)) == 8 << 20


def test_more_clients_than_allowed_wait_for_their_turn(
    store: fifoq.sync.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugs = [raw(store.path) for _ in range(listener.CLIENTS_MAX + 2)]
    for plug in plugs:
        plug.sendall(encode_message(REQUEST, GetStats()))
    for plug in plugs:
        assert told(plug)[0] == ANSWER
        plug.close()


def test_a_path_may_be_longer_than_the_address_of_a_socket(tmp_path: Path) -> None:
    path = tmp_path / ("d" * 120) / ("e" * 120)
    with fifoq.sync.open_store(path) as opened:
        wait_for(path)
        opened.queue().put(b"far")

        async def ask() -> int:
            async with await reached(str(path)) as client:
                return len((await client.ask(GetStats(), Stats)).opened)

        assert asyncio.run(ask()) == 1
    assert not place.is_there(str(path))


def test_a_short_link_serves_where_there_is_no_proc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fifoq.control.place.sys.platform", "darwin")
    path = tmp_path / ("d" * 120)
    path.mkdir()
    with place.address(str(path)) as short:
        assert len(os.fsencode(short)) <= place.SOCKET_PATH_BYTES_MAX
        Path(short).touch()
    assert place.is_there(str(path))
    assert not os.path.lexists(short)


def test_the_store_may_be_opened_by_a_path_that_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    opened = fifoq.sync.open_store("here")
    monkeypatch.chdir("/")
    wait_for(tmp_path / "here")
    opened.close()
    assert not place.is_there(str(tmp_path / "here"))


def test_a_store_that_is_closed_lets_its_clients_go(tmp_path: Path) -> None:
    opened = fifoq.sync.open_store(tmp_path)
    wait_for(tmp_path)

    async def wait_for_ever() -> None:
        client = await reached(str(tmp_path))
        leasing = Lease(queue="main", count=1, seconds=60.0, timeout=None)
        waiting = asyncio.ensure_future(client.ask(leasing, Leased))
        await asyncio.sleep(0)
        await asyncio.to_thread(opened.close)
        with pytest.raises((NoAnswer, Refused)):
            await waiting
        await client.close()
        assert await connect(str(tmp_path)) is None

    asyncio.run(wait_for_ever())


@pytest.mark.parametrize("turns", range(8))
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_client_that_comes_while_the_store_is_closed_is_let_go(
    tmp_path: Path, run: Callable[[Coroutine[None, None, None]], None], turns: int
) -> None:
    async def close_on_him() -> None:
        opened = await fifoq.open_store(tmp_path)
        await asyncio.to_thread(wait_for, tmp_path)
        with socket.socket(socket.AF_UNIX) as client, place.address(str(tmp_path)) as short:
            client.connect(short)
            for _ in range(turns):
                await asyncio.sleep(0)
            await opened.close()
            client.setblocking(False)
            try:
                said = client.recv(1)
            except ConnectionResetError:  # nobody had taken him in
                said = b""
            assert said == b""
        gc.collect()  # a socket that was left open would warn

    run(close_on_him())


def test_a_client_waits_for_an_answer_only_so_long(tmp_path: Path) -> None:
    with place.listen(str(tmp_path)):
        # Somebody listens and nobody answers.
        async def ask() -> None:
            async with await reached(str(tmp_path)) as client:
                with pytest.raises(NoAnswer, match="gave no answer in"):
                    await client.ask(GetStats(), Stats, seconds=0.01)

        asyncio.run(ask())


def test_a_file_system_without_sockets_is_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> socket.socket:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(listener, "listen", refuse)
    with fifoq.sync.open_store(tmp_path) as opened:
        assert opened.queue().put(b"x").counter == 1


def test_the_child_of_a_fork_does_not_answer_for_its_parent(store: fifoq.sync.Store) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        os.read(reading, 1)
        os._exit(0)
    try:
        path = store.path
        store.close()
        with pytest.raises((FileNotFoundError, ConnectionRefusedError)):
            raw(path)
    finally:
        os.write(writing, b"x")
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)


@given(st.binary(max_size=64))
def test_no_bytes_make_a_request_that_is_none(body: bytes) -> None:
    try:
        decoded = decode_request(body)
    except MessageError:
        return
    assert isinstance(decoded, msgspec.Struct)
