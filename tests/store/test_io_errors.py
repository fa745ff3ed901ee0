"""Every call to the disk fails in turn, with every error, once and for ever (T3).

One reference run takes the store through everything it does. For each call of it the run is made
again with that call failing. Measured against RELIABILITY C7 and C8: what was confirmed is there,
what was refused is not, only errors of ours come out, and after a failed sync the disk is left
alone until somebody opens the store anew.
"""

from __future__ import annotations

import errno
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from random import Random
from typing import Literal

import pytest

from fifoq.testing.crashes import after_process_crash, crash_points, image_after
from fifoq.testing.disk import SyncFailure
from fifoq.testing.image import Image
from fifoq.testing.pending import ABSENT, done, random_outcome
from fifoq.testing.simfiles import SimFiles
from store import (
    AccessError,
    DiskFull,
    DurabilityError,
    FifoqError,
    Log,
    LogOptions,
    Status,
    StoreFailed,
    open_log,
)
from store.blocks import ACKED, records_weight
from tests.support.clock import ManualClock
from tests.support.faulty import ERRORS, Fault, FaultyFiles
from tests.support.figures import record
from tests.support.ledger import Change, Contents, Ledger, contents_of

PATH = "/data/store"
OPTIONS = LogOptions(fill_bytes=512, reserve_bytes=512, checkpoint_bytes=4096)
SYNCS = ("datasync", "sync_dir")
HARMLESS = {"close", "pread", "size", "open", "list_dir"}
GOES_ON = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENOMEM}


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of runs warn of thousands of things."""
    monkeypatch.setattr(logging.getLogger("store"), "disabled", True)


class Over(Exception):
    """The run can not go on: the log has failed, or the store does not open."""


class WatchedFiles(FaultyFiles):
    """Notes which call was struck first, and where in the disk's log the first failed sync is."""

    def __init__(self, disk: SimFiles, *faults: Fault) -> None:
        super().__init__(disk, *faults)
        self.disk = disk
        self.struck: str | None = None
        self.sync_failed_at: int | None = None

    def _hit(self, name: str) -> Fault | None:
        fault = super()._hit(name)
        if fault is not None and fault.error != "short":
            self.struck = self.struck or name
            if name in SYNCS and self.sync_failed_at is None:
                assert self.disk.op_log is not None
                self.sync_failed_at = len(self.disk.op_log) + (name == "datasync")
        return fault

    def heal(self) -> None:
        self.faults = ()


class Run:
    """A store under test, and the ledger of what it has promised."""

    def __init__(self, *faults: Fault, disk: SimFiles | None = None) -> None:
        self.disk = SimFiles() if disk is None else disk
        self.disk.op_log = []
        self.files = WatchedFiles(self.disk, *faults)
        self.clock = ManualClock()
        self.ledger = Ledger()
        self.log: Log | None = None
        self.refusals: Counter[str] = Counter()
        self.under_way: Change | None = None
        self.failed = False

    # Opening and closing.

    def open(self) -> None:
        """Open the store, with one more try if that fails."""
        try:
            self._open()
        except FifoqError:
            self._open_failed()
            try:
                self._open()
            except FifoqError as error:
                self._open_failed()
                raise Over from error

    def _open(self) -> None:
        with self._counting_errors():
            self.log = open_log(PATH, files=self.files, clock=self.clock, options=OPTIONS)
            found = contents_of(self.log)
        self.ledger.check(found)
        self.ledger.found(found)

    def _open_failed(self) -> None:
        if self.log is not None:
            # It was opened, and reading it failed.
            with suppress(FifoqError):
                self.log.close()
            self.log = None
        assert not self.disk._handles, "a failed open left handles open"
        self._check_silence()
        self.files.sync_failed_at = None

    def close(self) -> None:
        assert self.log is not None
        try:
            with self._counting_errors():
                self.log.close()
            self.ledger.sure()
        except FifoqError:
            self.ledger.doubted()
        assert self.log.status is Status.CLOSED
        assert not self.disk._handles, "close left handles open"
        self.log = None
        self._check_silence()
        self.files.sync_failed_at = None

    def crash(self) -> None:
        """End the process; the page cache stays."""
        self.log = None
        self.disk.process_crash()

    # Work.

    def put(self, name: str, *payloads: bytes, sync: bool = True) -> None:
        log = self._log
        first = log.queue(name).genesis.next_counter
        counters = range(first, first + len(payloads))
        self._commit(
            lambda: log.put(name, list(payloads), sync=sync),
            lambda contents: contents.put(name, counters, list(payloads)),
            sync,
        )

    def take(self, name: str, count: int, sync: bool = True) -> None:
        log = self._log
        self.remove(name, list(self._records(name))[:count], sync, lambda: log.take(name, count))

    def ack(self, name: str, *indexes: int, sync: bool = True) -> None:
        """Remove records by their places in the queue."""
        log = self._log
        records = self._records(name)
        counters = [c for index, c in enumerate(records) if index in indexes]
        if not counters:
            return
        draft = log.draft()
        ranges = [(c, c, records_weight(len(records[c]), 1)) for c in counters]
        draft.remove(log.queue(name), ranges, reason=ACKED)
        self.remove(name, counters, sync, lambda: log.commit(draft, sync=sync))

    def remove(
        self, name: str, counters: list[int], sync: bool, call: Callable[[], object]
    ) -> None:
        if counters:
            self._commit(call, lambda contents: contents.remove(name, counters), sync)

    def restore(self, name: str, sync: bool = True) -> None:
        """Take the head, then put it back at its place."""
        log = self._log
        head = next(iter(self._records(name).items()), None)
        self.take(name, 1)
        if head is None or head[0] in self._records(name):
            return
        counter, payload = head
        draft = log.draft()
        draft.move(log.queue(name), [counter], [self.clock.wall()], [payload])
        self._commit(
            lambda: log.commit(draft, sync=sync),
            lambda contents: contents.restore(name, counter, payload),
            sync,
        )

    def lease(self, name: str, count: int, attempt: int, sync: bool = False) -> None:
        log = self._log
        counters = list(self._records(name))[:count]
        if not counters:
            return
        draft = log.draft()
        draft.lease(log.queue(name), counters, [attempt] * len(counters), deadline=9)

        def change(contents: Contents) -> None:
            contents.queues[name].attempts.update(dict.fromkeys(counters, attempt))

        self._commit(lambda: log.commit(draft, sync=sync), change, sync)

    def set_states(self, *entries: tuple[str, bytes | None], sync: bool = True) -> None:
        log = self._log
        draft = log.draft()
        draft.set_states(list(entries))
        self._commit(
            lambda: log.commit(draft, sync=sync),
            lambda contents: contents.set_states(list(entries)),
            sync,
        )

    def configure(self, name: str, configuration: bytes) -> None:
        log = self._log
        if name not in self.ledger.newest.queues:
            return
        draft = log.draft()
        draft.configure(log.queue(name), configuration)

        def change(contents: Contents) -> None:
            contents.queues[name].configuration = configuration

        self._commit(lambda: log.commit(draft), change, True)

    def upkeep(self, call: Callable[[Log], object], *, makes_durable: bool = False) -> None:
        """Something that changes no contents."""
        log = self._log
        self._commit(lambda: call(log), None, makes_durable)

    def _commit(self, call: Callable[[], object], change: Change | None, sync: bool) -> None:
        log = self._log
        self.under_way = change
        try:
            with self._counting_errors():
                call()
        except (DiskFull, AccessError):
            assert log.status is Status.OPEN
            return
        except DurabilityError:
            assert log.status is Status.FAILED
            self.ledger.doubted(change)
            raise Over from None
        finally:
            self.under_way = None
        if change is not None:
            self.ledger.committed(change, durable=sync)
        elif sync:
            self.ledger.sure()
        if log.status is Status.FAILED:
            # Upkeep after the commit failed; the commit itself was confirmed.
            self.ledger.doubted()
            raise Over

    @property
    def _log(self) -> Log:
        assert self.log is not None
        return self.log

    def _records(self, name: str) -> dict[int, bytes]:
        queue = self.ledger.newest.queues.get(name)
        return {} if queue is None else queue.records

    @contextmanager
    def _counting_errors(self) -> Iterator[None]:
        try:
            yield
        except FifoqError as error:
            self.refusals[type(error).__name__] += 1
            raise

    # Afterwards.

    def check_refusal(self) -> None:
        """A log that failed refuses everything, and touches nothing but its handles."""
        log = self._log
        assert self.disk.op_log is not None
        before = len(self.disk.op_log)
        calls: list[Callable[[], object]] = [
            lambda: log.put("a", [b"late"]),
            lambda: log.take("a"),
            lambda: list(log.read("a")),
            lambda: log.state_of("x"),
            lambda: log.draft(),
            *(log.flush, log.seal, log.rotate, log.checkpoint, log.compact),
        ]
        for call in calls:
            with pytest.raises(StoreFailed):
                call()
        log.close()
        assert {name for name, _ in self.disk.op_log[before:]} <= {"close"}
        assert not self.disk._handles, "closing a failed log left handles open"
        self._check_silence()
        self.log = None

    def _check_silence(self) -> None:
        """From a failed sync on, nothing was written, cut, made or synced."""
        at = self.files.sync_failed_at
        if at is not None:
            assert self.disk.op_log is not None
            later = {name for name, _ in self.disk.op_log[at:]}
            assert later <= HARMLESS, f"after a failed sync: {later - HARMLESS}"


def reference_run(run: Run) -> None:
    """Everything a store does, in 300 to 400 calls to the disk."""
    run.open()
    run.put("a", b"a1", b"a2" * 30, b"a3")
    run.put("b", b"b1" * 200)
    run.configure("a", b'{"max": 5}')
    run.put("a", b"a4", sync=False)
    run.put("b", b"b2", b"b3", sync=False)
    run.set_states(("x", b"1"), ("y", b"2" * 50))
    run.take("a", 2)
    run.lease("b", 2, 1)
    run.upkeep(lambda log: log.flush(), makes_durable=True)
    run.upkeep(lambda log: log.seal())
    run.upkeep(lambda log: log.rotate(), makes_durable=True)
    run.put("a", b"a5" * 300, b"a6")
    run.ack("b", 0, 2)
    run.set_states(("x", b"3"), ("z", b"4"), sync=False)
    run.restore("a")
    run.upkeep(lambda log: log.checkpoint(), makes_durable=True)
    run.upkeep(lambda log: log.rotate(), makes_durable=True)
    run.put("a", b"a7" * 900, sync=False)
    while run.log and run.log.state.segments and _compact(run):
        pass
    run.take("a", 3)
    run.set_states(("y", None))
    run.take("b", 1, sync=True)
    run.upkeep(lambda log: log.rotate(), makes_durable=True)
    run.put("b", *(b"%d" % i * 40 for i in range(9)))
    run.close()
    run.open()
    run.put("a", b"a8", b"a9")
    run.take("a", 2)
    run.put("b", b"b9" * 700, sync=False)
    run.crash()
    run.open()
    run.put("a", b"a10")
    run.take("b", 4)
    run.close()


def _compact(run: Run) -> bool:
    more = False

    def step(log: Log) -> None:
        nonlocal more
        more = log.compact(300)

    run.upkeep(step)
    return more


def go(run: Run, scenario: Callable[[Run], None] = reference_run) -> None:
    """Run to the end, or to where it can not go on; then hold the store to what it promised."""
    try:
        scenario(run)
    except Over:
        if run.log is not None:
            run.failed = True
            run.check_refusal()
    run.files.heal()
    for image in some_power_images(run.disk):
        reopen(SimFiles.from_image(image), run.ledger, power_lost=True)
    reopen(after_process_crash(run.disk), run.ledger)


def some_power_images(disk: SimFiles) -> Iterator[Image]:
    """Nothing pending survives, all of it does, and one draw."""
    if not disk.disk.pending:
        yield disk.disk.image()
        return
    yield image_after(disk, lambda operation: ABSENT)
    yield image_after(disk, done)
    random = Random(disk.op_count)
    yield image_after(disk, partial(random_outcome, random=random))


def reopen(disk: SimFiles, ledger: Ledger, *, power_lost: bool = False) -> None:
    """Open, compare, work, close, open again: same contents, and the work is there."""
    with open_log(PATH, files=disk, clock=ManualClock(), options=OPTIONS) as log:
        found = contents_of(log)
        ledger.check(found, power_lost=power_lost)
        counters = log.put("a", [b"after"])
        found.put("a", counters, [b"after"])
        taken = log.take("b", 1)
        found.remove("b", [key.counter for key, _ in taken]) if taken else None
    with open_log(PATH, files=disk, clock=ManualClock(), options=OPTIONS) as log:
        assert contents_of(log) == found
    assert not disk._handles


def calls_of(scenario: Callable[[Run], None]) -> list[str]:
    """The names of all calls that a run without faults makes."""
    run = Run()
    names: list[str] = []

    def note(index: int, name: str, args: tuple[object, ...]) -> None:
        names.append(name)

    run.disk.before_op = note
    scenario(run)
    return names


def error_name(error: int | Literal["short"]) -> str:
    return error if error == "short" else errno.errorcode[error]


def faults_at(call: int, name: str, error: int | Literal["short"]) -> Iterator[Fault]:
    """The ways in which one call fails with one error."""
    if error == "short" and name not in ("pread", "pwrite"):
        return
    ways = list(SyncFailure)
    if name != "datasync":
        ways = [SyncFailure.LOST]
    elif error != errno.EIO:
        ways = [ways[call % len(ways)]]
    for for_ever in (False, True):
        for way in ways:
            yield Fault(at=call, error=error, for_ever=for_ever, sync_failure=way, seed=call)
    if name == "pwrite" and error != "short":
        yield Fault(at=call, error=error, partial=True, seed=call)


@pytest.mark.parametrize("error", [*ERRORS, "short"], ids=error_name)
def test_every_call_of_the_reference_run_may_fail(error: int | Literal["short"]) -> None:
    """Call by call, once and for ever: nothing confirmed is lost, nothing refused is there."""
    names = calls_of(reference_run)
    assert len(names) >= 150
    outcomes: Counter[str] = Counter()
    for call, name in enumerate(names):
        for fault in faults_at(call, name, error):
            run = Run(fault)
            try:
                go(run)
                check_classes(run, fault)
            except BaseException as failure:
                failure.add_note(f"{name}: {fault}")
                raise
            outcomes["runs"] += 1
            outcomes["failed"] += run.failed
            outcomes.update(run.refusals)
    record("io_errors", error=error_name(error), calls=len(names), **outcomes)


def check_classes(run: Run, fault: Fault) -> None:
    """C7 and C8: which error leads to what, where a single call failed."""
    raised = set(run.refusals)
    if fault.error == "short":
        assert not raised
        assert not run.failed
    elif fault.for_ever:
        # What follows the first failed call fails as well, so anything of ours may come out.
        return
    elif run.files.struck in SYNCS:
        assert raised <= {"DurabilityError"}
        assert raised or run.failed
    elif fault.error in GOES_ON:
        assert not run.failed
        assert raised <= {"DiskFull", "AccessError"}
        if fault.error in (errno.EMFILE, errno.ENOMEM):
            assert raised <= {"AccessError"}
    elif run.files.struck in ("pwrite", "truncate"):
        assert run.failed or raised


def small_run(run: Run) -> None:
    """A store is made, used, closed, opened and used again, in about 60 calls."""
    run.open()
    run.put("a", b"a1", b"a2" * 300)
    run.put("b", b"b1", sync=False)
    run.take("a", 1)
    run.upkeep(lambda log: log.rotate(), makes_durable=True)
    run.put("a", b"a3", sync=False)
    run.set_states(("x", b"1"))
    run.take("b", 1)
    run.close()


def check_failing_recoveries(*, step: int) -> Counter[str]:
    """Crash at each `step`-th state of the small run; then let each `step`-th call of opening fail.

    Whether that open succeeds or not, one without faults finds what was promised.
    """
    counts: Counter[str] = Counter()
    run = Run()

    def visit(index: int, disk: SimFiles) -> None:
        if index % step:
            return
        ledger = run.ledger.at_crash(run.under_way)
        counts["crash states"] += 1
        found = [(after_process_crash(disk), ledger)]
        lenient = Ledger()
        lenient.possible = [*run.ledger.possible, *ledger.possible]
        lenient.doubtful = True
        found += [(SimFiles.from_image(image), lenient) for image in some_power_images(disk)]
        for start, promised in found:
            counts["failed opens"] += fail_each_call_of_opening(start, promised, index % step, step)

    crash_points(lambda disk: small_run(run), visit, files=run.disk)
    return counts


def fail_each_call_of_opening(disk: SimFiles, ledger: Ledger, first: int, step: int) -> int:
    """Returns how many opens were tried."""
    count = 0
    for error in (errno.EIO, errno.ENOSPC, errno.EMFILE):
        for for_ever in (False, True):
            call = first
            while open_with(disk.copy(), ledger, Fault(at=call, error=error, for_ever=for_ever)):
                call += step
                count += 1
    return count


def open_with(disk: SimFiles, ledger: Ledger, fault: Fault) -> bool:
    """Open with a fault, crash, open without; returns whether the fault was met."""
    disk.op_log = []
    files = WatchedFiles(disk, fault)
    promised = ledger
    try:
        log = open_log(PATH, files=files, clock=ManualClock(), options=OPTIONS)
    except FifoqError as error:
        assert not disk._handles, "a failed open left handles open"
        if isinstance(error, DurabilityError):
            promised = Ledger()
            promised.possible, promised.doubtful = ledger.possible, True
    else:
        files.heal()
        found = contents_of(log)
        ledger.check(found)
        promised = Ledger()
        promised.found(found)
    try:
        reopen(after_process_crash(disk), promised)
    except BaseException as failure:
        failure.add_note(f"{files.struck}: {fault}")
        raise
    return files.fired > 0


def test_opening_after_a_crash_may_fail_at_any_call() -> None:
    """A sample of the pairs: crash at state j, then fail call k of the recovery."""
    counts = check_failing_recoveries(step=7)
    record("io_errors_in_recovery", **counts)


@pytest.mark.deep
def test_opening_after_any_crash_may_fail_at_any_call() -> None:
    """Every pair: crash at state j, then fail call k of the recovery."""
    counts = check_failing_recoveries(step=1)
    record("io_errors_in_every_recovery", **counts)
