"""A full disk refuses puts, still drains to empty, and takes puts again when space is back (C8)."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from random import Random

import pytest

from fifoq.testing.crashes import after_process_crash, crash_points, power_images
from fifoq.testing.pending import SECTOR_BYTES
from fifoq.testing.simfiles import SimFiles
from store import (
    AccessError,
    DiskFull,
    DurabilityError,
    Log,
    LogOptions,
    Status,
    open_log,
    repeats,
)
from store.blocks import ACKED, records_weight
from store.checkpoint import CHECKPOINT_NAMES
from tests.support.clock import ManualClock
from tests.support.faulty import Fault, FaultyFiles
from tests.support.figures import record
from tests.support.ledger import Change, Contents, Ledger, QueueContents, contents_of

PATH = "/store"
CAPACITY = 24 << 10
OPTIONS = LogOptions(fill_bytes=0, reserve_bytes=1024, segment_bytes=64 << 10)
QUEUES = ("a", "b")


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is warned of at every step."""
    monkeypatch.setattr(logging.getLogger("store"), "disabled", True)


class FullDisk:
    """A store on a small disk, filled until a put is refused, and what it must hold."""

    def __init__(
        self, capacity: int = CAPACITY, options: LogOptions = OPTIONS, payload_bytes: int = 120
    ) -> None:
        self.files = SimFiles(capacity=capacity)
        self.options = options
        self.ledger = Ledger()
        self.log = self.open(self.files)
        self.capacity = capacity
        self.payload_bytes = payload_bytes
        self.under_way: Change | None = None
        """What the put or ack that is running will do, if it does."""

    def open(self, files: SimFiles) -> Log:
        return open_log(PATH, files=files, clock=ManualClock(), options=self.options)

    def put(self, name: str, *payloads: bytes) -> None:
        first = self.log.queue(name).genesis.next_counter
        counters = range(first, first + len(payloads))
        self.under_way = lambda c: c.put(name, counters, list(payloads))
        assert self.log.put(name, payloads) == counters
        self._committed()

    def _committed(self) -> None:
        assert self.under_way is not None
        self.ledger.committed(self.under_way, durable=True)
        self.under_way = None

    def fill(self) -> None:
        """Put until that is refused; at least one record goes into each queue."""
        index = 0
        while self.log.status is Status.OPEN:
            payload = b"%d." % index
            payload *= self.payload_bytes // len(payload)
            try:
                self.put(QUEUES[index % 2], payload)
            except DiskFull:
                break
            index += 1

    def fill_in_batches(self, count: int) -> None:
        """Put so many small records at once until that is refused."""
        payloads = [b"x" * self.payload_bytes] * count
        index = 0
        while self.log.status is Status.OPEN:
            name = QUEUES[index % 2]
            try:
                counters = self.log.put(name, payloads)
            except DiskFull:
                break
            self.ledger.committed(partial(_note_put, name, counters, payloads), durable=True)
            index += 1

    def take(self, name: str) -> bool:
        """Take the head; returns whether there was one. It must be the oldest."""
        records = self.ledger.newest.queues[name].records
        taken = [(key.counter, payload) for key, payload in self.log.take(name)]
        assert taken == list(islice(records.items(), 1))
        if taken:
            self.ledger.committed(lambda c: c.remove(name, [taken[0][0]]), durable=True)
        return bool(taken)

    def ack(self, name: str, counter: int) -> None:
        payload = self.ledger.newest.queues[name].records[counter]
        draft = self.log.draft()
        weight = records_weight(len(payload), 1)
        draft.remove(self.log.queue(name), [(counter, counter, weight)], reason=ACKED)
        self.under_way = lambda c: c.remove(name, [counter])
        self.log.commit(draft)
        self._committed()

    def drain(self) -> tuple[int, int]:
        """Take everything; returns how many commits were frames, and how many checkpoints."""
        frames = in_place = 0
        for name in QUEUES:
            sequence = self.log.sequence
            while self.take(name):
                frames += self.log.sequence > sequence
                in_place += self.log.sequence == sequence
                sequence = self.log.sequence
        return frames, in_place

    def add_space(self, count: int) -> None:
        self.leave_space(self.capacity_left() + count)
        self.capacity += count

    def capacity_left(self) -> int:
        assert self.files._capacity is not None
        return (self.files._capacity._sectors_max - self.files._capacity._used) * SECTOR_BYTES

    def leave_space(self, count: int) -> None:
        """Somebody else fills the disk, or frees space, until so much is left."""
        assert self.files._capacity is not None
        self.files._capacity._sectors_max = self.files._capacity._used + count // SECTOR_BYTES

    def check(self) -> None:
        """The open log, and whatever a crash now leaves of it, hold exactly what they must."""
        assert contents_of(self.log) == self.ledger.newest
        self.check_crashes(self.files, self.ledger)

    def check_crashes(self, files: SimFiles, ledger: Ledger) -> int:
        """Open after the end of the process and after power cuts, with the disk still full."""
        count = 0
        for twin in self._crashed(files):
            count += 1
            with self.open(twin) as log:
                ledger.check(contents_of(log), power_lost=True)
        return count

    def _crashed(self, files: SimFiles) -> Iterator[SimFiles]:
        yield after_process_crash(files)
        for image in power_images(files, limit=64, samples=16):
            yield SimFiles.from_image(image, capacity=self.capacity)


def _note_put(name: str, counters: range, payloads: list[bytes], contents: Contents) -> None:
    contents.put(name, counters, payloads)


def use_up_reserve(disk: FullDisk) -> None:
    """Take until a removal goes into a checkpoint."""
    before = -1
    while disk.log.sequence != before:
        before = disk.log.sequence
        assert disk.take("a")


def test_a_state_that_lets_records_go_is_set_on_a_full_disk() -> None:
    disk = FullDisk()
    log = disk.log
    draft = log.draft()
    draft.set_states([("position", b"1")])
    log.commit(draft)
    disk.fill()
    while True:
        # The last that fits beside what is held.
        draft = log.draft()
        draft.set_states([("position", b"2")])
        try:
            log.commit(draft)
        except DiskFull:
            break
    draft = log.draft()
    draft.set_states([("position", b"3")], drains=True)
    log.commit(draft)
    assert log.state_of("position") == b"3"


def test_a_put_that_a_full_disk_refuses_is_certainly_not_there() -> None:
    disk = FullDisk()
    disk.fill()
    for payload in (b"x", b"x" * 5000, b"x" * 400):
        with pytest.raises(DiskFull):
            disk.log.put("a", [payload] * 20)
        assert disk.log.status is Status.OPEN
        disk.check()
    disk.log.close()
    disk.check_crashes(disk.files, disk.ledger)


def test_a_full_disk_drains_to_empty_through_the_reserve_and_then_the_checkpoints() -> None:
    disk = FullDisk()
    disk.fill()
    frames, in_place = disk.drain()
    assert frames > 3, "the reserve was not used"
    assert in_place > 10, "no checkpoint was overwritten in place"
    assert not any(queue.records for queue in disk.ledger.newest.queues.values())
    disk.check()
    disk.log.close()
    with disk.open(disk.files) as log:
        assert contents_of(log) == disk.ledger.newest


def test_a_full_disk_drains_when_records_are_acked_out_of_order() -> None:
    disk = FullDisk()
    disk.fill()
    for name in QUEUES:
        counters = list(disk.ledger.newest.queues[name].records)
        for counter in counters[4::2] + counters[0:4] + counters[5::2]:
            disk.ack(name, counter)
    assert not any(queue.records for queue in disk.ledger.newest.queues.values())
    disk.check()


@pytest.mark.parametrize("order", ["alternating", "random"])
def test_acks_in_any_order_drain_a_full_disk_to_empty(order: str) -> None:
    """They were refused once the ranges between live records had filled the checkpoint."""
    disk = FullDisk(capacity=40 << 10, payload_bytes=8)
    disk.fill_in_batches(40)
    acks = [(name, c) for name in QUEUES for c in disk.ledger.newest.queues[name].records]
    assert len(acks) > 400
    acks = acks[1::2] + acks[::2]
    if order == "random":
        Random(3).shuffle(acks)
    for at, (name, counter) in enumerate(acks):
        disk.ack(name, counter)
        if at % 150 == 100:
            disk.check()
        if at == len(acks) // 3:
            # And so it goes on after the end of the process, on a disk that is just as full.
            disk.files = after_process_crash(disk.files)
            disk.log = disk.open(disk.files)
    assert not any(queue.records for queue in disk.ledger.newest.queues.values())
    disk.check()


def test_what_only_checkpoints_held_is_logged_in_pieces_when_space_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repeats, "REPEATED_RANGES_MAX", 7)
    disk = FullDisk()
    disk.fill()
    use_up_reserve(disk)
    for counter in list(disk.ledger.newest.queues["b"].records)[1::2]:
        disk.ack("b", counter)
    assert disk.log.state.unlogged
    disk.add_space(64 << 10)
    pieces = 0
    while disk.log.state.unlogged:
        disk.put("a", b"new")
        disk.check()
        pieces += 1
    assert pieces > 1
    twin = after_process_crash(disk.files)
    for name in CHECKPOINT_NAMES:
        twin.damage(f"{PATH}/{name}", 60, b"????")
    with disk.open(twin) as log:
        assert contents_of(log) == disk.ledger.newest


def test_nothing_is_added_that_a_full_disk_could_not_remove() -> None:
    """A put is refused when there is space for its frame, but none to hold for its removal."""
    disk = FullDisk(capacity=64 << 10)
    disk.put("a", b"first")
    assert disk.log.tail.make_room(2000, reserve=False)
    assert disk.files._capacity is not None
    disk.files._capacity._sectors_max = disk.files._capacity._used
    refusals = []
    for number in range(20):
        try:
            disk.put(f"new-{number}", b"x")
        except DiskFull as error:
            refusals.append(str(error))
    assert "no space to hold for the removal" in refusals[0]
    assert disk.log.status is Status.OPEN
    assert disk.take("a")


def test_leases_go_on_and_states_are_refused_on_a_full_disk() -> None:
    disk = FullDisk()
    disk.fill()
    log = disk.log
    use_up_reserve(disk)
    counter = next(iter(disk.ledger.newest.queues["b"].records))
    draft = log.draft()
    draft.lease(log.queue("b"), [counter], [3], deadline=9)
    log.commit(draft)
    disk.ledger.committed(lambda c: c.queues["b"].attempts.update({counter: 3}), durable=True)
    draft = log.draft()
    draft.set_states([("x", b"1" * 2000)])
    with pytest.raises(DiskFull):
        log.commit(draft)
    disk.check()


def test_power_cuts_at_every_step_of_the_drain_lose_nothing_and_bring_nothing_back() -> None:
    disk = FullDisk(capacity=20 << 10)
    disk.fill()
    opened = 0

    def visit(index: int, files: SimFiles) -> None:
        nonlocal opened
        ledger = disk.ledger.at_crash(None)
        for name in QUEUES:
            # The take that is under way, if it is one of this queue.
            head = next(iter(disk.ledger.newest.queues[name].records), None)
            if head is not None:
                contents = disk.ledger.newest.copy()
                contents.remove(name, [head])
                ledger.possible.append(contents)
        opened += disk.check_crashes(files, ledger)

    states = crash_points(lambda files: disk.drain(), visit, files=disk.files)
    record("full_disk_drain", states=states, opened=opened)


def test_crashes_at_every_step_of_acks_in_any_order_and_of_logging_them_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Packed removals, then puts that repeat them piece by piece once there is space."""
    monkeypatch.setattr(repeats, "REPEATED_RANGES_MAX", 25)
    disk = FullDisk(capacity=28 << 10, payload_bytes=8)
    disk.fill_in_batches(40)
    use_up_reserve(disk)
    counters = list(disk.ledger.newest.queues["b"].records)
    for counter in counters[1:100:2]:
        disk.ack("b", counter)
    assert disk.log.queue("b").entry().packed
    opened = 0

    def visit(index: int, files: SimFiles) -> None:
        nonlocal opened
        if index % 3 == 0:
            opened += disk.check_crashes(files, disk.ledger.at_crash(disk.under_way))

    def run(files: SimFiles) -> None:
        for counter in (counters[2], counters[101], counters[0], counters[50], counters[-1]):
            disk.ack("b", counter)
        disk.add_space(64 << 10)
        for counter in counters[61:66:2] + counters[4:10:2]:
            disk.put("a", b"new", b"newer")
            if counter in disk.ledger.newest.queues["b"].records:
                disk.ack("b", counter)
        assert not disk.log.state.unlogged

    states = crash_points(run, visit, files=disk.files)
    record("full_disk_packed", states=states, opened=opened)
    disk.check()


class Crowd:
    """A store on a disk that others fill and empty, with crashes, and no ack ever refused."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        options = LogOptions(
            fill_bytes=random.choice([0, 512, 4096]),
            reserve_bytes=random.choice([512, 1024, 4096]),
            segment_bytes=64 << 10,
            checkpoint_bytes=random.choice([2, 16, 1024]) << 10,
        )
        self.disk = FullDisk(random.choice([30, 48, 80, 160]) << 10, options)
        self.acks = self.refused = 0

    def step(self) -> None:
        kinds = [self.put, self.ack, self.lease, self.squeeze, self.crash, self.tidy]
        self.random.choices(kinds, [9, 14, 2, 1, 1, 1])[0]()

    def put(self) -> None:
        name = f"q{self.random.randrange(9)}"
        size = self.random.choice([0, 8, 100, 1500])
        count = self.random.choice([1, 1, 10, 200 if size < 100 else 5])
        with self.unless_full():
            self.disk.put(name, *[b"x" * size] * count)

    def ack(self) -> None:
        live = [(name, c) for name, q in self.queues.items() for c in q.records]
        if live:
            self.disk.ack(*self.random.choice(live))
            self.acks += 1

    def lease(self) -> None:
        names = [name for name, queue in self.queues.items() if queue.records]
        if not names:
            return
        name = self.random.choice(names)
        records = list(self.queues[name].records)
        counters = sorted(self.random.sample(records, min(len(records), 30)))
        attempt = self.random.choice([1, 9, 10, 2**31])
        draft = self.disk.log.draft()
        draft.lease(self.disk.log.queue(name), counters, [attempt] * len(counters), 5)
        with self.unless_full():
            self.disk.log.commit(draft)
            leased = dict.fromkeys(counters, attempt)
            self.disk.ledger.committed(
                lambda c: c.queues[name].attempts.update(leased), durable=True
            )

    def squeeze(self) -> None:
        self.disk.leave_space(self.random.choice([0, 0, 0, 1, 4, 20, 100]) * SECTOR_BYTES)

    def crash(self) -> None:
        disk = self.disk
        left = disk.capacity_left()
        if self.random.random() < 0.5:
            disk.files = after_process_crash(disk.files)
        else:
            images = list(power_images(disk.files, limit=64, samples=8))
            disk.files = SimFiles.from_image(self.random.choice(images), capacity=1 << 30)
        disk.leave_space(max(left, 0))
        disk.log = disk.open(disk.files)
        disk.ledger.check(contents_of(disk.log))

    def tidy(self) -> None:
        log = self.disk.log
        work = self.random.choice((log.checkpoint, log.rotate, partial(log.compact, 4000)))
        with self.unless_full():
            work()

    @property
    def queues(self) -> dict[str, QueueContents]:
        return self.disk.ledger.newest.queues

    @contextmanager
    def unless_full(self) -> Iterator[None]:
        try:
            yield
        except DiskFull:
            self.refused += 1


@pytest.mark.parametrize("seed", range(8))
def test_no_ack_is_refused_whatever_came_before(seed: int) -> None:
    crowd = Crowd(seed)
    for _ in range(250):
        crowd.step()
    crowd.squeeze()
    while any(queue.records for queue in crowd.queues.values()):
        crowd.ack()
    crowd.crash()
    record("full_disk_acks", acks=crowd.acks, refused_otherwise=crowd.refused)
    assert crowd.refused


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_every_call_of_a_removal_in_place_may_fail(error: int) -> None:
    disk = FullDisk()
    disk.fill()
    use_up_reserve(disk)
    head = next(iter(disk.ledger.newest.queues["b"].records))
    call, struck = 0, True
    while struck:
        twin = after_process_crash(disk.files)
        files = FaultyFiles(twin)
        log = open_log(PATH, files=files, clock=ManualClock(), options=disk.options)
        files.faults = (Fault(at=files.call_count + call, error=error),)
        ledger = disk.ledger.at_crash(None)
        try:
            log.take("b")
        except (DiskFull, AccessError):
            assert log.status is Status.OPEN
        except DurabilityError:
            assert log.status is Status.FAILED
            ledger.doubted(lambda contents: contents.remove("b", [head]))
        else:
            ledger.committed(lambda contents: contents.remove("b", [head]), durable=True)
        struck = files.fired > 0
        call += 1
        disk.check_crashes(twin, ledger)
        log.release()
        assert not twin._handles
    assert call > 5


def test_puts_work_again_without_a_reopen_when_space_is_back() -> None:
    disk = FullDisk()
    disk.fill()
    for _ in range(20):
        disk.take("a")
        disk.take("b")
    assert disk.log.state.unlogged
    disk.add_space(64 << 10)
    disk.put("a", b"new" * 200)
    assert not disk.log.state.unlogged, "the log holds them now"
    disk.check()
    disk.put("b", b"newer")
    disk.take("a")
    disk.check()


@pytest.mark.parametrize("rotten", CHECKPOINT_NAMES)
def test_a_removal_that_no_frame_holds_survives_the_loss_of_either_checkpoint(rotten: str) -> None:
    disk = FullDisk()
    disk.fill()
    use_up_reserve(disk)
    disk.ack("b", list(disk.ledger.newest.queues["b"].records)[3])
    twin = after_process_crash(disk.files)
    twin.damage(f"{PATH}/{rotten}", 60, b"????")
    with disk.open(twin) as log:
        assert contents_of(log) == disk.ledger.newest


def test_the_log_alone_tells_what_was_removed_once_space_is_back() -> None:
    """Removals that only a checkpoint held are in the next frame: both copies may then rot."""
    disk = FullDisk()
    disk.fill()
    for _ in range(20):
        disk.take("a")
    disk.add_space(64 << 10)
    disk.put("a", b"new")
    twin = after_process_crash(disk.files)
    for name in CHECKPOINT_NAMES:
        twin.damage(f"{PATH}/{name}", 60, b"????")
    with disk.open(twin) as log:
        assert contents_of(log) == disk.ledger.newest


def test_reclaiming_gives_space_back_while_a_full_disk_drains() -> None:
    disk = FullDisk(capacity=224 << 10, payload_bytes=3000)
    disk.fill()
    assert len(disk.log.state.segments) > 2
    for index in range(40):
        disk.take(QUEUES[index % 2])
    disk.put("a", b"fits again" * 300)
    disk.check()


@pytest.mark.parametrize("spare", [0, SECTOR_BYTES, 4 * SECTOR_BYTES])
def test_a_crashed_store_opens_on_a_totally_full_disk_and_drains(spare: int) -> None:
    disk = FullDisk()
    disk.fill()
    for _ in range(12):
        disk.take("a")
    twin = after_process_crash(disk.files)
    assert twin._capacity is not None
    twin._capacity._sectors_max = twin._capacity._used + spare // SECTOR_BYTES
    disk.files, disk.log = twin, disk.open(twin)
    disk.check()
    disk.drain()
    disk.check()
    disk.add_space(32 << 10)
    disk.put("a", b"space")
    disk.check()


def test_a_crashed_store_that_was_drained_takes_puts_with_no_space_but_its_own() -> None:
    """The zeros ahead of what it had written were nobody's: there was never a segment again."""
    disk = FullDisk()
    for _ in range(3):
        disk.fill()
        disk.take("a")
        twin = after_process_crash(disk.files)
        assert twin._capacity is not None
        twin._capacity._sectors_max = twin._capacity._used
        disk.files, disk.log = twin, disk.open(twin)
        disk.drain()
        disk.put("a", b"again")
        disk.check()


def test_there_is_no_space_for_a_new_store() -> None:
    files = SimFiles(capacity=SECTOR_BYTES)
    with pytest.raises(DiskFull, match=r"Nothing was changed\. Free some space"):
        open_log(PATH, files=files, clock=ManualClock(), options=OPTIONS)


def test_filling_emptying_and_filling_again_goes_on_for_ever() -> None:
    disk = FullDisk(capacity=256 << 10, payload_bytes=3000)
    for _ in range(5):
        disk.fill()
        disk.drain()
        disk.put("a", b"again")
        assert disk.take("a")
    disk.check()


# The bound on disk use.

BOUND_OPTIONS = LogOptions(
    fill_bytes=4096, reserve_bytes=4096, segment_bytes=64 << 10, checkpoint_bytes=64 << 10
)


def run_load(step: Callable[[Log, int], None], *, steps: int, upkeep: bool) -> float:
    """Run, and hold the disk to 2 x live + 2 segments + reserve; returns the worst share of it."""
    files = SimFiles(capacity=64 << 20)
    worst = 0.0
    with open_log(PATH, files=files, clock=ManualClock(), options=BOUND_OPTIONS) as log:
        for index in range(steps):
            step(log, index)
            while upkeep and log.compact():
                pass
            assert files._capacity is not None
            used = files._capacity._used * SECTOR_BYTES
            worst = max(worst, used / disk_bound(log))
    return worst


def disk_bound(log: Log) -> int:
    options = log.options
    live = sum(segment.live_bytes for segment in log.state.segments.values())
    return 2 * live + 2 * options.segment_bytes + options.fill_bytes + options.reserve_bytes


def test_disk_use_is_bounded_under_a_fifo_load_over_many_segments() -> None:
    def step(log: Log, index: int) -> None:
        log.put("a", [b"%d" % index * 700])
        if index >= 40:
            log.take("a", 1, sync=index % 5 == 0)

    worst = run_load(step, steps=600, upkeep=False)
    record("disk_bound_fifo", worst=round(worst, 3))
    assert worst <= 1


def test_disk_use_is_bounded_with_one_stuck_record() -> None:
    def step(log: Log, index: int) -> None:
        counters = log.put("a", [b"%d" % index * 700])
        if index % 100:
            draft = log.draft()
            weight = records_weight(len(b"%d" % index * 700), 1)
            draft.remove(log.queue("a"), [(counters[0], counters[0], weight)], reason=ACKED)
            log.commit(draft, sync=index % 7 == 0)

    worst = run_load(step, steps=600, upkeep=True)
    record("disk_bound_stuck", worst=round(worst, 3))
    assert worst <= 1


def test_disk_use_is_bounded_when_states_and_leases_are_what_lives() -> None:
    def step(log: Log, index: int) -> None:
        draft = log.draft()
        draft.set_states([(f"s{index % 50}", b"%d" % index * 300)])
        queue = log.queue(f"q{index % 3}")
        first = draft.put(queue, [b"x" * 500])
        log.commit(draft, sync=False)
        draft = log.draft()
        draft.lease(queue, [first], [1], deadline=1)
        log.commit(draft, sync=False)
        log.take(queue.name, 1)

    worst = run_load(step, steps=600, upkeep=True)
    record("disk_bound_states", worst=round(worst, 3))
    assert worst <= 1
