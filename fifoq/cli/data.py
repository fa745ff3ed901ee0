"""Verbs that carry records in and out: export, import, migrate."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fifoq.cli.arguments import DEFAULT_QUEUE, Json, StorePath
from fifoq.cli.frame import run, verb

if TYPE_CHECKING:
    from fifoq.tools.exporting import Exported
    from fifoq.tools.importing import Imported
    from fifoq.tools.migrate import Migrated

STANDARD: Final = "-"
FormatName = Annotated[
    str | None,
    typer.Option(
        "--format",
        "-f",
        metavar="FORMAT",
        help="ndjson, msgpack, arrow or parquet; else as the name ends (ndjson for -).",
    ),
]
Again = Annotated[bool, typer.Option("--again", help="Once more, though it was done before.")]


def add_to(app: typer.Typer) -> None:
    verb(
        app,
        "export",
        example="fifoq export data/orders orders.ndjson\n"
        "fifoq export data/orders orders.parquet --all-queues\n"
        "fifoq export data/orders - | gzip > orders.ndjson.gz",
    )(export)
    verb(
        app,
        "import",
        example="fifoq import data/orders orders.ndjson\n"
        "zcat orders.ndjson.gz | fifoq import data/orders -",
    )(import_)
    verb(
        app,
        "migrate",
        example="fifoq migrate data/orders old-persist-queue\n"
        "fifoq migrate data/orders jobs.db --table jobs --column body --where 'done = 0'",
    )(migrate)


def export(
    path: StorePath,
    target: Annotated[str, typer.Argument(metavar="FILE", help="A new file, or - for stdout.")],
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", "-q", metavar="NAME", help="A queue; may be given again."),
    ] = None,
    all_queues: Annotated[bool, typer.Option("--all-queues", help="Every queue.")] = False,
    format: FormatName = None,
    removed: Annotated[
        bool, typer.Option("--removed", help="Also records that are only retained.")
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Begin anew what was interrupted.")
    ] = False,
    json: Json = False,
) -> None:
    """Write records with every column to a file; the store is only read.

    Works beside a live owner. Interrupted, the same command goes on where it was. Arrow and Parquet
    make a directory of tables, and need pyarrow. To stdout it begins anew each time.
    """
    from fifoq.cli.access import require_store
    from fifoq.cli.progress import progress
    from fifoq.tools.exporting import export_records

    require_store(path)
    chosen = _format(target, format)
    queues = None if all_queues else queue or [DEFAULT_QUEUE]
    with progress("export", "records") as shown:
        done = run(
            lambda: export_records(
                path,
                sys.stdout.buffer if target == STANDARD else target,
                queues=queues,
                format=chosen,
                removed=removed,
                restart=restart,
                progress=shown,
            )
        )
    _tell(done, json, _exported(done), to_stderr=target == STANDARD)


def import_(
    path: StorePath,
    source: Annotated[
        str, typer.Argument(metavar="FILE", help="What export wrote, or - for stdin.")
    ],
    queue: Annotated[
        str | None,
        typer.Option("--queue", "-q", metavar="NAME", help="All records into this queue."),
    ] = None,
    format: FormatName = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="What the source is called, to go on with it."),
    ] = None,
    new_keys: Annotated[
        bool, typer.Option("--new-keys", help="As new records, in any case.")
    ] = False,
    again: Again = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="A source that stops early is all there is.")
    ] = False,
    json: Json = False,
) -> None:
    """Put the records of an export into a store, made if need be, each once.

    In a queue that is new they keep their keys; else they go behind what is there, with new ones.
    Interrupted, the same command goes on where it was; done, it does nothing more. NDJSON may be
    written by hand: {"data": "text"} or {"base64": "..."}, with headers if you like. The owner of a
    live store puts what is written by hand, and with --new-keys what was exported: as new records,
    whose attempts begin anew. Without it, status 5: stop the owner to import them as they are.
    """
    from fifoq.cli.progress import progress
    from fifoq.tools.importing import import_records

    chosen = _format(source, format)
    with progress("import", "records") as shown:
        done = run(
            lambda: import_records(
                sys.stdin.buffer if source == STANDARD else source,
                path,
                format=chosen,
                queue=queue,
                name=name,
                keep_keys=not new_keys,
                again=again,
                partial=partial,
                progress=shown,
            )
        )
    _tell(done, json, _imported(done))


def migrate(
    path: StorePath,
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="The other library's directory or file.")
    ],
    queue: Annotated[
        str, typer.Option("--queue", "-q", metavar="NAME", help="Into this queue.")
    ] = DEFAULT_QUEUE,
    kind: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="KIND",
            help="persist-queue, persist-queue-sqlite, queuelib, queuelib-sqlite or sqlite; else "
            "as it looks.",
        ),
    ] = None,
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Which queue of persist-queue's database.")
    ] = "default",
    table: Annotated[
        str | None, typer.Option("--table", metavar="TABLE", help="A table of SQLite.")
    ] = None,
    column: Annotated[
        str, typer.Option("--column", metavar="COLUMN", help="Its payloads.")
    ] = "data",
    order: Annotated[
        str, typer.Option("--order", metavar="COLUMN", help="Oldest first by this.")
    ] = "rowid",
    where: Annotated[
        str, typer.Option("--where", metavar="SQL", help="Only rows for which this holds.")
    ] = "",
    again: Again = False,
    json: Json = False,
) -> None:
    """Move what another library queued into a store; the source is only read.

    Payloads are the bytes that lie there: a pickle stays one, and is never loaded. Stop whoever
    uses the source first. The owner of a live store is asked to put them. Interrupted, the same
    command goes on where it was.
    """
    from fifoq.cli.progress import progress
    from fifoq.tools.migrate import migrate as move
    from fifoq.tools.migrate import open_peer
    from fifoq.tools.peers import Table

    rows = None
    if table is not None:
        rows = Table(table=table, column=column, order=order, where=where)
    try:
        peer = open_peer(source, kind, name=name, table=rows)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--from") from None
    with progress("migrate", "records") as shown:
        done = run(lambda: move(peer, path, queue=queue, again=again, progress=shown))
    _tell(done, json, _migrated(done))


def _format(name: str, given: str | None) -> str:
    """The format that is meant. BadParameter if none is."""
    from fifoq.tools.exporting import format_of

    if name == STANDARD and given is None:
        return "ndjson"
    try:
        return format_of(name.rstrip("/"), given)
    except ValueError as error:
        hint = "FILE" if given is None else "--format"
        raise typer.BadParameter(str(error), param_hint=hint) from None


def _tell(done: Any, json: bool, text: str, *, to_stderr: bool = False) -> None:
    """The outcome; where stdout holds records, on stderr."""
    from fifoq.cli.output import as_json

    line = as_json(done).decode() if json else text
    print(line, file=sys.stderr if to_stderr else sys.stdout)


def _counts(records: int, resumed: int) -> str:
    from fifoq.cli.output import counted

    before = f", {resumed:,} of them before" if resumed else ""
    return counted(records, "record") + before


def _exported(done: Exported) -> str:
    counts = _counts(done.records, done.resumed)
    return f"{done.path}: {counts} of {', '.join(done.queues)} ({done.format})"


def _imported(done: Imported) -> str:
    keys = "their keys" if done.keys_kept else "new keys"
    return f"{_counts(done.records, done.resumed)} with {keys}, into {', '.join(done.queues)}"


def _migrated(done: Migrated) -> str:
    counts = _counts(done.records, done.resumed)
    return f"{counts} of {done.expected:,} from {done.kind}, into {done.queue}"
