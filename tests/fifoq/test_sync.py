"""Queues for blocking code: any thread, interrupts, forks, the end of the interpreter."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import fifoq
import fifoq.sync
from fifoq import loopthread
from fifoq.sync.store import close_at_exit
from tests.support.runners import ManualRunner

PATIENCE_SECONDS = 30.0


class Order(msgspec.Struct):
    number: int


class Held:
    """A queue whose commits wait for the test once it says so."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.job_waits = threading.Event()
        made: list[ManualRunner] = []
        job_waits = self.job_waits

        class Runner(ManualRunner):
            def start(self, job: Any) -> None:
                super().start(job)
                if self.waiting is not None:
                    job_waits.set()

        def make(*arguments: Any) -> ManualRunner:
            made.append(Runner(*arguments))
            return made[0]

        self.queue = fifoq.sync.open(path, runner=make, **options)
        self._runner = made[0]

    def hold(self) -> None:
        self.job_waits.clear()
        self.queue._thread.call(self._runner.hold)

    def let_go(self) -> None:
        self.queue._thread.call(self._runner.let_go)


@pytest.fixture(params=["memory", "sync"])
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[fifoq.sync.Queue[bytes]]:
    with fifoq.sync.open(tmp_path / "store", durability=request.param) as opened:
        yield opened


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    made = Held(tmp_path / "store")
    yield made
    if not made.queue.closed:
        made.let_go()
        made.queue.close()


class Background(threading.Thread):
    """Runs a function; `result` waits for it and gives or raises what came of it."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._function = function
        self._outcome: list[tuple[Any, BaseException | None]] = []
        self.start()

    def run(self) -> None:
        try:
            self._outcome.append((self._function(), None))
        except BaseException as error:
            self._outcome.append((None, error))

    def result(self) -> Any:
        self.join(PATIENCE_SECONDS)
        assert not self.is_alive()
        value, error = self._outcome[0]
        if error is not None:
            raise error
        return value


def wait_until(queue: fifoq.sync.Queue[Any], condition: Callable[[], object]) -> None:
    """Until it holds on the queue's loop, which each look lets turn."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not queue._thread.call(condition):
        assert time.monotonic() < deadline


def waiting_takers(queue: fifoq.sync.Queue[Any]) -> int:
    return len(queue._queue._takers)


# The same queue.


def test_records_are_put_and_taken_in_order(queue: fifoq.sync.Queue[bytes]) -> None:
    first = queue.put(b"a")
    keys = queue.put_many(iter([b"b", b"c"]))
    last = queue.put_nowait(b"d", headers={"k": "v"})
    assert first < keys[0] < keys[1] < last
    assert (len(queue), queue.size(), queue.empty()) == (4, 4, False)
    assert queue.peek() == b"a"
    assert queue.take() == b"a"
    assert queue.take_nowait() == b"b"
    assert queue.take_many(10, max_bytes=100) == [b"c", b"d"]
    assert queue.empty()
    assert queue.peek() is None
    with pytest.raises(fifoq.QueueEmpty):
        queue.take_nowait()


def test_a_take_waits_for_a_put_of_another_thread(queue: fifoq.sync.Queue[bytes]) -> None:
    taker = Background(queue.take)
    wait_until(queue, lambda: waiting_takers(queue))
    queue.put(b"a")
    assert taker.result() == b"a"


def test_a_take_that_times_out_changes_nothing(queue: fifoq.sync.Queue[bytes]) -> None:
    with pytest.raises(TimeoutError):
        queue.take(timeout=0)
    with pytest.raises(TimeoutError):
        queue.lease(timeout=0.001)
    queue.put(b"a")
    assert queue.take(timeout=PATIENCE_SECONDS) == b"a"


def test_many_threads_put_and_take_and_nothing_is_lost_or_doubled(
    queue: fifoq.sync.Queue[bytes],
) -> None:
    start = threading.Barrier(6)

    def put(name: int) -> None:
        start.wait()
        for number in range(50):
            queue.put(b"%d-%d" % (name, number))

    def take() -> list[bytes]:
        start.wait()
        return [queue.take() for _ in range(50)]

    putters = [Background(lambda name=name: put(name)) for name in range(3)]  # type: ignore[misc]
    takers = [Background(take) for _ in range(3)]
    for putter in putters:
        putter.result()
    taken = [item for taker in takers for item in taker.result()]
    assert sorted(taken) == sorted(b"%d-%d" % (a, b) for a in range(3) for b in range(50))
    assert queue.empty()


def test_browse_shows_every_record_and_takes_none(
    queue: fifoq.sync.Queue[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fifoq.sync.queue.BROWSE_RECORDS", 2)
    queue.put_many([b"%d" % number for number in range(5)])
    assert [record.item for record in queue.browse()] == [b"0", b"1", b"2", b"3", b"4"]
    assert [record.key.counter for record in queue.browse(4)] == [4, 5]
    assert next(queue.browse()).item == b"0"
    assert len(queue) == 5


def test_a_lease_in_a_with_block_acks_and_gives_back_on_an_error(
    queue: fifoq.sync.Queue[bytes],
) -> None:
    queue.configure(retry_backoff=0)
    queue.put(b"a", headers={"k": "v"})
    delivery = queue.lease()
    assert (delivery.item, delivery.attempt, delivery.headers) == (b"a", 1, {"k": "v"})
    with pytest.raises(ZeroDivisionError), delivery:
        print(1 / 0)
    assert delivery.state == "nacked"
    with queue.lease(seconds=30) as delivery:
        assert (delivery.key.counter, delivery.attempt) == (1, 2)
        assert repr(delivery) == "<sync.Delivery 1 attempt=2 leased>"
        assert delivery._delivery.keeper is not None
    assert delivery.state == "acked"
    assert queue.empty()


def test_a_plain_delivery_is_acked_nacked_and_extended(queue: fifoq.sync.Queue[bytes]) -> None:
    queue.put(b"a")
    first = queue.lease(seconds=30, auto_extend=False)
    deadline = first._delivery.deadline
    first.extend(60)
    assert first._delivery.deadline > deadline
    first.nack(delay=0)
    with pytest.raises(fifoq.StaleLease):
        first.ack()
    second = queue.lease()
    assert second.ack()
    assert not second.ack()


def test_iteration_ends_when_the_queue_is_shut_down_and_empty(
    queue: fifoq.sync.Queue[bytes],
) -> None:
    queue.put_many([b"a", b"b"])
    queue.shutdown()
    assert list(queue) == [b"a", b"b"]
    with pytest.raises(fifoq.QueueClosed):
        queue.put(b"c")


def test_the_rest_of_the_queue_is_there_too(queue: fifoq.sync.Queue[bytes]) -> None:
    queue.put(b"a")
    queue.flush()
    queue.configure(pressure_high=2, pressure_low=1)
    queue.below_pressure()
    queue.reset_marks()
    stats = queue.stats()
    assert (stats.current_size, stats.high_water_mark) == (1, 1)
    assert queue.durability in ("memory", "sync")
    assert repr(queue) == "<sync.Queue 'main' depth=1 leased=0 open>"
    with pytest.raises(TypeError, match="items is a list of records"):
        queue.put_many(b"text")  # type: ignore[arg-type]


def test_items_may_have_a_type(tmp_path: Path) -> None:
    with fifoq.sync.open(tmp_path / "store", type=Order) as queue:
        queue.put(Order(1))
        queue.put(Order(2))
        assert queue.take() == Order(1)
        with queue.lease() as delivery:
            assert delivery.item == Order(2)


def test_a_store_has_many_queues_that_do_not_close_it(tmp_path: Path) -> None:
    with fifoq.sync.open_store(tmp_path / "store", segment_bytes=1 << 20) as store:
        assert repr(store) == f"<sync.Store '{tmp_path}/store' open>"
        assert store.quarantine is None
        orders = store.queue("orders", type=Order)
        assert store.queue("orders", type=Order) is orders
        with store.queue("bills") as bills:
            bills.put(b"a")
        bills.put(b"b", durability="memory")
        orders.put(Order(1))
        store.flush()
        assert store.queues() == ["bills", "orders"]
    assert repr(store) == f"<sync.Store '{tmp_path}/store' closed>"


def test_a_store_may_be_opened_in_a_thread_that_runs_a_loop(tmp_path: Path) -> None:
    async def main() -> bytes:
        with fifoq.sync.open(tmp_path / "store") as queue:
            queue.put(b"a")
            return queue.take()

    assert asyncio.run(main()) == b"a"


def test_without_uvloop_it_runs_on_asyncios_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    with fifoq.sync.open(tmp_path / "store") as queue:
        assert isinstance(queue._thread._loop, asyncio.SelectorEventLoop)
        queue.put(b"a")
        assert queue.take() == b"a"


# Opening and closing.


def test_what_can_not_be_opened_leaves_no_thread_behind(tmp_path: Path) -> None:
    before = threading.active_count()
    with pytest.raises(TypeError, match="unknown queue option"):
        fifoq.sync.open(tmp_path / "store", colour="red")  # type: ignore[call-overload]
    with fifoq.sync.open(tmp_path / "store"):
        among = threading.active_count()
        with pytest.raises(fifoq.AlreadyOpen):
            fifoq.sync.open(tmp_path / "store")
        loops = [t for t in threading.enumerate() if t.name.startswith("fifoq loop")]
        assert len(loops) == 1
        assert among > before


def test_a_closed_queue_refuses_but_tells_its_size(queue: fifoq.sync.Queue[bytes]) -> None:
    queue.put(b"a")
    queue.close()
    queue.close()
    assert queue.closed
    assert len(queue) == 1
    assert queue.stats().current_size == 1
    for call in (queue.take, queue.take_nowait, queue.peek, queue.flush):
        with pytest.raises(fifoq.QueueClosed):
            call()


def test_closing_ends_those_who_wait(queue: fifoq.sync.Queue[bytes]) -> None:
    taker = Background(queue.take)
    reader = Background(lambda: list(queue))
    wait_until(queue, lambda: waiting_takers(queue) == 2)
    queue.close()
    with pytest.raises(fifoq.QueueClosed):
        taker.result()
    assert reader.result() == []


def test_two_threads_may_close_at_once(held: Held) -> None:
    held.hold()
    held.queue.put_nowait(b"a")
    closers = [Background(held.queue.close) for _ in range(2)]
    assert held.job_waits.wait(PATIENCE_SECONDS)
    held.let_go()
    for closer in closers:
        closer.result()
    assert held.queue.closed


def test_a_close_that_timed_out_goes_on_and_may_be_repeated(held: Held) -> None:
    held.hold()
    held.queue.put_nowait(b"a")
    with pytest.raises(TimeoutError):
        held.queue.close(timeout=0.001)
    assert not held.queue.closed
    held.let_go()
    held.queue.close()
    assert held.queue.closed


def test_a_close_that_fails_closes_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fifoq.sync.open_store(tmp_path / "store")
    closes = store._store.close

    async def close(timeout: float | None = None) -> None:
        await closes(timeout)
        raise fifoq.DurabilityError("the sync failed")

    monkeypatch.setattr(store._store, "close", close)
    with pytest.raises(fifoq.DurabilityError):
        store.close()
    assert store.closed
    store.close()


def test_a_size_asked_for_while_the_store_closes_is_told(
    queue: fifoq.sync.Queue[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.put(b"a")

    def closed_meanwhile(_: object) -> int:
        raise fifoq.QueueClosed("closed")

    monkeypatch.setattr(queue._thread, "call", closed_meanwhile)
    assert len(queue) == 1


def test_a_call_that_never_ends_is_cancelled_by_the_stop(tmp_path: Path) -> None:
    thread = loopthread.LoopThread("test")
    started = threading.Event()

    async def forever() -> None:
        started.set()
        await asyncio.get_running_loop().create_future()

    caller = Background(lambda: thread.run(forever))
    assert started.wait(PATIENCE_SECONDS)
    thread.stop()
    thread.stop()
    with pytest.raises(fifoq.QueueClosed, match="closed meanwhile"):
        caller.result()


def test_a_call_on_the_loops_own_thread_is_refused(queue: fifoq.sync.Queue[bytes]) -> None:
    with pytest.raises(fifoq.WrongLoop, match="would wait for itself for ever"):
        queue._thread.call(lambda: queue.put(b"a"))
    assert queue.empty()


# Interrupts.


class Interrupted(threading.Event):
    """An event whose first wait is interrupted, once `when` has passed."""

    def __init__(self, when: Callable[[], object]) -> None:
        super().__init__()
        self._when: Callable[[], object] | None = when

    def wait(self, timeout: float | None = None) -> bool:
        if self._when is not None:
            when, self._when = self._when, None
            when()
            raise KeyboardInterrupt
        return super().wait(timeout)


def interrupt_next(monkeypatch: pytest.MonkeyPatch, when: Callable[[], object]) -> None:
    """Let Ctrl-C come while the next call of this thread waits, after `when` has returned."""
    real = loopthread._Call
    this, armed = threading.current_thread(), [True]

    class Call(real):  # type: ignore[valid-type, misc]
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            if threading.current_thread() is this and armed:
                armed.clear()
                self.ended = Interrupted(lambda: when())

    monkeypatch.setattr(loopthread, "_Call", Call)


def elsewhere(function: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: Background(function).result()


def test_ctrl_c_in_a_take_that_waits_leaves_nobody_waiting(
    queue: fifoq.sync.Queue[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = elsewhere(lambda: wait_until(queue, lambda: waiting_takers(queue)))
    interrupt_next(monkeypatch, waits)
    with pytest.raises(KeyboardInterrupt):
        queue.take()
    assert waiting_takers(queue) == 0
    queue.put(b"a")
    assert queue.take() == b"a"


def test_ctrl_c_while_the_removal_is_written_leaves_the_record(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    held.queue.put_many([b"a", b"b"])
    held.hold()
    interrupt_next(monkeypatch, lambda: held.job_waits.wait(PATIENCE_SECONDS))
    with pytest.raises(KeyboardInterrupt):
        held.queue.take()
    held.let_go()
    # It comes back with the next frame.
    wait_until(held.queue, lambda: len(held.queue._queue) == 2)
    assert held.queue.take() == b"a"
    assert held.queue.take() == b"b"


@pytest.mark.parametrize("call", ["take", "take_nowait", "take_many"])
def test_ctrl_c_right_after_a_take_succeeded_puts_the_record_back_at_its_place(
    queue: fifoq.sync.Queue[bytes], monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    queue.put(b"a", headers={"k": "v"})
    queue.put(b"b")
    taken = elsewhere(lambda: wait_until(queue, lambda: queue._queue.counts()[1]))
    if call != "take_nowait":
        taken = elsewhere(lambda: wait_until(queue, lambda: not queue._queue.claims and ended()))
    calls: list[Any] = []

    def ended() -> bool:
        return bool(calls[0]._value)

    real_begin = loopthread._Call.begin

    def begin(self: Any) -> None:
        calls.append(self)
        real_begin(self)

    monkeypatch.setattr(loopthread._Call, "begin", begin)
    interrupt_next(monkeypatch, taken)
    with pytest.raises(KeyboardInterrupt):
        {"take_many": lambda: queue.take_many(1)}.get(call, getattr(queue, call))()
    with queue.lease() as delivery:
        assert (delivery.item, delivery.key.counter, delivery.headers) == (b"a", 1, {"k": "v"})
    assert queue.take() == b"b"
    assert queue.empty()


def test_ctrl_c_right_after_a_lease_gives_the_record_back(
    queue: fifoq.sync.Queue[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.put(b"a")
    leased = elsewhere(lambda: wait_until(queue, lambda: queue._queue.leasing.count))
    interrupt_next(monkeypatch, leased)
    with pytest.raises(KeyboardInterrupt):
        queue.lease()
    assert queue.stats().leased == 0
    assert queue.take() == b"a"


def test_ctrl_c_right_after_a_lease_of_a_cursor_lets_the_next_one_have_the_record(
    queue: fifoq.sync.Queue[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for its backoff, as after an attempt that failed."""
    queue.configure(retry_backoff=3600.0, retry_backoff_max=3600.0)
    queue.put(b"a")
    cursor = queue.cursor("reader")
    out = cursor._cursor._reading.records.out
    interrupt_next(monkeypatch, elsewhere(lambda: wait_until(queue, lambda: out)))
    with pytest.raises(KeyboardInterrupt):
        cursor.lease()
    assert cursor.lease(timeout=PATIENCE_SECONDS).item == b"a"


@pytest.mark.parametrize("late", [False, True])
def test_ctrl_c_while_a_store_is_opened_lets_it_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    opened = threading.Event()
    real_end = loopthread._Call._end

    def end(self: Any, *arguments: Any) -> None:
        real_end(self, *arguments)
        opened.set()

    monkeypatch.setattr(loopthread._Call, "_end", end)
    interrupt_next(monkeypatch, lambda: late and opened.wait(PATIENCE_SECONDS))
    with pytest.raises(KeyboardInterrupt):
        fifoq.sync.open(tmp_path / "store")
    with fifoq.sync.open(tmp_path / "store") as queue:
        queue.put(b"a")


def test_ctrl_c_before_a_call_was_sent_sends_it_never(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = loopthread.LoopThread("test")
    loop, called = thread._loop, []

    class Loop:
        def call_soon_threadsafe(self, callback: Any) -> None:
            if callback.__name__ == "begin":
                raise KeyboardInterrupt
            loop.call_soon_threadsafe(callback)

    monkeypatch.setattr(thread, "_loop", Loop())
    with pytest.raises(KeyboardInterrupt):
        thread.call(lambda: called.append(1))
    monkeypatch.setattr(thread, "_loop", loop)
    thread.stop()
    assert called == []


def test_ctrl_c_while_the_thread_stops_waits_for_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = loopthread.LoopThread("test")
    interrupt_next(monkeypatch, elsewhere(thread.stop))

    async def forever() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(KeyboardInterrupt):
        thread.run(forever)
    assert not thread._thread.is_alive()


def test_an_undo_that_fails_is_logged_and_the_caller_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    thread = loopthread.LoopThread("test")
    done = threading.Event()

    async def undo(_: object) -> None:
        raise fifoq.QueueClosed("too late")

    interrupt_next(monkeypatch, lambda: done.wait(PATIENCE_SECONDS))
    with caplog.at_level(logging.ERROR), pytest.raises(KeyboardInterrupt):
        thread.call(done.set, undo)
    thread.stop()
    assert "an interrupted call could not be undone" in caplog.text


def test_a_timeout_while_the_removal_is_written_never_loses_the_record(held: Held) -> None:
    held.queue.put(b"a")
    held.hold()
    with pytest.raises(TimeoutError):
        held.queue.take(timeout=0.001)
    held.let_go()
    assert held.queue.take() == b"a"


@pytest.mark.parametrize("durability", ["memory", "sync"])
def test_timeouts_that_race_with_puts_lose_nothing(tmp_path: Path, durability: Any) -> None:
    with fifoq.sync.open(tmp_path / "store", durability=durability) as queue:
        putter = Background(lambda: [queue.put(b"%d" % number) for number in range(200)])
        taken: list[bytes] = []
        for turn in itertools.count():
            try:
                taken.append(queue.take(timeout=0.0002 * (turn % 16)))
            except TimeoutError:
                continue
            if len(taken) == 200:
                break
        putter.result()
        # One whose removal was being written comes back with the next frame, perhaps after others.
        assert sorted(taken, key=int) == [b"%d" % number for number in range(200)]
        assert queue.empty()


SCRIPT = """
import sys, threading, fifoq.sync
queue = fifoq.sync.open(sys.argv[1], durability="memory", flush_interval=3600)
"""


def run(path: Path, body: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT + body, str(path)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False, **options
    )


def test_a_real_ctrl_c_ends_a_take_and_leaves_the_queue_usable(tmp_path: Path) -> None:
    body = """
try:
    print("ready", flush=True)
    queue.take()
except KeyboardInterrupt:
    queue.put(b"a")
    print(queue.take(), flush=True)
queue.close()
"""
    command = [sys.executable, "-c", SCRIPT + body, str(tmp_path / "store")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "b'a'\n"
        assert child.wait(PATIENCE_SECONDS) == 0


def test_a_ctrl_c_that_wakes_nobody_ends_a_take_all_the_same(tmp_path: Path) -> None:
    """As one that comes while the interpreter goes to another thread: 2 in 100 hung, under load."""
    body = """
import signal

def to_this_thread():
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Timer(0.2, to_this_thread).start()
try:
    queue.take()
except KeyboardInterrupt:
    queue.put(b"a")
    print(queue.take(), flush=True)
queue.close()
"""
    done = run(tmp_path / "store", body)
    assert (done.returncode, done.stdout) == (0, "b'a'\n")


# Forks and the end of the interpreter.


def in_child(function: Callable[[], object]) -> int:
    """The exit status of a child that only calls the function."""
    child = os.fork()
    if not child:
        status = 1
        try:
            function()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_the_child_of_a_fork_is_refused_and_the_parent_goes_on(
    queue: fifoq.sync.Queue[bytes],
) -> None:
    queue.put(b"a")

    def use_it() -> None:
        for call in (queue.take, queue.take_nowait, queue.stats, lambda: len(queue)):
            with pytest.raises(fifoq.ForkError):
                call()
        queue.close()

    assert in_child(use_it) == 0
    assert queue.take() == b"a"


def test_the_child_of_a_fork_is_refused_also_while_the_lock_is_held(
    queue: fifoq.sync.Queue[bytes],
) -> None:
    def use_it() -> None:
        with pytest.raises(fifoq.ForkError):
            queue.take()

    with queue._thread._lock:
        assert in_child(use_it) == 0


def test_another_process_is_known_by_its_number(
    queue: fifoq.sync.Queue[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(fifoq.ForkError, match="Open it in one process, after forking"):
            queue.put(b"a")
        queue.close()
    assert not queue.closed


def test_what_was_put_in_memory_is_written_when_the_interpreter_ends(tmp_path: Path) -> None:
    ended = run(tmp_path / "store", "queue.put(b'a')\n")
    assert (ended.returncode, ended.stderr) == (0, "")
    with fifoq.sync.open(tmp_path / "store") as queue:
        assert queue.take_many(10) == [b"a"]


def test_the_interpreter_ends_while_threads_wait_in_a_queue(tmp_path: Path) -> None:
    body = """
queue.put(b'a'); queue.take()
threading.Thread(target=queue.take, daemon=True, name="waits").start()
while not queue._thread.call(lambda: len(queue._queue._takers)): pass
threading.excepthook = lambda _: None
"""
    ended = run(tmp_path / "store", body)
    assert ended.returncode == 0


def test_a_child_of_a_fork_may_end_without_touching_the_parents_store(tmp_path: Path) -> None:
    body = """
import os
queue.put(b'a')
child = os.fork()
if not child: sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(queue.take())
"""
    ended = run(tmp_path / "store", body)
    assert (ended.returncode, ended.stdout) == (0, "b'a'\n")


def test_a_disk_that_hangs_does_not_keep_the_interpreter_from_ending(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fifoq.sync.store.EXIT_SECONDS", 0.001)
    held.hold()
    held.queue.put_nowait(b"a")
    close_at_exit()
    assert not held.queue.closed
    held.let_go()
    monkeypatch.undo()
    close_at_exit()
    assert held.queue.closed


def test_fifoq_does_not_import_the_threads_before_they_are_wanted() -> None:
    code = "import sys, fifoq; sys.exit('fifoq.sync' in sys.modules or 'uvloop' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_transaction_is_committed_or_rolled_back(tmp_path: Path) -> None:
    with fifoq.sync.open_store(tmp_path / "store") as store:
        orders, bills = store.queue("orders"), store.queue("bills")
        orders.put_many([b"a", b"b", b"c"])
        with store.transaction() as tx:
            delivery = tx.lease(orders)
            tx.put(bills, delivery.item)
            tx.ack(delivery)
            tx.nack(orders.lease())
            assert tx.take(orders) == b"c"
            assert "puts=1 acks=2 open" in repr(tx)
        assert [key.counter for key in tx.keys] == [1]

        def fail() -> None:
            with store.transaction() as tx:
                tx.put(bills, tx.take(orders))
                raise KeyError

        with pytest.raises(KeyError):
            fail()
        assert (len(orders), len(bills)) == (1, 1)
        assert orders.take() == b"b"


def test_dead_letters_are_replayed_and_purged(tmp_path: Path) -> None:
    with fifoq.sync.open_store(tmp_path / "store") as store:
        orders = store.queue("orders")
        for item in (b"a", b"b", b"c"):
            orders.put(item)
            orders.lease().reject("bad", error=ValueError("worse"))
        letters = store.dead_letters("orders")
        assert (len(letters), letters.name) == (3, "orders")
        assert repr(letters) == "<sync.DeadLetters of 'orders' 3>"
        assert [letter.payload for letter in letters.list(start=2)] == [b"b", b"c"]
        found = letters.get(1)
        assert found is not None
        assert (found.reason, found.error_type) == ("bad", "ValueError")
        assert letters.replay(2) == 1
        assert letters.purge(dry_run=True) == 2
        assert letters.purge() == 2
        with store.transaction() as tx:
            tx.reject(tx.lease(orders), "bad again")
        assert len(letters) == 1
