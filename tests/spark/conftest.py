"""One real Spark session for all of these tests, and stores for it to read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import fifoq.spark
from fifoq.spark.session import JavaMissing, find_java


# First: with the group's name in them, xdist makes the names by which it gives tests to workers.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """One worker runs all that use the session, so that there is one."""
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        if isinstance(item, pytest.Function) and "spark" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def java() -> None:
    """For tests with drivers of their own: where there is no Java they say so and are skipped."""
    try:
        find_java()
    except JavaMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two cores."""
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
