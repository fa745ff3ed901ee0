"""A client gets exactly what a reader beside the files gets."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

import fifoq
import fifoq.server
import fifoq.sync
from fifoq.consumers import Position, read_position, read_positions
from fifoq.server.client import FrameClient
from fifoq.server.link import ServerError
from fifoq.server.protocol import BLOCKS
from store import (
    AccessError,
    CorruptionError,
    InvalidName,
    RangeGone,
    Reader,
    RecordBlock,
    open_log,
)
from store.keys import COUNTER_MAX
from tests.fifoq.loops import LOOPS
from tests.fifoq.server.support import TOKEN, Raw, client_of, fill, payloads_of, serving, until
from tests.support import figures


def everything(block: RecordBlock) -> tuple[object, ...]:
    columns = {
        bit: column.tolist() if isinstance(column, memoryview) else column
        for bit, column in block.columns.items()
    }
    return block.queue, block.kind, block.keys(), block.payloads(), columns


@pytest.mark.parametrize("loop", list(LOOPS))
def test_a_client_reads_what_a_reader_reads(tmp_path: Path, loop: str) -> None:
    path = tmp_path / "store"
    with fifoq.sync.open_store(path, segment_bytes=64 << 10) as store:
        orders, other = store.queue("orders"), store.queue("other")
        for i in range(40):
            orders.put_many([b"%d " % j * (j % 700) for j in range(i)])
            orders.put(b"with headers", headers={"number": str(i)})
            other.put(b"not asked for")
        for _ in range(55):
            orders.take()
    with serving(path, loop=loop) as server, client_of(server) as client, Reader(str(path)) as here:
        assert client.store_id == here.store_id.hex()
        assert client.queues() == ["orders", "other"]
        following = here.queues()["orders"].next_counter
        count = 0
        for first, last in ((1, COUNTER_MAX), (56, 56), (60, 400), (following - 3, following + 9)):
            for removed in (True, False):
                wanted = [
                    everything(block)
                    for block in here.blocks("orders", first, last, removed=removed)
                ]
                found = [
                    everything(block)
                    for block in client.blocks("orders", first, last, removed=removed)
                ]
                assert found == wanted
                count += len(found)
        assert count > 100
        for time in [time for block in here.blocks("orders") for time in block.times()][::50]:
            assert client.seek("orders", time) == here.seek("orders", time)
        assert client.seek("orders", 0) == 1
        assert client.seek("orders", 2**63) == following
        assert list(client.blocks("nothing", 1, 10)) == []
        assert not client.describe("nothing").exists
        assert client.describe("orders").next == following


def test_records_that_were_moved_come_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with fifoq.sync.open(path, segment_bytes=64 << 10) as q:
        for i in range(600):
            q.put(b"%d" % i * 200, durability="memory")
        held = [q.lease() for _ in range(600)]
        for delivery in held:
            if delivery.key.counter % 40:
                delivery.ack()
        q.flush()
        q.put(b"last")
    with serving(path) as server, client_of(server) as client, Reader(str(path)) as here:
        wanted = [everything(block) for block in here.blocks("main", removed=False)]
        assert [everything(block) for block in client.blocks("main", 1, 10**9, removed=False)] == (
            wanted
        )
        assert sum(block.count for block in here.blocks("main", removed=False)) == 16


def test_an_answer_over_its_limit_is_asked_for_in_parts(tmp_path: Path) -> None:
    payloads = fill(tmp_path, frames=30)
    with (
        serving(tmp_path, page_bytes=500, answer_bytes=2000) as server,
        client_of(server) as client,
    ):
        assert payloads_of(client.blocks("main", 1, COUNTER_MAX)) == payloads
        assert server.stats().requests > 5
        assert payloads_of(client.blocks("main", 33, 177)) == payloads[32:177]


def test_what_is_committed_while_the_server_runs_is_there_at_the_next_request(
    tmp_path: Path,
) -> None:
    with fifoq.sync.open(tmp_path) as q, serving(tmp_path) as server, client_of(server) as client:
        for i in range(5):
            q.put(b"%d" % i)
            until(lambda wanted=i + 2: client.describe("main").next == wanted)  # type: ignore[misc]
            assert payloads_of(client.blocks("main", i + 1, 99)) == [b"%d" % i]


def test_the_owner_serves_its_own_store(tmp_path: Path) -> None:
    async def run() -> None:
        async with fifoq.open_store(tmp_path) as store:
            q = await store.queue("orders")
            await q.put_many([b"a", b"b"])
            async with fifoq.server.serve(store, token=TOKEN) as server:
                assert server.url("orders") == f"fifoq://127.0.0.1:{server.port}/orders"
                with pytest.raises(InvalidName):
                    server.url("../orders")
                found = await asyncio.to_thread(read_all, server.port)
                assert found == [b"a", b"b"]
                await store.close()
                assert await asyncio.to_thread(read_all, server.port) == [b"a", b"b"]
                await server.close()
                assert "closed" in repr(server)
            with pytest.raises(ServerError, match="no connection"):
                await asyncio.to_thread(read_all, server.port)

    def read_all(port: int) -> list[bytes]:
        with FrameClient("127.0.0.1", port, TOKEN) as client:
            return payloads_of(client.blocks("orders", 1, 9))

    asyncio.run(run())


def test_reading_goes_on_while_the_owner_rotates_compacts_and_reclaims(tmp_path: Path) -> None:
    """The owner keeps a short queue moving; the client sees each record once, in order."""
    stop = threading.Event()
    failed: list[BaseException] = []
    put_count = 0

    def own() -> None:
        nonlocal put_count
        try:
            with fifoq.sync.open(tmp_path, segment_bytes=64 << 10) as q:
                stuck = [q.put(b"stuck"), q.lease(seconds=600)]
                number = 0
                while not stop.is_set():
                    q.put_many([b"%d " % (number + i) * 300 for i in range(20)])
                    number += 20
                    put_count = number
                    if number > 200:
                        q.take_many(20)
                assert stuck
        except BaseException as error:
            failed.append(error)

    owner = threading.Thread(target=own)
    owner.start()
    gone = rounds = 0
    try:
        until(lambda: put_count > 400 or failed)
        with serving(tmp_path, page_bytes=4096) as server, client_of(server) as client:
            counter, seen = 2, 0
            while seen < 4000 and not failed:
                try:
                    for block in client.blocks("main", counter, COUNTER_MAX):
                        assert block.first >= counter
                        for key, payload in zip(block.keys(), block.payloads(), strict=True):
                            assert payload == b"%d " % (key.counter - 2) * 300
                        counter, seen = block.last + 1, seen + block.count
                except RangeGone as error:
                    counter, gone = max(counter + 1, error.oldest), gone + 1
                rounds += 1
                blocks = client.blocks("main", 1, COUNTER_MAX, removed=False)
                live = [counter for block in blocks for counter in block.counters()]
                assert live == sorted(set(live))
    finally:
        stop.set()
        owner.join()
    assert not failed
    figures.record("frame server under its owner", rounds=rounds, records=seen, gone=gone)


def test_a_range_that_is_gone_is_told_with_its_facts(tmp_path: Path) -> None:
    with fifoq.sync.open(tmp_path, segment_bytes=64 << 10) as q:
        for i in range(60):
            q.put(bytes(5000))
            if i >= 10:
                q.take()
    with serving(tmp_path) as server, client_of(server) as client, Reader(str(tmp_path)) as here:
        with pytest.raises(RangeGone) as wanted:
            list(here.blocks("main", 3, 20))
        with pytest.raises(RangeGone) as found:
            list(client.blocks("main", 3, 20))
        assert vars(found.value) == vars(wanted.value)
        assert str(found.value) == str(wanted.value)
        assert isinstance(found.value.__cause__, ServerError)
        # The connection is still good.
        assert client.describe("main").next == 61


def test_damage_is_told_with_its_facts_after_the_records_before_it(tmp_path: Path) -> None:
    fill(tmp_path, frames=40)
    segment = min(tmp_path.glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[len(data) // 3] ^= 1
    segment.write_bytes(data)
    with serving(tmp_path, page_bytes=300) as server, client_of(server) as client:
        with Reader(str(tmp_path)) as here:
            before, wanted = read_up_to_the_damage(here)
        after, found = read_up_to_the_damage(client)
        assert before == after != []
        assert vars(found) == vars(wanted)
        assert str(found) == str(wanted)


def read_up_to_the_damage(source: Any) -> tuple[list[bytes], CorruptionError]:
    payloads: list[bytes] = []
    try:
        for block in source.blocks("main", 1, COUNTER_MAX):
            payloads += block.payloads()
    except CorruptionError as error:
        return payloads, error
    raise AssertionError("nothing is damaged")


def test_a_wrong_name_and_a_wrong_range_are_refused_and_the_connection_stays(
    tmp_path: Path,
) -> None:
    fill(tmp_path)
    with serving(tmp_path) as server, client_of(server) as client:
        for _ in range(3):
            with pytest.raises(InvalidName, match="is not allowed"):
                client.describe("../../etc")
            with pytest.raises(InvalidName):
                list(client.blocks("No", 1, 2))
        with pytest.raises(ValueError, match="no range"):
            list(client.blocks("main", 0, 5))
        assert len(payloads_of(client.blocks("main", 1, 5))) == 5
        assert server.stats().connections == 1
        with Raw(server) as raw:
            raw.greet()
            for first, last in ((0, 5), (7, 6), (1, COUNTER_MAX + 1), (-1, 5)):
                text = b'{"queue":"main","first":%d,"last":%d,"removed":true}' % (first, last)
                raw.send(BLOCKS, text)
                failure = raw.failure()
                assert failure.code == "malformed"
                assert "no range" in failure.message


def test_removed_counters_and_attempts_are_told_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fifoq.server.served.RANGE_COUNT_MAX", 3)
    with fifoq.sync.open(tmp_path) as q:
        q.put_many([b"%d" % i for i in range(40)])
        q.take_many(2)
        held = [q.lease() for _ in range(38)]
        for delivery in held[1::3]:
            delivery.ack()
        q.flush()
        wanted = [(1, 2), *((at, at) for at in range(4, 41, 3))]
        with serving(tmp_path) as server, client_of(server) as client:
            until(lambda: client.removed("main", 1, 99) == wanted)
            assert client.removed("main", 2, 8) == [(2, 2), (4, 4), (7, 7)]
            assert client.removed("main", 5, 6) == client.removed("none", 1, 9) == []
            left = [(at, 1) for at in range(3, 41) if at % 3 != 1]
            assert client.attempts("main", 1, 99) == left
            assert client.attempts("main", 4, 6) == [(5, 1), (6, 1)]
            assert client.attempts("main", 1, 2) == client.attempts("none", 1, 9) == []
        for delivery in held:
            delivery.nack(delay=0) if delivery.key.counter % 3 != 1 else None


def test_a_consumer_is_advanced_durably_and_only_in_its_own_store(tmp_path: Path) -> None:
    fill(tmp_path)
    with serving(tmp_path) as server, client_of(server) as client:
        assert client.store_id is not None
        position = Position(queue="main", counter=12, store=client.store_id, written_at=5)
        assert client.position("etl") is None
        client.advance("etl", position)
        assert client.position("etl") == position == read_position(str(tmp_path), "etl")
        with pytest.raises(ServerError, match="is none in this one") as error:
            client.advance("etl", msgspec.structs.replace(position, store="0" * 32))
        assert error.value.code == "malformed"
        for name in ("../etl", "", "A"):
            with pytest.raises(InvalidName):
                client.advance(name, position)
            with pytest.raises(InvalidName):
                client.position(name)
        (tmp_path / "consumers" / "etl.json").unlink()
        (tmp_path / "consumers").rmdir()
        (tmp_path / "consumers").write_text("in the way")
        with pytest.raises(AccessError, match="consumers: Not a directory"):
            client.advance("etl", position)
        assert client.position("etl") is None
        assert read_positions(str(tmp_path)) == {}


def test_there_is_no_server_without_a_store_or_with_a_weak_token(tmp_path: Path) -> None:
    async def run(path: Path, token: str) -> None:
        async with fifoq.server.serve(path, token=token):
            raise AssertionError("it serves")

    with pytest.raises(fifoq.FormatError, match="there is no store here"):
        asyncio.run(run(tmp_path, TOKEN))
    fill(tmp_path)
    with pytest.raises(ValueError, match="the token has 5 bytes") as error:
        asyncio.run(run(tmp_path, "short"))
    assert "short" not in str(error.value)
    with pytest.raises(ValueError, match=r"connections=0.*page_bytes=0"):
        fifoq.server.ServerLimits(connections=0, page_bytes=0)
    with pytest.raises(ValueError, match="request_bytes=1000000 is over 65536"):
        fifoq.server.ServerLimits(request_bytes=1_000_000)


def test_a_client_goes_on_with_a_server_that_was_started_again(tmp_path: Path) -> None:
    """But not with one that serves another store under the same address."""
    payloads = fill(tmp_path / "one")
    fill(tmp_path / "two")
    with serving(tmp_path / "one") as server:
        client = client_of(server)
        assert payloads_of(client.blocks("main", 1, 50)) == payloads[:50]
    with serving(tmp_path / "one", port=server.port):
        assert payloads_of(client.blocks("main", 51, 200)) == payloads[50:]
    with (
        serving(tmp_path / "two", port=server.port),
        pytest.raises(ServerError, match="the server has another store now"),
    ):
        client.describe("main")
    with pytest.raises(ServerError, match="Connection refused"):
        client.describe("main")
    client.close()
    with pytest.raises(ServerError, match="the client is closed"):
        client.describe("main")


def test_an_address_that_is_taken_is_an_error_and_leaves_nothing_open(tmp_path: Path) -> None:
    fill(tmp_path)

    async def run(port: int) -> None:
        await fifoq.server.serve(tmp_path, port=port, token=TOKEN)

    with serving(tmp_path) as server, pytest.raises(OSError, match="address already in use"):
        asyncio.run(run(server.port))


def test_a_block_larger_than_a_page_is_one_of_its_own(tmp_path: Path) -> None:
    big = bytes(range(256)) * (15 << 12)
    with open_log(str(tmp_path)) as log:
        log.put("main", [big, b"small", big])
    with serving(tmp_path) as server, client_of(server) as client:
        assert payloads_of(client.blocks("main", 1, 9)) == [big, b"small", big]
