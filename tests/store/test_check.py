"""The check and quarantine: exact places, exact counters, nothing changed, the rest goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from store import CorruptionError, FormatError, Log, open_log
from store.__main__ import main
from store.check import check_store
from store.segment import index_name, segment_name
from tests.store.conftest import PATH, OpenStore
from tests.support.clock import ManualClock
from tests.support.simfiles import SimFiles

RECORD = b"r" * 200


@pytest.fixture
def store(log: Log) -> Log:
    """Three segments: orders 1 to 9, three to a commit, and audit 1 to 3; closed."""
    for number in range(3):
        log.put("orders", [RECORD] * 3)
        log.put("audit", [b"%d" % number])
        log.rotate()
    log.close()
    return log


def second_commit(log: Log, segment: int) -> int:
    """Offset of the second frame of a segment, which holds an audit record."""
    file, _ = log.cache.open(segment)
    frames = list(file.frames(80, log.state.segments[segment].length))
    return frames[1].offset


def flip(files: SimFiles, segment: int, offset: int) -> None:
    files.flip_bit(f"{PATH}/{segment_name(segment)}", offset=offset, bit=3)


def test_a_sound_store_is_called_sound_and_left_alone(store: Log, files: SimFiles) -> None:
    image = files.image()
    seen: list[tuple[int, int]] = []
    report = check_store(
        PATH,
        files=files,
        clock=ManualClock(),
        progress=lambda done, all_: seen.append((done, all_)),
    )
    assert report.sound
    assert not report.warnings
    assert sum(segment.records for segment in report.segments) == 12
    assert {segment.index for segment in report.segments} == {"sound"}
    assert seen[-1][0] == seen[-1][1] > 0
    assert files.image() == image


def test_a_live_store_is_checked_beside_its_owner(log: Log, files: SimFiles) -> None:
    log.put("orders", [RECORD] * 3)
    log.put("orders", [RECORD])
    report = check_store(PATH, files=files, clock=ManualClock())
    assert report.sound


def test_damage_is_told_with_its_place_and_its_counters(store: Log, files: SimFiles) -> None:
    flip(files, 2, 300)
    report = check_store(PATH, files=files, clock=ManualClock())
    (damage,) = report.damage
    assert (damage.file, damage.offset) == (segment_name(2), 80)
    assert damage.end > 300
    assert report.missing == {"orders": [(4, 6)]}


def test_a_damaged_segment_header_is_told(store: Log, files: SimFiles) -> None:
    flip(files, 2, 30)
    report = check_store(PATH, files=files, clock=ManualClock())
    assert {(damage.file, damage.offset) for damage in report.damage} == {(segment_name(2), 0)}


def test_a_damaged_index_is_a_note_and_one_that_lies_is_damage(
    open_store: OpenStore, store: Log, files: SimFiles
) -> None:
    files.flip_bit(f"{PATH}/{index_name(1)}", offset=30, bit=0)
    report = check_store(PATH, files=files, clock=ManualClock())
    assert report.sound
    assert index_name(1) in report.warnings[0]
    log = open_store()
    _, index = log.cache.open(1)
    index.queues["orders"].counters[0] = 7
    log.directory.write_index(index, 1, log.store_id)
    log.close()
    report = check_store(PATH, files=files, clock=ManualClock())
    assert [damage.file for damage in report.damage] == [index_name(1)]


def test_a_damaged_checkpoint_copy_is_a_note(store: Log, files: SimFiles) -> None:
    files.flip_bit(f"{PATH}/checkpoint.a", offset=5, bit=0)
    report = check_store(PATH, files=files, clock=ManualClock())
    assert any("checkpoint.a" in text for text in report.warnings)


def test_a_segment_that_ends_differently_than_the_next_one_says_is_damage(
    open_store: OpenStore, store: Log, files: SimFiles
) -> None:
    log = open_store()
    number = 3
    header = log.directory.open_segment(number, log.store_id).header()
    changed = type(header)(
        header.store_id,
        header.number,
        header.created_at,
        header.first_sequence + 1,
        header.previous_number,
        header.previous_length,
        header.previous_checksum,
        header.algorithm,
    )
    log.close()
    files.damage(f"{PATH}/{segment_name(number)}", 0, changed.encode())
    report = check_store(PATH, files=files, clock=ManualClock())
    assert [damage.file for damage in report.damage] == [segment_name(number)]


def test_damage_behind_the_checkpoint_is_told_for_every_segment(
    log: Log, files: SimFiles, clock: ManualClock
) -> None:
    log.put("orders", [RECORD] * 3)
    first = log.tail.length
    log.put("orders", [RECORD])
    log.put("orders", [RECORD])
    log.release()
    flip(files, 1, first + 60)
    report = check_store(PATH, files=files, clock=clock)
    assert first in {damage.offset for damage in report.damage}


def test_no_store_is_a_format_error(files: SimFiles) -> None:
    files.make_dir("/empty")
    with pytest.raises(FormatError):
        check_store("/empty", files=files, clock=ManualClock())


# Quarantine.


def test_quarantine_delivers_the_rest_and_lists_what_is_missing_exactly(
    open_store: OpenStore, store: Log, files: SimFiles
) -> None:
    flip(files, 2, 300)
    log = open_store(recover="quarantine")
    assert log.quarantine is not None
    assert log.quarantine.missing == {"orders": [(4, 6)]}
    assert [number for number, _, _ in log.quarantine.regions] == [2]
    assert [key.counter for key in log.keys("orders")] == [1, 2, 3, 7, 8, 9]
    assert [key.counter for key in log.keys("audit")] == [1, 2, 3]
    assert log.queue("orders").genesis.queue_size == 6
    start, end = log.quarantine.regions[0][1:]
    bad = f"{2:020}-{start}.bad"
    assert len(files.content(f"{PATH}/{bad}")) == end - start


def test_after_quarantine_the_store_opens_and_works_as_any_other(
    open_store: OpenStore, store: Log, files: SimFiles
) -> None:
    flip(files, 2, 300)
    open_store(recover="quarantine").close()
    log = open_store()
    assert log.quarantine is None
    log.put("orders", [b"new"])
    assert [payload for _, payload in log.take("orders", 9)] == [RECORD] * 6 + [b"new"]
    log.close()
    assert check_store(PATH, files=files, clock=ManualClock()).sound
    again = open_store(recover="quarantine")
    assert again.quarantine is None


def test_quarantine_makes_a_new_store_where_there_is_none(open_store: OpenStore) -> None:
    log = open_store(recover="quarantine")
    assert log.quarantine is None
    assert log.put("orders", [b"a"]) == range(1, 2)


def test_quarantine_finds_counters_of_a_damaged_commit_behind_the_checkpoint(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [RECORD] * 2)
    start = log.tail.length
    log.put("orders", [RECORD] * 4)
    log.put("orders", [RECORD])
    log.release()
    flip(files, 1, start + 100)
    with pytest.raises(CorruptionError):
        open_store()
    again = open_store(recover="quarantine")
    assert again.quarantine is not None
    assert again.quarantine.missing == {"orders": [(3, 6)]}
    assert [key.counter for key in again.keys("orders")] == [1, 2, 7]
    assert again.put("orders", [b"next"]) == range(8, 9)


def test_what_was_taken_later_is_not_called_missing(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [RECORD] * 2)
    start = log.tail.length
    log.put("orders", [RECORD] * 4)
    log.take("orders", 3)
    draft = log.draft()
    draft.remove(log.queue("orders"), [(5, 5, 216)])
    log.commit(draft)
    log.put("orders", [RECORD])
    log.release()
    flip(files, 1, start + 100)
    again = open_store(recover="quarantine")
    assert again.quarantine is not None
    assert again.quarantine.missing == {"orders": [(4, 4), (6, 6)]}


def test_quarantine_survives_a_missing_segment(
    open_store: OpenStore, store: Log, files: SimFiles
) -> None:
    files.unlink(files.open_dir(PATH), segment_name(2))
    with pytest.raises(CorruptionError) as caught:
        open_store()
    assert caught.value.path.endswith(segment_name(2))
    log = open_store(recover="quarantine")
    assert log.quarantine is not None
    assert log.quarantine.missing == {"orders": [(4, 6)], "audit": [(2, 2)]}
    assert [key.counter for key in log.keys("orders")] == [1, 2, 3, 7, 8, 9]


def test_quarantine_works_without_any_checkpoint(
    open_store: OpenStore, store: Log, files: SimFiles
) -> None:
    for name in ("checkpoint.a", "checkpoint.b"):
        files.unlink(files.open_dir(PATH), name)
    flip(files, 2, 300)
    with pytest.raises(CorruptionError):
        open_store()
    log = open_store(recover="quarantine")
    assert log.quarantine is not None
    assert log.quarantine.missing == {"orders": [(4, 6)]}
    assert [key.counter for key in log.keys("orders")] == [1, 2, 3, 7, 8, 9]


def test_quarantine_reads_past_a_damaged_segment_header(
    open_store: OpenStore, store: Log, files: SimFiles
) -> None:
    flip(files, 2, 30)
    log = open_store(recover="quarantine")
    assert log.quarantine is not None
    assert log.quarantine.missing == {}
    assert [key.counter for key in log.keys("orders")] == list(range(1, 10))


def test_quarantine_goes_on_when_the_last_segment_is_the_missing_one(
    open_store: OpenStore, store: Log, files: SimFiles
) -> None:
    last = max(store.state.segments)
    files.unlink(files.open_dir(PATH), segment_name(last))
    log = open_store(recover="quarantine")
    assert [key.counter for key in log.keys("orders")] == list(range(1, 10))
    assert log.put("orders", [b"next"]) == range(10, 11)


def test_a_last_segment_that_lost_everything_is_left_as_it_is(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [RECORD])
    log.rotate()
    log.put("orders", [RECORD] * 2)
    log.put("orders", [RECORD])
    log.seal()
    log.release()
    files.damage(f"{PATH}/{segment_name(2)}", 0, b"\xff" * 600)
    again = open_store(recover="quarantine")
    assert again.quarantine is not None
    assert again.quarantine.missing == {"orders": [(2, 3)]}
    assert [key.counter for key in again.keys("orders")] == [1, 4]
    assert files.content(f"{PATH}/{segment_name(2)}").startswith(b"\xff" * 600)


def test_lost_states_are_named(log: Log, open_store: OpenStore, files: SimFiles) -> None:
    draft = log.draft()
    draft.set_states([("alice", b"10"), ("bob", b"20")])
    log.commit(draft)
    start = log.tail.length
    draft = log.draft()
    draft.set_states([("carol", b"30")])
    log.commit(draft)
    log.close()
    flip(files, 1, start + 60)
    again = open_store(recover="quarantine")
    assert again.quarantine is not None
    assert again.quarantine.states == ["carol"]
    assert again.state_of("alice") == b"10"
    assert again.state_of("carol") is None


# The command line.


def test_check_and_show_tell_a_sound_store_by_words_and_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "store")
    with open_log(path) as log:
        log.put("orders", [b"a", b"b"])
    assert main(["check", path]) == 0
    assert "sound" in capsys.readouterr().out
    assert main(["check", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sound"] is True
    assert main(["show", path]) == 0
    assert '"queueSize": 2' in capsys.readouterr().out
    assert main(["show", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["queues"]["orders"]["nextCounter"] == 3


def test_check_tells_damage_by_place_and_status_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "store"
    with open_log(str(path)) as log:
        log.put("orders", [b"a" * 100])
    segment = path / segment_name(1)
    data = bytearray(segment.read_bytes())
    data[200] ^= 1
    segment.write_bytes(data)
    assert main(["check", str(path)]) == 1
    out = capsys.readouterr().out
    assert f"damaged  {segment_name(1)} bytes 80 to" in out
    assert "missing  queue 'orders': counters 1 to 1" in out


def test_check_of_no_store_is_status_two_without_a_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "store", "check", str(tmp_path / "nothing")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "nothing" in done.stderr


def test_show_of_a_damaged_store_is_status_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "store"
    with open_log(str(path)) as log:
        log.put("orders", [b"a" * 100])
    for name in ("checkpoint.a", "checkpoint.b"):
        (path / name).unlink(missing_ok=True)
    segment = path / segment_name(1)
    data = bytearray(segment.read_bytes())
    data[30] ^= 1
    segment.write_bytes(data)
    assert main(["show", str(path)]) == 1
    assert "Nothing was changed" in capsys.readouterr().err


def test_progress_is_shown_only_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "store")
    with open_log(path) as log:
        log.put("orders", [b"a"])
    assert main(["check", path]) == 0
    assert not capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert main(["check", path]) == 0
    assert "100 %" in capsys.readouterr().err
