"""Verbs that look at a store and change nothing: stats, queues, inspect, explain, cursors."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import typer

from fifoq.cli.arguments import (
    DEFAULT_QUEUE,
    Json,
    KeyText,
    Long,
    OneQueue,
    QueueName,
    StorePath,
    counter_of,
)
from fifoq.cli.frame import Ended, Status, run, verb

if TYPE_CHECKING:
    from fifoq.cli.inspecting import QueueFacts, StoreFacts
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
    verb(app, "cursors", example="fifoq cursors data/orders")(cursors)
    verb(app, "inspect", example="fifoq inspect data/orders\nfifoq inspect data/orders --json")(
        inspect
    )
    verb(app, "explain", example="fifoq explain data/orders 17")(explain)


def stats(path: StorePath, queue: OneQueue = None, json: Json = False) -> None:
    """Sizes, water marks, totals and delays of every queue.

    Of a live store its owner says them, with leases, percentiles and pressure; of any other, and
    where the owner is stuck, the files do: then what only an owner knows is not told. With --queue
    every figure of that queue.
    """
    from fifoq.cli.access import no_queue
    from fifoq.cli.output import print_json
    from fifoq.cli.watching import snapshot

    seen = run(lambda: snapshot(path))
    chosen = {name: found for name, found in seen.queues.items() if queue in (None, name)}
    if queue is not None and not chosen:
        raise no_queue(queue, seen.queues)
    if json:
        print_json({**seen.described(), "queues": list(chosen.values())})
    elif queue is not None:
        _print_one(chosen[queue])
    else:
        _print_all(f"{path}: {seen.summary()}", chosen)


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


def cursors(path: StorePath, queue: OneQueue = None, json: Json = False) -> None:
    """Cursors and consumers: where each is, and how far behind.

    `lag` counts records that are on disk and not done, as the last commit has it. Status 3 if there
    is no such queue.
    """
    from fifoq.cli import inspecting
    from fifoq.cli.output import ago, print_json, print_table
    from fifoq.cli.watching import require_queue

    found = [each for each in inspecting.cursors(path) if queue in (None, each.queue)]
    if queue is not None and not found:
        run(lambda: require_queue(path, queue))
    if json:
        print_json(found)
        return
    now = time.time_ns()
    rows: list[list[Cell]] = [
        [c.queue, c.name, c.kind, c.counter, c.lag, ago(c.written_at, now)] for c in found
    ]
    print_table(("queue", "name", "kind", "at", "lag", "moved"), rows)


def inspect(path: StorePath, queue: OneQueue = None, json: Json = False) -> None:
    """What the files of a store hold: segments, options, types, schedules.

    Read from the files alone. Options are those that are not the defaults.
    """
    from fifoq.cli import inspecting
    from fifoq.cli.access import no_queue
    from fifoq.cli.output import print_json

    found = inspecting.inspect(path)
    chosen = [each for each in found.queues if queue in (None, each.name)]
    if queue is not None and not chosen:
        raise no_queue(queue, (each.name for each in found.queues))
    if json:
        print_json(found if queue is None else chosen[0])
        return
    if queue is None:
        _print_store(found)
    for each in chosen:
        _print_queue(each)


def explain(
    path: StorePath, key: KeyText, queue: QueueName = DEFAULT_QUEUE, json: Json = False
) -> None:
    """What became of a record, from the log alone.

    Never its payload. Of a live store the owner says whether it is ready, delayed or leased. Status
    3 if it was never put, or there is no such queue.
    """
    from fifoq.cli.output import print_json
    from fifoq.cli.watching import explanation

    counter = counter_of(key)
    found = run(lambda: explanation(path, queue, counter))
    print_json(found) if json else print(found)
    if found.state == "not put":
        raise Ended(Status.NOTHING)


def _print_store(found: StoreFacts) -> None:
    from fifoq.cli.output import print_facts, print_table, size_text

    facts: dict[str, Cell] = {
        "path": found.path,
        "id": found.id,
        "bytes": size_text(found.bytes),
        "states": found.states,
        "staged batches": found.staged,
        "damaged regions": len(found.damage),
    }
    print_facts(facts)
    print()
    rows: list[list[Cell]] = [
        [str(s.number), size_text(s.bytes), s.records, s.live, size_text(s.live_bytes)]
        for s in found.segments
    ]
    print_table(("segment", "bytes", "records", "live", "live bytes"), rows)


def _print_queue(found: QueueFacts) -> None:
    from fifoq.cli.output import as_json, print_facts

    print()
    facts: dict[str, Cell] = {
        "queue": found.name,
        "size": found.size,
        "next counter": found.next_counter,
        "removed up to": found.floor,
        "options": as_json(found.options).decode() if found.options else "defaults",
        "type": found.schema or "bytes",
        "segments": ", ".join(map(str, found.segments)) or "none",
        "schedules": ", ".join(found.schedules) or "none",
    }
    print_facts(facts)


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
