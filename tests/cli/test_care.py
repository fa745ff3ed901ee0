"""Verify, backup, restore, repair and doctor as a user runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

import fifoq.sync
from fifoq.tools import doctor
from tests.cli.support import fifoq as run
from tests.cli.support import here
from tests.tools.support import rows_in


def fill(path: Path, count: int = 400) -> None:
    with fifoq.sync.open(path, segment_bytes=64 << 10) as queue:
        for number in range(0, count, 10):
            queue.put_many([b"%d" % number * 100] * 10)


def damage(path: Path) -> None:
    first = min(path.glob("*.log"))
    data = bytearray(first.read_bytes())
    data[600] ^= 1
    first.write_bytes(data)


def test_a_store_is_verified(tmp_path: Path) -> None:
    fill(tmp_path / "a")
    said = here("verify", tmp_path / "a")
    assert said.lines[-1] == "sound: every frame, chain, index and genesis agrees"
    with fifoq.sync.open(tmp_path / "a"):
        assert run("verify", tmp_path / "a", "--json").stdout.startswith(b'{"sound":true')
    damage(tmp_path / "a")
    said = here("verify", tmp_path / "a", status=1)
    assert any(line.startswith("  damaged  00000000000000000001.log") for line in said.lines)
    assert "  missing  queue 'main': counters 1 to 10" in said.lines
    assert said.lines[-1].endswith("TARGET` saves the rest.")
    assert here("verify", tmp_path / "a", "--json", status=1).json["report"]["missing"] == {
        "main": [[1, 10]]
    }
    assert "no store here" in here("verify", tmp_path, status=2).err
    told = here("verify", tmp_path / "none", "--json", status=2).json
    assert (told["kind"], told["status"]) == ("AccessError", 2)


def test_a_live_store_is_backed_up_and_restored(tmp_path: Path) -> None:
    fill(tmp_path / "a")
    with fifoq.sync.open(tmp_path / "a") as queue:
        queue.put(b"live")
        before = rows_in(tmp_path / "a")
        done = run("backup", tmp_path / "a", tmp_path / "b")
        assert done.stdout.startswith(b"%s: 401 records of 1 queue" % bytes(tmp_path / "b"))
        while len(queue):
            queue.take_many(100)
    here("verify", tmp_path / "b")
    assert here("restore", tmp_path / "b", tmp_path / "c").lines == [
        f"{tmp_path / 'c'}: 401 records, checked"
    ]
    assert rows_in(tmp_path / "c") == before
    assert "it exists" in here("backup", tmp_path / "a", tmp_path / "b", status=1).err
    assert "no backup" in here("restore", tmp_path / "a", tmp_path / "d", status=1).err
    assert here("backup", tmp_path / "none", tmp_path / "d", status=3).err
    damage(tmp_path / "b")
    here("restore", tmp_path / "b", tmp_path / "d", status=4)
    assert not (tmp_path / "d").exists()


def test_a_damaged_store_is_repaired_into_a_new_one(tmp_path: Path) -> None:
    fill(tmp_path / "a")
    intact = rows_in(tmp_path / "a")[10:]
    damage(tmp_path / "a")
    said = here("repair", tmp_path / "a", tmp_path / "b")
    assert "  missing  queue 'main': counters 1 to 10" in said.lines
    assert said.lines[-1] == f"{tmp_path / 'b'}: 390 records saved, 10 lost"
    assert rows_in(tmp_path / "b") == intact
    here("verify", tmp_path / "b")
    here("verify", tmp_path / "a", status=1)
    told = here("repair", tmp_path / "a", tmp_path / "c", "--json").json
    assert (told["records"], told["lost"]) == (390, 10)
    with fifoq.sync.open(tmp_path / "b"):
        run("repair", tmp_path / "b", tmp_path / "d", status=5)


def test_the_doctor_looks_at_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "SYNCS_MAX", 3)
    monkeypatch.setattr(doctor, "measure_syncs", lambda path: [1e-3] * 3)
    monkeypatch.setattr(doctor, "mount_of", lambda path: doctor._Mount("ext4", "/dev/x"))
    monkeypatch.setattr(doctor, "FREE_BYTES_MIN", 0)
    monkeypatch.setattr(doctor, "FREE_SHARE_MIN", 0.0)
    monkeypatch.setattr(doctor, "FREE_FILES_MIN", 0)
    monkeypatch.setattr(doctor, "OPEN_FILES_MIN", 0)
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    said = here("doctor", tmp_path)
    assert said.lines[0].endswith("1,000 synced commits a second for one caller")
    assert "  good     sync         a sync takes 1 ms (p99 1 ms)" in said.lines
    monkeypatch.setattr(doctor, "mount_of", lambda path: doctor._Mount("overlay", "overlay"))
    assert not here("doctor", tmp_path, "--json", status=1).json["healthy"]
    assert "Mount a volume" in here("doctor", tmp_path, status=1).out.decode()
