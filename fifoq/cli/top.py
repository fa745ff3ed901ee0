"""The verb `top`: a store, live in the terminal."""

from __future__ import annotations

from typing import Annotated

import typer

from fifoq.cli.arguments import Json, OneQueue, StorePath, seconds
from fifoq.cli.frame import run, verb


def add_to(app: typer.Typer) -> None:
    verb(app, "top", example="fifoq top data/orders\nfifoq top data/orders --count 1 --json")(top)


def top(
    path: StorePath,
    queue: OneQueue = None,
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            "-i",
            min=0.1,
            metavar="SECONDS",
            callback=seconds,
            help="Between looks.",
        ),
    ] = 1.0,
    count: Annotated[
        int | None,
        typer.Option("--count", "-n", metavar="COUNT", min=1, help="End after so many looks."),
    ] = None,
    json: Json = False,
) -> None:
    """Watch a store: sizes, rates, delays, water marks, pressure.

    Draws over the terminal until `q` or Ctrl-C. In a pipe it prints one frame after the other, with
    --json one object a line. A live store's owner is asked, which takes it some microseconds; of
    any other store the files are read.
    """
    from fifoq.cli.topping import watch

    run(lambda: watch(path, queue, interval=interval, count=count, json=json))
