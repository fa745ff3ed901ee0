"""Verbs that look after a store: verify, backup, restore, repair, doctor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from fifoq.cli.arguments import Json, StorePath
from fifoq.cli.frame import verb

if TYPE_CHECKING:
    from fifoq.tools.doctor import Diagnosis
    from fifoq.tools.repair import Repaired
    from store.check import Report

DAMAGED: Final = 1
NOT_CHECKED: Final = 2
"""What `verify` ends with beside 0."""
RANGES_SHOWN: Final = 20

NewDirectory = Annotated[str, typer.Argument(metavar="TARGET", help="A directory that is made.")]


def add_to(app: typer.Typer) -> None:
    verb(app, "verify", example="fifoq verify data/orders")(verify)
    verb(app, "backup", example="fifoq backup data/orders backups/orders-monday")(backup)
    verb(app, "restore", example="fifoq restore backups/orders-monday data/orders")(restore)
    verb(app, "repair", example="fifoq repair data/orders data/orders-repaired")(repair)
    verb(app, "doctor", example="fifoq doctor data/orders")(doctor)


def verify(path: StorePath, json: Json = False) -> None:
    """Read every frame, chain, index and genesis, and tell all damage.

    Works beside a live owner and changes nothing. Status 0: sound. 1: damaged; what is lost is told
    counter by counter. 2: it could not be checked.
    """
    from fifoq.cli.output import as_json, print_json
    from fifoq.cli.progress import progress
    from store import CorruptionError, FifoqError
    from store.check import check_store

    try:
        with progress("verify", "bytes") as shown:
            report = check_store(path, progress=shown)
    except FifoqError as error:
        status = DAMAGED if isinstance(error, CorruptionError) else NOT_CHECKED
        if json:
            print_json({"error": str(error), "kind": type(error).__name__, "status": status})
        else:
            typer.echo(f"fifoq: {error}", err=True)
        raise typer.Exit(status) from None
    if json:
        print(as_json({"sound": report.sound, "report": report}).decode())
    else:
        _print_report(path, report)
    if not report.sound:
        raise typer.Exit(DAMAGED)


def _print_report(path: str, report: Report) -> None:
    from fifoq.cli.output import counted, size_text

    segments = report.segments
    records = counted(sum(segment.records for segment in segments), "record")
    size = size_text(sum(segment.bytes for segment in segments))
    print(f"{path}: {counted(len(segments), 'segment')}, {records}, {size} read")
    for text in report.warnings:
        print(f"  note     {text}")
    for damage in report.damage:
        print(f"  damaged  {damage.file} bytes {damage.offset} to {damage.end}: {damage.reason}")
    for name, ranges in report.missing.items():
        print(f"  missing  queue {name!r}: {_ranges(ranges)}")
    if report.sound:
        print("sound: every frame, chain, index and genesis agrees")
    else:
        print(f"damaged. Nothing was changed. `fifoq repair {path} TARGET` saves the rest.")


def _ranges(ranges: list[tuple[int, int]]) -> str:
    shown = [f"{a} to {b}" if a < b else f"{a}" for a, b in ranges[:RANGES_SHOWN]]
    more = len(ranges) - len(shown)
    return f"counters {', '.join(shown)}" + (f" and {more} more ranges" if more else "")


def backup(
    path: StorePath,
    target: NewDirectory,
    copy: Annotated[
        bool, typer.Option("--copy", help="Copy every file: share none with the store.")
    ] = False,
    json: Json = False,
) -> None:
    """Back up a store, live or not, as of one commit.

    Sealed segments get a second name (a hard link) and the last ones are copied; to another file
    system everything is. A backup is itself a store, to be looked at and verified. Interrupted, the
    same command takes up what is in TARGET.partial.
    """
    from fifoq.cli.access import require_store
    from fifoq.cli.output import counted, print_json, size_text
    from fifoq.cli.progress import progress
    from fifoq.tools.backup import back_up

    require_store(path)
    with progress("backup", "bytes") as shown:
        done = back_up(path, target, copy=copy, progress=shown)
    if json:
        print_json(done)
        return
    records = counted(sum(queue.records for queue in done.queues), "record")
    print(
        f"{target}: {records} of {counted(len(done.queues), 'queue')}, {size_text(done.bytes)}, "
        f"{counted(done.linked, 'segment')} linked and {done.copied} copied"
    )


def restore(
    backup: Annotated[str, typer.Argument(metavar="BACKUP", help="What backup made.")],
    target: NewDirectory,
    link: Annotated[
        bool, typer.Option("--link", help="Share sealed segments with the backup.")
    ] = False,
    check: Annotated[bool, typer.Option(help="Read all of it before it gets its name.")] = True,
    json: Json = False,
) -> None:
    """Make a store of a backup, which stays as it is.

    It is checked from end to end before TARGET appears. Status 4: the backup is damaged.
    """
    from fifoq.cli.output import counted, print_json
    from fifoq.cli.progress import progress
    from fifoq.tools.backup import restore as make

    with progress("restore", "bytes") as shown:
        done = make(backup, target, link=link, check=check, progress=shown)
    if json:
        print_json(done)
        return
    records = counted(sum(queue.records for queue in done.backup.queues), "record")
    print(f"{target}: {records}, {'checked' if done.checked else 'not checked'}")


def repair(path: StorePath, target: NewDirectory, json: Json = False) -> None:
    """Write everything that is intact in a damaged store to a new one; never in place.

    Keys, options and cursors come along. What is lost is listed; records whose removal is in the
    damage are there again. The damaged store must have no owner, and is not changed. Interrupted,
    the same command goes on with what is in TARGET.partial. Status 0: the new store is there, even
    if records are lost.
    """
    from fifoq.cli.access import require_store
    from fifoq.cli.output import print_json
    from fifoq.cli.progress import progress
    from fifoq.tools.repair import repair as write

    require_store(path)
    with progress("repair", "records") as shown:
        done = write(path, target, progress=shown)
    if json:
        print_json({"records": done.records, "lost": done.lost, "report": done})
    else:
        _print_repair(done)


def _print_repair(done: Repaired) -> None:
    from fifoq.cli.output import counted

    for number, start, end in done.regions:
        print(f"  damaged  segment {number} bytes {start} to {end}")
    for bad in done.unreadable:
        print(f"  refused  {bad.file} bytes {bad.offset} to {bad.end}: the disk did not give them")
    for queue in done.queues:
        if queue.missing:
            print(f"  missing  queue {queue.name!r}: {_ranges(queue.missing)}")
        if queue.unknown_from is not None:
            text = f"counters from {queue.unknown_from} on, if there were any"
            print(f"  unknown  queue {queue.name!r}: {text}")
    for name in done.states:
        print(f"  missing  state {name!r}")
    for text in done.notes:
        print(f"  note     {text}")
    before = f", {done.resumed:,} of them before" if done.resumed else ""
    print(f"{done.path}: {counted(done.records, 'record')} saved{before}, {done.lost:,} lost")


def doctor(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A store, or where one is to be.")
    ] = ".",
    json: Json = False,
) -> None:
    """Measure the disk, look at file system and limits, and say what that means.

    It writes a small file there and removes it. Status 0: nothing to worry about. 1: there is a
    warning.
    """
    from fifoq.cli.output import print_json
    from fifoq.tools.doctor import diagnose

    found = diagnose(path)
    if json:
        print_json({"healthy": found.healthy, "report": found})
    else:
        _print_diagnosis(found)
    if not found.healthy:
        raise typer.Exit(1)


def _print_diagnosis(found: Diagnosis) -> None:
    width = max(len(each.about) for each in found.findings)
    print(f"{found.path}: {found.syncs_per_second:,.0f} synced commits a second for one caller")
    for each in found.findings:
        print(f"  {each.level:<7}  {each.about:<{width}}  {each.text}")
        if each.advice:
            print(f"  {'':<7}  {'':<{width}}  {each.advice}")
