"""Openings that are given up: what they open they let go again, whoever is left to see to it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fifoq
from fifoq.log_opening import LogOpening
from fifoq.queue import Queue
from fifoq.uring import Ring
from store import Log, open_log
from store.files import Handle
from store.osfiles import OsFiles
from tests.support.leftovers import assert_nothing_is_left_behind

pytestmark = pytest.mark.anyio
WAIT_SECONDS = 20
"""Long enough for any machine; whoever waits that long hangs."""


class Gate(OsFiles):
    """Real files whose lock is taken on one side or the other of a gate that the test opens."""

    def __init__(self, side: str) -> None:
        self.side = side
        self.reached, self.opened = threading.Event(), threading.Event()

    def lock_dir(self, directory: Handle) -> None:
        if self.side == "before":
            self._pass()
        super().lock_dir(directory)
        if self.side == "after":
            self._pass()

    def _pass(self) -> None:
        self.reached.set()
        self.opened.wait()


class Tries(OsFiles):
    """Real files that tell of each refusal of the lock."""

    def __init__(self) -> None:
        self.refused = threading.Event()

    def lock_dir(self, directory: Handle) -> None:
        try:
            super().lock_dir(directory)
        except BlockingIOError:
            self.refused.set()
            raise


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    """A real loop: in virtual time nobody waits for a thread."""
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
def side(request: pytest.FixtureRequest) -> str:
    """Where the gate is, if the test does not say: behind the lock."""
    return getattr(request, "param", "after")


@pytest.fixture
def gate(side: str) -> Iterator[Gate]:
    gate = Gate(side)
    yield gate
    gate.opened.set()


on_both_sides = pytest.mark.parametrize("side", ["before", "after"], indirect=True)


@pytest.fixture(autouse=True)
def _nothing_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [record.getMessage() for record in caplog.get_records("call")] == []


async def happens(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, WAIT_SECONDS)


async def _open(path: Path, files: OsFiles) -> Queue[bytes]:
    return await fifoq.open(path, files=files)


async def _given_up(path: Path, gate: Gate) -> None:
    """An opening that is cancelled while its thread stands at the gate."""
    opening = asyncio.ensure_future(_open(path, gate))
    await happens(gate.reached)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening


async def _opened_only_then(path: Path, gate: threading.Event) -> None:
    """An opening meets the lock and waits; once the gate is open it has the store."""
    tries = Tries()
    opening = asyncio.ensure_future(_open(path, tries))
    await happens(tries.refused)
    assert not opening.done()
    gate.set()
    async with asyncio.timeout(WAIT_SECONDS):
        await (await opening).close()


async def test_the_next_opening_waits_until_one_that_was_cancelled_has_let_go(
    tmp_path: Path, gate: Gate
) -> None:
    await _given_up(tmp_path / "store", gate)
    await _opened_only_then(tmp_path / "store", gate.opened)


@pytest.mark.parametrize("side", ["before"], indirect=True)
async def test_one_that_comes_to_the_lock_late_is_waited_for_as_well(
    tmp_path: Path, gate: Gate
) -> None:
    """Others have opened and closed the store by then."""
    await _given_up(tmp_path / "store", gate)
    async with fifoq.open(tmp_path / "store") as queue:
        await queue.put(b"a")
    gate.opened.set()
    for _ in range(20):
        async with fifoq.open(tmp_path / "store") as queue:
            assert len(queue) == 1


async def test_whoever_waits_for_one_may_leave_as_well(tmp_path: Path, gate: Gate) -> None:
    tries = Tries()
    await _given_up(tmp_path / "store", gate)
    waiting = asyncio.ensure_future(_open(tmp_path / "store", tries))
    await happens(tries.refused)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.opened.set()
    await _opened_at_once(tmp_path / "store")


@on_both_sides
async def test_other_owners_are_told_of_at_once(tmp_path: Path, gate: Gate) -> None:
    """One that was given up elsewhere keeps nobody waiting."""
    await _given_up(tmp_path / "elsewhere", gate)
    async with fifoq.open(tmp_path / "store"), asyncio.timeout(WAIT_SECONDS):
        with pytest.raises(fifoq.AlreadyOpen):
            await fifoq.open(tmp_path / "store")
    assert not gate.opened.is_set()


@on_both_sides
def test_a_loop_that_ends_leaves_no_lock_no_thread_and_no_descriptor(
    tmp_path: Path, gate: Gate
) -> None:
    with assert_nothing_is_left_behind():
        asyncio.run(_given_up(tmp_path / "store", gate))
        gate.opened.set()
        asyncio.run(_opened_at_once(tmp_path / "store"))


async def _opened_at_once(path: Path) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        await (await fifoq.open(path)).close()


async def test_the_child_of_a_fork_waits_for_nobody(tmp_path: Path, gate: Gate) -> None:
    """The thread that has the lock is its parent's."""
    await _given_up(tmp_path / "store", gate)
    if (child := os.fork()) == 0:
        code = 1
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(WAIT_SECONDS)
        try:
            opening = LogOpening(str(tmp_path / "store"), lambda: open_log(tmp_path / "store"))
            opening.run(None)
        except fifoq.AlreadyOpen:
            code = 0
        finally:
            os._exit(code)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


async def _closed(queue: Queue[bytes]) -> None:
    await queue.close()


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("listens", [False, True])
def test_a_close_that_is_cancelled_as_its_loop_ends_lets_the_directory_go(
    tmp_path: Path, listens: bool, turns: int
) -> None:
    """In one turn of the loop the log was nobody's: not closed, and not to be closed any more."""

    async def begin() -> Queue[bytes]:
        # With files that are given nobody listens, and a close takes other turns.
        queue = await fifoq.open(tmp_path / "store", files=None if listens else OsFiles())
        await queue.put(b"a")
        closing = asyncio.ensure_future(queue.close())
        while not queue._committer.closed:
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        return queue

    with assert_nothing_is_left_behind():
        # As long as somebody has it, nothing else lets it go.
        queue = asyncio.run(begin())
        asyncio.run(_opened_at_once(tmp_path / "store"))
        assert queue.closed


class Slow(OsFiles):
    """Real files whose closing by a writer stands at a gate."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self.opened.set()

    def close(self, handle: Handle) -> None:
        if threading.current_thread().name.startswith("fifoq"):
            self.reached.set()
            self.opened.wait()
        super().close(handle)


async def test_the_next_opening_waits_for_a_close_that_goes_on(tmp_path: Path) -> None:
    files = Slow()
    queue = await _open(tmp_path / "store", files)
    await queue.put(b"a")
    files.opened.clear()
    with pytest.raises(TimeoutError):
        await queue.close(timeout=0.1)
    await happens(files.reached)
    await _opened_only_then(tmp_path / "store", files.opened)
    await queue.close()


def test_a_loop_that_is_closed_while_the_log_is_closed_leaves_that_to_the_next_close(
    tmp_path: Path,
) -> None:
    """It returned at once, and the thread and its descriptor stayed."""

    async def begin() -> Queue[bytes]:
        queue = await _open(tmp_path / "store", files)
        await queue.put(b"a")
        files.reached.clear()
        files.opened.clear()
        closing = asyncio.ensure_future(queue.close())
        while not files.reached.is_set():
            await asyncio.sleep(0)
        assert not closing.done()
        return queue

    files = Slow()
    with assert_nothing_is_left_behind():
        loop = asyncio.new_event_loop()
        queue = loop.run_until_complete(begin())
        loop.close()
        files.opened.set()
        asyncio.run(_closed(queue))
        asyncio.run(_opened_at_once(tmp_path / "store"))


@pytest.mark.parametrize("kind", ["io_uring", "thread"])
@pytest.mark.parametrize("closes", [False, True], ids=["ends", "closes"])
def test_an_end_that_the_disk_holds_up_lets_the_directory_go_when_that_has_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, closes: bool, caplog: Any
) -> None:
    """What `on_stop` had no time for was never done: the store was locked for good."""
    monkeypatch.setenv("FIFOQ_WRITER", kind)
    monkeypatch.setattr("actors.hooks.ON_STOP_SECONDS", 0.05)
    answers = threading.Event()
    wait, sync = Ring.wait, OsFiles.datasync

    def begin_to_hang() -> None:
        def hang(*arguments: Any) -> Any:
            answers.wait()
            return (wait if isinstance(arguments[0], Ring) else sync)(*arguments)

        monkeypatch.setattr(OsFiles, "datasync", hang)
        monkeypatch.setattr(Ring, "wait", hang)
        monkeypatch.setattr(
            Ring, "result", lambda ring: (answers.is_set() and result(ring)) or None
        )

    result = Ring.result

    async def main() -> Queue[bytes]:
        queue = await fifoq.open(tmp_path / "store")
        await queue.put(b"first")
        begin_to_hang()
        puts = [asyncio.ensure_future(queue.put(b"second")) for _ in range(2)]
        await asyncio.sleep(0)
        if closes:
            with pytest.raises(TimeoutError):
                await queue.close(timeout=0.01)
        told.extend(puts)
        return queue

    told: list[asyncio.Task[Any]] = []
    with assert_nothing_is_left_behind():
        queue = asyncio.run(main())
        threading.Timer(0.1, answers.set).start()
        asyncio.run(_opened_at_once(tmp_path / "store"))
        assert queue.closed
    assert all(put.cancelled() for put in told)
    caplog.clear()


def test_a_close_after_its_loop_gives_no_counter_out_again(tmp_path: Path, caplog: Any) -> None:
    async def begin() -> tuple[Queue[bytes], int]:
        queue = await fifoq.open(tmp_path / "store")
        await queue.put(b"a")
        return queue, queue.put_nowait(b"lost").counter

    async def again() -> int:
        async with fifoq.open(tmp_path / "store") as queue:
            return (await queue.put(b"b")).counter

    loop = asyncio.new_event_loop()
    queue, shown = loop.run_until_complete(begin())
    loop.close()
    asyncio.run(_closed(queue))
    assert asyncio.run(again()) > shown
    caplog.clear()


@pytest.mark.parametrize("leaves", [False, True], ids=["opened", "given up"])
async def test_the_child_of_a_fork_in_the_middle_keeps_no_lock(
    tmp_path: Path, gate: Gate, leaves: bool
) -> None:
    """Nobody could open the store again before the child had ended."""
    opening = asyncio.ensure_future(_open(tmp_path / "store", gate))
    await happens(gate.reached)
    ends, goes_on = os.pipe()
    if (child := os.fork()) == 0:
        os.close(goes_on)
        os.read(ends, 1)
        os._exit(0)
    os.close(ends)
    if leaves:
        opening.cancel()
        await asyncio.wait([opening])
    gate.opened.set()
    if not leaves:
        await (await opening).close()
    try:
        await _opened_at_once(tmp_path / "store")
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "the child lives on"
    finally:
        os.close(goes_on)
        await asyncio.to_thread(os.waitpid, child, 0)


async def test_one_that_is_given_up_while_it_waits_opens_nothing(
    tmp_path: Path, gate: Gate
) -> None:
    opened_count, tries = 0, Tries()

    def meet() -> Log:
        nonlocal opened_count
        opened_count += 1
        return open_log(tmp_path / "store", files=tries)

    await _given_up(tmp_path / "store", gate)
    waiting = LogOpening(str(tmp_path / "store"), meet)
    thread = threading.Thread(target=_refused, args=(waiting,))
    thread.start()
    await happens(tries.refused)
    waiting.give_up()
    gate.opened.set()
    await asyncio.to_thread(thread.join)
    assert opened_count == 1


async def test_it_is_waited_for_wherever_the_process_has_gone(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    await _given_up(Path("store"), gate)
    monkeypatch.chdir("/")
    await _opened_only_then(tmp_path / "store", gate.opened)


def test_one_that_ends_while_its_lock_is_met_is_not_taken_for_an_owner(
    tmp_path: Path, gate: Gate
) -> None:
    first = LogOpening(str(tmp_path), lambda: open_log(tmp_path, files=gate))
    thread = threading.Thread(target=first.run, args=(None,))
    thread.start()
    assert gate.reached.wait(WAIT_SECONDS)
    first.give_up()

    def meet() -> Log:
        try:
            return open_log(tmp_path)
        finally:
            gate.opened.set()
            thread.join()

    log = LogOpening(str(tmp_path), meet).run(None)
    assert log is not None
    log.close()


@pytest.mark.parametrize("side", ["before"], indirect=True)
def test_one_that_is_given_up_before_an_owner_does_not_wait_for_itself(
    tmp_path: Path, gate: Gate
) -> None:
    """Given up, it is one of those that are waited for: its thread and its process never ended."""
    owner = open_log(tmp_path)
    other = LogOpening(str(tmp_path), lambda: open_log(tmp_path, files=gate))

    def meet() -> Log:
        opening.give_up()
        gate.opened.set()
        return open_log(tmp_path)

    opening = LogOpening(str(tmp_path), meet)
    threads = [threading.Thread(target=_refused, args=(each,)) for each in (other, opening)]
    threads[0].start()
    assert gate.reached.wait(WAIT_SECONDS)
    other.give_up()
    threads[1].daemon = True
    threads[1].start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert [thread.is_alive() for thread in threads] == [False, False]
    owner.close()


class GivenUpAtOnce(LogOpening):
    """One that is given up when its thread has just begun."""

    def _open_once_let_go(self) -> Log:
        self.give_up()
        return super()._open_once_let_go()


def test_so_does_one_that_is_given_up_as_it_begins(tmp_path: Path) -> None:
    owner = open_log(tmp_path)
    opening = GivenUpAtOnce(str(tmp_path), lambda: open_log(tmp_path))
    thread = threading.Thread(target=_refused, args=(opening,), daemon=True)
    thread.start()
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive()
    owner.close()


def _refused(opening: LogOpening) -> None:
    with pytest.raises(fifoq.AlreadyOpen):
        opening.run(None)


def test_one_that_is_given_up_before_it_begins_opens_nothing(tmp_path: Path) -> None:
    opening = LogOpening(str(tmp_path), _must_not)
    opening.give_up()
    assert opening.run(None) is None
    assert opening.log is None


def test_one_that_is_given_up_after_its_end_lets_go(tmp_path: Path) -> None:
    opening = LogOpening(str(tmp_path), lambda: open_log(tmp_path))
    log = opening.run(None)
    assert log is opening.log is not None
    opening.give_up()
    assert opening.log is None
    open_log(tmp_path).close()


def _must_not() -> Log:
    raise AssertionError("opened")
