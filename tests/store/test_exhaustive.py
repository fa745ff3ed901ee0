"""Every small workload, cut at every point, in every way the disk may be left.

A workload is a start and a few operations. Only its last operation is cut here, because the
points of the earlier ones belong to shorter workloads. At each point there are all the disks
that a power cut may leave, and the one that the end of the process leaves; the latter is opened,
worked on, and loses power as well.

Opening is a pure function of the disk, so a disk that was seen before is judged by what it showed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

import pytest

from fifoq.testing.crashes import after_process_crash, crash_points, image_after, power_images
from fifoq.testing.image import Image
from fifoq.testing.pending import ABSENT
from fifoq.testing.simfiles import SimFiles
from store import CorruptionError, Key, Log, LogOptions, checkpoints, open_log, upkeep
from store.checkpoint import encode_checkpoint
from store.draft import Draft
from store.errors import DamageError
from store.files import Handle
from store.segment import Frame, SegmentFile
from store.state import QueueState, State
from tests.support import figures
from tests.support.clock import ManualClock
from tests.support.footprint import Memory, TracedFiles
from tests.support.oracle import (
    Commit,
    Found,
    Model,
    Record,
    View,
    check_names,
    check_survivors,
    observe,
)
from tests.support.workloads import DELIVERY, OPERATIONS, PATH, STARTS, World, Wrap, start_of
from tests.support.wrapping import WrappedFiles

T = TypeVar("T")

LENGTH = 3
DEEP_LENGTH = 4
PAIR_LENGTH = 2
CHAIN_LENGTH = 2
ALWAYS_WORK = 16
RECOVERY_LENGTH = 2
SUITE_STARTS = ("empty", "used")
SHARDS = tuple(product(SUITE_STARTS, OPERATIONS))
SINGLE = tuple(name for name in OPERATIONS if name not in DELIVERY)
DEEP_SHARDS = tuple(product(STARTS, OPERATIONS, OPERATIONS))


@pytest.fixture(autouse=True)
def small_and_quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Checkpoints without slack, so that a torn one has tens of states and not thousands."""
    monkeypatch.setattr(checkpoints, "SLACK_BYTES", 0)
    logger = logging.getLogger("store")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


class Cut(NamedTuple):
    """One state of one workload; `image` is None for the end of the process."""

    start: str
    operations: tuple[str, ...]
    point: int
    image: int | None


class Explorer:
    """Cuts workloads at every point and judges what is left.

    `states` counts different disks that were opened. With `only` nothing but that one cut is
    looked at, which is how a failure is run again.
    """

    def __init__(
        self,
        *,
        wrap: Wrap | None = None,
        only: Cut | None = None,
        thorough: bool = False,
        cut_recovery: bool = False,
    ) -> None:
        self.states = 0
        self.points = 0
        self.workloads = 0
        self.same_as_shorter = 0
        self._wrap = wrap
        self._only = only
        self._thorough = thorough or only is not None
        self._cut_recovery = cut_recovery
        self._seen: dict[int, Found] = {}
        self._worked: list[Found] = []
        self._shown: Memory[Found] = Memory()
        self._work_done: Memory[Found] = Memory()
        self._ended: dict[tuple[int, bool], Found] = {}
        self._chained: set[int] = set()
        self._starts: dict[str, tuple[World, Image]] = {}

    def explore(
        self,
        start: str,
        first: tuple[str, ...],
        length: int,
        operations: Collection[str] = OPERATIONS,
    ) -> None:
        """All workloads up to that length which begin with `first` and go on with `operations`."""
        if not self.cut(start, first):
            rest = length - len(first)
            self.same_as_shorter += sum(len(operations) ** n for n in range(1, rest + 1))
        elif len(first) < length:
            for operation in operations:
                self.explore(start, (*first, operation), length, operations)

    def cut(self, start: str, operations: tuple[str, ...]) -> bool:
        """Cut the last operation at every point. False if it changed nothing on the disk."""
        world = self._begin(start, operations)
        last = OPERATIONS[operations[-1]] if operations else World.open
        chained = self._thorough or len(operations) <= CHAIN_LENGTH
        commits = len(world.model.commits)

        def visit(point: int, files: SimFiles) -> None:
            cut = Cut(start, operations, point, None)
            self._worked.clear()
            for number, image in enumerate(power_images(files)):
                self._check(cut._replace(image=number), image, world.model)
            if self._only in (None, cut):
                with reproducible(cut, files.disk.pending):
                    self._check_end_of_process(cut, world, files, chained)

        point_count = crash_points(lambda _: last(world), visit, files=world.files)
        self.points += point_count
        self.workloads += 1
        return point_count > 1 or len(world.model.commits) != commits

    def _begin(self, start: str, operations: tuple[str, ...]) -> World:
        if start not in self._starts:
            self._starts[start] = start_of(start, self._wrap)
        before, image = self._starts[start]
        world = before.on(SimFiles.from_image(image))
        if operations:
            world.open()
        for name in operations[:-1]:
            OPERATIONS[name](world)
        return world

    def _check(self, cut: Cut, image: Image, model: Model) -> None:
        if self._only not in (None, cut):
            return
        with reproducible(cut, image):
            found = self._seen.get(hash(image))
            if found is None:
                options = STARTS[cut.start].options
                found = self._seen[hash(image)] = self._look(image, options)
                self.states += 1
            check_survivors(found, model, model.durable)

    def _look(self, image: Image, options: LogOptions) -> Found:
        """Rules 6 and 7 take most of the time: once for each different view at a point."""
        files = TracedFiles.of(image)
        found = look(files, options, image, self._shown)
        mark = crc32(b"".join(image.contents))
        if self._thorough or mark % ALWAYS_WORK == 0 or found not in self._worked:
            self._worked.append(found)
            look_again(files, options, found, self._work_done, lose_power=mark % 2 == 0)
        if self._cut_recovery:
            self._cut_opening(image, options, found)
        return found

    def _cut_opening(self, image: Image, options: LogOptions, found: Found) -> None:
        """Whatever is left of a recovery that was cut, the next one shows the same."""

        def visit(point: int, running: SimFiles) -> None:
            for number, again in enumerate(power_images(running)):
                if hash(again) not in self._seen:
                    files = TracedFiles.of(again)
                    self._seen[hash(again)] = look(files, options, again, self._shown)
                    self.states += 1
                assert self._seen[hash(again)] == found, (
                    f"rule 6: recovery cut at point {point}, image {number}:\n{again.describe()}"
                )

        crash_points(
            lambda files: open_store(files, options), visit, files=SimFiles.from_image(image)
        )

    def _check_end_of_process(self, cut: Cut, world: World, files: SimFiles, chained: bool) -> None:
        """Open on the live disk, then lose power: at once, and after some work."""
        after = world.on(after_process_crash(files))
        disk = after.files.disk.fingerprint(), chained
        if disk in self._ended:
            # The last point of a workload is the first one of all that go on from there.
            check_survivors(self._ended[disk], after.model, after.model.returned)
            return
        self._ended[disk] = after.open()
        self.states += 1
        opened = after.files.disk.fingerprint()
        if not chained or opened in self._chained:
            return
        self._chained.add(opened)
        for step in (None, World.put, World.take):
            if step is not None:
                step(after)
            for image in power_images(after.files):
                self._check(cut, image, after.model)


@contextmanager
def reproducible(cut: Cut, disk: object) -> Iterator[None]:
    """Say in one line how to see a failure again, and what the disk had been through."""
    try:
        yield
    except Exception as error:
        if isinstance(error, CutFailed):
            raise
        plan = disk.describe() if isinstance(disk, Image) else f"pending: {disk}"
        raise CutFailed(f"{error!r}\nreproduce: see({cut})\n{plan}") from error


class CutFailed(AssertionError):
    """A cut after which the store did not do as it must."""


def see(cut: Cut) -> None:
    """Run one cut again."""
    Explorer(only=cut).cut(cut.start, cut.operations)


def look(files: TracedFiles, options: LogOptions, image: Image, shown: Memory[Found]) -> Found:
    """What the store on this disk shows. Rules 9 and 10, which need no model."""
    try:
        log = open_store(files, options)
    except CorruptionError as error:
        assert files.image() == image, "rule 10: damage was reported and something was changed"
        raise AssertionError(f"a crash is no damage: {error}") from error
    check_names(log)
    state = encode_checkpoint(upkeep._snapshot(log, clean=False), log.store_id)
    contents = files.start_trace()
    found = shown.find(state, contents)
    if found is None:
        found = observe(log)
        if not files.changed:
            shown.keep(state, contents, files, found)
    return found


def look_again(
    files: SimFiles,
    options: LogOptions,
    first: Found,
    done: Memory[Found],
    *,
    lose_power: bool,
) -> None:
    """Open once more, after the process or even the power went; then work. Rules 6 and 7."""
    image = image_after(files, lambda _: ABSENT) if lose_power else files.image()
    again = TracedFiles.of(image)
    contents = again.start_trace()
    if done.find(options, contents) == first:
        return
    log = open_store(again, options)
    second = {name: queue.genesis.next_counter for name, queue in log.state.queues.items()}
    assert second == first.next_counters, f"rule 6: opened again it counts {second}, not {first}"
    expected = work(log, first)
    # Also rule 6: had anything else changed when it was opened again, this would show it.
    third = observe(open_store(again, options)).view
    assert third == expected, f"rule 6, 7: after work it shows {third} instead of {expected}"
    done.keep(options, contents, again, first)


def open_store(files: SimFiles, options: LogOptions) -> Log:
    return open_log(PATH, files=files, clock=ManualClock(), options=options)


def work(log: Log, found: Found) -> View:
    """Put, take and close; returns what must be there afterwards."""
    counter, time = log.queue("a").genesis.next_counter, log.queue("a").genesis.last_put_time
    record = Record(counter, max(time, log.clock.wall()), b"more work")
    view = Commit(puts=[("a", record)]).after(found.view)
    assert log.put("a", [record.payload]) == range(counter, counter + 1)
    head = next(iter(view.queue("a").records.values()))
    assert log.take("a") == [(Key(head.counter, head.time), head.payload)]
    log.close()
    return Commit(removes=[("a", head.counter)]).after(view)


def assert_explored(name: str, explorer: Explorer, **where: str) -> None:
    """Note how much was cut, which is something; each cut was judged when it was made."""
    workloads = explorer.workloads + explorer.same_as_shorter
    assert workloads > 0
    figures.record(
        name,
        **where,
        workloads=workloads,
        points=explorer.points,
        states=explorer.states,
    )


@pytest.mark.parametrize("start", STARTS)
def test_opening_for_the_first_time_survives_every_cut(start: str) -> None:
    """Also while the store is being made."""
    explorer = Explorer()
    explorer.cut(start, ())
    assert_explored("T1 opening", explorer, start=start)


@pytest.mark.parametrize(("start", "first"), SHARDS)
def test_every_short_workload_survives_every_cut(start: str, first: str) -> None:
    """All sequences of up to three operations, from a new store and from a used one.

    From the used one those of `DELIVERY` come in sequences of two: its disks take the longest.
    """
    explorer = Explorer()
    if start == "used":
        explorer.explore(start, (first,), PAIR_LENGTH)
        if first in SINGLE:
            explorer.explore(start, (first,), LENGTH, SINGLE)
    else:
        explorer.explore(start, (first,), LENGTH)
    assert_explored("T1", explorer, start=start, first=first)


@pytest.mark.deep
@pytest.mark.parametrize(("start", "first", "second"), DEEP_SHARDS)
def test_every_workload_of_four_survives_every_cut(start: str, first: str, second: str) -> None:
    """One operation more; rules 6 and 7, and power cuts after the process ended, everywhere."""
    explorer = Explorer(thorough=True)
    if explorer.cut(start, (first,)):
        explorer.explore(start, (first, second), DEEP_LENGTH)
    assert_explored("T1 deep", explorer, start=start, first=first, second=second)


@pytest.mark.deep
@pytest.mark.parametrize(("start", "first"), SHARDS)
def test_every_recovery_survives_every_cut(start: str, first: str) -> None:
    """Cut a short workload, then cut the opening that follows, at every point of it."""
    explorer = Explorer(cut_recovery=True)
    explorer.explore(start, (first,), RECOVERY_LENGTH)
    assert_explored("T1 deep recovery", explorer, start=start, first=first)


@pytest.mark.parametrize("start", SUITE_STARTS)
def test_the_first_recovery_survives_every_cut(start: str) -> None:
    """The same for single operations, short enough for every run."""
    explorer = Explorer(cut_recovery=True)
    for operation in OPERATIONS:
        explorer.cut(start, (operation,))
    assert_explored("T1 recovery", explorer, start=start, first="each alone")


def test_a_segment_that_replaces_a_leftover_is_kept() -> None:
    """A rotation that was cut leaves a segment without a header, and recovery replaces it.

    It used to remember that number as a leftover and to unlink the segment that it had just
    made, with everything that was put into it later.
    """
    assert Explorer(thorough=True).cut("empty", ("put", "rotate"))


# The oracle itself: stores with a fault that it must see.


class WithoutSync(WrappedFiles):
    """A disk that forgets syncs: of directories, or of files whose names end that way.

    The first sync of each file is real, so that there is a store at all.
    """

    def __init__(self, inner: SimFiles, *endings: str, sync_dir: bool = True) -> None:
        super().__init__(inner)
        self._endings = endings
        self._sync_dir = sync_dir
        self._names: dict[object, str] = {}
        self._synced: set[str] = set()

    def create(self, directory: Handle, name: str) -> Handle:
        handle = self.inner.create(directory, name)
        self._names[handle] = name
        return handle

    def open(self, directory: Handle, name: str, *, write: bool) -> Handle:
        handle = self.inner.open(directory, name, write=write)
        self._names[handle] = name
        return handle

    def datasync(self, handle: Handle) -> None:
        name = self._names[handle]
        if name not in self._synced or not name.endswith(self._endings):
            self._synced.add(name)
            self.inner.datasync(handle)

    def sync_dir(self, directory: Handle) -> None:
        if self._sync_dir:
            self.inner.sync_dir(directory)

    def _around(self, name: str, args: tuple[object, ...], call: Callable[[], T]) -> T:
        return call()


def cut_each(explorer: Explorer, operations: tuple[str, ...]) -> None:
    for length in range(1, len(operations) + 1):
        explorer.cut("empty", operations[:length])


def assert_seen(explorer: Explorer, operations: tuple[str, ...], rule: str) -> None:
    """Some cut of the workload breaks that rule, and the failure says how to see it again."""
    with pytest.raises(CutFailed, match=rule) as caught:
        cut_each(explorer, operations)
    assert "reproduce: see(Cut(start='empty'" in str(caught.value)


def test_the_oracle_sees_a_segment_that_is_not_synced() -> None:
    explorer = Explorer(wrap=lambda files: WithoutSync(files, ".log"))
    assert_seen(explorer, ("put",), "rule 1: confirmed records are lost")


def test_the_oracle_sees_a_checkpoint_that_is_not_synced() -> None:
    """The segment is unlinked although the checkpoint that no longer needs it may be lost."""
    explorer = Explorer(wrap=lambda files: WithoutSync(files, ".a", ".b"))
    assert_seen(explorer, ("put", "rotate", "take"), "a crash is no damage")


def test_the_oracle_sees_a_directory_that_is_not_synced() -> None:
    explorer = Explorer(wrap=lambda files: WithoutSync(files, sync_dir=False))
    assert_seen(explorer, ("put",), "every segment is missing")


def test_the_oracle_sees_a_counter_that_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(State, "skip_counters", lambda *_: None)
    assert_seen(Explorer(), ("put_os", "put_os"), "rule 8")


def test_the_oracle_sees_frames_from_behind_a_bad_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recovery that steps over what it cannot read and delivers the rest."""
    strict = SegmentFile.frames

    def lenient(self: SegmentFile, start: int, end: int, **_: object) -> Iterator[Frame]:
        while start < end:
            try:
                for frame in strict(self, start, end):
                    yield frame
                    start = frame.end
                return
            except DamageError:
                start = next((at for at, _ in self.sound_headers(start + 8, end)), end)

    monkeypatch.setattr(SegmentFile, "frames", lenient)
    monkeypatch.setattr(State, "disagreements", lambda *_: [])
    assert_seen(Explorer(), ("put_os", "put_os", "put_os"), "rule 4: a hole|totals: ")


def test_the_oracle_sees_a_removal_that_is_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Log.commit_frame

    def forget_sync(self: Log, draft: Draft, *, sync: bool = True) -> int:
        puts = any(plan.puts for plan in draft.plans.values())
        return commit(self, draft, sync=sync and puts)

    monkeypatch.setattr(Log, "commit_frame", forget_sync)
    assert_seen(Explorer(), ("put", "take"), "rule 2: removed records are back")


def test_the_oracle_sees_a_commit_that_is_torn_in_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two queues in one commit, written as two frames."""
    put, commit = Draft.put, Log.commit_frame
    wanted: list[tuple[QueueState, list[bytes]]] = []

    def note(self: Draft, queue: QueueState, payloads: list[bytes], **more: Any) -> int:
        wanted.append((queue, payloads))
        return put(self, queue, payloads, **more)

    def split(self: Log, draft: Draft, *, sync: bool = True) -> int:
        parts = wanted.copy()
        wanted.clear()
        if len(parts) < 2:
            return commit(self, draft, sync=sync)
        for queue, payloads in parts:
            part = Draft(self.state, draft.now)
            put(part, queue, payloads)
            commit(self, part, sync=sync)
        return self.sequence

    monkeypatch.setattr(Draft, "put", note)
    monkeypatch.setattr(Log, "commit_frame", split)
    assert_seen(Explorer(), ("put_many",), "rule 5: commits .0. are there in part")
