"""What Spark staged for a store comes into its queues once, in order, whatever ends in between."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import fifoq
from actors.testing import VirtualTimeLoop, settle
from fifoq import staged_intake
from fifoq.codec import encode_headers
from fifoq.staged import decode_progress, state_name
from fifoq.testing.crashes import after_process_crash, crash_points, power_images
from fifoq.testing.simfiles import SimFiles
from store import open_log
from tests.fifoq.loops import until
from tests.fifoq.support import PATH, Bench, SmallDisk, drained, started
from tests.support.staging import block_of, staged_batch

pytestmark = pytest.mark.anyio

STAGED = f"{PATH}/staged"
BATCH = [[b"a", b"bb", b""], [b"d"], [], [b"e", b"f", b"g", b"h"]]
FLAT = [payload for partition in BATCH for payload in partition]


async def store_id(bench: Bench) -> bytes:
    async with bench.open_store() as store:
        log = store._committer.log
        assert log is not None
        return log.store_id


def hand_over(files: SimFiles, batch: dict[str, bytes]) -> None:
    if "staged" not in names(files, PATH):
        files.add_dir(STAGED)
    for name, content in batch.items():
        files.add_file(f"{STAGED}/{name}", content)


def names(files: Any, path: str) -> list[str]:
    handle = files.open_dir(path)
    try:
        return sorted(files.list_dir(handle))
    finally:
        files.close(handle)


async def test_a_staged_batch_is_in_the_queue_in_order_of_its_partitions(bench: Bench) -> None:
    hand_over(bench.files, staged_batch(await store_id(bench), BATCH))
    async with bench.open() as q:
        await settle()
        assert names(bench.files, STAGED) == []
        assert await drained(q) == FLAT


async def test_a_queue_that_is_not_open_gets_its_records_all_the_same(bench: Bench) -> None:
    marks = {b"bb": encode_headers({"k": "v"}), b"h": encode_headers({"x": "y"})}
    batch = staged_batch(await store_id(bench), BATCH, queue="orders", headers=marks)
    hand_over(bench.files, batch)
    async with bench.open_store() as store:
        await settle()
        assert names(bench.files, STAGED) == []
        q = await store.queue("orders")
        found = []
        for _ in FLAT:
            delivery = await q.lease()
            found.append((delivery.item, delivery.headers))
            await delivery.ack()
    expected = {b"bb": {"k": "v"}, b"h": {"x": "y"}}
    assert found == [(payload, expected.get(payload, {})) for payload in FLAT]


async def test_records_put_before_and_after_keep_their_places_and_headers(bench: Bench) -> None:
    marks = {b"bb": encode_headers({"k": "v"})}
    batch = staged_batch(await store_id(bench), BATCH, headers=marks)
    async with bench.open() as q:
        await q.put(b"first")
        hand_over(bench.files, batch)
        q.owner._staged.wake()  # type: ignore[union-attr]
        await settle()
        await q.put(b"last")
        records = [record async for record in q.browse()]
        assert [record.item for record in records] == [b"first", *FLAT, b"last"]
        assert [record.headers for record in records if record.item == b"bb"] == [{"k": "v"}]
        assert [record.key.counter for record in records] == list(range(1, len(FLAT) + 3))
        assert len(q) == len(FLAT) + 2


@pytest.mark.parametrize("opened", [True, False])
async def test_a_batch_that_comes_again_adds_nothing(bench: Bench, opened: bool) -> None:
    identity = await store_id(bench)
    for batch in (0, 1, 0, 1, 2):
        hand_over(bench.files, staged_batch(identity, [[b"%d" % batch]], batch=batch))
        async with bench.open_store() as store:
            if opened:
                await store.queue()
            await settle()
            assert names(bench.files, STAGED) == []
    async with bench.open() as q:
        assert await drained(q) == [b"0", b"1", b"2"]


async def test_writers_do_not_know_of_each_other(bench: Bench) -> None:
    identity = await store_id(bench)
    hand_over(bench.files, staged_batch(identity, [[b"a"]], writer="w1", batch=5))
    hand_over(bench.files, staged_batch(identity, [[b"b"]], writer="w2", batch=3))
    hand_over(bench.files, staged_batch(identity, [[b"c"]], writer="w1", batch=0, queue="other"))
    async with bench.open_store() as store:
        await settle()
        assert await drained(await store.queue()) == [b"a", b"b"]
        assert await drained(await store.queue("other")) == [b"c"]


async def test_a_writer_that_another_query_took_over_is_refused(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """A new checkpoint counts its batches from 0 again: they must not vanish as known ones."""
    identity = await store_id(bench)
    hand_over(bench.files, staged_batch(identity, [[b"a"]], batch=4, query="q1"))
    async with bench.open_store():
        await settle()
    hand_over(bench.files, staged_batch(identity, [[b"b"]], batch=0, query="q2"))
    with caplog.at_level(logging.ERROR, "fifoq"):
        async with bench.open() as q:
            await settle()
            assert await drained(q) == [b"a"]
    assert "belongs to the query q1" in caplog.text
    refused = [name for name in names(bench.files, STAGED) if name.endswith(".refused")]
    assert len(refused) == 1
    content = bench.files.content(f"{STAGED}/{refused[0]}")
    assert content.startswith(b"writer 'spark' belongs to the query q1")
    assert not any(name.endswith(".manifest") for name in names(bench.files, STAGED))


async def test_the_rest_of_a_batch_is_not_taken_from_other_parts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of it was in when the owner was killed; the writer, started anew, staged it again."""
    monkeypatch.setattr(staged_intake, "STEP_BYTES", 20)
    identity = await store_id(bench)
    hand_over(bench.files, staged_batch(identity, [[b"a" * 40], [b"b" * 40]]))
    twin = None
    async with bench.open_store() as store:
        log = store._committer.log
        assert log is not None
        bench.runner.hold()
        for _ in range(20):
            await bench.step()
            progress = decode_progress(log.state_of(state_name("main", "spark", once=False)))
            if progress is not None and progress.blocks == 1 and twin is None:
                twin = after_process_crash(bench.files)
        bench.runner.let_go()
    assert twin is not None
    for name in names(twin, STAGED):
        handle = twin.open_dir(STAGED)
        twin.unlink(handle, name)
        twin.close(handle)
    hand_over(twin, staged_batch(identity, [[b"c" * 40], [b"d"]]))
    async with Bench(twin).open() as q:
        await settle()
        assert await drained(q) == [b"a" * 40]
    (refused,) = [name for name in names(twin, STAGED) if name.endswith(".refused")]
    assert b"1 blocks of batch 0 are in the queue already" in twin.content(f"{STAGED}/{refused}")


async def test_headers_that_nobody_can_read_are_refused_with_their_batch(bench: Bench) -> None:
    """They were found out by whoever took the record, with an error of a library."""
    for headers in (b"\xff", b"\x81\xa1\xff\xa1a", b"\x81\xa1a\x01"):
        disk = Bench(SimFiles.from_image(bench.files.image()))
        batch = staged_batch(await store_id(disk), [[b"a", b"b"]], headers={b"b": headers})
        hand_over(disk.files, batch)
        async with disk.open() as q:
            await settle()
            assert q.empty()
        (refused,) = [name for name in names(disk.files, STAGED) if name.endswith(".refused")]
        content = disk.files.content(f"{STAGED}/{refused}")
        assert b"a record's headers are not what a queue writes" in content


async def test_headers_of_another_writer_are_told_apart_from_the_data(bench: Bench) -> None:
    with open_log(PATH, files=bench.files, clock=bench.clock) as log:
        draft = log.draft()
        draft.put_block(log.queue("main"), block_of([b"a"], [b"\xff"]))
        log.commit(draft)
    async with bench.open() as q:
        delivery = await q.lease()
        assert delivery.item == b"a"
        with pytest.raises(fifoq.FormatError, match="Its data is not harmed"):
            assert delivery.headers
        await delivery.ack()


def damages(batch: dict[str, bytes]) -> Iterable[dict[str, bytes]]:
    """The batch with one thing wrong: a flipped byte, a cut, a missing part."""
    for name, content in batch.items():
        for at in range(0, len(content), 5):
            yield {**batch, name: content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]}
        yield {**batch, name: content[:-1]}
        if name.endswith(".part"):
            yield {other: bytes_ for other, bytes_ in batch.items() if other != name}


async def test_damage_anywhere_is_set_aside_whole_and_the_queue_goes_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each block a frame of its own: the last one's damage must keep the first one out.
    monkeypatch.setattr(staged_intake, "STEP_BYTES", 20)
    identity = await store_id(bench)
    batch = staged_batch(identity, [[b"a", b"b", b"c"], [b"d", b"e"]])
    good = staged_batch(identity, [[b"good"]], writer="zz")
    tried = 0
    for number, damaged in enumerate(damages(batch)):
        files = Bench(SimFiles.from_image(bench.files.image()))
        hand_over(files.files, {**damaged, **good})
        async with files.open() as q:
            await settle()
            assert await drained(q) == [b"good"], number
            await q.put(b"on")
        left = names(files.files, STAGED)
        assert sum(name.endswith(".refused") for name in left) == 1
        assert not any(name.endswith(".manifest") for name in left)
        tried += 1
    assert tried > 50


@pytest.mark.parametrize("wrong", ["store", "name", "path"])
async def test_what_is_not_for_this_store_is_refused(bench: Bench, wrong: str) -> None:
    identity = await store_id(bench)
    if wrong == "store":
        identity = bytes(16)
    batch = staged_batch(identity, [[b"a"]])
    manifest = next(name for name in batch if name.endswith(".manifest"))
    if wrong == "name":
        batch[f"x{manifest}"] = batch.pop(manifest)
    if wrong == "path":
        bad = batch[manifest].replace(b"spark~0~", b"../../~0~").split(b"\n")[0]
        batch[manifest] = b"%s\n%08x\n" % (bad, _crc(bad))
    hand_over(bench.files, batch)
    async with bench.open() as q:
        await settle()
        assert len(q) == 0
    assert any(name.endswith(".refused") for name in names(bench.files, STAGED))


def _crc(data: bytes) -> int:
    from fifoq.staged import _check

    return _check(data, 0)


async def test_limits_of_the_queue_do_not_hold_up_what_was_promised(bench: Bench) -> None:
    identity = await store_id(bench)
    async with bench.open(maxsize=1, max_bytes=1, pressure_high=1) as q:
        hand_over(bench.files, staged_batch(identity, BATCH))
        q.owner._staged.wake()  # type: ignore[union-attr]
        await settle()
        assert len(q) == len(FLAT)
        assert await drained(q) == FLAT


async def test_jobs_that_never_come_again_leave_no_state(bench: Bench) -> None:
    identity = await store_id(bench)
    hand_over(bench.files, staged_batch(identity, [[b"a"]], writer="j1", once=True))
    hand_over(bench.files, staged_batch(identity, [[b"b"]], writer="kept"))
    async with bench.open() as q:
        await settle()
        assert len(q) == 2
    with open_log(PATH, files=bench.files, clock=bench.clock) as log:
        states = [name for name, entry in log.state.states.items() if entry.present]
        assert states == ["staged/main/kept"]


async def test_a_queue_opened_while_its_records_are_written_misses_none(bench: Bench) -> None:
    hand_over(bench.files, staged_batch(await store_id(bench), BATCH))
    for steps in range(12):
        trial = Bench(SimFiles.from_image(bench.files.image()))
        async with trial.open_store() as store:
            trial.runner.hold()
            for _ in range(steps):
                await trial.step()
            opening = asyncio.ensure_future(store.queue())
            while not opening.done():
                await trial.step()
            q = opening.result()
            while await trial.step():
                pass
            trial.runner.let_go()
            await settle()
            await q.put(b"z")
            assert await drained(q) == [*FLAT, b"z"], steps


async def test_a_full_disk_is_waited_out() -> None:
    disk = Bench(SimFiles(capacity=16 << 20))
    identity = await store_id(disk)
    big = [[b"x" * 400_000] * 4]
    hand_over(disk.files, staged_batch(identity, big))
    root = disk.files.open_dir("/")
    handle = disk.files.create(root, "stuff")
    offset = 0
    for size in (1 << 20, 1 << 12, 512):
        while True:
            try:
                offset += disk.files.pwrite(handle, b"x" * size, offset)
            except OSError:
                break
    async with disk.open() as q:
        await settle()
        assert len(q) == 0
        assert len(names(disk.files, STAGED)) == 2
        disk.files.close(handle)
        disk.files.unlink(root, "stuff")
        disk.files.close(root)
        # A frame of its own, before the next try: it must not say that the batch is in.
        await q.put(b"between")
        twin = after_process_crash(disk.files)
        await asyncio.sleep(staged_intake.RETRY_SECONDS * 2)
        await settle()
        assert await drained(q) == [b"between", *big[0]]
        assert names(disk.files, STAGED) == []
    async with Bench(twin).open() as q:
        await settle()
        assert await drained(q) == [b"between", *big[0]]


async def test_a_batch_whose_frame_was_refused_once_is_still_known_when_it_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A put waits on when another queue did not fit into its frame, and the disk refuses that.

    The records go into the next frame, and without how far their writer is they would come twice.
    """
    monkeypatch.setattr("fifoq.committer.LINES_PER_FRAME_MAX", 1)
    refused = 0
    for steps in range(12):
        disk = SmallDisk()
        identity = await store_id(disk)
        big = [b"x" * 400_000] * 4
        batch = staged_batch(identity, [big])
        async with disk.open_store() as store:
            q, other = await store.queue(), await store.queue("other")
            await settle()
            hand_over(disk.files, batch)
            disk.runner.hold()
            store._staged.wake()
            for _ in range(steps):
                await disk.step()
            # So that this queue is the first in the frame, and the other one the next.
            q.put_nowait(b"a", durability="memory")
            putting = await started(other.put(b"b"))
            disk.fill()
            while await disk.step():
                if q.marks and store._committer.error_count:
                    refused += 1
                    break
            disk.empty()
            disk.runner.let_go()
            await asyncio.sleep(2 * staged_intake.RETRY_SECONDS)
            await asyncio.gather(putting, return_exceptions=True)
            assert names(disk.files, STAGED) == []
            hand_over(disk.files, batch)
            store._staged.wake()
            await settle()
            assert names(disk.files, STAGED) == []
            assert sorted(await drained(q)) == [b"a", *big], steps
    assert refused


@pytest.mark.parametrize("opened", [True, False])
def test_ended_at_any_moment_a_batch_is_neither_lost_nor_doubled(
    opened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill, or cut the power, at every change of the disk while two batches come in."""
    monkeypatch.setattr(staged_intake, "STEP_BYTES", 20)

    async def prepare() -> bytes:
        async with bench.open() as q:
            await q.put(b"before")
        return await store_id(bench)

    bench = Bench()
    identity = on_a_loop(prepare())
    hand_over(bench.files, staged_batch(identity, BATCH, batch=0))
    hand_over(bench.files, staged_batch(identity, [[b"i"], [b"j", b"k"]], batch=1))
    expected = [b"before", *FLAT, b"i", b"j", b"k"]
    image = bench.files.image()
    found: list[SimFiles] = []

    async def work(files: SimFiles) -> None:
        async with Bench(files).open_store() as store:
            if opened:
                await store.queue()
            await settle()

    def visit(index: int, files: SimFiles) -> None:
        found.append(after_process_crash(files))
        found.extend(map(SimFiles.from_image, power_images(files, limit=8, samples=4, seed=index)))

    async def outcome(files: SimFiles) -> list[bytes]:
        async with Bench(files).open() as q:
            await settle()
            assert names(files, STAGED) == []
            return await drained(q)

    count = crash_points(
        lambda files: on_a_loop(work(files)), visit, files=SimFiles.from_image(image)
    )
    assert count > 20
    for files in found:
        assert on_a_loop(outcome(files)) == expected


def on_a_loop(work: Any) -> Any:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)


async def test_a_store_without_staged_files_sets_no_timer_and_runs_no_job(bench: Bench) -> None:
    async with bench.open() as q:
        await q.put(b"a")
        await asyncio.sleep(10)
        jobs = bench.runner.job_count
        await asyncio.sleep(3600)
        assert bench.runner.job_count == jobs
        intake = q.owner._staged  # type: ignore[union-attr]
        assert intake._timer is None
        assert intake._task is None or intake._task.done()


async def test_staged_files_that_come_while_nobody_tells_are_found_after_the_next_work(
    bench: Bench,
) -> None:
    identity = await store_id(bench)
    async with bench.open() as q:
        hand_over(bench.files, staged_batch(identity, BATCH))
        await q.put(b"a")
        await asyncio.sleep(1)
        await settle()
        assert len(q) == len(FLAT) + 1
        hand_over(bench.files, staged_batch(identity, [[b"more"]], batch=1))
        await asyncio.sleep(staged_intake.POLL_SECONDS * 2)
        await settle()
        assert len(q) == len(FLAT) + 2


def test_an_idle_owner_is_told_of_staged_files_by_the_system(tmp_path: Path) -> None:
    """Twice: as the directory comes to be, and as a manifest does."""

    async def own() -> list[bytes]:
        async with fifoq.open(tmp_path / "store") as q:
            assert isinstance(q.owner, fifoq.Store)
            log = q.owner._committer.log
            assert log is not None
            await q.put(b"a")
            # By then the seal and what follows from it are done, and nothing is left that would
            # wake it. That nothing comes has no event, and the system's news need a real clock.
            await asyncio.sleep(0.3)
            for batch in range(2):
                files = staged_batch(log.store_id, [[b"%d" % batch]], batch=batch)
                (tmp_path / "store/staged").mkdir(exist_ok=True)
                for name, content in files.items():
                    (tmp_path / "store/staged" / name).write_bytes(content)
                await until(lambda batch=batch: len(q) == batch + 2, pause=0.01)  # type: ignore[misc]
            return await q.take_many(10)

    if sys.platform == "linux":
        assert asyncio.run(own()) == [b"a", b"0", b"1"]
