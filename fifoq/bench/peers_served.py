"""Peers that are servers. Each is started on the loopback with a scratch directory, and stopped."""

from __future__ import annotations

import importlib
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from fifoq.bench.measure import BATCH, BATCH_RECORDS, Setting, records
from fifoq.bench.peer import RECORDS, Blocking, Peer, measure_blocking, per_second

LOOPBACK = "127.0.0.1"
START_SECONDS_MAX = 10.0
STOP_SECONDS_MAX = 10.0


def _redis(path: Path, setting: Setting, *, appendfsync: str) -> dict[str, float]:
    redis: Any = importlib.import_module("redis")
    port = _free_port()
    command = ["redis-server", "--bind", LOOPBACK, "--port", str(port), "--dir", str(path)]
    command += ["--save", "", "--appendonly", "yes", "--appendfsync", appendfsync]
    with _server(command, port), closing(redis.Redis(LOOPBACK, port)) as client:
        return measure_blocking(
            Blocking(
                lambda payload: client.rpush("queue", payload),
                lambda: client.lpop("queue"),
                lambda batch: client.rpush("queue", *batch),
                synced=appendfsync == "always",
            ),
            setting,
        )


def _nats(path: Path, setting: Setting) -> dict[str, float]:
    port = _free_port()
    command = ["nats-server", "-a", LOOPBACK, "-p", str(port), "-js", "-sd", str(path)]
    with _server(command, port):
        return uvloop.run(_jetstream(port, setting))


async def _jetstream(port: int, setting: Setting) -> dict[str, float]:
    nats: Any = importlib.import_module("nats")
    (payload,) = records(1)
    count = setting.count(RECORDS)
    client = await nats.connect(f"nats://{LOOPBACK}:{port}")
    stream = client.jetstream()
    await stream.add_stream(name="queue", subjects=["queue"], retention="workqueue")
    put, done = await per_second(lambda: stream.publish("queue", payload), count)
    consumer = await stream.pull_subscribe("queue", "worker")

    async def take() -> None:
        for message in await consumer.fetch(1):
            await message.ack_sync()

    async def put_batch() -> None:
        for waiting in [await stream.publish_async("queue", payload) for payload in BATCH]:
            await waiting

    take_rate, _ = await per_second(take, done)
    batch, _ = await per_second(put_batch, count // BATCH_RECORDS or 1)
    await client.close()
    return {"put": put, "take": take_rate, "batch": batch * BATCH_RECORDS}


@contextmanager
def _server(command: list[str], port: int) -> Iterator[None]:
    """A server of our own, from when it accepts connections until it has ended."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_for(port, process)
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            socket.create_connection((LOOPBACK, port), timeout=1).close()
            return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{process.args!r} does not answer on port {port}") from error
        time.sleep(0.05)


def _free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as probe:
        return int(probe.getsockname()[1])


SERVED = (
    Peer(
        "Redis list, everysec",
        partial(_redis, appendfsync="everysec"),
        "nothing; LPOP loses what its consumer holds",
        "the last second or two",
        modules=("redis",),
        programs=("redis-server",),
        install="pip install redis; apt install redis-server",
    ),
    Peer(
        "Redis list, always",
        partial(_redis, appendfsync="always"),
        "nothing; LPOP loses what its consumer holds",
        "nothing; LPOP loses what its consumer holds",
        modules=("redis",),
        programs=("redis-server",),
        install="pip install redis; apt install redis-server",
    ),
    Peer(
        "NATS JetStream, file",
        _nats,
        "nothing",
        "up to two minutes (sync_interval)",
        modules=("nats",),
        programs=("nats-server",),
        install="pip install nats-py; apt install nats-server",
    ),
)
