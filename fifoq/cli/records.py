"""Verbs that put, take and show records: put, take, peek, tail."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from fifoq.cli.arguments import (
    DEFAULT_QUEUE,
    CountOf,
    Json,
    Long,
    Null,
    QueueName,
    Raw,
    StorePath,
    given,
    headers_of,
    seconds,
    seconds_above_0,
)
from fifoq.cli.frame import Ended, Status, run, verb

if TYPE_CHECKING:
    from fifoq.cli.access import Session
    from fifoq.cli.output import RecordWriter

LEASE_SECONDS: Final = 60.0
"""How long a record may take to be printed before it goes back to the queue."""
STDIN: Final = "-"


def add_to(app: typer.Typer) -> None:
    verb(app, "put", example=PUT_EXAMPLE)(put)
    verb(app, "take", example=TAKE_EXAMPLE)(take)
    verb(app, "peek", example="fifoq peek data/orders -n 3 --long")(peek)
    verb(app, "tail", example="fifoq tail data/orders -f")(tail)


PUT_EXAMPLE = """
fifoq put data/orders 'three apples'
cat events.ndjson | fifoq put data/events -
"""
TAKE_EXAMPLE = """
fifoq take data/orders
fifoq take data/orders --all --null | xargs -0 -n 1 ./handle
"""


def put(
    path: StorePath,
    text: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT",
            help="Records. `-`, or none in a pipe: stdin, one record a line.",
            show_default=False,
        ),
    ] = None,
    queue: QueueName = DEFAULT_QUEUE,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header; may be repeated."),
    ] = None,
    delay: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, callback=seconds, help="Nobody gets it before."),
    ] = None,
    ttl: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", callback=seconds_above_0, help="Nobody gets it after."),
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option(
            metavar="LANE",
            min=0,
            max=9,
            help="0 first to 9 last, where the queue has priorities.",
        ),
    ] = None,
    ordering_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Records of one key are handled one at a time."),
    ] = None,
    dedup_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="A put that comes again with this id is one record."),
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="All of stdin is one record.")] = False,
    null: Null = False,
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Put records into a queue.

    The store and the queue are made if need be. On return the records are on disk. Prints the
    counter of each record that was named, or how many came from stdin. A queue with a type takes
    JSON.
    """
    from fifoq.attributes import attributes_from
    from fifoq.cli.access import session
    from fifoq.cli.putting import Putter, print_put, put_stdin, telling

    texts = text or []
    if not texts and not whole and sys.stdin.isatty():
        raise typer.BadParameter(
            "nothing to put: name a TEXT, or put `-` and type", param_hint="TEXT"
        )
    if STDIN in texts and len(texts) > 1:
        raise typer.BadParameter("`-` stands alone", param_hint="TEXT")
    from_stdin = not texts or texts == [STDIN]
    keywords = {
        "headers": headers_of(header),
        "delay": delay,
        "ttl": ttl,
        "priority": priority,
        "ordering_key": ordering_key,
        "dedup_id": dedup_id,
    }
    try:
        attributes_from(0, **given(**keywords))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None

    async def put_all() -> Putter:
        async with session(path, make=True) as asked:
            putter = Putter(asked, queue, text=not raw, keywords=keywords)
            if from_stdin:
                with telling(putter):
                    await put_stdin(putter, end=b"\0" if null else b"\n", whole=whole)
            else:
                await putter.put([os.fsencode(one) for one in texts])
            return putter

    print_put(run(put_all), each=not from_stdin, json=json)


def take(
    path: StorePath,
    queue: QueueName = DEFAULT_QUEUE,
    count: CountOf = 1,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Until the queue is empty.")
    ] = False,
    wait: Annotated[
        float,
        typer.Option(
            "--wait", "-w", metavar="SECONDS", min=0, callback=seconds, help="Wait for a record."
        ),
    ] = 0.0,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Take what comes, until it is interrupted.")
    ] = False,
    long: Long = False,
    null: Null = False,
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Take the oldest records out of a queue and print them.

    Each with a new line. A record is gone once it was printed: it is leased, written to stdout,
    and then acked. Whatever happens before the ack, it is in the queue again. Status 3 if there is
    nothing to take.
    """
    from fifoq.cli.access import session
    from fifoq.cli.output import RecordWriter

    writer = RecordWriter(queue, json=json, null=null, long=long, raw=raw)

    async def take_all() -> int:
        async with session(path) as asked:
            return await _take(
                asked,
                queue,
                writer,
                count=None if everything or follow else count,
                wait=None if follow else wait,
            )

    if not run(take_all) and not (everything or follow):
        raise Ended(Status.NOTHING, f"queue {queue!r} has nothing to take.", kind="QueueEmpty")


def peek(
    path: StorePath,
    queue: QueueName = DEFAULT_QUEUE,
    count: CountOf = 1,
    start: Annotated[
        int, typer.Option("--from", metavar="COUNTER", min=1, help="Begin at this counter.")
    ] = 1,
    long: Long = False,
    null: Null = False,
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Print the oldest records of a queue and change nothing.

    Delayed and leased ones are among them. Status 3 if there are none, or no such queue.
    """
    from fifoq.cli import reading
    from fifoq.cli.output import RecordWriter
    from fifoq.cli.watching import require_queue

    writer = RecordWriter(queue, json=json, null=null, long=long, raw=raw)
    if not reading.peek(path, queue, writer, start=start, count=count):
        run(lambda: require_queue(path, queue))
        raise Ended(Status.NOTHING, f"queue {queue!r} has nothing to show.", kind="QueueEmpty")


def tail(
    path: StorePath,
    queue: QueueName = DEFAULT_QUEUE,
    count: Annotated[
        int, typer.Option("--count", "-n", min=0, metavar="COUNT", help="How many old ones.")
    ] = 10,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is put, until interrupted.")
    ] = False,
    long: Long = False,
    null: Null = False,
    raw: Raw = False,
    json: Json = False,
) -> None:
    """Print the newest records of a queue, and what is put from now on.

    Records that were taken are shown too, as long as they are on disk. Nothing is changed, and the
    owner does not notice. Status 3 if there is no such queue; with --follow it is waited for.
    """
    from fifoq.cli import reading
    from fifoq.cli.output import RecordWriter

    writer = RecordWriter(queue, json=json, null=null, long=long, raw=raw)
    reading.tail(
        *(path, queue, writer),
        count=count,
        follow=follow,
        absent=lambda: _require_or_wait(path, queue, wait=follow),
    )


def _require_or_wait(path: str, queue: str, *, wait: bool) -> None:
    """NotThere without such a queue; or say that it is waited for."""
    from fifoq.cli.watching import require_queue
    from fifoq.control.messages import NotThere

    try:
        run(lambda: require_queue(path, queue))
    except NotThere as error:
        if not wait:
            raise
        print(f"fifoq: {error} It is waited for.", file=sys.stderr, flush=True)


async def _take(
    asked: Session, queue: str, writer: RecordWriter, *, count: int | None, wait: float | None
) -> int:
    """Lease, print, ack, until there is no more; returns how many were taken."""
    from fifoq.control.client import ANSWER_SECONDS
    from fifoq.control.messages import PAGE_RECORDS, Ack, Count, Lease, Leased
    from store import Key

    taken = 0
    while count is None or taken < count:
        page = PAGE_RECORDS if count is None else min(count - taken, PAGE_RECORDS)
        leasing = Lease(queue=queue, count=page, seconds=LEASE_SECONDS, timeout=wait)
        most = None if wait is None else wait + ANSWER_SECONDS
        leased = await asked.ask(leasing, Leased, seconds=most)
        if not leased.records:
            break
        lines = [
            writer.line(
                Key(record.counter, record.time),
                record.payload,
                record.headers,
                typed=leased.typed,
                attempt=record.attempt,
            )
            for record in leased.records
        ]
        # Whoever reads has it before it is gone. He may be slow: others ask this loop meanwhile.
        await writer.hand_over(b"".join(lines))
        await asked.ask(Ack(queue=queue), Count)
        taken += len(leased.records)
    return taken
