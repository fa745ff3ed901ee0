"""Whatever is raised while a ring is at work: nobody hears what is not so, and nobody hangs."""

from __future__ import annotations

import asyncio
import errno
import sys
from contextlib import suppress
from pathlib import Path
from types import FunctionType
from typing import Any, Literal

import pytest

import fifoq
from fifoq import Queue, committer, jobs, settling
from fifoq.direct import DirectTail
from fifoq.jobs import Commit, Waiter
from fifoq.ring_writer import RingWriter
from fifoq.uring import Ring
from fifoq.writer import Writer
from store import (
    Begun,
    Filling,
    Log,
    Status,
    appending,
    begun,
    draft,
    encoding,
    filling,
    open_log,
    plain,
)
from tests.fifoq.loops import until
from tests.fifoq.ring.support import (
    SECONDS_MAX,
    Stumble,
    answer,
    calm,
    contents,
    go_on_after_interrupts,
    let_notes,
    refuse_the_next_write,
    runner_of,
)

pytestmark = pytest.mark.anyio

STEPS = [
    (Log, "begin"),
    (DirectTail, "follow"),
    (DirectTail, "stage"),
    (Ring, "use_eventfd"),
    (Ring, "write"),
    (Ring, "result"),
    (Ring, "next"),
    (RingWriter, "_look_again"),
    (Begun, "note"),
    (Begun, "end"),
    (RingWriter, "_end"),
    (DirectTail, "written"),
]
HARMLESS = {"_look_again", "written"}
"""Without memory there, nothing is lost but time; and so before all that comes before a write."""


NEVER = {("stage", "os"), ("written", "os")}
"""What is not synced is not laid out in blocks. And a quick disk is done before the next look."""


MOMENTS = [
    pytest.param(owner, step, after, id=f"{'behind' if after else 'before'} {step}")
    for owner, step in STEPS
    for after in (False, True)
]


def is_before_the_write(step: str, after: bool) -> bool:
    names = [name for _, name in STEPS]
    place = names.index(step), after
    return place <= (names.index("write"), False) and place != (0, True)


@pytest.mark.parametrize("level", ["sync", "os"])
@pytest.mark.parametrize("raised", [KeyboardInterrupt, MemoryError, RuntimeError])
@pytest.mark.parametrize(("owner", "step", "after"), MOMENTS)
async def test_whatever_is_raised_in_a_commit_nobody_is_told_what_is_not_so(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    step: str,
    after: bool,
    raised: type[BaseException],
    level: Literal["sync", "os"],
) -> None:
    """A commit that was never written was once confirmed: the last one's end was taken for its."""
    queue = await fifoq.open(place, durability=level)
    await queue.put(b"first")
    await queue.put(b"second")
    if step == "note" and level == "sync":
        let_notes(monkeypatch, queue, True)
    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        stumble = Stumble(patch, (owner, step), raised, after=after)
        go_on_after_interrupts(patch, queue)
        receipts = [queue.submit(b"%d" % number) for number in range(3)]
        asyncio.get_running_loop().call_soon(queue._committer.pump)
        outcomes = await asyncio.wait_for(
            asyncio.gather(*receipts, return_exceptions=True), SECONDS_MAX
        )
    assert stumble.came or step == "_look_again" or (step, level) in NEVER
    with suppress(fifoq.FifoqError):
        await asyncio.wait_for(queue.close(), SECONDS_MAX)
    found = await contents(place)
    assert found[:2] == [b"first", b"second"]
    confirmed = [b"%d" % n for n, told in enumerate(outcomes) if not isinstance(told, Exception)]
    assert confirmed == [] or found[2:] == confirmed
    if raised is MemoryError and (step in HARMLESS or is_before_the_write(step, after)):
        assert len(confirmed) == 3, "the thread can still write it"


@pytest.mark.parametrize("after", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("raised", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize(
    ("owner", "step", "needed"),
    [
        (filling, "is_due", True),
        (filling, "Filling", False),
        (DirectTail, "follow", False),
        (Ring, "write", False),
        (Filling, "end", True),
        (RingWriter, "_end", True),
    ],
)
async def test_whatever_is_raised_as_zeros_are_written_nothing_confirmed_is_lost(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    step: str,
    needed: bool,
    raised: type[BaseException],
    after: bool,
) -> None:
    """Without memory for the zeros, the log was nobody's: it could not even be closed."""
    queue = await fifoq.open(place, durability="os")
    await queue.put_many([b"x"] * 3000)
    await queue.flush()
    runner = runner_of(queue)

    def is_of_zeros(*arguments: Any) -> bool:
        begun = (runner._begun, *arguments)
        return owner in (filling, Filling) or any(isinstance(one, Filling) for one in begun)

    confirmed = 0
    with monkeypatch.context() as patch:
        go_on_after_interrupts(patch, queue)
        stumble = Stumble(patch, (owner, step), raised, after=after, when=is_of_zeros)
        with suppress(fifoq.FifoqError):
            for _ in range(40):
                await asyncio.wait_for(queue.put_many([bytes(1000)] * 50), SECONDS_MAX)
                confirmed += 50
    assert stumble.came
    if raised is MemoryError and not (needed or after):
        assert confirmed == 2000, "nobody needed those zeros"
    with suppress(fifoq.FifoqError):
        await asyncio.wait_for(queue.close(), SECONDS_MAX)
    assert 3000 + confirmed <= len(await contents(place)) <= 3000 + confirmed + 50


@pytest.mark.parametrize("reaps", [False, True], ids=["in its turn", "in a call"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("raised", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize(
    ("owner", "step"),
    [
        (RingWriter, "_leave"),
        (Writer, "start"),
        (Writer, "_is_at_work"),
        (Writer, "_stand_aside_later"),
    ],
)
async def test_a_hand_over_that_stops_half_way_confirms_nothing_and_leaves_nobody_waiting(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    step: str,
    raised: type[BaseException],
    after: bool,
    reaps: bool,
) -> None:
    """Neither ring nor thread had the commit, and the thread's last end was taken for its."""
    queue = await fifoq.open(place)
    await queue.put(b"first")
    committer, writer = queue._committer, runner_of(queue)._writer
    await until(lambda: writer._aside is None)
    with monkeypatch.context() as patch:
        refused = refuse_the_next_write(patch, place)
        stumble = Stumble(patch, (owner, step), raised, after=after, when=lambda *_: any(refused))
        go_on_after_interrupts(patch, queue)
        put = asyncio.ensure_future(queue.put(b"second"))
        async with asyncio.timeout(SECONDS_MAX):
            while not put.done():
                await asyncio.sleep(0)
                if reaps:
                    with suppress(fifoq.FifoqError, KeyboardInterrupt, MemoryError):
                        committer.reap()
    assert stumble.came
    with suppress(fifoq.FifoqError):
        await asyncio.wait_for(queue.close(), SECONDS_MAX)
    found = await contents(place)
    assert found[:1] == [b"first"]
    assert put.exception() is not None or found == [b"first", b"second"]
    assert not RingWriter.under_way


async def test_who_is_interrupted_twice_as_a_commit_is_handed_over_confirms_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time was in what cleared up after the first one."""
    log = open_log(str(place))
    log.put("a", [b"first"])
    draft = log.draft()
    draft.put(log.queue("a"), [b"second"])
    runner = RingWriter(asyncio.get_running_loop(), lambda: None, "test")
    # Whose end is not to be taken for the other's.
    runner.start(Commit(log, None, True, [], [], 0, 0))
    await until(lambda: runner.finished and runner.error is None)
    refused = refuse_the_next_write(monkeypatch, place)
    Stumble(monkeypatch, (Writer, "start"), KeyboardInterrupt, after=False)
    runner.start(Commit(log, draft, True, [], [], 0, 1))
    with suppress(KeyboardInterrupt):
        async with asyncio.timeout(SECONDS_MAX):
            while not runner.finished:
                await asyncio.sleep(0)
    assert any(refused)
    assert runner.finished
    assert isinstance(runner.error, InterruptedError)
    runner.stop()
    runner.join()
    log.free_turn()
    log.close()


async def test_the_end_of_the_last_job_is_not_that_of_one_that_could_not_be_begun(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(str(place))
    runner = RingWriter(asyncio.get_running_loop(), lambda: None, "test")
    job = Commit(log, None, True, [], [], 0, 0)
    runner.start(job)
    await until(lambda: runner.finished and runner.error is None)
    Stumble(monkeypatch, (Commit, "begin"), KeyboardInterrupt, after=False)
    with pytest.raises(KeyboardInterrupt):
        runner.start(job)
    assert runner.finished
    assert isinstance(runner.error, InterruptedError)
    runner.stop()
    runner.join()
    log.close()


async def test_what_went_wrong_as_a_commit_ended_is_what_is_told(
    queue: Queue[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        Stumble(patch, (Begun, "end"), RuntimeError, after=False)
        with pytest.raises(fifoq.DurabilityError, match="RuntimeError while writing"):
            await asyncio.wait_for(queue.put(b"second"), SECONDS_MAX)
    with suppress(fifoq.FifoqError):
        await asyncio.wait_for(queue.close(), SECONDS_MAX)


async def test_what_the_kernel_has_is_written_by_nobody_else(
    queue: Queue[bytes], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without memory right behind the request: the thread would write at the same place."""
    written: list[Begun] = []
    with monkeypatch.context() as patch:
        patch.setattr(Begun, "write", lambda begun: written.append(begun))
        Stumble(patch, (Ring, "write"), MemoryError, after=True)
        with pytest.raises(fifoq.FifoqError):
            await asyncio.wait_for(queue.put(b"second"), SECONDS_MAX)
    assert not written
    assert not RingWriter.under_way
    with suppress(fifoq.FifoqError):
        await asyncio.wait_for(queue.close(), SECONDS_MAX)
    assert await contents(place) == [b"first", b"second"]


async def test_without_memory_to_say_more_whoever_waits_is_told(
    queue: Queue[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both what told them and what gave the commit up needed some first."""

    def no_memory(*_: Any, **__: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        go_on_after_interrupts(patch, queue)
        patch.setattr(begun, "sync_error", no_memory)
        patch.setattr(jobs, "DurabilityError", no_memory)
        patch.setattr(settling.logger, "error", no_memory)
        patch.setattr(committer.logger, "exception", no_memory)
        Stumble(patch, (Begun, "end"), KeyboardInterrupt, after=False)
        with pytest.raises(fifoq.DurabilityError):
            await asyncio.wait_for(queue.put(b"second"), SECONDS_MAX)
    with suppress(fifoq.FifoqError):
        await asyncio.wait_for(queue.close(), SECONDS_MAX)


@pytest.mark.parametrize("raised", [KeyboardInterrupt, MemoryError])
async def test_who_can_not_even_be_told_of_a_mistake_is_told_by_the_next_pump(
    queue: Queue[bytes], monkeypatch: pytest.MonkeyPatch, raised: type[BaseException]
) -> None:
    """The job was nobody's: its put waited for ever, and the store went on without it."""
    with monkeypatch.context() as patch:
        settled = Stumble(patch, (Commit, "settle"), raised, after=False)
        abandoned = Stumble(patch, (committer.Committer, "_abandon"), raised, after=False)
        go_on_after_interrupts(patch, queue)
        with pytest.raises(fifoq.DurabilityError):
            await asyncio.wait_for(queue.put(b"second"), SECONDS_MAX)
    assert settled.came
    assert abandoned.came
    with pytest.raises(fifoq.StoreFailed):
        await queue.put(b"third")
    await asyncio.wait_for(queue.close(), SECONDS_MAX)


@pytest.mark.parametrize("kind", ["io_uring", "thread"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize(
    ("owner", "step"),
    [
        (Log, "prepare_put"),
        (committer.Committer, "_seal_puts"),
        (Log, "begin"),
        (RingWriter, "start"),
        (Writer, "start"),
        (Writer, "_stand_aside_later"),
    ],
)
async def test_who_is_interrupted_twice_as_a_commit_begins_leaves_nobody_waiting(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    step: str,
    after: bool,
    kind: str,
) -> None:
    """Nobody had the commit, and neither its put nor the close ever ended."""
    monkeypatch.setenv("FIFOQ_WRITER", kind)
    queue = await fifoq.open(place)
    await queue.put(b"first")
    with monkeypatch.context() as patch:
        began = Stumble(patch, (owner, step), KeyboardInterrupt, after=after)
        abandoned = Stumble(
            patch, (committer.Committer, "_abandon"), KeyboardInterrupt, after=False
        )
        go_on_after_interrupts(patch, queue)
        put = asyncio.ensure_future(queue.put(b"second"))
        await asyncio.wait_for(asyncio.wait([put]), SECONDS_MAX)
    # The loop's thread stands aside in a timer too, when nothing begins.
    assert not began.came or abandoned.came or step == "_stand_aside_later"
    with suppress(fifoq.FifoqError):
        await asyncio.wait_for(queue.close(), SECONDS_MAX)
    found = await contents(place)
    assert found[:1] == [b"first"]
    assert put.exception() is not None or found == [b"first", b"second"]


@pytest.mark.parametrize("kind", ["io_uring", "thread"])
@pytest.mark.parametrize("raised", [KeyboardInterrupt, MemoryError])
async def test_a_close_that_is_not_handed_over_lets_the_directory_go(
    place: Path, monkeypatch: pytest.MonkeyPatch, kind: str, raised: type[BaseException]
) -> None:
    """The store was locked as long as the process lived."""
    monkeypatch.setenv("FIFOQ_WRITER", kind)
    queue = await fifoq.open(place)
    await queue.put(b"first")
    store = queue._committer
    with monkeypatch.context() as patch:
        stumble = Stumble(
            patch, (Writer, "start"), raised, after=False, when=lambda *_: store.closed
        )
        go_on_after_interrupts(patch, queue)
        with pytest.raises(fifoq.DurabilityError):
            await asyncio.wait_for(queue.close(), SECONDS_MAX)
    assert stumble.came
    assert await contents(place) == [b"first"]


async def test_a_mistake_of_the_committers_is_told_before_it_is_logged(
    queue: Queue[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: Any, **__: Any) -> None:
        raise MemoryError

    def mistaken(*_: Any) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(asyncio.get_running_loop(), "call_exception_handler", lambda _: None)
        patch.setattr(committer, "time_runs", mistaken)
        patch.setattr(committer.logger, "exception", no_memory)
        with pytest.raises(fifoq.DurabilityError):
            await asyncio.wait_for(queue.put(b"second"), SECONDS_MAX)
    with suppress(fifoq.FifoqError):
        await asyncio.wait_for(queue.close(), SECONDS_MAX)


@pytest.mark.parametrize("kind", ["io_uring", "thread"])
@pytest.mark.parametrize("raised", [KeyboardInterrupt, MemoryError])
async def test_who_is_interrupted_as_a_pump_begins_leaves_nobody_waiting(
    place: Path, monkeypatch: pytest.MonkeyPatch, kind: str, raised: type[BaseException]
) -> None:
    """It counted as being on its way for ever: no other one came, for puts or for the close."""
    monkeypatch.setenv("FIFOQ_WRITER", kind)
    queue = await fifoq.open(place)
    await queue.put(b"first")
    with monkeypatch.context() as patch:
        stumble = Stumble(patch, (queue._committer, "pump"), raised, after=False)
        patch.setattr(asyncio.Handle, "_run", calm(asyncio.Handle._run))
        patch.setattr(asyncio.get_running_loop(), "call_exception_handler", lambda _: None)
        await asyncio.wait_for(queue.put(b"second"), SECONDS_MAX)
    assert stumble.came
    await asyncio.wait_for(queue.close(), SECONDS_MAX)
    assert await contents(place) == [b"first", b"second"]


async def test_a_commit_whose_log_has_failed_is_not_confirmed(queue: Queue[bytes]) -> None:
    """Whatever was lost on the way: the log says what became of it."""
    log = queue._committer.log
    assert log is not None
    log.fail()
    waiter = Waiter(asyncio.get_running_loop().create_future())
    Commit(log, None, True, [], [waiter], 0, 0).settle(queue._committer, None, None)
    assert isinstance(waiter.future.exception(), fifoq.StoreFailed)
    with pytest.raises(fifoq.StoreFailed):
        await queue.put(b"second")
    with suppress(fifoq.FifoqError):
        await queue.close()


@pytest.mark.parametrize("module", [begun, filling])
async def test_a_turn_that_is_taken_and_lost_does_not_keep_the_store_open(
    place: Path, monkeypatch: pytest.MonkeyPatch, module: Any
) -> None:
    """Nobody could close it, nor open it again before the process ended."""
    queue = await fifoq.open(place, durability="os")
    await queue.put_many([b"x"] * 3000)
    await queue.flush()
    log, confirmed = queue._committer.log, 3000
    assert log is not None
    monkeypatch.setattr(log, "turn", InterruptedTurn(module.begin))
    with monkeypatch.context() as patch, suppress(fifoq.FifoqError):
        go_on_after_interrupts(patch, queue)
        for _ in range(40):
            await asyncio.wait_for(queue.put_many([bytes(1000)] * 50), SECONDS_MAX)
            confirmed += 50
    assert confirmed < 5000, "it was interrupted"
    with suppress(fifoq.FifoqError):
        await asyncio.wait_for(queue.close(), SECONDS_MAX)
    assert log.status is Status.CLOSED
    assert len(await contents(place)) == confirmed


class InterruptedTurn(list[None]):
    """A turn that one taker has no sooner than an interrupt comes."""

    def __init__(self, taker: FunctionType) -> None:
        super().__init__([None])
        self._taker: FunctionType | None = taker

    def pop(self, *_: Any) -> None:
        super().pop()
        if self._taker and sys._getframe(1).f_code is self._taker.__code__:
            self._taker = None
            raise KeyboardInterrupt


@pytest.mark.parametrize("level", ["sync", "os"])
async def test_a_frame_for_which_the_thread_has_no_memory_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch, level: Literal["sync", "os"]
) -> None:
    """Its put was told that only a reopen could say what was on the disk."""
    large = [bytes(50_000)] * 40
    async with fifoq.open(place, durability=level) as queue:
        await queue.put(b"first")
        with monkeypatch.context() as patch:
            Stumble(patch, (appending, "encode_frame"), MemoryError, after=False)
            with pytest.raises(fifoq.AccessError, match="no memory"):
                await asyncio.wait_for(queue.put_many(large), SECONDS_MAX)
        await queue.put_many(large)
    assert await contents(place) == [b"first", *large]


async def test_a_read_for_which_there_is_no_memory_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A take was told that only a reopen could say what was on the disk."""
    async with fifoq.open(place) as queue:
        await queue.put_many([b"first", b"second"])
    with monkeypatch.context() as patch:
        stumble = Stumble(patch, (jobs, "consecutive"), MemoryError, after=False)
        queue = await fifoq.open(place)
        with pytest.raises(fifoq.AccessError, match="no memory"):
            await asyncio.wait_for(queue.take(), SECONDS_MAX)
    async with queue:
        assert stumble.came
        assert await queue.take_many(2) == [b"first", b"second"]


@pytest.mark.parametrize("level", ["sync", "os", "memory"])
@pytest.mark.parametrize("takes", [False, True], ids=["puts", "puts and takes"])
async def test_records_for_which_the_loop_has_no_memory_are_refused_and_the_store_goes_on(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    level: Literal["sync", "os", "memory"],
    takes: bool,
) -> None:
    """It stopped the store, and took along what had been put at `memory`."""
    queue = await fifoq.open(place, durability=level)
    await queue.put(b"first")
    await queue.flush()
    plain_join, refusing = encoding.encode_records, [True]

    def no_memory(*arguments: Any, **keywords: Any) -> Any:
        if refusing:
            raise MemoryError
        return plain_join(*arguments, **keywords)

    for module in (plain, draft):
        monkeypatch.setattr(module, "encode_records", no_memory)
    taken = asyncio.ensure_future(queue.take()) if takes else None
    puts = [asyncio.ensure_future(queue.put(b"%d" % n)) for n in range(3)]
    flushed = asyncio.ensure_future(queue.flush())
    told = await asyncio.wait_for(asyncio.gather(*puts, return_exceptions=True), SECONDS_MAX)
    if level == "memory":
        with pytest.raises(fifoq.AccessError, match="no memory"):
            await asyncio.wait_for(flushed, SECONDS_MAX)
    else:
        assert all(isinstance(one, fifoq.AccessError) and "no memory" in str(one) for one in told)
        causes = [one.__cause__ for one in told if isinstance(one, fifoq.AccessError)]
        assert all(isinstance(one, MemoryError) and one.__traceback__ is None for one in causes)
        await asyncio.wait_for(flushed, SECONDS_MAX)
    if taken is not None:
        assert await asyncio.wait_for(taken, SECONDS_MAX) == b"first"
    refusing.clear()
    await asyncio.wait_for(queue.flush(), SECONDS_MAX)
    await asyncio.wait_for(queue.put(b"last"), SECONDS_MAX)
    await queue.close()
    there = [b"0", b"1", b"2"] if level == "memory" else []
    assert await contents(place) == [*([] if takes else [b"first"]), *there, b"last"]


async def test_a_frame_for_which_the_loop_has_no_memory_is_made_by_the_thread(
    queue: Queue[bytes], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stumble = Stumble(patch, (plain, "encode_frame"), MemoryError, after=False)
        await asyncio.wait_for(queue.put(b"second"), SECONDS_MAX)
        assert stumble.came
    await queue.close()
    assert await contents(place) == [b"first", b"second"]


async def test_what_was_given_up_is_not_left_to_the_thread_beside_the_next_job(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread's end was taken for that of the close: the log was never closed."""
    queue = await fifoq.open(place)
    await queue.put(b"first")
    with monkeypatch.context() as patch:
        go_on_after_interrupts(patch, queue)
        answer(patch, lambda _: -errno.EAGAIN)
        Stumble(patch, (Ring, "write"), KeyboardInterrupt, after=True)
        writer = runner_of(queue)._writer
        count = writer._jobs_started
        receipt = queue.submit(b"second")
        queue._committer.pump()
        with pytest.raises(fifoq.FifoqError):
            await asyncio.wait_for(receipt, SECONDS_MAX)
        assert writer._jobs_started == count
    with suppress(fifoq.FifoqError):
        await asyncio.wait_for(queue.close(), SECONDS_MAX)
    assert (await contents(place))[:1] == [b"first"]
