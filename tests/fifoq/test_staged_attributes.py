"""Staged records that wait for a time, have a lane or a key: taken in like any others."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from actors.testing import settle
from fifoq.attributes import Attributes
from fifoq.codec import read_kept
from fifoq.staged import TIME_MAX, decode_part_block, encode_part_block
from fifoq.testing.crashes import after_process_crash, crash_points, power_images
from fifoq.testing.simfiles import SimFiles
from store import DamageError, open_log
from store.blocks import COUNTERS
from tests.fifoq.support import PATH, Bench, drained, started
from tests.fifoq.test_staged_intake import STAGED, hand_over, names, on_a_loop, store_id
from tests.support.staging import block_of, staged_batch

pytestmark = pytest.mark.anyio

HOUR = 3600


def in_an_hour() -> Attributes:
    return Attributes(deliver_at=time.time_ns() + HOUR * 10**9)


async def refusal_of(bench: Bench) -> str:
    """Why what was handed over is not in the queue."""
    async with bench.open() as q:
        await settle()
        assert q.empty()
        await q.put(b"on")
        assert await q.take() == b"on"
    (refused,) = [name for name in names(bench.files, STAGED) if name.endswith(".refused")]
    content: bytes = bench.files.content(f"{STAGED}/{refused}")
    return content.decode().splitlines()[0]


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize("priorities", [True, False])
async def test_a_staged_record_waits_for_its_time_also_after_a_reopen(
    bench: Bench, opened: bool, priorities: bool
) -> None:
    async with bench.open(priorities=priorities, maxsize=100):
        pass
    identity = await store_id(bench)
    said = {b"later": in_an_hour(), b"past": Attributes(deliver_at=1)}
    async with bench.open_store() as store:
        if opened:
            await store.queue()
        hand_over(
            bench.files, staged_batch(identity, [[b"past", b"later", b"now"]], attributes=said)
        )
        store._staged.wake()
        await settle()
        q = await store.queue()
        await asyncio.sleep(1)
        assert [await q.take(timeout=1) for _ in range(2)] == [b"past", b"now"]
        assert (len(q), q.stats().delayed) == (1, 1)
    async with bench.open() as q:
        assert (len(q), q.stats().delayed) == (1, 1)
        assert (q.options.priorities, q.options.maxsize) == (priorities, 100), "kept as they were"
        taking = await started(q.take())
        await asyncio.sleep(HOUR - 60)
        assert not taking.done()
        await asyncio.sleep(120)
        assert await taking == b"later"


@pytest.mark.parametrize("opened", [True, False])
def test_ended_at_any_moment_a_staged_record_still_waits_for_its_time(opened: bool) -> None:
    """Whoever opens the queue must know that there is one to look for: the same frame says so."""
    bench = Bench()
    identity = on_a_loop(store_id(bench))
    batch = staged_batch(identity, [[b"later", b"now"]], attributes={b"later": in_an_hour()})
    hand_over(bench.files, batch)
    found: list[SimFiles] = []

    async def work(files: SimFiles) -> None:
        async with Bench(files).open_store() as store:
            if opened:
                await store.queue()
            await settle()

    def visit(index: int, files: SimFiles) -> None:
        found.append(after_process_crash(files))
        found.extend(map(SimFiles.from_image, power_images(files, limit=4, samples=2, seed=index)))

    def marked(files: SimFiles) -> bool:
        """Whether the log, as it is, says of the records that some may wait."""
        with open_log(PATH, files=SimFiles.from_image(files.image())) as log:
            queue = log.state.queues.get("main")
            return (
                queue is None
                or not queue.genesis.queue_size
                or read_kept(queue.configuration).aside
            )

    async def outcome(files: SimFiles) -> tuple[list[bytes], int]:
        async with Bench(files).open() as q:
            await settle()
            return [await q.take(timeout=1)], q.stats().delayed

    crash_points(lambda files: on_a_loop(work(files)), visit, files=bench.files)
    for files in found:
        assert marked(files)
        assert on_a_loop(outcome(files)) == ([b"now"], 1)


@pytest.mark.parametrize("opened", [True, False])
async def test_a_staged_batch_of_which_every_id_is_known_adds_nothing(
    bench: Bench, opened: bool
) -> None:
    """A batch with nothing new in it must be taken in like any other."""
    async with bench.open() as q:
        await q.put(b"first", dedup_id="a")
    said = {b"again": Attributes(dedup_id=b"a")}
    hand_over(bench.files, staged_batch(await store_id(bench), [[b"again"]], attributes=said))
    async with bench.open_store() as store:
        if opened:
            await store.queue()
        await settle()
        q = await store.queue()
        assert await drained(q) == [b"first"]
    assert not names(bench.files, STAGED)


@pytest.mark.parametrize("opened", [True, False])
async def test_staged_records_come_by_their_priorities(bench: Bench, opened: bool) -> None:
    async with bench.open(priorities=True):
        pass
    said = {b"last": Attributes(priority=9), b"first": Attributes(priority=0)}
    batch = staged_batch(await store_id(bench), [[b"last", b"plain", b"first"]], attributes=said)
    async with bench.open_store() as store:
        if opened:
            await store.queue()
        hand_over(bench.files, batch)
        store._staged.wake()
        await settle()
        assert await drained(await store.queue()) == [b"first", b"plain", b"last"]


@pytest.mark.parametrize("opened", [True, False])
async def test_priorities_for_a_queue_without_are_refused_and_not_dropped(
    bench: Bench, opened: bool
) -> None:
    if opened:
        async with bench.open() as q:
            await q.put(b"a")
            await q.take()
    said = {b"b": Attributes(priority=1)}
    hand_over(bench.files, staged_batch(await store_id(bench), [[b"a"], [b"b"]], attributes=said))
    assert await refusal_of(bench) == (
        "queue 'main' has no priorities, and the column priority has others than 5. Open the queue "
        "with priorities=True, or leave it out"
    )


async def test_a_queue_that_is_being_opened_with_priorities_gets_its_records(bench: Bench) -> None:
    said = {b"b": Attributes(priority=1)}
    hand_over(bench.files, staged_batch(await store_id(bench), [[b"a", b"b"]], attributes=said))
    async with bench.open(priorities=True) as q:
        await settle()
        assert await drained(q) == [b"b", b"a"]


@pytest.mark.parametrize("opened", [True, False])
async def test_of_staged_records_of_one_key_one_is_out_at_a_time(
    bench: Bench, opened: bool
) -> None:
    keyed = Attributes(ordering_key=b"k")
    said = {b"k1": keyed, b"k2": keyed, b"j": Attributes(ordering_key=b"j")}
    batch = staged_batch(await store_id(bench), [[b"k1", b"k2", b"j"]], attributes=said)
    async with bench.open_store() as store:
        if opened:
            await store.queue()
        hand_over(bench.files, batch)
        store._staged.wake()
        await settle()
        q = await store.queue()
        first, other = await q.lease(), await q.lease()
        assert (first.item, other.item) == (b"k1", b"j")
        waiting = await started(q.lease())
        assert not waiting.done()
        await first.ack()
        assert (await waiting).item == b"k2"


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        (Attributes(priority=10), "a record has the priority 10, and the last is 9"),
        (Attributes(deliver_at=TIME_MAX + 1), "a record has the time"),
        (Attributes(expires_at=2**64 - 1), "a record has the time"),
        (Attributes(ordering_key=b"x" * 256), "a record has an ordering key of 256 bytes"),
        (Attributes(ordering_key=b"\xff"), "'utf-8' codec can't decode"),
        (Attributes(dedup_id=b"x" * 256), "a record has an id of 256 bytes"),
        (Attributes(dedup_id=b"\xff"), "'utf-8' codec can't decode"),
    ],
)
async def test_what_no_put_would_say_is_refused_with_its_batch(
    bench: Bench, attributes: Attributes, reason: str
) -> None:
    said = {b"b": attributes}
    hand_over(bench.files, staged_batch(await store_id(bench), [[b"a", b"b"]], attributes=said))
    assert reason in await refusal_of(bench)


def test_counters_that_somebody_else_gave_out_are_refused() -> None:
    block = block_of([b"a"], attributes=[Attributes(ordering_key=b"k")])
    columns = {**block.columns, COUNTERS: memoryview(b"\x07" + bytes(7)).cast("Q")}
    content = b"".join(encode_part_block(msgspec.structs.replace(block, columns=columns)))
    with pytest.raises(DamageError, match="its records have counters"):
        decode_part_block(content, 0, "main")
