"""Joints: changes to several queues that one frame holds, or none does."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from typing import Any

import pytest

from actors.testing import settle
from fifoq import DiskFull, Queue, Store
from fifoq.attributes import Attributes
from fifoq.joint import Joint
from fifoq.options import OS, SYNC
from fifoq.runs import Returned
from fifoq.testing.simfiles import SimFiles
from store import DurabilityError, FifoqError, Log
from store.blocks import ACKED, DEAD_LETTERED
from tests.fifoq.support import Bench, SmallDisk, cancelled, drained, started
from tests.support.faulty import Fault, FaultyFiles

pytestmark = pytest.mark.anyio


class Ends:
    """What a joint told about its end."""

    def __init__(self, joint: Joint) -> None:
        self.told: list[object] = []
        joint.done = lambda: self.told.append("done")
        joint.undone = self.told.append


def claim(queue: Queue[Any]) -> Returned:
    """The oldest record, out of its place and still counted."""
    assert queue.looks_ready()
    record = queue.claim_head()
    queue.bias += 1
    return record


def move(queue: Queue[Any], *names: str, level: int = SYNC) -> Joint:
    """The oldest record of a queue goes to others."""
    joint = Joint(level=level)
    record = claim(queue)
    for name in names:
        joint.put(name, record.payload, Attributes(b"\x80"))
    joint.remove(queue, record, DEAD_LETTERED)
    return joint


def frames(store: Store) -> int:
    log = store._committer.log
    assert log is not None
    return log.sequence


async def test_puts_and_removals_of_two_queues_are_one_frame(bench: Bench) -> None:
    async with bench.open_store() as store:
        one, two = await store.queue("one"), await store.queue("two")
        await one.put_many([b"a", b"b"])
        before = frames(store)
        joint = move(one, "two")
        ends = Ends(joint)
        joint.set_state("note", b"moved")
        await store._committer.joints.commit(joint)
        assert frames(store) == before + 1
        assert ends.told == ["done"]
        assert [key.counter for key in joint.keys] == [1]
        assert (len(one), len(two)) == (1, 1)
        assert two.stats().current_size == two.stats().ready == 1
        assert await two.take() == b"a"
        assert await one.take() == b"b"
        assert await store._committer.call(lambda log: log.state_of("note")) == b"moved"


async def test_a_queue_that_nobody_opened_gets_its_record(bench: Bench) -> None:
    async with bench.open_store() as store:
        one = await store.queue("one")
        await one.put_many([b"a", b"b"])
        for _ in range(2):
            await store._committer.joints.commit(move(one, "one.dlq"))
        assert list(store._committer.lines) == ["one"]
        letters = await store.queue("one.dlq")
        assert await drained(letters) == [b"a", b"b"]


async def test_opening_a_queue_waits_for_the_frame_that_puts_into_it(bench: Bench) -> None:
    """A queue that was opened beside the frame would give the same counter out once more."""
    async with bench.open_store() as store:
        one = await store.queue("one")
        await one.put(b"a")
        bench.runner.hold()
        opening = await started(store.queue("two"))
        for _ in range(2):
            await bench.step()
        assert bench.runner.waiting is not None, "the last thing that opening asks the log for"
        committing = asyncio.ensure_future(store._committer.joints.commit(move(one, "two")))
        await asyncio.sleep(0)
        bench.runner.step()
        await asyncio.sleep(0)
        # As a put does that has long come alone: before the one who opens goes on.
        store._committer.pump()
        assert "two" in store._committer.lines
        await settle()
        bench.runner.let_go()
        two = await opening
        await committing
        assert (await two.put(b"b")).counter == 2
        assert await drained(two) == [b"a", b"b"]


async def test_takers_see_the_records_once_they_are_committed(bench: Bench) -> None:
    async with bench.open_store() as store:
        one, two = await store.queue("one"), await store.queue("two")
        await one.put(b"a")
        taking = await started(two.take())
        bench.runner.hold()
        committing = await started(store._committer.joints.commit(move(one, "two")))
        assert (len(one), len(two)) == (0, 0)
        assert two.stats().total_put_count == 0
        assert not taking.done()
        bench.runner.let_go()
        await committing
        assert await taking == b"a"


async def test_its_level_is_that_of_the_frame(bench: Bench) -> None:
    async with bench.open_store(sync_interval=None) as store:
        one = await store.queue("one", durability="os")
        await store.queue("two", durability="os")
        await one.put_many([b"a", b"b"])
        await store.flush()
        log = store._committer.log
        assert log is not None
        await store._committer.joints.commit(move(one, "two", level=OS))
        assert log.durable_upto < log.sequence
        await store._committer.joints.commit(move(one, "two", level=SYNC))
        assert log.durable_upto == log.sequence


async def test_withdrawn_before_the_seal_it_never_happens(bench: Bench) -> None:
    async with bench.open_store() as store:
        one, two = await store.queue("one"), await store.queue("two")
        await one.put_many([b"a", b"b"])
        bench.runner.hold()
        busy = await started(one.put(b"c"))
        joint = move(one, "two", "three")
        ends = Ends(joint)
        committing = await started(store._committer.joints.commit(joint))
        assert two._depth() == 1
        await cancelled(committing)
        assert ends.told == [None]
        assert two._depth() == 0
        assert not store._committer.joints.withdraw(joint)
        bench.runner.let_go()
        await busy
        await store.flush()
        assert (len(one), len(two)) == (3, 0)
        assert "three" not in store.queues()
        assert store._committer.waiting_bytes == 0


async def test_left_after_the_seal_it_happens_once(bench: Bench) -> None:
    async with bench.open_store() as store:
        one, two = await store.queue("one"), await store.queue("two")
        await one.put(b"a")
        bench.runner.hold()
        joint = move(one, "two")
        ends = Ends(joint)
        committing = await started(store._committer.joints.commit(joint))
        assert bench.runner.waiting is not None
        await cancelled(committing)
        assert ends.told == []
        bench.runner.let_go()
        await settle()
        assert ends.told == ["done"]
        assert await drained(two) == [b"a"]
        assert len(one) == 0


async def test_a_full_disk_undoes_it_whole(disk: SmallDisk) -> None:
    """Its removals were written alone, as those of takes are, and its records were gone."""
    async with disk.open_store() as store:
        one, two = await store.queue("one"), await store.queue("two")
        await one.put_many([b"x" * 1_600_000, b"b"])
        disk.fill()
        joint = move(one, "two", "three")
        ends = Ends(joint)
        with pytest.raises(DiskFull):
            await store._committer.joints.commit(joint)
        assert isinstance(ends.told[0], DiskFull)
        assert len(ends.told) == 1
        one.bias -= 1
        one.give_back(joint.removals[0].record)
        assert (len(one), len(two)) == (2, 0)
        disk.empty()
        await store._committer.joints.commit(move(one, "two"))
        assert await drained(two) == [b"x" * 1_600_000]
        assert store._committer.waiting_bytes == 0
    async with disk.open_store() as store:
        assert await drained(await store.queue("one")) == [b"b"]
        assert "three" not in store.queues()


async def test_removals_alone_go_on_when_the_disk_is_full(disk: SmallDisk) -> None:
    async with disk.open_store() as store:
        one, two = await store.queue("one"), await store.queue("two")
        await one.put_many([b"a", b"b"])
        await two.put_many([b"c", b"d"])
        disk.fill()
        joint = Joint(level=SYNC)
        for queue in (one, two):
            joint.remove(queue, claim(queue), ACKED)
        putting = asyncio.ensure_future(one.put(b"x" * 1_600_000))
        ends = Ends(joint)
        await store._committer.joints.commit(joint)
        assert ends.told == ["done"]
        with pytest.raises(DiskFull):
            await putting
        assert (len(one), len(two)) == (1, 1)
        disk.empty()
    async with disk.open_store() as store:
        assert await drained(await store.queue("one")) == [b"b"]
        assert await drained(await store.queue("two")) == [b"d"]


async def test_removals_of_what_no_frame_holds_yet_wait_for_space(disk: SmallDisk) -> None:
    async with disk.open_store() as store:
        one = await store.queue("one", durability="memory")
        two = await store.queue("two", durability="memory")
        await one.put(b"x" * 1_600_000)
        await two.put(b"b")
        joint = Joint(level=SYNC)
        joint.remove(one, claim(one), ACKED)
        joint.remove(two, claim(two), ACKED)
        disk.fill()
        with pytest.raises(DiskFull):
            await store._committer.joints.commit(joint)
        assert (len(one), len(two)) == (1, 1)
        disk.empty()
        await store._committer.joints.commit(joint)
        assert (len(one), len(two)) == (0, 0)


async def test_one_that_came_while_a_frame_was_refused_is_tried(disk: SmallDisk) -> None:
    async with disk.open_store() as store:
        one = await store.queue("one")
        await one.put_many([b"x" * 1_200_000, b"small"])
        disk.fill()
        disk.runner.hold()
        putting = await started(one.put(b"x" * 1_600_000))
        large = await started(store._committer.joints.commit(move(one, "two")))
        small = await started(store._committer.joints.commit(move(one, "two")))
        disk.runner.let_go()
        with pytest.raises(DiskFull):
            await putting
        with pytest.raises(DiskFull):
            await large
        with pytest.raises(DiskFull):
            # In the same frame: it may be tried again.
            await small
        disk.empty()
        assert len(one) == 2


async def test_a_failed_store_fails_it() -> None:
    files = FaultyFiles(SimFiles())
    bench = Bench(files)
    store = await bench.open_store()
    one = await store.queue("one")
    await one.put(b"a")
    bench.runner.hold()
    committing = await started(store._committer.joints.commit(move(one, "two")))
    late = await started(store._committer.joints.commit(Joint(states=[("note", b"x")])))
    files.faults = (Fault(at=0, error=errno.EIO, for_ever=True),)
    bench.runner.let_go()
    for task in (committing, late):
        with pytest.raises(DurabilityError):
            await task
    with contextlib.suppress(FifoqError):
        await store.close()


@pytest.mark.parametrize("records", [40, 50])
async def test_no_frame_holds_a_part_of_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, records: int
) -> None:
    """Frames are small here, and each joint has one record in each of two queues."""
    for module in ("committer", "joint"):
        monkeypatch.setattr(f"fifoq.{module}.FRAME_BYTES_MAX", 16_500)
    monkeypatch.setattr("fifoq.joint.SLACK_BYTES", 1000)
    held: list[dict[str, int]] = []
    commit, begin = Log.commit, Log.begin

    def note(draft: Any) -> None:
        plans = getattr(draft, "plans", {})
        held.append({name: len(plan.puts) for name, plan in plans.items() if plan.puts})

    def noting(log: Log, draft: Any, **options: Any) -> Any:
        note(draft)
        return commit(log, draft, **options)

    def noting_begun(log: Log, draft: Any, *, sync: bool) -> Any:
        begun = begin(log, draft, sync=sync)
        if begun is not None:
            note(draft)
        return begun

    async with bench.open_store() as store:
        one, two = await store.queue("one"), await store.queue("two")
        bench.runner.hold()
        busy = await started(one.put(b"busy"))
        monkeypatch.setattr(Log, "commit", noting)
        monkeypatch.setattr(Log, "begin", noting_begun)
        for number in range(records):
            joint = Joint(level=SYNC)
            joint.put("one", b"%d" % number * 1000)
            joint.put("two", b"%d" % number * 1000)
            store._committer.joints.submit(joint)
            if number % 3 == 0:
                two.submit(b"x" * 5000)
        bench.runner.let_go()
        await busy
        await store.flush()
        with_joints = [names for names in held if "one" in names]
        assert len(with_joints) > 3
        assert all("two" in names for names in with_joints)
        assert (await drained(one))[1:] == [b"%d" % n * 1000 for n in range(records)]
        assert [x for x in await drained(two) if x[:1] != b"x"] == [
            b"%d" % n * 1000 for n in range(records)
        ]


async def test_a_record_of_the_largest_size_can_be_moved(bench: Bench) -> None:
    async with bench.open_store(segment_bytes=80 << 20) as store:
        one = await store.queue("one", max_item_bytes=60 << 20)
        await one.put(b"x" * (60 << 20))
        await one.put(b"y")
        await one.peek()
        await store._committer.joints.commit(move(one, "two"))
        assert await one.take() == b"y"
        two = await store.queue("two", max_item_bytes=60 << 20)
        assert len(await two.take()) == 60 << 20


@pytest.fixture
def disk() -> SmallDisk:
    return SmallDisk()
