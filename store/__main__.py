"""`python -m store check PATH` and `python -m store show PATH`.

Both read only, offline or beside a live owner. Exit status: 0 sound, 1 damaged, 2 not checked
(there is no store, or it cannot be read).
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

import msgspec

from store.check import Report, check_store
from store.directory import access_error
from store.errors import CorruptionError, FifoqError
from store.genesis import GenesisView
from store.reader import Reader

SOUND, DAMAGED, NOT_CHECKED = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m store", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, text in (
        ("check", "read every frame, chain, index and genesis, and tell all damage"),
        ("show", "print segments, queues and genesis"),
    ):
        sub = verbs.add_parser(verb, help=text, description=text)
        sub.add_argument("path", help="the store's directory")
        sub.add_argument("--json", action="store_true", help="print JSON for scripts")
    options = parser.parse_args(arguments)
    run = _check if options.verb == "check" else _show
    try:
        return run(options.path, options.json)
    except CorruptionError as error:
        print(error, file=sys.stderr)
        return DAMAGED
    except FifoqError as error:
        print(error, file=sys.stderr)
        return NOT_CHECKED
    except OSError as error:
        print(access_error(options.path, error), file=sys.stderr)
        return NOT_CHECKED


def _check(path: str, as_json: bool) -> int:
    shows_progress = sys.stderr.isatty()

    def progress(done: int, total: int) -> None:
        share = done * 100 // max(total, 1)
        print(f"\rchecked {done >> 20} of {total >> 20} MiB ({share} %)", end="", file=sys.stderr)

    report = check_store(path, progress=progress if shows_progress else None)
    if shows_progress:
        print(file=sys.stderr)
    if as_json:
        print(msgspec.json.encode({"sound": report.sound, "report": report}).decode())
    else:
        _print_report(report)
    return SOUND if report.sound else DAMAGED


def _print_report(report: Report) -> None:
    frames = sum(segment.frames for segment in report.segments)
    records = sum(segment.records for segment in report.segments)
    size = sum(segment.bytes for segment in report.segments)
    print(
        f"{report.path}: {len(report.segments)} segments, {frames} frames, {records} records, "
        f"{size} bytes read"
    )
    for text in report.warnings:
        print(f"  note     {text}")
    for damage in report.damage:
        print(f"  damaged  {damage.file} bytes {damage.offset} to {damage.end}: {damage.reason}")
    for queue, ranges in report.missing.items():
        counters = ", ".join(f"{first} to {last}" for first, last in ranges)
        print(f"  missing  queue {queue!r}: counters {counters}")
    if report.sound:
        print("sound: every frame, chain, index and genesis agrees")
    else:
        print(
            'damaged. Nothing was changed. Open with recover="quarantine" to go on with the rest.'
        )


def _show(path: str, as_json: bool) -> int:
    with Reader(path) as reader:
        segments = [reader.state.segments[n] for n in sorted(reader.state.segments)]
        views = {
            name: GenesisView.of(queue.genesis, queue.configuration)
            for name, queue in sorted(reader.state.queues.items())
        }
    if as_json:
        entries = [segment.entry() for segment in segments]
        print(msgspec.json.encode({"segments": entries, "queues": views}).decode())
        return SOUND
    print(f"{path}")
    print(f"  {'segment':>20}  {'bytes':>12}  {'records':>10}  {'live':>10}")
    for segment in segments:
        print(
            f"  {segment.number:>20}  {segment.length:>12}  {segment.record_count:>10}  "
            f"{segment.live_count:>10}"
        )
    for name, view in views.items():
        text = msgspec.json.format(msgspec.json.encode(view), indent=2).decode()
        print(f"queue {name} {text}")
    return SOUND


if __name__ == "__main__":
    # A closed pipe (`… | head`) ends the program quietly.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
