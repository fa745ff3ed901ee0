"""Repair: for each kind of damage, every intact record is saved and the rest is told exactly."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest

import fifoq
import fifoq.sync
from fifoq.tools.copying import TargetExists
from fifoq.tools.repair import NothingLeft, Repaired, repair
from store import Reader, open_log
from store.keys import COUNTER_MAX
from tests.cli.support import environment
from tests.support.damage import (
    OPTIONS,
    Case,
    Ending,
    Sample,
    Truth,
    build_sample,
    flips,
    header_bytes,
    read_truth,
    sectors,
    truncations,
    whole_files,
)
from tests.support.quarantining import Intact, by_counter, may_lose_tail
from tests.tools.support import rows_in, scratch

Lost = set[tuple[str, int]]
ENDINGS = pytest.mark.parametrize("ending", list(Ending), ids=lambda ending: ending.name.lower())


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage is warned of; here there is nothing else."""
    monkeypatch.setattr(logging.getLogger("store"), "disabled", True)


@cache
def intact_of(ending: Ending) -> Intact:
    return Intact(build_sample(ending))


def touched(sample: Sample, case: Case) -> dict[str, list[tuple[int, int]]]:
    """Stretches of each segment that are not as they were, whatever name they have now."""
    contents = set(case.files.values())
    found = {}
    for name in sample.segments:
        old, new = sample.files[name], case.files.get(name, b"")
        if old not in contents:
            found[name] = list(differences(old, new))
    return found


def differences(old: bytes, new: bytes, step: int = 8) -> Iterator[tuple[int, int]]:
    for start in range(0, len(old), step):
        if old[start : start + step] != new[start : start + step]:
            yield start, start + step


def in_damage(ending: Ending, case: Case) -> Lost:
    """Records whose frame was touched."""
    intact = intact_of(ending)
    stretches = touched(intact.sample, case)
    return {
        record
        for record, (file, start, end) in intact.places.items()
        if any(first < end and start < stop for first, stop in stretches.get(file, ()))
    }


def repaired(case: Case, directory: Path) -> tuple[Repaired, Truth]:
    (directory / "store").mkdir()
    for name, data in case.files.items():
        (directory / "store" / name).write_bytes(data)
    told = repair(directory / "store", directory / "new")
    # The damaged store is as it was.
    left = {path.name: path.read_bytes() for path in (directory / "store").iterdir()}
    assert left == case.files
    with open_log(directory / "new", options=OPTIONS) as log:
        assert log.quarantine is None
        return told, read_truth(log)


def judge(ending: Ending, case: Case, directory: Path) -> str:
    intact = intact_of(ending)
    told, truth = repaired(case, directory)
    found = by_counter(truth)
    for record, value in found.items():
        # Nothing is invented; what comes again was there once, and its removal is in the damage.
        assert any(then.get(record) == value for then in intact.ever), "a record is invented"
    lost = intact.records.keys() - found.keys()
    assert lost <= in_damage(ending, case), "an intact record is not there"
    listed = {
        (queue.name, counter)
        for queue in told.queues
        for first, last in queue.missing
        for counter in range(first, last + 1)
    }
    assert listed <= lost, "a record is told to be missing that is there, or was taken"
    if may_lose_tail(intact.sample, case) and not told.regions:
        # Nothing at all is left to tell by.
        return "lost" if lost else "saved"
    unknown = {queue.name: queue.unknown_from or COUNTER_MAX for queue in told.queues}
    untold = {(name, counter) for name, counter in lost - listed if counter < unknown[name]}
    assert not untold, "a record is lost, and not told to be"
    lost_states = intact.sample.truth.states.keys() - truth.states.keys()
    speaks_of_more = any(queue.unknown_from is not None for queue in told.queues)
    assert lost_states <= {*told.states} or speaks_of_more, "a state is lost without a word"
    with open_log(directory / "new", options=OPTIONS) as log:
        for name, following in intact.next_counters.items():
            if name in truth.queues:
                assert log.put(name, [b"next"])[0] >= following, "a counter is given out again"
    return "lost" if lost else "saved"


def sweep(ending: Ending, cases: Iterable[Case]) -> Counter[str]:
    verdicts: Counter[str] = Counter()
    with scratch() as directory:
        for number, case in enumerate(cases):
            each = directory / str(number)
            each.mkdir()
            try:
                verdicts[judge(ending, case, each)] += 1
            except BaseException as error:
                error.add_note(f"{ending.name}: {case.kind}: {case.note}")
                raise
            shutil.rmtree(each)
    return verdicts


KINDS = pytest.mark.parametrize("kind", ["flip", "header byte", "truncate", "sector", "file"])


def cases_of(sample: Sample, kind: str) -> Iterator[Case]:
    if kind == "flip":
        return flips(sample)
    if kind == "header byte":
        return header_bytes(sample)
    if kind == "truncate":
        return truncations(sample, stride=97)
    return sectors(sample) if kind == "sector" else spread_files(sample)


def spread_files(sample: Sample) -> Iterator[Case]:
    """Whole files gone astray; but a store all of whose segments are gone is a case of its own."""
    for case in whole_files(sample):
        if any(name.endswith(".log") for name in case.files):
            yield case


STEPS = {"flip": 2999, "header byte": 401, "truncate": 37, "sector": 29, "file": 5}


@KINDS
@ENDINGS
def test_what_is_intact_is_saved_and_the_rest_is_told(ending: Ending, kind: str) -> None:
    verdicts = sweep(ending, islice(cases_of(intact_of(ending).sample, kind), 1, None, STEPS[kind]))
    assert verdicts["saved"]


def test_commits_behind_a_checkpoint_that_nothing_speaks_of_are_not_passed_over() -> None:
    """The damage began before the checkpoint's place, or hid the last commit and its witness."""
    for ending, note in (
        (Ending.AT_REST, "00000000000000000004.log sector at 1536"),
        (Ending.RECLAIMED, "00000000000000000002.log sector at 4096"),
    ):
        every = sectors(intact_of(ending).sample)
        cases = [case for case in every if (case.kind, case.note) == ("swap sector", note)]
        assert sweep(ending, cases)["lost"] == 1


@pytest.mark.deep
@KINDS
@ENDINGS
def test_the_same_for_many_more_places(ending: Ending, kind: str) -> None:
    step = {"flip": 11, "header byte": 7}.get(kind, 1)
    verdicts = sweep(ending, islice(cases_of(intact_of(ending).sample, kind), 0, None, step))
    assert verdicts["saved"]
    assert verdicts["lost"] or kind == "file"


def damaged_store(path: Path, **options: Any) -> None:
    """Three queues in several segments, and a payload of the first that is damaged."""
    with fifoq.sync.open_store(path, segment_bytes=64 << 10) as store:
        orders = store.queue("orders", **options)
        for number in range(40):
            orders.put_many([b"%d" % number * 100] * 20, headers={"n": str(number)})
        store.queue("bills", type=list[int]).put([1, 2])
        orders.cursor("audit").take()
        orders.take_many(30)
        with suppress(RuntimeError), orders.lease():
            raise RuntimeError
    first = min(path.glob("*.log"))
    data = bytearray(first.read_bytes())
    data[len(data) - 3000] ^= 1
    first.write_bytes(data)


def test_a_store_of_the_queue_goes_on_as_it_was(tmp_path: Path) -> None:
    damaged_store(tmp_path / "store", priorities=False, retention="all")
    with Reader(str(tmp_path / "store")) as reader:
        before = reader.queues()
        store_id = reader.store_id
    told = repair(tmp_path / "store", tmp_path / "new")
    (orders,) = [queue for queue in told.queues if queue.name == "orders"]
    assert told.lost == sum(last - first + 1 for first, last in orders.missing) > 0
    assert orders.records + told.lost == before["orders"].queue_size
    with Reader(str(tmp_path / "new")) as reader:
        after = reader.queues()["orders"]
        # Consumers outside know it by its id.
        assert reader.store_id == store_id
        assert b'"retention":"all"' in (reader.state.queues["orders"].configuration or b"")
        # What was taken is still there to be read again.
        assert next(reader.blocks("orders")).first == 1
    assert after.total_put_count == before["orders"].total_put_count
    assert after.next_counter >= before["orders"].next_counter
    assert after.high_water_mark == before["orders"].high_water_mark
    with fifoq.sync.open_store(tmp_path / "new") as store:
        queue = store.queue("orders")
        assert queue.cursors() == ["audit"]
        with queue.lease(timeout=5) as delivery:
            assert delivery.headers["n"]
            assert delivery.attempt == 2
        assert store.queue("bills", type=list[int]).take() == [1, 2]
        assert queue.put(b"next").counter >= before["orders"].next_counter


def test_sectors_that_the_disk_refuses_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fifoq.sync.open(tmp_path / "store") as queue:
        for number in range(10):
            queue.put(b"%d" % number * 2000)
    pread = os.pread

    def failing(handle: int, count: int, offset: int) -> bytes:
        name = os.readlink(f"/proc/self/fd/{handle}")
        if "/store/" in name and name.endswith(".log") and offset < 9500 < offset + count:
            raise OSError(5, "Input/output error")
        return pread(handle, count, offset)

    monkeypatch.setattr(os, "pread", failing)
    told = repair(tmp_path / "store", tmp_path / "new")
    (bad,) = told.unreadable
    assert (bad.offset, bad.end) == (9216, 9728)
    assert told.lost == 1
    assert told.records == 9


REPAIR_AND_DIE = """
import os, signal, sys
from fifoq.tools import repair
from store import Log
left = int(sys.argv[3])
def counted(call):
    def then(*args, **kwargs):
        global left
        done = call(*args, **kwargs)
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    return then
Log.commit = counted(Log.commit)
for name in ("mark", "sync_directory", "check_store"):
    setattr(repair, name, counted(getattr(repair, name)))
repair.COMMIT_RECORDS = int(sys.argv[4])
repair.repair(sys.argv[1], sys.argv[2])
"""


def die_repairing(store: Path, target: Path, steps: int, *, records: int = 200) -> int:
    """Kill a repair behind that many steps: its mark, commits, and what comes after them.

    A commit has about so many records. Returns what the process ended with.
    """
    numbers = (str(steps), str(records))
    words = [sys.executable, "-c", REPAIR_AND_DIE, str(store), str(target), *numbers]
    done = subprocess.run(words, env=environment(), capture_output=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def everything_in(path: Path) -> tuple[Any, ...]:
    """Whatever a repair carries over, with all records that are only retained."""
    with Reader(str(path)) as reader:
        present = sorted(name for name, entry in reader.state.states.items() if entry.present)
        queues = reader.state.queues
        return (
            reader.store_id,
            {name: msgspec.structs.astuple(genesis) for name, genesis in reader.queues().items()},
            {name: queue.configuration for name, queue in queues.items()},
            {name: (queue.attempts, list(queue.removed)) for name, queue in queues.items()},
            [(name, reader.state_of(name)) for name in present],
            rows_in(path, removed=True),
        )


def test_a_repair_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    """It began anew each time, however much there was."""
    damaged_store(tmp_path / "store", retention="all")
    whole = repair(tmp_path / "store", tmp_path / "whole")
    expected = everything_in(tmp_path / "whole")
    resumed = []
    for steps in range(1, 40):
        target = tmp_path / f"{steps}"
        if die_repairing(tmp_path / "store", target, steps) == 0:
            break
        assert not target.exists()
        there = rows_in(Path(f"{target}.partial"))
        first = min(Path(f"{target}.partial").glob("*.log")).stat().st_ino
        told = repair(tmp_path / "store", target)
        assert told.resumed == len(there)
        # What was there is what is there now: nothing was written anew.
        assert min(target.glob("*.log")).stat().st_ino == first
        assert not list(tmp_path.glob("*.partial"))
        assert everything_in(target) == expected
        assert not (target / "repair.json").exists()
        same = msgspec.structs.replace(told, path=whole.path, resumed=0)
        assert same == whole
        resumed.append(told.resumed)
        shutil.rmtree(target)
    assert resumed == sorted(resumed)
    assert len(set(resumed)) > 3


def test_a_repair_that_is_killed_again_and_again_comes_to_its_end(tmp_path: Path) -> None:
    damaged_store(tmp_path / "store", retention="all")
    repair(tmp_path / "store", tmp_path / "whole")
    kills = 0
    # What has to be done at the end takes five steps.
    while die_repairing(tmp_path / "store", tmp_path / "new", 6, records=40) != 0:
        kills += 1
        assert kills < 40
    assert kills > 2
    assert everything_in(tmp_path / "new") == everything_in(tmp_path / "whole")


def change_the_store(store: Path, partial: Path) -> None:
    os.utime(store / "checkpoint.a", ns=(0, 0))


def forget_what_it_is_of(store: Path, partial: Path) -> None:
    (partial / "repair.json").unlink()


def damage_what_there_is(store: Path, partial: Path) -> None:
    first = min(partial.glob("*.log"))
    data = bytearray(first.read_bytes())
    data[1000] ^= 1
    first.write_bytes(data)


def cut_what_there_is(store: Path, partial: Path) -> None:
    """Without its first bytes it is no store."""
    for path in partial.glob("*.log"):
        path.write_bytes(b"")


def take_from_what_there_is(store: Path, partial: Path) -> None:
    with fifoq.sync.open_store(partial) as begun:
        begun.queue("orders").take()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (change_the_store, "is not of the store as it is now"),
        (forget_what_it_is_of, "does not say what it is of"),
        (damage_what_there_is, "is damaged"),
        (cut_what_there_is, ""),
        (take_from_what_there_is, "is not as it was left"),
    ],
)
def test_half_a_repair_that_is_not_to_be_trusted_is_begun_anew(
    tmp_path: Path, spoil: Callable[[Path, Path], None], reason: str
) -> None:
    damaged_store(tmp_path / "store", retention="all")
    repair(tmp_path / "store", tmp_path / "whole")
    assert die_repairing(tmp_path / "store", tmp_path / "new", 6) == -signal.SIGKILL
    spoil(tmp_path / "store", tmp_path / "new.partial")
    told = repair(tmp_path / "store", tmp_path / "new")
    assert told.resumed == 0
    (note,) = told.notes
    assert note.startswith(f"what was begun in {tmp_path}/new.partial ")
    assert note.endswith(f"{reason}: it was begun anew")
    assert everything_in(tmp_path / "new") == everything_in(tmp_path / "whole")


def test_what_cannot_be_repaired_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NothingLeft):
        repair(tmp_path / "empty", tmp_path / "new")
    damaged_store(tmp_path / "store")
    with fifoq.sync.open_store(tmp_path / "sound"), pytest.raises(fifoq.AlreadyOpen):
        repair(tmp_path / "sound", tmp_path / "new")
    with pytest.raises(TargetExists):
        repair(tmp_path / "store", tmp_path / "empty")
    for path in (tmp_path / "store").iterdir():
        if path.is_file():
            path.write_bytes(b"\xff" * 100)
    with pytest.raises(NothingLeft, match="told apart"):
        repair(tmp_path / "store", tmp_path / "new")
    assert not list(tmp_path.glob("new*"))


def test_a_sound_store_is_copied_whole(tmp_path: Path) -> None:
    with fifoq.sync.open(tmp_path / "store", segment_bytes=64 << 10) as queue:
        for number in range(50):
            queue.put_many([b"%d" % number * 90] * 10)
        queue.take_many(7)
    told = repair(tmp_path / "store", tmp_path / "new")
    assert (told.lost, told.regions, told.notes) == (0, [], [])
    assert rows_in(tmp_path / "new") == rows_in(tmp_path / "store")


def test_no_counter_is_given_out_again(tmp_path: Path) -> None:
    """The newest records were taken: nothing but genesis knows that they ever were."""
    with fifoq.sync.open(tmp_path / "store") as queue:
        queue.put_many([b"x"] * 5)
        queue.take_many(5)
    with Reader(str(tmp_path / "store")) as reader:
        following = reader.queues()["main"].next_counter
    repair(tmp_path / "store", tmp_path / "new")
    with fifoq.sync.open(tmp_path / "new") as queue:
        assert len(queue) == 0
        assert queue.stats().total_put_count == 5
        assert queue.put(b"next").counter >= following > 5


def test_no_counter_that_a_killed_owner_may_have_shown_is_given_out_again(tmp_path: Path) -> None:
    """Those that it kept ahead were forgotten: only a crash's recovery passed over them."""
    with fifoq.sync.open(tmp_path / "store", durability="memory", flush_interval=3600) as queue:
        queue.put(b"never written")
        # As a kill leaves it.
        shutil.copytree(tmp_path / "store", tmp_path / "killed", ignore=lambda *_: ["owner.sock"])
        shown = [queue.put(b"x").counter for _ in range(100)][-1]
    repair(tmp_path / "killed", tmp_path / "new")
    with fifoq.sync.open(tmp_path / "new") as queue:
        assert queue.put(b"next").counter > shown
