"""What somebody who did something wrong is told: where, what was meant, what helps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import fifoq
import fifoq.sync
from fifoq import DiskFull, QueueFull
from tests.fifoq.support import Bench, SmallDisk

pytestmark = pytest.mark.anyio


class Order(msgspec.Struct):
    id: str
    cents: int


@pytest.mark.parametrize(
    "item",
    [Order("a", 2**70), Order("\ud800", 1), Order(5, 1), "x", object()],  # type: ignore[arg-type]
    ids=["too large", "no text", "wrong field", "wrong type", "not to be encoded"],
)
async def test_what_a_typed_queue_cannot_hold_is_named_with_the_queue(
    bench: Bench, item: Any
) -> None:
    async with bench.open(type=Order, queue="orders") as q:
        for call in (q.put(item), q.put_many([Order("a", 1), item])):
            with pytest.raises(
                msgspec.ValidationError, match=r"queue 'orders' takes .*Nothing was stored\.$"
            ):
                await call
        assert len(q) == 0


async def test_a_wrong_option_says_what_may_have_been_meant(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with pytest.raises(TypeError, match=r"'maxsise' \(did you mean maxsize\?\)"):
        await fifoq.open(path, maxsise=1)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"'read_only', which is one of open_store\("):
        await fifoq.open(path, read_only=True)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"'colour'; there are"):
        await fifoq.open(path, colour=1)  # type: ignore[call-overload]
    assert not path.exists()


@pytest.mark.parametrize(
    ("overflow", "advice"),
    [("fail", r"\(1 records\)\. .* Take some\.$"), ("block", r"Take some, or await put\.$")],
)
async def test_a_full_queue_says_what_helps(bench: Bench, overflow: str, advice: str) -> None:
    async with bench.open(maxsize=1, overflow=overflow) as q:
        q.put_nowait(b"a")
        with pytest.raises(QueueFull, match=advice):
            q.put_nowait(b"b")


@pytest.mark.parametrize("overflow", ["fail", "block"])
async def test_so_does_one_whose_room_is_too_small_for_what_is_put(
    bench: Bench, overflow: str
) -> None:
    """It said that too much waited to be written, and to await a put which would have raised."""
    async with bench.open(max_bytes=1000, maxsize=3, overflow=overflow) as q:
        await q.put(b"x" * 950)
        for level in ("memory", "sync"):
            with pytest.raises(QueueFull, match=r"is full \(1 records, 950 bytes\)"):
                q.submit(b"x" * 100, durability=level)
    async with bench.open(queue="other", maxsize=3, overflow="fail") as q:
        await q.put_many([b"x"] * 2)
        with pytest.raises(QueueFull, match=r"is full \(2 records\)"):
            await q.put_many([b"x"] * 2)


async def test_a_store_with_too_much_to_write_says_so(bench: Bench) -> None:
    def put_until_refused(q: fifoq.Queue[bytes]) -> None:
        for _ in range(100):
            q.put_nowait(bytes(1 << 20))

    async with bench.open() as q:
        bench.runner.hold()
        with pytest.raises(QueueFull, match="'main': too much waits to be written"):
            put_until_refused(q)
        bench.runner.let_go()


async def test_a_time_that_is_over_says_what_was_waited_for(bench: Bench) -> None:
    async with bench.open() as q:
        for call in (q.take(timeout=0.1), q.lease(timeout=0.1), q.lease_many(2, timeout=0.1)):
            with pytest.raises(TimeoutError, match=r"queue 'main': nothing to take in 0\.1 s"):
                await call


def test_so_does_one_of_threads(tmp_path: Path) -> None:
    with fifoq.sync.open(tmp_path / "store") as q:
        for call in (q.take, q.lease, lambda timeout: q.lease_many(2, timeout=timeout)):
            with pytest.raises(TimeoutError, match=r"queue 'main': nothing to take in 0\.01 s"):
                call(timeout=0.01)


async def test_no_space_for_a_new_store_is_a_full_disk() -> None:
    disk = SmallDisk()
    disk.fill()
    with pytest.raises(DiskFull, match=r"Nothing was changed\. Free some space"):
        await disk.open()


@pytest.mark.parametrize("path", [b"/tmp/store", 5, None])
async def test_what_is_no_path_is_named(path: Any) -> None:
    with pytest.raises(TypeError, match=r"neither text nor a path|expected str"):
        await fifoq.open(path)
