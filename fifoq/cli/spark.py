"""Verbs that run Spark on a store: spark archive, replay, delays, rates, dlq, drain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fifoq.cli.arguments import DEFAULT_QUEUE, Json, OneQueue, QueueName, StorePath
from fifoq.cli.frame import Ended, Status, make_app, run, verb

if TYPE_CHECKING:
    from datetime import datetime

    from fifoq.spark.drain import Drained, DrainPlan

Master = Annotated[
    str, typer.Option("--master", metavar="URL", help="Where Spark runs.", show_default=True)
]
LOCAL = "local[*]"


def add_to(app: typer.Typer) -> None:
    jobs = make_app(
        "Spark on a store: archive, replay, delays, rates, dead letters, drain. Needs fifoq[spark]."
    )
    verb(jobs, "archive", example="fifoq spark archive data/orders archive/orders")(archive)
    verb(
        jobs,
        "replay",
        example="fifoq spark replay archive/orders data/orders --into again --since 2026-11-16",
    )(replay)
    verb(jobs, "delays", example="fifoq spark delays data/orders -q main")(delays)
    verb(jobs, "rates", example="fifoq spark rates data/orders --seconds 10")(rates)
    verb(jobs, "dlq", example="fifoq spark dlq data/orders")(dlq)
    verb(jobs, "drain", example="fifoq spark drain data/orders tables/orders")(drain)
    app.add_typer(jobs, name="spark")


def archive(
    path: StorePath,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The archive's directory.")],
    queue: QueueName = DEFAULT_QUEUE,
    tail: Annotated[
        bool, typer.Option("--tail", help="Also the segment that is still being written.")
    ] = False,
    consumer: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Hold the log for the archive under this name."),
    ] = None,
    master: Master = LOCAL,
    json: Json = False,
) -> None:
    """Add what a queue holds to a Parquet archive, each record once.

    Run it as often as you like, also after a run that was killed. Reads beside a live owner.
    """
    from fifoq.cli.sparking import on_spark

    add = _pipelines().archive
    _show(
        on_spark(
            master,
            lambda spark: add(spark, path, target, queue=queue, tail=tail, consumer=consumer),
        ),
        json,
    )


def replay(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The archive's directory.")],
    path: StorePath,
    queue: QueueName = DEFAULT_QUEUE,
    into: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The queue to fill. Without it the same name."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only what was put then or later.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only what was put before.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Do it once: another one of that name adds nothing."),
    ] = None,
    master: Master = LOCAL,
    json: Json = False,
) -> None:
    """Put archived records of a queue back into one, in their order, in one atomic write.

    They get new counters and times. A live owner takes them in. Times are UTC unless they say
    another zone.
    """
    from fifoq.cli.sparking import on_spark

    moments = [_moment("--since", since), _moment("--until", until)]
    again = _pipelines().replay
    _show(
        on_spark(
            master,
            lambda spark: again(
                *(spark, target, path),
                queue=queue,
                into=into,
                since=moments[0],
                until=moments[1],
                name=name,
            ),
        ),
        json,
    )


def delays(
    path: StorePath, queue: OneQueue = None, master: Master = LOCAL, json: Json = False
) -> None:
    """p50, p95 and p99 of put to take, for each minute and queue.

    Reads beside a live owner and changes nothing.
    """
    from fifoq.cli.sparking import on_spark

    find = _pipelines().delays
    _show(on_spark(master, lambda spark: find(spark, path, queue=queue)), json)


def rates(
    path: StorePath,
    queue: OneQueue = None,
    seconds: Annotated[
        int, typer.Option("--seconds", metavar="SECONDS", min=1, help="Length of an interval.")
    ] = 60,
    master: Master = LOCAL,
    json: Json = False,
) -> None:
    """Puts, bytes, removals and depth in each interval, for each queue.

    Reads beside a live owner and changes nothing.
    """
    from fifoq.cli.sparking import on_spark

    find = _pipelines().rates
    _show(on_spark(master, lambda spark: find(spark, path, queue=queue, seconds=seconds)), json)


def dlq(
    path: StorePath,
    queue: QueueName = DEFAULT_QUEUE,
    samples: Annotated[
        int, typer.Option("--samples", metavar="COUNT", min=0, help="Payloads of each group.")
    ] = 3,
    master: Master = LOCAL,
    json: Json = False,
) -> None:
    """Group the dead letters of a queue by cause, error and reason.

    Reads beside a live owner and changes nothing.
    """
    from fifoq.cli.sparking import on_spark

    find = _pipelines().triage
    _show(on_spark(master, lambda spark: find(spark, path, queue=queue, samples=samples)), json)


def drain(
    path: StorePath,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The Parquet table's directory.")],
    queue: QueueName = DEFAULT_QUEUE,
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="DIRECTORY", help="Spark's checkpoint. Without it PATH.checkpoint."),
    ] = None,
    consumer: Annotated[
        str, typer.Option(metavar="NAME", help="Under which name the log is held for it.")
    ] = "staging",
    keep: Annotated[bool, typer.Option("--keep", help="Leave the records in the queue.")] = False,
    master: Master = LOCAL,
    json: Json = False,
) -> None:
    """Bring what is in a queue into a Parquet table, exactly once, and remove it.

    What Spark's checkpoint proves to be in the table is then removed from the queue, by the owner
    of a live store. Interrupted, the next run goes on where this one was. A staging buffer of a
    program does the same by itself.
    """
    _pipelines()
    from fifoq.cli.output import counted, print_json
    from fifoq.cli.sparking import on_spark

    plan, first = _plan_drain(path, table, queue, checkpoint, consumer)
    drained, proved = on_spark(master, lambda spark: _drain(spark, plan, first))
    removed = 0 if proved is None or keep else run(lambda: _remove(path, queue, proved - 1))
    if json:
        print_json(
            {
                "queue": queue,
                "drained": drained.records,
                "batches": drained.batches,
                "seconds": drained.seconds,
                "removed": removed,
            }
        )
    else:
        told = counted(drained.records, "record")
        print(f"{told} drained in {drained.seconds:.1f} s, {removed:,} removed from the queue")


def _drain(spark: Any, plan: DrainPlan, first: int) -> tuple[Drained, int | None]:
    """What was drained, and up to which counter that is proved."""
    from fifoq.spark.drain import Drain

    draining = Drain(spark, plan)
    return draining.run(first), draining.proved(first)


def _plan_drain(
    path: str, table: str, queue: str, checkpoint: str | None, consumer: str
) -> tuple[DrainPlan, int]:
    """What is to be run, and from which counter on if it never ran before."""
    import os

    from fifoq.cli.access import require_store
    from fifoq.consumers import check_consumer_name, id_text
    from fifoq.description import describe
    from fifoq.spark.drain import DrainPlan
    from store import Reader

    require_store(path)
    whole = os.path.abspath(path)
    with Reader(whole) as reader:
        found = describe(reader, queue)
        store = id_text(reader.store_id)
    plan = DrainPlan(
        path=whole,
        queue=queue,
        store=store,
        consumer=check_consumer_name(consumer),
        checkpoint=os.path.abspath(checkpoint or f"{whole}.checkpoint"),
        to=os.path.abspath(table),
        file_bytes=128 << 20,
        batch_bytes=1 << 30,
    )
    return plan, found.floor + 1


async def _remove(path: str, queue: str, counter: int) -> int:
    from fifoq.cli.access import session
    from fifoq.control.messages import Count, RemoveUpto

    async with session(path) as asked:
        request = RemoveUpto(queue=queue, counter=counter)
        return (await asked.ask(request, Count, seconds=None)).count


def _moment(option: str, text: str | None) -> datetime | None:
    """A time as a user writes it, UTC where it names no zone. BadParameter if it is none."""
    from datetime import UTC, datetime

    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no time such as 2026-11-17T08:00:00Z", param_hint=option
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _pipelines() -> Any:
    try:
        from fifoq.spark import pipelines
    except ImportError as error:
        raise Ended(
            Status.FAILED, f"Spark is not installed ({error}): pip install 'fifoq[spark]'"
        ) from None
    return pipelines


def _show(report: Any, json: bool) -> None:
    from fifoq.cli.output import print_json

    if json:
        print_json(report)
    else:
        report.show()
