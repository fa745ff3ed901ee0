"""The page of the sink and the staging buffer says what the code does."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from fifoq.spark import StagingBuffer, StagingStats
from fifoq.spark.handover import FIRST_SECONDS, JOB_SECONDS, STREAM_SECONDS
from fifoq.spark.rows import EXPECTED, RECORD_BYTES_MAX
from fifoq.spark.sink import JOB_OPTIONS
from fifoq.spark.staged import LEFTOVER_SECONDS
from fifoq.spark.staging import RETRY_SECONDS_MAX, BlockingStagingBuffer
from fifoq.staged_intake import STEP_BYTES

PAGE = (Path(__file__).parents[2] / "docs/reference/spark_sink.md").read_text()
SINK, BUFFER = PAGE.split("## `StagingBuffer`")


def first_cells(text: str, heading: str) -> list[str]:
    """The names in the first column of the table with that heading."""
    rows = text.partition(f"| {heading} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [name for row in rows for name in re.findall(r"`(\w+)", row.split(" | ")[0])]


def test_every_option_of_the_sink_is_on_the_page() -> None:
    assert sorted(first_cells(SINK, "option")) == sorted(JOB_OPTIONS)
    for seconds in (JOB_SECONDS, FIRST_SECONDS, STREAM_SECONDS):
        assert f"`{seconds:.0f}s`" in SINK


def test_every_column_of_the_sink_is_on_the_page() -> None:
    assert first_cells(SINK, "column") == list(EXPECTED)


def test_every_argument_and_method_of_the_buffer_is_on_the_page() -> None:
    arguments = set(inspect.signature(StagingBuffer).parameters) - {"options"}
    assert set(first_cells(BUFFER, "argument")) == arguments
    methods = set(first_cells(BUFFER, "method"))
    there = {name for name in vars(BlockingStagingBuffer) if name[0] != "_"}
    assert methods - {"put_nowait"} == there
    assert all(f"`{name}`" in BUFFER for name in StagingStats.__struct_fields__)


def test_the_limits_that_the_page_tells_are_those_of_the_code() -> None:
    text = " ".join(PAGE.split())
    assert f"at most {RECORD_BYTES_MAX >> 20} MiB" in text
    assert f"Up to about {STEP_BYTES >> 20} MiB" in text
    assert f"over {STEP_BYTES >> 20} MiB" in text
    assert f"after {LEFTOVER_SECONDS / 86400:.0f} days" in text
    assert f"1, 2, 4 … {RETRY_SECONDS_MAX:.0f} seconds" in text
