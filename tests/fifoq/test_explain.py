"""What became of a record: told from the log alone, for the owner and from outside."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import fifoq
import fifoq.sync
from fifoq import Event, Explanation, Key, Queue, Store
from fifoq.explain import _events, _state, explain
from store import Reader
from store.blocks import REASONS, TAKEN
from store.journey import Journey, Step
from tests.fifoq.support import PATH, Bench, SmallDisk

pytestmark = pytest.mark.anyio

SECRET = b"the payload itself"


def whats(told: Explanation) -> list[str]:
    return [event.what for event in told.events]


async def test_a_record_that_waits(bench: Bench) -> None:
    async with bench.open_store() as store:
        q = await store.queue("orders")
        await q.put(b"other")
        key = await q.put(SECRET, headers={"trace": "hidden value", "kind": "x"})
        told = await store.explain(key, queue="orders")
        assert (told.queue, told.counter, told.key, told.state) == ("orders", 2, key, "ready")
        assert (told.size, told.headers, told.columns) == (18, ["trace", "kind"], ["headers"])
        assert (told.attempts, told.buffered, told.dead_letter, told.damage) == (0, None, None, [])
        (put,) = told.events
        assert (put.what, put.time, put.segment) == ("put", key.timestamp, 1)
        assert put.frame > 0
        assert await store.explain(2, queue="orders") == told


async def test_neither_payload_nor_header_values_are_shown(bench: Bench) -> None:
    async with bench.open_store() as store:
        q = await store.queue()
        await q.put(SECRET, headers={"trace": "hidden value"})
        told = await store.explain(1)
        for shown in (str(told), repr(told)):
            assert "trace" in shown
            assert "payload itself" not in shown
            assert "hidden value" not in shown


async def test_every_hand_out_is_told_and_how_it_ended(bench: Bench) -> None:
    async with bench.open_store() as store:
        q = await store.queue()
        await q.put(b"a")
        first = await q.lease()
        told = await store.explain(1)
        assert (told.state, told.attempts, whats(told)) == ("leased", 1, ["put", "leased"])
        await first.nack()
        assert (await store.explain(1)).state == "delayed"
        second = await q.lease()
        await second.ack()
        told = await store.explain(1)
        assert (told.state, told.attempts) == ("acked", 2)
        assert whats(told) == ["put", "leased", "returned", "leased", "acked"]
        assert [event.attempt for event in told.events] == [0, 1, 0, 2, 0]
        assert told.events[2].note == "nacked, run out or reopened: not recorded"
        assert told.events[-1].time is not None


async def test_a_record_that_waits_for_its_time(bench: Bench) -> None:
    async with bench.open_store() as store:
        q = await store.queue()
        await q.put(b"a", delay=100.0, ordering_key="k")
        told = await store.explain(1)
        assert (told.state, told.columns) == ("delayed", ["deliver_at", "ordering_key"])
        await asyncio.sleep(101)
        assert (await store.explain(1)).state == "ready"
    async with bench.open_store() as store:
        # Nobody has opened the queue, and the wall clock has not moved.
        assert (await store.explain(1)).state == "delayed"


async def test_a_record_of_a_compressed_block_has_its_own_size(bench: Bench) -> None:
    async with bench.open_store() as store:
        q = await store.queue(compression="zlib")
        await q.put_many([b"x" * 3000, b"y" * 5000])
        told = await store.explain(2)
        assert (told.size, told.state) == (5000, "ready")


async def test_a_take_is_told(bench: Bench) -> None:
    async with bench.open_store() as store:
        q = await store.queue()
        await q.put_many([b"a", b"b"])
        await q.take()
        told = await store.explain(1)
        assert (told.state, whats(told)) == ("taken", ["put", "taken"])


async def test_what_happened_in_memory_alone_is_told_too(bench: Bench) -> None:
    async with bench.open_store() as store:
        q = await store.queue(durability="memory", flush_interval=3600.0)
        q.put_nowait(b"a")
        q.put_nowait(b"b")
        assert q.take_nowait() == b"a"
        assert (await store.explain(1)).state == "taken"
        assert (await store.explain(2)).state == "ready"


async def test_dead_letters_are_followed(bench: Bench) -> None:
    async with bench.open_store() as store:
        q = await store.queue("orders")
        await q.put_many([b"a", b"b", b"c"])
        deliveries = [await q.lease() for _ in range(3)]
        # Together, so that one frame holds them all.
        await asyncio.gather(*(d.reject("broken") for d in deliveries[1:]))
        for counter, letter in ((2, 1), (3, 2)):
            told = await store.explain(counter, queue="orders")
            assert (told.state, told.dead_letter) == ("dead-lettered", ("orders.dlq", letter))
            assert (await store.explain(letter, queue="orders.dlq")).state == "ready"
        assert "  now: orders.dlq 2" in str(told).splitlines()
        await deliveries[0].reject("alone")
        assert (await store.explain(1, queue="orders")).dead_letter == ("orders.dlq", 3)


async def test_dead_letters_that_were_reclaimed_are_not_guessed(bench: Bench) -> None:
    async with bench.open_store(segment_bytes=64 << 10) as store:
        q = await store.queue("orders", retention="all")
        await q.put_many([b"a", b"b"])
        deliveries = [await q.lease() for _ in range(2)]
        await asyncio.gather(*(d.reject("broken") for d in deliveries))
        told = await store.explain(1, queue="orders")
        assert told.dead_letter == ("orders.dlq", 1)
        log = store._committer.log
        assert log is not None
        reader = Reader(log.path, files=log.directory.files, clock=log.clock)

        def gone(*_: object, **__: object) -> Any:
            raise fifoq.RangeGone("orders.dlq", 1, 3)

        with reader, pytest.MonkeyPatch.context() as patch:
            patch.setattr(reader, "blocks", gone)
            assert explain(reader, "orders", 1).dead_letter is None
            assert explain(reader, "orders", 1).state == "dead-lettered"


async def test_counters_that_no_record_has(bench: Bench) -> None:
    async with bench.open_store() as store:
        q = await store.queue()
        told = await store.explain(7)
        assert (told.state, told.events, told.key, told.size) == ("not put", [], None, None)
        assert str(told) == "main 7: not put"
        await q.put(b"a")
        assert (await store.explain(1, queue="nobody")).state == "not put"
        assert "nobody" not in store.queues()


async def test_what_is_reclaimed_is_said_to_be_so(bench: Bench) -> None:
    async with bench.open_store(segment_bytes=64 << 10) as store:
        q = await store.queue()
        for _ in range(8):
            await q.put(bytes(30_000))
        for _ in range(7):
            await q.take()
        await q.flush()
        for _ in range(4):
            await q.put(bytes(30_000))
        told = await store.explain(1)
        assert told.state in ("reclaimed", "taken")
        assert told.events[0] == Event(what="put", note="the frame that told of it was reclaimed")
        assert "reclaimed" in str(told)


async def test_a_reopened_store_tells_the_same(bench: Bench) -> None:
    async with bench.open_store() as store:
        q = await store.queue()
        await q.put(b"a")
        await q.put(b"b")
        await q.take()
        before = await store.explain(1)
    async with bench.open_store() as store:
        assert await store.explain(1) == before
        # Nobody has opened the queue in this life.
        assert (await store.explain(2)).state == "ready"


async def test_seen_from_outside_a_record_is_there(bench: Bench) -> None:
    async with bench.open_store() as store:
        q = await store.queue()
        key = await q.put(b"a")
        await q.put(b"b")
        await q.take()
        await q.flush()
        owners = await store.explain(key)
        opening = fifoq.open_store(PATH, read_only=True, files=bench.files, clock=bench.clock)
        outside = await on_thread(opening)
        try:
            assert await on_thread(outside.explain(key)) == owners
            told = await on_thread(outside.explain(2))
            assert (told.state, whats(told)) == ("there", ["put"])
            with pytest.raises(ValueError):
                await outside.explain(0)
        finally:
            await on_thread(outside.close())


async def on_thread(work: Any) -> Any:
    """Work of a thread that virtual time does not know of."""
    loop: Any = asyncio.get_running_loop()
    loop.busy += 1
    try:
        return await work
    finally:
        loop.busy -= 1


async def test_the_time_line_is_for_people(bench: Bench) -> None:
    async with bench.open_store() as store:
        q = await store.queue("orders")
        await q.put(b"a")
        async with q.lease():
            pass
        told = await store.explain(1, queue="orders")
        first, head, *rest = str(told).splitlines()
        assert first == "orders 1: acked"
        assert head.split() == ["what", "when", "frame", "where"]
        assert [line.split()[0] for line in rest] == ["put", "leased,", "acked"]
        assert "not recorded" in rest[1]
        assert rest[0].endswith("1 bytes, one of 1 records of its commit, buffered: not recorded")


async def test_how_long_a_record_was_buffered_is_told_where_the_log_knows(bench: Bench) -> None:
    async with bench.open_store() as store:
        q = await store.queue()
        await q.schedule("job", b"x", every=1)
        await q.take()
        log = store._committer.log
        assert log is not None
        with Reader(log.path, files=log.directory.files, clock=log.clock) as reader:
            journey = reader.journey("main", 1)
        put = journey.steps[0]
        step = Step(
            **{
                **{name: getattr(put, name) for name in Step.__struct_fields__},
                "frame_time": put.time + 1_500_000,
            }
        )
        (event,) = _events(_journey(steps=[step]))
        assert event.note.endswith("buffered 0.001500 s")


def _journey(**fields: Any) -> Journey:
    given: dict[str, Any] = {
        "queue": "q",
        "counter": 1,
        "steps": [],
        "left_out": 0,
        "live": True,
        "attempts": 0,
        "fate": "",
        "unlogged": None,
        "damage": [],
    }
    return Journey(**{**given, **fields})


def _step(kind: Any, **more: Any) -> Step:
    return Step(kind=kind, segment=1, offset=128, sequence=9, **more)


def test_steps_that_are_left_out_are_counted() -> None:
    events = _events(_journey(steps=[_step("put"), _step("leased", attempt=1)], left_out=5))
    assert events[-1].note == "5 steps in between are left out"


def test_a_removal_that_only_the_checkpoint_tells_is_told_as_such() -> None:
    journey = _journey(steps=[_step("put")], live=False, unlogged=(TAKEN, 55))
    events = _events(journey)
    assert (events[-1].what, events[-1].time) == ("taken", 55)
    assert "full disk" in events[-1].note
    assert _state(journey, events, "there") == "taken"


def test_a_removal_whose_frame_is_gone_is_told_as_such() -> None:
    journey = _journey(steps=[_step("put")], live=False)
    events = _events(journey)
    assert (events[-1].what, events[-1].time) == ("removed", None)
    assert _state(journey, events, "there") == "removed"


def test_moves_and_returns_are_told() -> None:
    steps = [_step("put"), _step("moved"), _step("removed", reason=TAKEN), _step("restored")]
    events = _events(_journey(steps=steps))
    assert [e.what for e in events] == ["put", "moved", "taken", "restored"]
    assert [e.note for e in events][1::2] == ["by compaction", "its taker had left"]


@pytest.mark.parametrize("reason", REASONS)
def test_each_reason_has_its_state(reason: int) -> None:
    journey = _journey(steps=[_step("put"), _step("removed", reason=reason)], live=False)
    assert _state(journey, _events(journey), "there") == REASONS[reason]


def test_damage_is_named_to_people() -> None:
    told = Explanation(
        queue="q",
        counter=1,
        key=None,
        state="reclaimed",
        events=[Event(what="put", note="gone")],
        size=None,
        headers=[],
        columns=[],
        buffered=None,
        attempts=0,
        dead_letter=None,
        damage=["/data/1.log: byte 5: rot"],
    )
    assert str(told).splitlines()[-1] == "  damaged: /data/1.log: byte 5: rot"


async def test_nonsense_is_refused(bench: Bench) -> None:
    async with bench.open_store() as store:
        wrong: Any
        for wrong in ("1", None, 1.0, True):
            with pytest.raises(TypeError):
                await store.explain(wrong)
        for wrong in (0, -1, Key(0, 0)):
            with pytest.raises(ValueError):
                await store.explain(wrong)
        with pytest.raises(fifoq.InvalidName):
            await store.explain(1, queue="No Queue")
    with pytest.raises(fifoq.QueueClosed):
        await store.explain(1)


async def test_a_full_disk_does_not_keep_it_from_telling() -> None:
    disk = SmallDisk()
    async with disk.open_store() as store:
        q = await store.queue(durability="memory")
        await q.put(b"a", durability="sync")
        disk.fill()
        await fill_up(store, q)
        assert (await store.explain(1)).state == "ready"
        disk.empty()


async def fill_up(store: Store, queue: Queue[bytes]) -> None:
    """Put in memory until nothing more can be written."""
    try:
        while True:
            await queue.put(bytes(60_000), durability="os")
    except fifoq.DiskFull:
        pass


def test_threads_may_ask_too(tmp_path: Any) -> None:
    with fifoq.sync.open_store(tmp_path) as store:
        key = store.queue().put(b"a")
        assert store.explain(key).state == "ready"
        with fifoq.sync.open_store(tmp_path, read_only=True) as outside:
            assert outside.explain(key).state == "there"
