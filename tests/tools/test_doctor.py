"""The doctor: what it measures is there, and each trouble that it knows is told with advice."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

import pytest

from fifoq.tools import doctor
from fifoq.tools.doctor import Diagnosis, Finding, diagnose, mount_of


@pytest.fixture(autouse=True)
def _few_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "SYNCS_MAX", 5)
    monkeypatch.delenv("LD_PRELOAD", raising=False)


def finding(found: Diagnosis, about: str) -> Finding:
    (one,) = [each for each in found.findings if each.about == about]
    return one


def test_it_measures_and_leaves_nothing_behind(tmp_path: Path) -> None:
    found = diagnose(tmp_path / "not/there/yet")
    assert 0 < found.sync_p50 <= found.sync_p99
    assert found.syncs_per_second > 0
    assert found.free_bytes == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.1)
    assert found.open_files_limit == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert found.file_system is not None
    assert list(tmp_path.iterdir()) == []
    about = [each.about for each in found.findings]
    assert about == ["sync", "file system", "write cache", "space", "inodes", "open files"]
    for each in found.findings:
        assert each.advice or each.level != "warning"


TABLE = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw,errors=remount-ro
23 22 0:20 / {path} rw - {kind} {device} rw,{options}
broken line
"""


@pytest.mark.parametrize(
    ("kind", "options", "level", "text"),
    [
        ("ext4", "relatime", "good", "ext4 on /dev/x"),
        ("tmpfs", "size=1g", "warning", "gone when the machine stops"),
        ("nfs4", "vers=4.2", "warning", "over a network"),
        ("overlay", "lowerdir=/a", "warning", "layer of a container"),
        ("ext4", "nobarrier", "warning", "mounted with nobarrier"),
    ],
)
def test_file_systems_that_promise_less_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, options: str, level: str, text: str
) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(TABLE.format(path=tmp_path, kind=kind, device="/dev/x", options=options))
    mount = mount_of(str(tmp_path), str(table))
    assert (mount.kind, mount.device) == (kind, "/dev/x")
    monkeypatch.setattr(doctor, "mount_of", lambda path: mount)
    told = finding(diagnose(tmp_path), "file system")
    assert told.level == level
    assert text in told.text


def test_where_nothing_is_told_nothing_is_guessed(tmp_path: Path) -> None:
    assert mount_of(str(tmp_path), str(tmp_path / "none")).kind is None


def test_a_disk_that_is_too_fast_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "mount_of", lambda path: doctor._Mount("ext4", "/dev/x"))
    for seconds, level in ((1e-6, "warning"), (1e-3, "good"), (0.1, "note")):
        durations = [seconds] * 10
        monkeypatch.setattr(doctor, "measure_syncs", lambda path, found=durations: found)
        assert finding(diagnose(tmp_path), "sync").level == level


def test_little_room_and_low_limits_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1 << 20))
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 256))
    monkeypatch.setattr(doctor, "_free_files", lambda path: 3)
    monkeypatch.setenv("LD_PRELOAD", "/usr/lib/libeatmydata.so")
    found = diagnose(tmp_path)
    troubles = {each.about for each in found.findings if each.level == "warning"}
    assert {"space", "inodes", "open files", "libeatmydata"} <= troubles
    assert not found.healthy


def test_a_file_system_without_a_limit_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_free_files", lambda path: None)
    assert finding(diagnose(tmp_path), "inodes").level == "good"
