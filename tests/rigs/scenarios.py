"""Scenes that need a process of their own: `python -m tests.rigs.scenarios NAME DIRECTORY`.

Each one plays on the real files below DIRECTORY and ends with status 0 if all went as promised.
Those that mount something must run in a mount namespace; see `mounts.assert_runs_private`.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from store import (
    AccessError,
    AlreadyOpen,
    DiskFull,
    DurabilityError,
    FifoqError,
    ForkError,
    Log,
    LogOptions,
    Status,
    StoreFailed,
    open_log,
)
from store.blocks import records_weight
from tests.rigs import mounts
from tests.rigs.trees import open_files, snapshot

OPTIONS = LogOptions(
    segment_bytes=64 << 10, checkpoint_bytes=32 << 10, fill_bytes=4 << 10, reserve_bytes=16 << 10
)
PAYLOAD_BYTES = 4000
NOBODY = 65534


def payload(number: int) -> bytes:
    return number.to_bytes(8, "big") * (PAYLOAD_BYTES // 8)


def raises(kind: type[FifoqError], action: Callable[[], object]) -> FifoqError:
    """The error that `action` must raise."""
    try:
        action()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def put_until_full(log: Log, first: int = 0) -> int:
    """Put records until the disk is full; returns how many there are now."""
    number = first
    while True:
        try:
            log.put("orders", [payload(number)])
        except DiskFull:
            return number
        number += 1


def drain(log: Log, count: int) -> None:
    """Take record by record, as a consumer does, and see that each is there and in order."""
    for number in range(count):
        ((_, found),) = log.take("orders")
        assert found == payload(number), number
    assert log.take("orders") == []


def stays_full_and_drains(directory: Path) -> None:
    """Fill the mounted disk with records and a ballast, drain, and go on without a reopen."""
    store = str(directory / "store")
    with open_log(store, options=OPTIONS) as log:
        for number in range(100):
            log.put("orders", [payload(number)])
        ballast = os.open(directory / "ballast", os.O_CREAT | os.O_WRONLY)
        fill(ballast)
        count = put_until_full(log, 100)
        assert log.status is Status.OPEN
        raises(DiskFull, lambda: log.put("orders", [payload(count)]))
        fill(ballast)
        drain(log, count)
        # What the drained segments gave back goes to the ballast: still nothing but the reserve.
        fill(ballast)
        os.close(ballast)
        os.unlink(directory / "ballast")
        log.put("orders", [b"again"])
    with open_log(store, options=OPTIONS) as log:
        assert [found for _, found in log.take("orders", 10)] == [b"again"]


def fill(descriptor: int) -> None:
    """Write until there is no space left, down to the last byte."""
    size = mounts.MIB
    while size:
        try:
            os.write(descriptor, bytes(size))
        except OSError:
            size //= 2


def refills_after_draining(directory: Path) -> None:
    """Fill the disk with records alone; what takes give back is enough to go on."""
    with open_log(str(directory / "store"), options=OPTIONS) as log:
        for _ in range(2):
            count = put_until_full(log)
            assert count > 100, count
            drain(log, count)


def full_tmpfs(directory: Path) -> None:
    mounts.mount_tmpfs(directory, mounts.MIB)
    stays_full_and_drains(directory)
    refills_after_draining(directory)


def acks_in_random_order(directory: Path) -> None:
    """A few thousand records on a disk that is full, acked one by one to the last."""
    mounts.mount_tmpfs(directory, mounts.MIB)
    with open_log(str(directory / "store"), options=OPTIONS) as log:
        counters = list(log.put("orders", [b"small"] * 3000))
        ballast = os.open(directory / "ballast", os.O_CREAT | os.O_WRONLY)
        fill(ballast)
        Random(7).shuffle(counters)
        in_place = 0
        for counter in counters:
            draft, sequence = log.draft(), log.sequence
            draft.remove(log.queue("orders"), [(counter, counter, records_weight(5, 1))])
            log.commit(draft)
            in_place += log.sequence == sequence
        assert in_place > 1000, in_place
        assert log.take("orders") == []
        os.close(ballast)
        os.unlink(directory / "ballast")
        log.put("orders", [b"again"])


def full_ext4(directory: Path) -> None:
    mount_small_ext4(directory)
    stays_full_and_drains(directory / "disk")
    refills_after_draining(directory / "disk")


def mount_small_ext4(directory: Path) -> None:
    mounts.make_image(directory / "image", 4 * mounts.MIB, "ext4", "-m", "0")
    (directory / "disk").mkdir()
    mounts.mount_image(directory / "image", directory / "disk")


def read_only(directory: Path) -> None:
    """A disk that is mounted, or mounted again, read-only: refused clearly, nothing changed."""
    mount_small_ext4(directory)
    disk = directory / "disk"
    store = str(disk / "store")
    with open_log(store, options=OPTIONS) as log:
        log.put("orders", [payload(0)])
    before = snapshot(disk)
    mounts.remount(disk, "ro")
    refuses(store)
    refuses(str(disk / "another"))
    mounts.unmount(disk)
    mounts.mount_image(directory / "image", disk, "ro")
    refuses(store)
    mounts.unmount(disk)
    mounts.mount_image(directory / "image", disk)
    assert snapshot(disk) == before
    with open_log(store, options=OPTIONS) as log:
        drain(log, 1)


def refuses(path: str) -> None:
    """Opening says which path the system refuses, and leaks nothing."""
    count = len(open_files())
    error = raises(AccessError, lambda: open_log(path, options=OPTIONS))
    assert path in str(error), error
    assert "Read-only file system" in str(error), error
    assert len(open_files()) == count


def vanished_disk(directory: Path) -> None:
    """The disk goes away under its owner: outcome unknown, then stopped; all there on return."""
    mount_small_ext4(directory)
    disk = directory / "disk"
    log = open_log(str(disk / "store"), options=OPTIONS)
    for number in range(20):
        log.put("orders", [payload(number)])
    mounts.cut_power(disk)
    raises(DurabilityError, lambda: log.put("orders", [b"unknown"]))
    raises(StoreFailed, lambda: log.put("orders", [b"refused"]))
    raises(StoreFailed, lambda: log.take("orders"))
    log.close()
    mounts.unmount(disk)
    mounts.mount_image(directory / "image", disk)
    with open_log(str(disk / "store"), options=OPTIONS) as log:
        drain(log, 20)


def bind_mount(directory: Path) -> None:
    """The owner's lock is seen through a bind mount of the same directory."""
    (directory / "other").mkdir()
    with open_log(str(directory / "store")):
        mounts.bind(directory, directory / "other")
        raises(AlreadyOpen, lambda: open_log(str(directory / "other" / "store")))


def file_size_limit(directory: Path) -> None:
    """EFBIG is a full disk: takes go on, and puts do when the limit is lifted."""
    limit = 48 << 10
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    with open_log(str(directory / "store"), options=OPTIONS) as log:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        count = put_until_full(log)
        assert 0 < count < limit // PAYLOAD_BYTES, count
        drain(log, count)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        log.put("orders", [payload(0)])
        drain(log, 1)


def open_files_limit(directory: Path) -> None:
    """EMFILE refuses what needs a descriptor, and stops nothing else."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    before = open_files()
    with open_log(str(directory / "store"), options=OPTIONS) as log:
        log.put("orders", [payload(0)])
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest_descriptor() + 1, hard))
        spare = []
        while (descriptor := duplicate()) is not None:
            spare.append(descriptor)
        raises(AccessError, log.rotate)
        raises(AccessError, lambda: open_log(str(directory / "another")))
        for number in range(1, 100):
            log.put("orders", [payload(number)])
        for descriptor in spare:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        log.rotate()
        drain(log, 100)
    assert open_files() == before


def highest_descriptor() -> int:
    return max(open_files())


def duplicate() -> int | None:
    try:
        return os.dup(0)
    except OSError:
        return None


def failing_sync(directory: Path) -> None:
    """Put until a sync fails, as strace makes it do. Confirmed numbers go to stdout."""
    try:
        log = open_log(str(directory / "store"), options=OPTIONS)
    except DurabilityError:
        sys.stdout.write("failed while opening\n")
        return
    for number in range(200):
        try:
            log.put("orders", [payload(number)])
        except DurabilityError:
            break
        sys.stdout.write(f"{number}\n")
    else:
        raise AssertionError("no sync failed")
    assert log.status is Status.FAILED
    raises(StoreFailed, lambda: log.put("orders", [b"refused"]))
    raises(StoreFailed, lambda: log.take("orders"))
    raises(StoreFailed, log.flush)
    log.close()


def own_until_killed(directory: Path) -> None:
    """Own a store until somebody ends us."""
    open_log(str(directory / "store"))
    sys.stdout.write("open\n")
    sys.stdout.flush()
    signal.pause()


def open_once(directory: Path) -> None:
    """Fails at once if the store has an owner."""
    open_log(str(directory / "store")).close()


def dead_after_fork(directory: Path) -> None:
    """In a forked child every call is refused, nothing is held open and nothing is written."""
    log = open_log(str(directory / "store"))
    log.put("orders", [payload(0), payload(1)])
    log.rotate()
    log.put("orders", [payload(2)])
    draft = log.draft()
    draft.put(log.queue("orders"), [b"never"])
    reading = log.read("orders")
    next(reading)
    before = snapshot(directory)
    child = os.fork()
    if child == 0:
        leave(lambda: child_has_nothing(log, str(directory), draft_call=lambda: log.commit(draft)))
    assert os.waitpid(child, 0)[1] == 0
    assert snapshot(directory) == before
    raises(AlreadyOpen, lambda: open_log(str(directory / "store")))
    log.commit(draft)
    assert len(log.take("orders", 10)) == 4
    log.close()


def child_has_nothing(log: Log, path: str, draft_call: Callable[[], object]) -> None:
    calls: list[Callable[[], object]] = [
        draft_call,
        log.draft,
        log.flush,
        log.seal,
        log.rotate,
        log.checkpoint,
        log.compact,
        lambda: log.queue("orders"),
        lambda: log.put("orders", [b"never"]),
        lambda: log.put("orders", [b"never"], sync=False),
        lambda: log.take("orders"),
        lambda: list(log.read("orders")),
        lambda: log.get("orders", 1),
        lambda: log.exists("orders", 1),
        lambda: list(log.keys("orders")),
        lambda: log.seek("orders", 0),
        lambda: log.state_of("timer"),
    ]
    for call in calls:
        assert "fork" in str(raises(ForkError, call))
    log.close()
    log.close()
    held = [name for name in open_files().values() if name.startswith(path)]
    assert held == [], held
    # The lock is the parent's and stays so.
    raises(AlreadyOpen, lambda: open_log(f"{path}/store"))


def orphan_holds_nothing(directory: Path) -> None:
    """The owner is killed while a child that it forked lives on: the store is free."""
    reader, writer = os.pipe()
    owner = os.fork()
    if owner == 0:
        leave(lambda: own_and_fork(directory, writer))
    os.close(writer)
    orphan = int(os.read(reader, 20))
    os.kill(owner, signal.SIGKILL)
    os.waitpid(owner, 0)
    try:
        with open_log(str(directory / "store")) as log:
            assert log.take("orders") != []
        os.kill(orphan, 0)
    finally:
        os.kill(orphan, signal.SIGKILL)


def own_and_fork(directory: Path, writer: int) -> None:
    log = open_log(str(directory / "store"))
    log.put("orders", [payload(0)])
    if os.fork() == 0:
        # The child speaks, because only then has it let go of what it inherited.
        os.write(writer, str(os.getpid()).encode())
    signal.pause()
    log.close()


def without_permission(directory: Path) -> None:
    """Another user's store, and a directory where we may not write: refused clearly."""
    with open_log(str(directory / "store")) as log:
        log.put("orders", [payload(0)])
    (directory / "closed").mkdir(mode=0o555)
    directory.chmod(0o755)
    # The way there may be barred as well; what we test is its end.
    place = f"/proc/self/fd/{os.open(directory, os.O_RDONLY)}"
    if os.geteuid() != 0:
        before = snapshot(directory / "store")
        (directory / "store").chmod(0)
        refused_everywhere(place)
        (directory / "store").chmod(0o700)
        after = snapshot(directory / "store")
        # Our own chmod changed the directory itself, and nothing in it.
        assert before.pop(".")._replace(changed_ns=0) == after.pop(".")._replace(changed_ns=0)
        assert after == before
        return
    before = snapshot(directory)
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        leave(lambda: refused_everywhere(place))
    assert os.waitpid(child, 0)[1] == 0
    assert snapshot(directory) == before


def refused_everywhere(place: str) -> None:
    for path in f"{place}/store", f"{place}/closed/new", f"{place}/closed":
        count = len(open_files())
        error = raises(AccessError, partial(open_log, path))
        assert path in str(error), error
        assert "Permission denied" in str(error), error
        assert len(open_files()) == count


def leave(action: Callable[[], object]) -> None:
    """Run `action` in a forked child and end it there, not in the parent's code above."""
    try:
        action()
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        os._exit(1)
    os._exit(0)


def run(name: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Play a scene in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "tests.rigs.scenarios", name, str(directory)],
        cwd=mounts.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    logging.getLogger("store").addHandler(logging.NullHandler())
    scene: Callable[[Path], None] = globals()[sys.argv[1]]
    scene(Path(sys.argv[2]))
