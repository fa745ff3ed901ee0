"""One real Spark session for all of these tests, and stores for it to read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import fifoq.spark
from fifoq.spark.session import JavaMissing, find_java

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """One worker runs them all, so that there is one session."""
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two cores; where there is no Java the tests say so and are skipped."""
    try:
        find_java()
    except JavaMissing as error:
        pytest.skip(str(error))
    scratch = tmp_path_factory.mktemp("spark")
    found = fifoq.spark.session(
        "fifoq tests",
        "local[2]",
        {
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.local.dir": str(scratch / "local"),
            "spark.driver.memory": "1g",
        },
    )
    yield found
    found.stop()
