"""Verbs for dead letters: dlq list, show, replay, purge, run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fifoq.cli.arguments import DEFAULT_QUEUE, CountOf, Json, QueueName, StorePath
from fifoq.cli.frame import Ended, Status, make_app, run, verb

if TYPE_CHECKING:
    from fifoq.cli.output import Cell
    from fifoq.dead_letters import DeadLetter

Counters = Annotated[
    list[int] | None,
    typer.Argument(
        metavar="COUNTER", min=1, help="Counters among the dead letters.", show_default=False
    ),
]
All = Annotated[bool, typer.Option("--all", "-a", help="All that are there now.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say how many, and change nothing.")]


def add_to(app: typer.Typer) -> None:
    letters = make_app("Dead letters: records that nobody could handle.")
    verb(letters, "list", example="fifoq dlq list data/orders -n 20")(list_letters)
    verb(letters, "show", example="fifoq dlq show data/orders 3")(show)
    verb(letters, "replay", example="fifoq dlq replay data/orders 3 4 5")(replay)
    verb(letters, "purge", example="fifoq dlq purge data/orders --all --dry-run")(purge)
    verb(letters, "run", example="fifoq dlq run data/accounts 3 --actor bank:Account")(run_again)
    app.add_typer(letters, name="dlq")


def list_letters(
    path: StorePath,
    queue: QueueName = DEFAULT_QUEUE,
    count: CountOf = 50,
    start: Annotated[
        int, typer.Option("--from", metavar="COUNTER", min=1, help="Begin at this counter.")
    ] = 1,
    json: Json = False,
) -> None:
    """List dead letters of a queue, the oldest first, without their payloads.

    --queue names the queue that they came from. With --json one object a line. Status 3 if there is
    no such queue; one without dead letters has none to list.
    """
    from fifoq.cli.output import moment, print_json, print_table

    found = _letters_of(path, queue, start=start, count=count)
    if json:
        for letter in found:
            print_json(_told(letter))
        return
    rows: list[list[Cell]] = [
        [
            *(str(each.key.counter), str(each.original_key.counter), each.attempts),
            *(each.cause or "-", each.error_type or "-", moment(each.time)[:19]),
            f"{len(each.payload)} B",
            _short(each.reason),
        ]
        for each in found
    ]
    print_table(("dlq", "was", "attempts", "cause", "error", "since", "size", "reason"), rows)


def show(
    path: StorePath,
    counter: Annotated[
        int, typer.Argument(metavar="COUNTER", min=1, help="Its counter among the dead letters.")
    ],
    queue: QueueName = DEFAULT_QUEUE,
    json: Json = False,
) -> None:
    """Show one dead letter: payload, headers, reason, traceback.

    Status 3 if there is none of that counter.
    """
    from fifoq.cli.output import escaped, print_facts, print_json, shown_data, value_json
    from fifoq.cli.reading import is_typed
    from store import Reader

    found = _letters_of(path, queue, start=counter, count=1)
    if not found or found[0].key.counter != counter:
        raise Ended(
            Status.NOTHING, f"queue {queue!r} has no dead letter {counter}.", kind="NotThere"
        )
    letter = found[0]
    with Reader(path) as reader:
        typed = is_typed(reader, f"{queue}.dlq")
    if json:
        data = shown_data(letter.payload, typed=typed)
        print_json({**_told(letter), "traceback": letter.traceback, **data})
        return
    told = _told(letter)
    headers = told.pop("headers")
    print_facts({**told, **{f"header {name}": value for name, value in headers.items()}})
    payload = value_json(letter.payload) if typed else letter.payload
    print(f"\n{escaped(payload).decode()}")
    if letter.traceback:
        print(f"\n{letter.traceback.rstrip()}")


def replay(
    path: StorePath,
    counters: Counters = None,
    queue: QueueName = DEFAULT_QUEUE,
    everything: All = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Put dead letters back into their queue, as new records.

    Each with the headers that it had, no attempts, and a header that names its first key. Whole
    commits of about 1 MiB: interrupted, some are done.
    """
    _move(path, "replay", queue, counters, everything, dry_run, json)


def purge(
    path: StorePath,
    counters: Counters = None,
    queue: QueueName = DEFAULT_QUEUE,
    everything: All = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Remove dead letters for good."""
    _move(path, "purge", queue, counters, everything, dry_run, json)


def run_again(
    path: StorePath,
    counter: Annotated[
        int, typer.Argument(metavar="COUNTER", min=1, help="Its counter among the dead letters.")
    ],
    actor: Annotated[
        str | None,
        typer.Option(metavar="MODULE:CLASS", help="The class of actors to run it with."),
    ] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Stop in the debugger where it fails.")
    ] = False,
    json: Json = False,
) -> None:
    """Run a dead letter of a durable actor again, to see why it died.

    In a new actor of that class, with the state that the message met. What it tells, schedules and
    replies is printed and goes nowhere; the store is only read. Status 1 if it fails again.
    """
    from fifoq.cli import reproducing
    from fifoq.durable.dead import reproduce

    dead = reproducing.dead_message(path, counter)
    made = reproducing.actor_class(actor, dead)
    found = run(lambda: reproduce(dead, made, raises=False))
    reproducing.print_run(dead, found, json=json)
    if found.error is not None:
        if debug:
            import pdb

            pdb.post_mortem(found.error.__traceback__)
        raise Ended(Status.FAILED)


def _move(
    path: str,
    what: str,
    queue: str,
    counters: list[int] | None,
    everything: bool,
    dry_run: bool,
    json: bool,
) -> None:
    from fifoq.cli.access import session
    from fifoq.cli.output import counted, print_json
    from fifoq.control.messages import Count, Purge, Replay

    if bool(counters) == everything:
        raise typer.BadParameter("name counters, or give --all", param_hint="COUNTER")
    kind = Replay if what == "replay" else Purge
    request = kind(queue=queue, counters=counters or [], dry_run=dry_run)

    async def ask() -> int:
        async with session(path) as asked:
            return (await asked.ask(request, Count, seconds=None)).count

    count = run(ask)
    done = {"replay": "replayed", "purge": "purged"}[what]
    if json:
        print_json({"queue": queue, done: count, "dry_run": dry_run})
    else:
        would = "would be " if dry_run else ""
        print(f"{counted(count, 'dead letter')} {would}{done}")
    if not count:
        raise Ended(Status.NOTHING)


def read_letters(path: str, queue: str, *, start: int, count: int) -> list[DeadLetter]:
    """Dead letters as the files have them."""
    from fifoq.cli.access import looking
    from fifoq.dead_letters import letter_of, name_of_letters

    letters = name_of_letters(queue)
    found: list[DeadLetter] = []
    with looking(path) as view:
        last = view.last(letters)
        while start <= last and len(found) < count:
            page, start = view.raw_page(letters, start, last)
            found += [letter_of(*record, queue) for record in page]
    return found[:count]


def _letters_of(path: str, queue: str, *, start: int, count: int) -> list[DeadLetter]:
    """The same of a queue that a user named. NotThere if there is no such queue."""
    from fifoq.cli.watching import require_queue
    from fifoq.dead_letters import name_of_letters

    found = read_letters(path, queue, start=start, count=count)
    if not found:
        run(lambda: require_queue(path, queue, or_else=name_of_letters(queue)))
    return found


def _told(letter: DeadLetter) -> dict[str, Any]:
    """Everything but the payload and the traceback."""
    from fifoq.cli.output import moment

    return {
        "counter": letter.key.counter,
        "queue": letter.queue,
        "original_counter": letter.original_key.counter,
        "original_key": bytes(letter.original_key).hex(),
        "attempts": letter.attempts,
        "cause": letter.cause,
        "error_type": letter.error_type,
        "reason": letter.reason,
        "time": moment(letter.time),
        "bytes": len(letter.payload),
        "headers": letter.headers,
    }


def _short(text: str, most: int = 40) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
