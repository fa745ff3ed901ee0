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
from fifoq import Queue
from fifoq.direct import DirectTail
from fifoq.ring_writer import RingWriter
from fifoq.uring import Ring
from fifoq.writer import Writer
from store import Begun, Filling, Log, appending, begun, filling, plain
from tests.fifoq.loops import until
from tests.fifoq.ring.support import (
    SECONDS_MAX,
    Stumble,
    answer,
    contents,
    go_on_after_interrupts,
    let_notes,
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
        Stumble(patch, (owner, step), raised, after=after)
        go_on_after_interrupts(patch, queue)
        receipts = [queue.submit(b"%d" % number) for number in range(3)]
        asyncio.get_running_loop().call_soon(queue._committer.pump)
        outcomes = await asyncio.wait_for(
            asyncio.gather(*receipts, return_exceptions=True), SECONDS_MAX
        )
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
    refused: list[int] = []

    def not_now(result: int) -> int:
        if refused:
            return result
        refused.append(result)
        return -errno.EAGAIN

    with monkeypatch.context() as patch:
        go_on_after_interrupts(patch, queue)
        answer(patch, not_now)
        stumble = Stumble(patch, (owner, step), raised, after=after, when=lambda *_: bool(refused))
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
