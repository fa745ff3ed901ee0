"""The command line: `fifoq VERB`. It translates, and nothing else."""

from __future__ import annotations

import importlib.metadata

import typer

from fifoq.bench.command import command, queue_rows

app = typer.Typer(
    name="fifoq",
    help="Durable queues and durable actors for asyncio.",
    no_args_is_help=True,
    add_completion=False,
    # Plain errors: a traceback drawn with every local value would print users' records.
    pretty_exceptions_enable=False,
)
app.command("bench")(command(queue_rows))


@app.command()
def version() -> None:
    """Print the version."""
    print(importlib.metadata.version("fifoq"))


def main() -> None:
    """Run the command that the arguments name."""
    app()


if __name__ == "__main__":
    main()
