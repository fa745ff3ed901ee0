"""The verb `fifoq demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fifoq.cli.arguments import Json, seconds
from fifoq.cli.frame import verb

Seconds = Annotated[
    float, typer.Option("--seconds", min=0.1, callback=seconds, help="Of load in each life.")
]
ReportFile = Annotated[
    Path, typer.Option("--report", metavar="FILE", dir_okay=False, help="Where the HTML goes.")
]
NoSpark = Annotated[bool, typer.Option("--no-spark", help="Read the ledger in Python instead.")]


def add_to(app: typer.Typer) -> None:
    verb(app, "demo", example="fifoq demo --seconds 4")(demo)


def demo(
    seconds: Seconds = 6.0,
    report: ReportFile = Path("fifoq-demo.html"),
    no_spark: NoSpark = False,
    json: Json = False,
) -> None:
    """See it work: load, durable actors, Spark, and a kill -9 in the middle.

    Clients put orders into a durable queue, durable actors handle them, Spark drains the ledger
    into Parquet; the service is killed and started again. Takes less than a minute, in a temporary
    directory beside the report. Without Java it goes without Spark. Status 0: every promise was
    kept, 1: one was broken, or it could not be run to its end.
    """
    from fifoq.demo.command import demonstrate

    status = demonstrate(seconds=seconds, report=report, spark=not no_spark, as_json=json)
    if status:
        raise typer.Exit(status)
