"""The app: every verb in its place."""

from __future__ import annotations

from fifoq.bench.command import command, queue_rows
from fifoq.cli import care, data, demo, letters, looking, moving, records, spark, top
from fifoq.cli.arguments import Json
from fifoq.cli.frame import make_app, verb

app = make_app("Durable queues and durable actors for asyncio.", name="fifoq")
records.add_to(app)
looking.add_to(app)
letters.add_to(app)
moving.add_to(app)
top.add_to(app)
data.add_to(app)
care.add_to(app)
spark.add_to(app)
verb(app, "bench", example="fifoq bench --rows one-sync --dir .")(command(queue_rows))
demo.add_to(app)


@verb(app, "version", example="fifoq version")
def version(json: Json = False) -> None:
    """Print the version."""
    # Here: it takes longer to import than all verbs together.
    import importlib.metadata

    from fifoq.cli.output import print_json

    found = importlib.metadata.version("fifoq")
    print_json({"version": found}) if json else print(found)


def main() -> None:
    """Run the command that the arguments name."""
    app(prog_name="fifoq")
