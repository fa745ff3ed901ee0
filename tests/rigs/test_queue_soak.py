"""T14: queues under steady traffic stay as large as they are; a backlog costs disk, not memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.rigs.conftest import NotRun
from tests.rigs.mounts import ROOT
from tests.rigs.soak import MIB, Backlog, Sample
from tests.support.figures import record

SUITE_SECONDS, DEEP_SECONDS = 20.0, 60.0
GROWTH_BYTES_MAX = 8 * MIB
"""By how much memory and disk may differ between the second and the last quarter of a soak."""
BACKLOG_BYTES_MAX = 64 * MIB


def run(*arguments: str) -> bytes:
    command = [sys.executable, "-m", "tests.rigs.soak", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(SUITE_SECONDS, id="suite"),
        pytest.param(DEEP_SECONDS, id="deep", marks=pytest.mark.deep),
    ],
)
def test_steady_traffic_leaves_memory_descriptors_threads_and_disk_as_they_are(
    tmp_path: Path, seconds: float
) -> None:
    printed = run("steady", str(tmp_path / "store"), str(seconds))
    samples = msgspec.json.decode(printed, type=list[Sample])
    quarter = len(samples) // 4
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]
    memory = _middle(late, "memory_bytes") - _middle(early, "memory_bytes")
    disk = _middle(late, "disk_bytes") - _middle(early, "disk_bytes")
    record(
        "T14 soak",
        seconds=seconds,
        records=samples[-1].taken,
        memory_growth_bytes=memory,
        disk_growth_bytes=disk,
        descriptors=samples[-1].descriptors,
        threads=samples[-1].threads,
    )
    assert memory <= GROWTH_BYTES_MAX
    assert disk <= GROWTH_BYTES_MAX
    assert len({sample.descriptors for sample in late}) <= 3
    assert samples[-1].descriptors <= samples[quarter].descriptors + 2
    assert samples[-1].threads == samples[quarter].threads
    assert samples[-1].taken > samples[quarter].taken


def _middle(samples: list[Sample], name: str) -> int:
    values: list[int] = sorted(getattr(sample, name) for sample in samples)
    return values[len(values) // 2]


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(1_000_000, id="suite"),
        pytest.param(10_000_000, id="deep", marks=pytest.mark.deep),
    ],
)
def test_a_backlog_costs_no_memory(tmp_path: Path, not_run: NotRun, count: int) -> None:
    if os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize < count * 300:
        not_run.skip("not enough space for the backlog")
    backlog = msgspec.json.decode(run("backlog", str(tmp_path / "s"), str(count)), type=Backlog)
    record(
        "C13 backlog",
        records=backlog.records,
        memory_growth_bytes=backlog.growth_bytes,
        reopened_growth_bytes=backlog.reopened_growth_bytes,
        seconds=round(backlog.seconds, 1),
    )
    assert backlog.records == count
    assert backlog.growth_bytes <= BACKLOG_BYTES_MAX
    assert backlog.reopened_growth_bytes <= BACKLOG_BYTES_MAX
