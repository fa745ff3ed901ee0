"""The examples of the cluster and of the pipelines, and their pages."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples import spark_cluster, spark_pipelines
from fifoq.spark import pipelines

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/pipelines.md").read_text()


def test_the_example_of_the_cluster_counts_its_orders(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(spark_cluster.main())
    assert capsys.readouterr().out == "900 orders are behind counter 100\n"


def test_the_example_of_the_pipelines_runs_them_all(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    spark_pipelines.main()
    out = capsys.readouterr().out
    assert "From put to take, by minute of the take\nqueue   minute (UTC)" in out
    assert "Rates and depth, every 60 s\nqueue   from (UTC)" in out
    (sealed, rest) = map(int, re.findall(r"Archived (\d+) records", out))
    assert sealed + rest == 800
    assert 0 < rest < sealed
    assert "\n0 more\n[('orders', 800)]\nReplayed 800 records into queue 'orders' of " in out


def test_the_page_lists_every_public_name_with_its_arguments() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", PAGE, re.MULTILINE))
    assert sorted(rows) == sorted(pipelines.__all__) == pipelines.__all__
    for name in pipelines.__all__:
        found = getattr(pipelines, name)
        assert inspect.getdoc(found)
        if inspect.isfunction(found):
            said = re.match(r"`\w+\((.*?)\)`", rows[name])
            assert said is not None, name
            arguments = [part.partition("=") for part in said[1].split(", ") if part != "*"]
            parameters = inspect.signature(found).parameters.values()
            assert [part[0] for part in arguments] == [each.name for each in parameters]
            defaults = [part[2] for part in arguments if part[1]]
            given = [each.default for each in parameters if each.default is not each.empty]
            assert defaults == [repr(value).replace("'", '"') for value in given]
        elif found is not pipelines.ArchiveError:
            fields = set(re.findall(r"`(\w+)`", rows[name]))
            assert set(found.__struct_fields__) <= fields
