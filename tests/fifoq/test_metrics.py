"""Metrics: text that a real parser of the exposition format reads, with stable names."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

import fifoq
import fifoq.sync
from fifoq.metrics import CONTENT_TYPE, METRICS
from fifoq.ring_writer import WRITER_VARIABLE
from fifoq.writer import Writer

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def parsed(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(text: str, name: str, **labels: str) -> float:
    """The one sample of that name that has these labels."""
    found = [
        sample.value
        for family in parsed(text).values()
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    assert len(found) == 1, (name, labels, found)
    return found[0]


async def test_a_real_parser_reads_what_the_stats_say(tmp_path: Path) -> None:
    async with fifoq.open_store(tmp_path / "store") as store:
        orders = await store.queue("orders")
        await store.queue("bills")
        await orders.put_many([b"12345"] * 10)
        await orders.put(b"later", delay=3600)
        await orders.take_many(3)
        delivery = await orders.lease()
        cursor = await orders.cursor("audit")
        await cursor.take()
        text = store.metrics()
        assert value(text, "fifoq_queue_records", queue="orders") == 8
        assert value(text, "fifoq_queue_ready", queue="orders") == 6
        assert value(text, "fifoq_queue_leased", queue="orders") == 1
        assert value(text, "fifoq_queue_delayed", queue="orders") == 1
        assert value(text, "fifoq_queue_put_total", queue="orders") == 11
        assert value(text, "fifoq_queue_taken_total", queue="orders") == 3
        assert value(text, "fifoq_queue_payload_bytes", queue="orders") == 40
        assert value(text, "fifoq_queue_high_water_mark", queue="orders") == 11
        assert value(text, "fifoq_queue_delay_seconds_count", queue="orders") == 3
        assert value(text, "fifoq_queue_delay_seconds", queue="orders", quantile="0.99") >= 0
        assert value(text, "fifoq_consumer_lag_records", queue="orders", consumer="audit") >= 1
        assert value(text, "fifoq_queue_records", queue="bills") == 0
        assert value(text, "fifoq_store_commits_total") == orders.stats().commits
        assert value(text, "fifoq_store_segments") == 1
        assert value(text, "fifoq_store_failed") == 0
        assert value(text, "fifoq_store_info", path=str(tmp_path / "store")) == 1
        await delivery.ack()


async def test_every_family_is_a_known_metric_and_each_is_written_once(tmp_path: Path) -> None:
    async with fifoq.open_store(tmp_path / "store") as store:
        for name in ("a", "b"):
            queue = await store.queue(name)
            await queue.put(b"x")
            await queue.take()
        text = store.metrics()
    # The parser leaves `_total` out of a counter's name.
    kinds = {metric.name.removesuffix("_total"): metric.kind for metric in METRICS}
    assert {name: family.type for name, family in parsed(text).items()}.items() <= kinds.items()
    headers = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
    assert len(headers) == len(set(headers))
    assert CONTENT_TYPE.startswith("text/plain; version=0.0.4")


async def test_queues_that_nobody_opened_and_mailboxes_are_told_too(tmp_path: Path) -> None:
    path = tmp_path / "store"
    async with fifoq.open_store(path) as store:
        await (await store.queue("orders")).put_many([b"x"] * 4)
        for name in ("actor/alice", "actor/bob"):
            await (await store.queue(name)).put_many([b"x"] * 2)
    async with fifoq.open_store(path) as store:
        await store.queue("actor/bob")
        text = store.metrics()
    assert value(text, "fifoq_queue_records", queue="orders") == 4
    assert value(text, "fifoq_mailboxes") == 2
    assert value(text, "fifoq_mailbox_messages") == 4
    assert "alice" not in text


async def test_a_reader_tells_what_the_log_says(tmp_path: Path) -> None:
    path = tmp_path / "store"
    async with fifoq.open_store(path) as store:
        orders = await store.queue("orders")
        await orders.put_many([b"x"] * 5)
        await orders.take()
        await orders.show_readers()
        async with fifoq.open_store(path, read_only=True) as outside:
            text = await outside.metrics()
        assert value(text, "fifoq_queue_records", queue="orders") == 4
        assert value(text, "fifoq_queue_delay_seconds_count", queue="orders") == 1
        inside = set(parsed(store.metrics()))
        assert set(parsed(text)) < inside
        with fifoq.sync.open_store(path, read_only=True) as blocking:
            assert blocking.metrics() == text


async def test_a_path_that_is_hard_to_write_down(tmp_path: Path) -> None:
    path = f'{tmp_path}/a "quoted"\\ \n \udcff path'
    async with fifoq.open_store(path) as store:
        text = store.metrics()
    text.encode()
    (sample,) = parsed(text)["fifoq_store_info"].samples
    assert sample.labels["path"] == path.replace("\udcff", "\\udcff")


async def test_a_closed_store_tells_nothing(tmp_path: Path) -> None:
    store = await fifoq.open_store(tmp_path / "store")
    await store.close()
    with pytest.raises(fifoq.QueueClosed):
        store.metrics()


def test_the_blocking_face_tells_the_same(tmp_path: Path) -> None:
    with fifoq.sync.open_store(tmp_path / "store") as store:
        store.queue("orders").put(b"x")
        assert value(store.metrics(), "fifoq_queue_records", queue="orders") == 1


def test_the_page_names_every_metric_with_its_kind_and_no_other() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text()
    rows = re.findall(r"^\| `(fifoq_\w+)` \| (\w+) \|", page, re.MULTILINE)
    assert rows == [(metric.name, metric.kind) for metric in METRICS]


def log_calls() -> list[tuple[str, ast.Call]]:
    """Calls of the logger `fifoq`, with the module that makes each."""
    found = []
    for path in sorted((ROOT / "fifoq").rglob("*.py")):
        # These have loggers and messages of their own.
        if {"spark", "server", "bench", "testing"} & set(path.relative_to(ROOT).parts):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and ast.unparse(node.func.value) == "logger"
            ):
                found.append((path.name, node))
    return found


def test_every_log_message_has_fields_and_the_page_names_its_event() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text()
    rows = re.findall(r"^\| (error|warning|info) \| `(\w+)` \|(.*?)\|", page, re.MULTILINE)
    told = {(level, event, *re.findall(r"`(\w+)`", names)) for level, event, names in rows}
    made = set()
    for module, call in log_calls():
        extra = {keyword.arg: keyword.value for keyword in call.keywords}.get("extra")
        assert isinstance(extra, ast.Call), module
        assert ast.unparse(extra.func) == "fields", module
        assert isinstance(call.func, ast.Attribute)
        level = {"exception": "error"}.get(call.func.attr, call.func.attr)
        event = ast.literal_eval(extra.args[0])
        made.add((level, event, *(str(keyword.arg) for keyword in extra.keywords)))
    assert made == told


async def test_a_store_that_fails_says_so_with_fields(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WRITER_VARIABLE, Writer.kind)
    store = await fifoq.open_store(tmp_path / "store")
    queue = await store.queue()

    def datasync(handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", datasync)
    with pytest.raises(fifoq.DurabilityError):
        await queue.put(b"x")
    (record,) = [each for each in caplog.records if getattr(each, "event", "") == "failed"]
    assert vars(record)["store"] == str(tmp_path / "store")
    assert vars(record)["error"] == "DurabilityError"
    assert value(store.metrics(), "fifoq_store_failed") == 1
    monkeypatch.undo()
    await store.close()
