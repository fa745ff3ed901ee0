"""Verbs that look at a store and change nothing: stats, queues."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import typer

from fifoq.cli.arguments import Json, Long, OneQueue, StorePath
from fifoq.cli.frame import Ended, Status, run, verb

if TYPE_CHECKING:
    from fifoq.cli.output import Cell
    from fifoq.stats import QueueStats
    from fifoq.view import ReadOnlyStats

STATS_COLUMNS = (
    *("queue", "size", "leased", "delayed", "put", "taken", "high", "low"),
    *("delay", "p99", "last put", "bytes"),
)


def add_to(app: typer.Typer) -> None:
    verb(app, "stats", example="fifoq stats data/orders\nfifoq stats data/orders -q main --json")(
        stats
    )
    verb(app, "queues", example="fifoq queues data/orders --long")(queues)


def stats(path: StorePath, queue: OneQueue = None, json: Json = False) -> None:
    """Sizes, water marks, totals and delays of every queue.

    Of a live store its owner says them, with leases, percentiles and pressure; of any other, and
    where the owner is stuck, the files do: then what only an owner knows is not told. With --queue
    every figure of that queue.
    """
    from fifoq.cli.output import print_json
    from fifoq.cli.watching import snapshot

    seen = run(lambda: snapshot(path))
    chosen = {name: found for name, found in seen.queues.items() if queue in (None, name)}
    if queue is not None and not chosen:
        raise _no_queue(queue)
    if json:
        print_json({**seen.described(), "queues": list(chosen.values())})
    elif queue is not None:
        _print_one(chosen[queue])
    else:
        _print_all(seen.title(), chosen)


def queues(path: StorePath, long: Long = False, json: Json = False) -> None:
    """Names of the queues; with --long how much is in each."""
    from fifoq.cli.access import looking
    from fifoq.cli.output import moment, print_json, print_table, size_text

    with looking(path) as view:
        found = view.every_stats()
    if json:
        sizes = [
            {"name": each.name, "size": each.current_size, "bytes": each.bytes} for each in found
        ]
        print_json(sizes)
    elif long:
        rows: list[list[Cell]] = [
            [q.name, q.current_size, size_text(q.bytes), moment(q.last_put_time)] for q in found
        ]
        print_table(("queue", "size", "bytes", "last put"), rows)
    else:
        for each in found:
            print(each.name)


def _no_queue(name: str) -> Ended:
    return Ended(Status.NOTHING, f"the store has no queue {name!r}.", kind="NotThere")


def _print_all(title: str, found: dict[str, QueueStats | ReadOnlyStats]) -> None:
    from fifoq.cli.output import print_table

    print(title)
    now = time.time_ns()
    print_table(STATS_COLUMNS, [_row(each, now) for each in found.values()])


def _row(found: QueueStats | ReadOnlyStats, now: int) -> list[Cell]:
    from fifoq.cli.output import ago, duration, size_text

    return [
        found.name,
        found.current_size,
        getattr(found, "leased", None),
        getattr(found, "delayed", None),
        found.total_put_count,
        found.total_take_count,
        found.high_water_mark,
        found.low_water_mark,
        duration(found.average_delay),
        duration(getattr(found, "delay_p99", None)),
        ago(found.last_put_time, now),
        size_text(found.bytes),
    ]


def _print_one(found: QueueStats | ReadOnlyStats) -> None:
    from fifoq.cli.output import print_facts

    print_facts({name: _fact(name, getattr(found, name)) for name in found.__struct_fields__})


def _fact(name: str, value: Any) -> Cell:
    from fifoq.cli.output import as_json, duration, moment

    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name.endswith("_time"):
        return moment(value)
    if isinstance(value, float) and name.startswith(("average_delay", "delay", "fsync")):
        return duration(value)
    return as_json(value).decode() if isinstance(value, tuple) else value
