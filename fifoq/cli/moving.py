"""Verbs that move what is there: seek, compact."""

from __future__ import annotations

from typing import Annotated

import typer

from fifoq.cli.arguments import DEFAULT_QUEUE, Json, QueueName, StorePath
from fifoq.cli.frame import run, verb


def add_to(app: typer.Typer) -> None:
    verb(app, "seek", example=SEEK_EXAMPLE)(seek)
    verb(app, "compact", example="fifoq compact data/orders")(compact)


SEEK_EXAMPLE = """
fifoq seek data/orders billing --time 2026-11-17T08:00:00Z
fifoq seek data/orders audit --earliest --make
"""


def seek(
    path: StorePath,
    cursor: Annotated[str, typer.Argument(metavar="CURSOR", help="The cursor's name.")],
    queue: QueueName = DEFAULT_QUEUE,
    counter: Annotated[int | None, typer.Option(metavar="COUNTER", min=1, help="Go to it.")] = None,
    time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Go to the first record put at this time or later."),
    ] = None,
    earliest: Annotated[bool, typer.Option("--earliest", help="Go to the oldest.")] = False,
    latest: Annotated[bool, typer.Option("--latest", help="Go behind the newest.")] = False,
    make: Annotated[bool, typer.Option("--make", help="Make the cursor if need be.")] = False,
    forget: Annotated[bool, typer.Option("--forget", help="Delete the cursor.")] = False,
    json: Json = False,
) -> None:
    """Move a cursor to a counter, to a time, or to an end; or delete it.

    On return that is on disk. A time is ISO 8601, in UTC unless it says otherwise. Status 3 if
    there is no such cursor.
    """
    from fifoq.cli.access import session
    from fifoq.cli.output import print_json
    from fifoq.control.messages import Count, Forget, Moved, Seek

    given = [counter is not None, time is not None, earliest, latest, forget]
    if sum(given) != 1:
        raise typer.BadParameter(
            "give one of --counter, --time, --earliest, --latest and --forget", param_hint="CURSOR"
        )
    target = Seek(
        queue=queue,
        cursor=cursor,
        make=make,
        end="earliest" if earliest else "latest" if latest else None,
        counter=counter,
        time=None if time is None else _nanoseconds(time),
    )

    async def move() -> Moved | None:
        async with session(path) as asked:
            if forget:
                await asked.ask(Forget(queue=queue, cursor=cursor), Count)
                return None
            return await asked.ask(target, Moved)

    moved = run(move)
    if json:
        print_json({"queue": queue, "cursor": cursor, "moved": moved})
    elif moved is None:
        print(f"{cursor}: deleted")
    else:
        before = "made" if moved.before is None else f"was at {moved.before}"
        print(f"{cursor}: at {moved.counter}, {before}")


def compact(path: StorePath, json: Json = False) -> None:
    """Give back the disk space of removed records, all that can be.

    It happens by itself when the store is quiet; this is for one who wants it now. Interrupted,
    what was done stays done.
    """
    from fifoq.cli.access import session
    from fifoq.cli.output import counted, print_json, size_text
    from fifoq.compacting import Compacted
    from fifoq.control.messages import Compact

    async def ask() -> Compacted:
        async with session(path) as asked:
            return await asked.ask(Compact(), Compacted, seconds=None)

    done = run(ask)
    if json:
        print_json(done)
    else:
        # Where nothing can go, the log may have grown by the header of a new segment.
        freed = size_text(max(0, done.bytes_freed))
        print(f"{counted(done.segments_removed, 'segment')} removed, {freed} given back")


def _nanoseconds(text: str) -> int:
    """A moment as a user writes it. BadParameter if it is none."""
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no time such as 2026-11-17T08:00:00Z", param_hint="--time"
        ) from None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1_000_000) * 1000
