"""Blocks of Spark's pages run as they are shown."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import fifoq.sync
from tests.blocks import blocks, run_python


def shown(page: str) -> str:
    (block,) = [block for block in blocks("python") if block.page == page and block.run]
    return block.code


def test_the_pages_of_spark_show_what_works(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # Spark resolves paths by the directory of its own process, which is not this one.
    here = str(tmp_path)
    with fifoq.sync.open("data/orders") as q:
        q.put_many([b"an order"] * 3)

    def run(page: str, names: dict[str, Any]) -> dict[str, Any]:
        code = shown(page)
        for name in ("data/", "checkpoints/"):
            code = code.replace(f'"{name}', f'"{here}/{name}')
        return asyncio.run(run_python(code, names))

    names = run("docs/reference/spark.md", {})
    assert names["table"].count() == 3
    names = run(
        "docs/reference/spark_sink.md",
        {"frame": names["table"].select("data"), "stream": names["stream"].select("data")},
    )
    query = names["query"]
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    with fifoq.sync.open_store("data/shop", read_only=True) as store:
        assert store.queue("orders").stats().current_size == 6
