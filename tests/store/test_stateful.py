"""Long random lives of one store against the model: work, faults and crashes in any order.

Each rule does one thing. If the store refuses, it must have said so rightly: after DiskFull
nothing was stored and the store goes on; after a failed sync it takes no more work until it is
opened anew, and then it shows a prefix of what was asked of it.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random

import pytest
from hypothesis import Phase
from hypothesis import seed as hypothesis_seed
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from fifoq.testing.crashes import image_after
from fifoq.testing.disk import SyncFailure
from fifoq.testing.pending import random_outcome
from fifoq.testing.simfiles import SimFiles
from store import (
    AccessError,
    CorruptionError,
    DiskFull,
    DurabilityError,
    LogOptions,
    Status,
    StoreFailed,
)
from store.files import Handle
from store.segment import index_name
from store.state import State
from tests.support import figures
from tests.support.machines import assert_machine_holds
from tests.support.oracle import check_names, observe
from tests.support.workloads import PATH, World

SHARDS = 4
EXAMPLES = 400
STEPS = 60
DEEP_SHARDS = 50
DEEP_EXAMPLES = int(os.environ.get("FIFOQ_STATEFUL_EXAMPLES", "50000"))
DEEP_STEPS = 100

DISK_BYTES = 96 << 10
OPTIONS = LogOptions(
    segment_bytes=64 << 10,
    segment_records=12,
    checkpoint_bytes=2048,
    fill_bytes=512,
    reserve_bytes=1024,
)

queues = st.sampled_from(["a", "b", "c"])
syncs = st.booleans()
seeds = st.integers(0, 2**16)
counts: Counter[str] = Counter()


class Interrupted(Exception):
    """The power is gone in the middle of a call."""


class StoreMachine(RuleBasedStateMachine):
    """The store in `world`, on a disk so small that somebody else can fill it."""

    def __init__(self) -> None:
        super().__init__()
        self.planned_failures = 0
        counts["examples"] += 1

    @initialize()
    def begin(self) -> None:
        self.world = World(SimFiles(capacity=DISK_BYTES), options=OPTIONS)
        self.world.open()

    @invariant()
    def the_store_shows_what_the_model_says(self) -> None:
        world = getattr(self, "world", None)
        if world is not None and world.log.status is Status.OPEN:
            found = observe(world.log)
            assert found.view == world.model.now, f"{found.view}\nis not\n{world.model.now}"
            check_names(world.log)

    # Work.

    @rule(queue=queues, size=st.sampled_from([0, 0, 300, 1200]), sync=syncs)
    def put(self, queue: str, size: int, sync: bool) -> None:
        self._do(lambda: self.world.put(queue=queue, size=size, sync=sync))

    @rule()
    def put_many(self) -> None:
        self._do(self.world.put_many)

    @rule(queue=queues, sync=syncs)
    def take(self, queue: str, sync: bool) -> None:
        self._do(lambda: self.world.take(queue=queue, sync=sync))

    @rule(queue=queues, at=st.integers(0, 20), sync=syncs)
    def ack(self, queue: str, at: int, sync: bool) -> None:
        count = len(self.world.model.now.queue(queue).records)
        if count:
            self._do(lambda: self.world.ack(at % count, queue=queue, sync=sync))

    @rule(queue=queues)
    def drain(self, queue: str) -> None:
        while self.world.model.now.queue(queue).records:
            if not self._do(lambda: self.world.take(queue=queue, sync=False)):
                return

    @rule(queue=queues, sync=syncs)
    def lease(self, queue: str, sync: bool) -> None:
        self._do(lambda: self.world.lease(queue=queue, sync=sync))

    @rule(name=st.sampled_from(["s", "t"]), sync=syncs)
    def set_state(self, name: str, sync: bool) -> None:
        self._do(lambda: self.world.set_state(name=name, sync=sync))

    @rule(queue=queues, sync=syncs)
    def configure(self, queue: str, sync: bool) -> None:
        self._do(lambda: self.world.configure(queue=queue, sync=sync))

    @rule(at=seeds, sync=syncs)
    def restore(self, at: int, sync: bool) -> None:
        """Put a removed record back at its place, as after a cancelled take."""
        model = self.world.model
        live = model.now.live()
        choices = [
            (name, record)
            for commit in model.commits
            for name, record in commit.puts
            if (name, record.counter) not in live
        ]
        if choices:
            name, record = choices[at % len(choices)]
            self._do(lambda: self.world.restore(name, record, sync=sync))

    @rule(
        steps=st.lists(st.sampled_from(["put", "take", "lease", "set_state"]), max_size=6),
        queue=queues,
        end=st.sampled_from(["", "power", "power", "process"]),
        seed=seeds,
    )
    def work_without_sync(self, steps: list[str], queue: str, end: str, seed: int) -> None:
        """Some work that no sync ends; often the power does."""
        self._do(lambda: self.world.put(queue=queue, sync=False))
        for step in steps:
            work: dict[str, Callable[[], None]] = {
                "put": lambda: self.world.put(queue=queue, sync=False),
                "take": lambda: self.world.take(queue=queue, sync=False),
                "lease": lambda: self.world.lease(queue=queue, sync=False),
                "set_state": lambda: self.world.set_state(sync=False),
            }
            self._do(work[step])
        if end == "power":
            self.cut_the_power(seed)
        elif end == "process":
            self.end_the_process()

    # Upkeep.

    @rule()
    def seal(self) -> None:
        self._do(self.world.seal)

    @rule()
    def flush(self) -> None:
        self._do(self.world.flush)

    @rule()
    def rotate(self) -> None:
        self._do(self.world.rotate)

    @rule()
    def checkpoint(self) -> None:
        self._do(self.world.checkpoint)

    @rule(size=st.sampled_from([1, 1500, 1 << 20]))
    def compact(self, size: int) -> None:
        self._do(lambda: self.world.log.compact(size))

    # The world outside.

    @rule(seconds=st.sampled_from([-(10**6), -1, 1, 3600, 2 * 86400]))
    def move_the_wall_clock(self, seconds: int) -> None:
        clock = self.world.clock
        clock.set_wall(clock.wall() + seconds * 10**9)

    @rule(left=st.sampled_from([0, 0, 1, 3]))
    def fill_the_disk(self, left: int) -> None:
        """Somebody takes all space but a few sectors."""
        files, ballast = self.world.files, self._ballast()
        size = files.size(ballast)
        with suppress(OSError):
            while True:
                size += files.pwrite(ballast, bytes(DISK_BYTES), size)
        files.truncate(ballast, max(0, size - left * 512))
        self._let_go(ballast)

    @rule()
    def empty_the_disk(self) -> None:
        ballast = self._ballast()
        self.world.files.truncate(ballast, 0)
        self._let_go(ballast)

    def _ballast(self) -> Handle:
        files = self.world.files
        root = files.open_dir("/")
        try:
            return files.open(root, "ballast", write=True)
        except FileNotFoundError:
            handle = files.create(root, "ballast")
            files.sync_dir(root)
            return handle
        finally:
            files.close(root)

    def _let_go(self, ballast: Handle) -> None:
        files = self.world.files
        with suppress(OSError):
            files.datasync(ballast)
        files.close(ballast)

    @rule(failure=st.sampled_from(SyncFailure), seed=seeds)
    def let_the_next_sync_fail(self, failure: SyncFailure, seed: int) -> None:
        self.world.files.fail_next_datasync(failure, seed=seed)
        self.planned_failures += 1

    # Ends and beginnings.

    @rule()
    def close_and_open(self) -> None:
        if self._do(self._close):
            self._open()

    def _close(self) -> None:
        self.world.log.close()
        self.world.model.confirm(durable=True)

    @rule()
    def end_the_process(self) -> None:
        self.world.files.process_crash()
        self._open()

    @rule(seed=seeds)
    def cut_the_power(self, seed: int) -> None:
        self._cut(Random(seed))
        self._open()

    @rule(seed=seeds, calls=st.integers(0, 60), power=st.booleans())
    def cut_an_opening_short(self, seed: int, calls: int, power: bool) -> None:
        """The process ends, and the recovery that follows is cut as well."""
        files = self.world.files
        files.process_crash()
        stop = files.op_count + calls

        def interrupt(index: int, _name: str, _args: tuple[object, ...]) -> None:
            if index >= stop:
                raise Interrupted

        files.before_op = interrupt
        try:
            self._open()
        except Interrupted:
            counts["cut openings"] += 1
        files.before_op = None
        files.process_crash()
        if power:
            self._cut(Random(seed))
        self._open()

    def _cut(self, random: Random) -> None:
        """Lose power: what was not durable is there, or not, or in part."""
        counts["power cuts"] += 1
        world = self.world
        image = image_after(world.files, lambda operation: random_outcome(operation, random))
        world.files = SimFiles.from_image(image, capacity=DISK_BYTES)
        world.model.returned = world.model.durable

    def _open(self) -> None:
        """Open; a sync that fails meanwhile must have been reported, and then it works."""
        try:
            self.world.open()
        except DurabilityError:
            self._note_failed_sync()
            self.world.open()

    # How the store answers.

    def _do(self, step: Callable[[], object]) -> bool:
        """Run a step; returns whether it was done."""
        model = self.world.model
        attempted = len(model.commits)
        counts["steps"] += 1
        try:
            step()
        except (DiskFull, AccessError):
            assert self.world.log.status is Status.OPEN
            removal = len(model.commits) > attempted and bool(model.commits[-1].removes)
            counts["refused removals" if removal else "refused"] += 1
            if len(model.commits) > attempted:
                model.withdraw()
            return False
        except DurabilityError:
            done = False
        else:
            done = True
        if not done or self.world.log.status is Status.FAILED:
            # If it was done all the same, upkeep behind it met the failure.
            self._start_again()
        return done

    def _start_again(self) -> None:
        self._note_failed_sync()
        if self.world.log.status is not Status.CLOSED:
            self._check_that_all_work_is_refused()
        self.world.log.close()
        self._open()

    def _note_failed_sync(self) -> None:
        """Only what a sync confirmed is certain now, also without a crash."""
        counts["failed syncs"] += 1
        assert self.planned_failures > 0, "the store failed without a reason"
        self.planned_failures -= 1
        self.world.model.returned = self.world.model.durable

    def _check_that_all_work_is_refused(self) -> None:
        log = self.world.log
        assert log.status is Status.FAILED
        for call in (log.draft, log.flush, log.seal, log.rotate, log.checkpoint, log.compact):
            with pytest.raises(StoreFailed):
                call()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logger = logging.getLogger("store")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


def assert_lives(seed: int, examples: int, steps: int, *, shrink: bool = True) -> None:
    """Run the machine with a seed; a failure prints the rules that lead to it."""
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]
    counts.clear()
    machine = hypothesis_seed(seed)(StoreMachine)
    assert_machine_holds(machine, examples=examples, steps=steps, phases=phases, print_blob=True)
    figures.record("T2", seed=seed, **counts)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_random_life_never_breaks_a_promise(shard: int) -> None:
    assert_lives(shard, EXAMPLES // SHARDS, STEPS)


@pytest.mark.deep
@pytest.mark.parametrize("shard", range(DEEP_SHARDS))
def test_a_longer_random_life_never_breaks_a_promise(shard: int) -> None:
    assert_lives(1000 + shard, DEEP_EXAMPLES // DEEP_SHARDS, DEEP_STEPS)


# The machine itself, and what it found.


def test_the_machine_sees_a_counter_that_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(State, "skip_counters", lambda *_: None)
    with pytest.raises(AssertionError, match="rule 8"):
        assert_lives(1, 200, STEPS, shrink=False)


def test_the_machine_sees_a_recovery_that_believes_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a failed sync the cache shows bytes that the disk never got."""
    monkeypatch.setattr(SimFiles, "forget_cache", lambda *_: None)
    with pytest.raises((AssertionError, CorruptionError)):
        assert_lives(1, 200, STEPS, shrink=False)


def test_a_removal_on_a_full_disk_comes_before_what_restores_it() -> None:
    """A removal that only a checkpoint held was logged behind the frame's own blocks.

    So a record that was taken on a full disk and then restored was removed once more when the
    frame was read back, and opening called that damage.
    """
    machine = StoreMachine()
    machine.begin()
    world = machine.world
    for _ in range(11):
        world.put()
    machine.fill_the_disk(left=0)
    for record in list(world.model.now.queue("a").records.values()):
        world.take()
        if world.log.state.unlogged:
            machine.empty_the_disk()
            world.restore("a", record)
            break
    assert record.counter in world.model.now.queue("a").records
    world.crash()
    assert world.found().view == world.model.now


def test_an_index_whose_segment_is_gone_goes_too() -> None:
    """A power cut may undo one of two unlinks; the index that came back stayed for ever."""
    world = World(SimFiles(), options=OPTIONS)
    world.open()
    world.put()
    world.files.process_crash()
    world.files.add_file(f"{PATH}/{index_name(7)}", b"left over")
    world.open()
    check_names(world.log)
    assert index_name(7) not in {path.rpartition("/")[2] for path in world.files.image().files}
