"""Who is told what when the telling itself goes wrong: nobody is left out, nothing is made up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import fifoq
from actors.testing import settle
from fifoq import DurabilityError, StoreFailed
from fifoq.committer import Committer
from fifoq.joint import Joints
from fifoq.member import Member
from fifoq.turns import Turns
from store import Log
from tests.fifoq.ring.support import Stumble, go_on_after_interrupts
from tests.fifoq.support import Bench, started
from tests.fifoq.test_disk_trouble import BadDisk
from tests.support.runners import ManualRunner

pytestmark = pytest.mark.anyio

STEPS = [
    (Committer, "_lost_count"),
    (Joints, "fail"),
    (Member, "close_windows"),
    (Turns, "records_came"),
    (Turns, "_wake_putters"),
    (Committer, "_leave_followers"),
    (Committer, "_give_room"),
    (Committer, "cancel_timers"),
]
MOMENTS = [
    pytest.param(owner, step, after, id=f"{'behind' if after else 'before'} {step}")
    for owner, step in STEPS
    for after in (False, True)
]


@pytest.mark.parametrize("raised", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize(("owner", "step", "after"), MOMENTS)
async def test_who_is_interrupted_while_a_failure_is_told_tells_it_to_the_rest(
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    step: str,
    after: bool,
    raised: type[BaseException],
) -> None:
    """Those who waited for the next frame were forgotten before they were told."""
    bench = BadDisk()
    store = await bench.open_store()
    q = await store.queue("q", maxsize=3)
    other = await store.queue("other")
    await q.put_many([b"a", b"b"])
    bench.runner.hold()
    waiting: list[asyncio.Task[Any]] = [await started(q.put(b"under way"))]
    waiting += [await started(q.put(b"full")), await started(other.take())]
    waiting += [await started(_moves(store, other)), await started(other.put(b"next"))]
    waiting += [await started(store.flush())]
    with monkeypatch.context() as patch:
        go_on_after_interrupts(patch, q)
        stumble = Stumble(
            patch, (owner, step), raised, after=after, when=lambda *_: bool(q._committer.failure)
        )
        bench.break_next("datasync")
        bench.runner.let_go()
        told = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 60)
    assert stumble.came
    assert [type(one) for one in told if not isinstance(one, DurabilityError | StoreFailed)] == []
    with suppress(fifoq.FifoqError):
        await store.close()
    async with Bench(bench.files.inner).open(queue="q") as again:
        assert (await again.take_many(2)).count(b"a") == 1


async def _moves(store: fifoq.Store, queue: fifoq.Queue[bytes]) -> None:
    async with store.transaction() as tx:
        tx.put(queue, b"moved")


class Lossy:
    """A future for whose telling there is, once, no memory; then, or before anything is told."""

    def __init__(self, future: asyncio.Future[None], *, before: bool = False) -> None:
        self._future, self._before, self._tells = future, before, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._future, name)

    def set_exception(self, error: BaseException) -> None:
        self._tell(lambda: self._future.set_exception(error))

    def set_result(self, result: None) -> None:
        self._tell(lambda: self._future.set_result(result))

    def _tell(self, tell: Callable[[], None]) -> None:
        loses, self._tells = self._tells, False
        if not (loses and self._before):
            tell()
        if loses:
            raise MemoryError


async def test_without_memory_to_tell_one_the_others_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = BadDisk()
    q = await bench.open()
    await q.put(b"a")
    bench.runner.hold()
    under_way = await started(q.put(b"under way"))
    waiting: list[asyncio.Task[Any]] = [await started(q.put(b"next")) for _ in range(3)]
    store = q.owner
    assert isinstance(store, fifoq.Store)
    waiting += [await started(_moves(store, q)) for _ in range(2)]
    joint = q._committer.joints.waiting[0]
    assert joint.future is not None
    joint.future = Lossy(joint.future)  # type: ignore[assignment]
    monkeypatch.setattr(asyncio.get_running_loop(), "call_exception_handler", lambda _: None)
    first = q._committer.waiters[0]
    first.future = Lossy(first.future)  # type: ignore[assignment]
    bench.break_next("datasync")
    bench.runner.let_go()
    told = await asyncio.wait_for(asyncio.gather(under_way, *waiting, return_exceptions=True), 60)
    assert {type(one) for one in told} == {DurabilityError}
    await q.close()


async def test_without_memory_to_wake_one_who_waits_for_room_the_others_are_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    q = await bench.open(durability="memory")
    bench.runner.hold()
    monkeypatch.setattr(asyncio.get_running_loop(), "call_exception_handler", lambda _: None)
    puts = [await started(q.put(bytes(4 << 20))) for _ in range(30)]
    waiting = q._committer._room_waiters
    assert len(waiting) > 2
    waiting[0] = Lossy(waiting[0])  # type: ignore[call-overload]
    bench.runner.let_go()
    await asyncio.wait_for(asyncio.gather(*puts, return_exceptions=True), 60)
    with suppress(fifoq.FifoqError):
        await q.close()


@pytest.mark.parametrize("before", [False, True])
async def test_without_memory_to_wake_one_who_waits_in_a_full_queue_it_is_not_forgotten(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    async with bench.open(durability="memory", maxsize=1) as q:
        monkeypatch.setattr(asyncio.get_running_loop(), "call_exception_handler", lambda _: None)
        await q.put(b"a")
        puts = [await started(q.put(b"%d" % n)) for n in range(2)]
        (first, need), *rest = q._putters.items()
        q._putters = dict([(Lossy(first, before=before), need), *rest])  # type: ignore[list-item]
        with suppress(MemoryError):
            q.take_nowait()
        await settle()
        q.records_went()
        assert [await q.take(timeout=1) for _ in puts] == [b"0", b"1"]
        await asyncio.gather(*puts)


async def test_a_close_does_not_tell_of_records_that_were_synced_meanwhile() -> None:
    """What a sync in the background had made durable still counted as perhaps lost."""
    bench = BadDisk()
    q = await bench.open()
    await q.put(b"a", durability="os")
    await asyncio.sleep(1)
    bench.break_next("datasync", for_ever=True)
    with pytest.raises(DurabilityError):
        await q.put(b"told")
    await q.close()


async def test_a_close_does_not_tell_of_records_that_were_withdrawn() -> None:
    bench = BadDisk()
    q = await bench.open()
    await q.put(b"a")
    bench.runner.hold()
    under_way = await started(q.put(b"under way"))
    puts = [await started(q.put(b"next")) for _ in range(3)]
    puts[1].cancel()
    await settle()
    bench.break_next("datasync", for_ever=True)
    bench.runner.let_go()
    told = await asyncio.gather(under_way, *puts, return_exceptions=True)
    assert [type(one) for one in told].count(DurabilityError) == 3
    await q.close()


async def test_a_close_tells_of_lost_records_beside_a_transaction() -> None:
    """That told of its own records, and the others in its frame counted as told with them."""
    bench = BadDisk()
    store = await bench.open_store()
    moved, lost = await store.queue("moved"), await store.queue("lost")
    await store.flush()
    bench.break_next("datasync", for_ever=True)
    lost.put_nowait(b"perhaps")
    with pytest.raises(DurabilityError):
        await _moves(store, moved)
    with pytest.raises(StoreFailed, match="without waiting for the disk may not be there"):
        await store.close()


async def test_a_close_does_not_tell_of_what_a_transaction_has_told() -> None:
    bench = BadDisk()
    store = await bench.open_store()
    q = await store.queue("q")
    await store.flush()
    bench.break_next("datasync", for_ever=True)
    with pytest.raises(DurabilityError):
        await _moves(store, q)
    await store.close()


@pytest.mark.parametrize("step", ["queue", "draft", "commit"])
async def test_whatever_fails_as_the_log_is_closed_lets_the_directory_go(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The log stayed open, and the store locked as long as the process lived."""
    q = await bench.open()
    await q.put(b"a")
    assert q.submit(b"shown").withdraw()
    with monkeypatch.context() as patch:
        stumble = Stumble(patch, (Log, step), MemoryError, after=False, when=_closes(q))
        with pytest.raises(DurabilityError, match="MemoryError while writing"):
            await q.close()
    assert stumble.came
    async with bench.open() as again:
        assert (await again.put(b"b")).counter > 2, "that was shown"
        assert await again.take() == b"a"


async def test_a_sync_that_fails_as_the_log_is_closed_lets_the_directory_go() -> None:
    bench = BadDisk()
    q = await bench.open()
    await q.put(b"a")
    assert q.submit(b"shown").withdraw()
    bench.break_next("datasync")
    with pytest.raises(DurabilityError):
        await q.close()
    async with bench.open() as again:
        assert await again.take() == b"a"


@pytest.mark.parametrize("raised", [KeyboardInterrupt, MemoryError])
async def test_a_close_that_nobody_gets_lets_the_directory_go(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, raised: type[BaseException]
) -> None:
    q = await bench.open()
    await q.put(b"a")
    with monkeypatch.context() as patch:
        go_on_after_interrupts(patch, q)
        stumble = Stumble(patch, (ManualRunner, "start"), raised, after=False, when=_closes(q))
        with pytest.raises(fifoq.FifoqError):
            await q.close()
    assert stumble.came
    async with bench.open() as again:
        assert await again.take() == b"a"


def _closes(queue: fifoq.Queue[bytes]) -> Callable[..., bool]:
    """Whether the queue's store has nothing left to do but to close its log."""
    return lambda *_: queue._committer.closed
