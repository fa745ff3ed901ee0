"""Memory runs out at every allocation of every core call in turn (T4).

A child process does it, on real files: `_testcapi.set_nomemory` can bring the interpreter itself
down, and a simulated disk would run out of memory too. Afterwards the log is either usable and
holds what it must, or it has failed and the store is right when it is opened anew (C8).
"""

from __future__ import annotations

import gc
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from store import FifoqError, Log, LogOptions, Status, StoreFailed, open_log
from store.blocks import ACKED, records_weight
from store.reader import Reader
from tests.support.clock import ManualClock
from tests.support.figures import record
from tests.support.ledger import Contents, contents_of

_testcapi = pytest.importorskip("_testcapi")

OPTIONS = LogOptions(fill_bytes=512, reserve_bytes=512, checkpoint_bytes=2048)
CLEAN_RUNS: Final = 25
"""A call is done when so many attempts in a row end well."""
EVERY_UPTO: Final = 100
"""Up to here each allocation fails in the suite; behind it the steps grow."""
LONG_BURST: Final = 100
"""Allocations that fail one after the other. If all did for ever, Python 3.11 would loop for ever:
it needs memory to enter an exception handler, and goes to that handler when there is none."""
OUTCOMES: Final = ("done", "refused", "failed", "interpreter failed")


class Operation(NamedTuple):
    """A call, the store it starts from, and what it changes."""

    template: str
    call: Callable[[Path, Log | None], object]
    change: Callable[[Contents], None] = lambda contents: None


def _log_call(
    call: Callable[[Log], object], change: Callable[[Contents], None] = lambda contents: None
) -> Operation:
    def run(path: Path, log: Log | None) -> object:
        assert log is not None
        return call(log)

    return Operation("closed", run, change)


def _commit(log: Log) -> object:
    draft = log.draft()
    draft.put(log.queue("a"), [b"in a", b"draft"])
    draft.remove(log.queue("b"), [(3, 3, records_weight(6, 1))], reason=ACKED)
    draft.lease(log.queue("b"), [4], [2], deadline=5)
    draft.set_states([("x", b"new"), ("y", None)])
    return log.commit(draft)


def _commit_change(contents: Contents) -> None:
    contents.put("a", range(5, 7), [b"in a", b"draft"])
    contents.remove("b", [3])
    contents.queues["b"].attempts[4] = 2
    contents.set_states([("x", b"new"), ("y", None)])


def _put_and_seal(log: Log) -> None:
    log.put("a", [b"one"])
    log.seal()


def _open(path: Path, log: Log | None) -> object:
    return open_log(str(path), clock=ManualClock(), options=OPTIONS)


def _read(path: Path, log: Log | None) -> object:
    with Reader(str(path), clock=ManualClock()) as reader:
        return [block.payloads() for block in reader.blocks("b")]


OPERATIONS: Final = {
    "put": _log_call(
        lambda log: log.put("a", [b"one", b"two"]),
        lambda contents: contents.put("a", range(5, 7), [b"one", b"two"]),
    ),
    "put unsynced": _log_call(
        lambda log: log.put("new", [b"one"], sync=False),
        lambda contents: contents.put("new", range(1, 2), [b"one"]),
    ),
    "take": _log_call(lambda log: log.take("b", 2), lambda contents: contents.remove("b", [3, 4])),
    "commit": _log_call(_commit, _commit_change),
    "take the last of a segment": _log_call(
        lambda log: log.take("b", 5), lambda contents: contents.remove("b", [3, 4, 5, 6, 7])
    ),
    "read": _log_call(lambda log: contents_of(log)),
    "put and seal": _log_call(
        _put_and_seal,
        lambda contents: contents.put("a", range(5, 6), [b"one"]),
    ),
    "rotate": _log_call(lambda log: log.rotate()),
    "checkpoint": _log_call(lambda log: log.checkpoint()),
    "compact": _log_call(lambda log: log.compact(400)),
    "close": _log_call(lambda log: log.close()),
    "open": Operation("closed", _open),
    "open after a crash": Operation("crashed", _open),
    "open a new store": Operation("none", _open),
    "reader": Operation("crashed", _read),
}


# In the child.


def make_templates(directory: Path) -> None:
    """Two stores to start from, with the same contents."""
    make_template(directory / "closed").close()
    make_template(directory / "crashed").release()


def make_template(path: Path) -> Log:
    log = open_log(str(path), clock=ManualClock(), options=OPTIONS)
    log.put("a", [b"a%d" % i for i in range(4)])
    log.put("b", [b"b%d" % i * 200 for i in range(2)])
    log.rotate()
    log.put("b", [b"b%d" % i * 3 for i in range(5)])
    draft = log.draft()
    draft.set_states([("x", b"1"), ("y", b"2")])
    log.commit(draft)
    log.take("b", 2)
    for _ in range(300):
        # So that sequences are numbers for which Python needs memory.
        draft = log.draft()
        draft.touch(log.queue("a"))
        log.commit(draft, sync=False)
    log.rotate()
    log.take("a", 2, sync=False)
    return log


def run_child(directory: Path, name: str, every: bool, burst: int) -> Counter[str]:
    """Fail allocation after allocation, until the call no longer notices."""
    logging.getLogger("store").disabled = True
    make_templates(directory)
    operation = OPERATIONS[name]
    work = directory / "work"
    counts: Counter[str] = Counter()
    allocation = clean = 0
    while clean < CLEAN_RUNS:
        shutil.rmtree(work, ignore_errors=True)
        if operation.template != "none":
            shutil.copytree(directory / operation.template, work)
        outcome = attempt_in_fork(operation, work, allocation, burst)
        counts[outcome] += 1
        clean = clean + 1 if outcome == "done" else 0
        allocation += 1 if every or allocation < EVERY_UPTO else 1 + allocation // 25
    counts["last"] = allocation
    return counts


def attempt_in_fork(operation: Operation, work: Path, allocation: int, burst: int) -> str:
    """One attempt in a process of its own, which may die of it: then the store must be right."""
    process = os.fork()
    if process == 0:
        code = len(OUTCOMES)
        try:
            code = OUTCOMES.index(attempt(operation, work, allocation, burst))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status):
        if operation.template != "none":
            check_reopened(work, list(expected(operation)))
        return "interpreter crashed"
    code = os.WEXITSTATUS(status)
    assert code < len(OUTCOMES), f"allocation {allocation}"
    return OUTCOMES[code]


def attempt(operation: Operation, work: Path, allocation: int, burst: int) -> str:
    """One call with one allocation failing; returns how it ended."""
    before, after = expected(operation)
    log: Log | None = None
    if operation.template == "closed" and operation.call is not _open:
        log = open_log(str(work), clock=ManualClock(), options=OPTIONS)
    handles = len(os.listdir("/proc/self/fd"))
    result, error = starve(operation.call, work, log, allocation, burst)
    if error is SystemError:
        # Some C code forgot to say that memory ran out.
        return "interpreter failed"
    assert error is None or issubclass(error, MemoryError | FifoqError), error
    if isinstance(result, Log):
        log = result
    elif log is None and burst == 1:
        # While nothing can be allocated, not every handle can be found to be closed.
        assert len(os.listdir("/proc/self/fd")) == handles, "handles were left open"
    allowed = [after] if error is None else [before, after]
    if log is not None and log.status is Status.OPEN:
        live = contents_of(log)
        assert live in allowed, f"{live} is not in {allowed}"
        counters = log.put("a", [b"more"])
        live.put("a", counters, [b"more"])
        allowed = [live]
    elif log is not None and log.status is Status.FAILED:
        try:
            log.put("a", [b"more"])
        except StoreFailed:
            pass
        else:
            raise AssertionError("a failed log took a put")
    outcome = "done" if error is None else "refused"
    if log is not None:
        outcome = "failed" if log.status is Status.FAILED else outcome
        log.release()
    check_reopened(work, allowed)
    return outcome


def starve(
    call: Callable[[Path, Log | None], object],
    work: Path,
    log: Log | None,
    allocation: int,
    burst: int,
) -> tuple[object, type[BaseException] | None]:
    """What the call returned, or the class of what it raised, when so many allocations failed.

    The error itself is dropped: it holds frames, and so what they have not yet closed.
    """
    try:
        _testcapi.set_nomemory(allocation, allocation + burst)
        result = call(work, log)
        _testcapi.remove_mem_hooks()
    except BaseException as error:
        _testcapi.remove_mem_hooks()
        kind = type(error)
    else:
        return result, None
    gc.collect()
    return None, kind


def expected(operation: Operation) -> tuple[Contents, Contents]:
    before = Contents()
    if operation.template != "none":
        before.put("a", range(1, 5), [b"a%d" % i for i in range(4)])
        before.put("b", range(1, 3), [b"b%d" % i * 200 for i in range(2)])
        before.put("b", range(3, 8), [b"b%d" % i * 3 for i in range(5)])
        before.set_states([("x", b"1"), ("y", b"2")])
        before.remove("b", [1, 2])
        before.remove("a", [1, 2])
    after = before.copy()
    operation.change(after)
    return before, after


def check_reopened(work: Path, allowed: list[Contents]) -> None:
    with open_log(str(work), clock=ManualClock(), options=OPTIONS) as log:
        found = contents_of(log)
    assert found in allowed, f"reopened: {found} is not in {allowed}"


def main(arguments: list[str]) -> None:
    directory, name, every, burst = arguments
    counts = run_child(Path(directory), name, bool(int(every)), int(burst))
    print(json.dumps(counts))


# In the parent.


def starve_in_child(directory: Path, name: str, *, every: bool, burst: int) -> Counter[str]:
    flags = [str(int(every)), str(burst)]
    child = subprocess.run(
        [sys.executable, "-m", __name__, str(directory), name, *flags],
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    return Counter(json.loads(child.stdout))


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where there is one: thousands of stores are made and synced here."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared) as name:
        yield Path(name)


@pytest.mark.parametrize("burst", [1, LONG_BURST])
@pytest.mark.parametrize("name", OPERATIONS)
def test_any_allocation_may_fail(name: str, burst: int, directory: Path) -> None:
    """One allocation, or many in a row. In a row they once hid that the log had failed.

    The mark was an enumeration's member, and looking that up needs memory; a log that should
    have stopped went on, and lost what it confirmed from there.
    """
    counts = starve_in_child(directory, name, every=False, burst=burst)
    assert counts["refused"] + counts["failed"] > 0
    record("memory_errors", operation=name, burst=burst, **counts)


@pytest.mark.deep
@pytest.mark.parametrize("burst", [1, LONG_BURST])
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_allocation_may_fail(name: str, burst: int, directory: Path) -> None:
    counts = starve_in_child(directory, name, every=True, burst=burst)
    assert counts["refused"] + counts["failed"] > 0
    record("memory_errors_all", operation=name, burst=burst, **counts)


if __name__ == "__main__":
    main(sys.argv[1:])
