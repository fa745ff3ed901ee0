"""Executors with no path to the store read it through its frame server, on a real cluster."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import fifoq.sync
from fifoq.consumers import read_position
from fifoq.spark.session import JavaMissing, find_java
from tests.fifoq.server.support import TOKEN, serving
from tests.rigs.cluster import Cluster
from tests.rigs.conftest import NotRun
from tests.rigs.mounts import why_no_mounts


def test_a_cluster_reads_a_store_that_it_cannot_see(tmp_path: Path, not_run: NotRun) -> None:
    try:
        find_java()
    except JavaMissing as error:
        not_run.skip(str(error))
    reason = why_no_mounts()
    if reason is not None:
        not_run.note(f"the store is not hidden from the workers: {reason}")
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    payloads = [b"%d " % i * (i % 40) for i in range(6000)]
    with fifoq.sync.open(data / "store", queue="orders", segment_bytes=512 << 10) as q:
        for at in range(0, len(payloads), 500):
            q.put_many(payloads[at : at + 500])
        q.take_many(100)
        hidden = data if reason is None else None
        with (
            serving(data / "store") as server,
            Cluster(tmp_path / "cluster", hidden=hidden) as cluster,
        ):
            out = cluster.run(
                "tests.rigs.cluster_driver",
                *(cluster.url, server.url("orders"), str(data), str(tmp_path / "cluster/scratch")),
                FIFOQ_TOKEN=TOKEN,
            )
            found = json.loads(out.splitlines()[-1])
            assert server.stats().records == 2 * len(payloads)
    tasks = sorted(found["tasks"], key=lambda task: int(task["first"]))
    assert [task["first"] for task in tasks] == [1, tasks[0]["last"] + 1]
    assert tasks[1]["last"] == len(payloads)
    for task in tasks:
        part = payloads[task["first"] - 1 : task["last"]]
        assert task["count"] == len(part)
        assert task["digest"] == hashlib.sha256(b"".join(part)).hexdigest()
    assert sorted(Path(task["place"]).parents[1].name for task in tasks) == ["worker-1", "worker-2"]
    assert found["streamed"] == [1, len(payloads), len(payloads)]
    position = read_position(str(data / "store"), "etl")
    assert position is not None
    assert position.queue == "orders"
    if reason is None:
        assert not found["driver_sees"]
        assert not any(task["seen"] for task in tasks)
