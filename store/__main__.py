"""`python -m store check PATH` and `python -m store show PATH`.

Both read only, offline or beside a live owner. Exit status: 0 sound, 1 damaged, 2 not checked
(there is no store, or it cannot be read).
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from store.check import Report, check_store
from store.errors import CorruptionError, FifoqError
from store.genesis import Genesis, GenesisView
from store.reader import Reader
from store.segment_state import SegmentState

SOUND, DAMAGED, NOT_CHECKED = 0, 1, 2
LINE_CHARACTERS_MAX: Final = 80
UNITS: Final = "kMGTPE"
QUEUE_COLUMNS: Final = (
    "queue",
    "size",
    "bytes",
    "puts",
    "takes",
    "next",
    "high",
    "low",
    "last put",
)


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
    except FifoqError as error:
        _print_error(error, options.json)
        return DAMAGED if isinstance(error, CorruptionError) else NOT_CHECKED


def _print_error(error: FifoqError, as_json: bool) -> None:
    """To stderr for people; scripts find it where they look for the answer."""
    if as_json:
        print(msgspec.json.encode({"error": str(error)}).decode())
    else:
        print(error, file=sys.stderr)


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
    counts = [(len(report.segments), "segment"), (frames, "frame"), (records, "record")]
    told = ", ".join(_counted(count, word) for count, word in counts)
    print(f"{report.path}: {told}, {_counted(size, 'byte')} read")
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


class SegmentView(msgspec.Struct, rename="camel", frozen=True):
    """A segment as JSON; times in nanoseconds."""

    number: int
    bytes: int
    records: int
    live: int
    live_bytes: int
    first_sequence: int
    created_time_ns: int
    last_put_time_ns: int

    @classmethod
    def of(cls, segment: SegmentState) -> SegmentView:
        return cls(
            number=segment.number,
            bytes=segment.length,
            records=segment.record_count,
            live=segment.live_count,
            live_bytes=segment.live_bytes,
            first_sequence=segment.first_sequence,
            created_time_ns=segment.created_at,
            last_put_time_ns=segment.last_time,
        )


def _show(path: str, as_json: bool) -> int:
    with Reader(path) as reader:
        segments = [SegmentView.of(place) for _, place in sorted(reader.state.segments.items())]
        queues = dict(sorted(reader.state.queues.items()))
    if as_json:
        views = {name: GenesisView.of(q.genesis, q.configuration) for name, q in queues.items()}
        print(msgspec.json.encode({"segments": segments, "queues": views}).decode())
        return SOUND
    size = sum(segment.bytes for segment in segments)
    print(f"{path}: {_counted(len(segments), 'segment')}, {_counted(size, 'byte')}")
    rows = [[str(n) for n in (s.number, s.bytes, s.records, s.live)] for s in segments]
    _print_table([["segment", "bytes", "records", "live"], *rows])
    print(_counted(len(queues), "queue"))
    _print_table([[*QUEUE_COLUMNS], *(_queue_row(queue.genesis) for queue in queues.values())])
    return SOUND


def _queue_row(genesis: Genesis) -> list[str]:
    numbers = (
        genesis.queue_size,
        genesis.queue_bytes,
        genesis.total_put_count,
        genesis.total_take_count,
        genesis.next_counter,
        genesis.high_water_mark,
        genesis.low_water_mark,
    )
    return [genesis.name, *map(shortened, numbers), _moment(genesis.last_put_time)]


def shortened(number: int | None) -> str:
    """A number in at most five characters, rounded down; `--json` has the exact one."""
    if number is None:
        return "-"
    if number < 100_000:
        return str(number)
    power = 1
    while number >= 1000 ** (power + 1) and power < len(UNITS):
        power += 1
    return f"{number // 1000**power}{UNITS[power - 1]}"


def _moment(time: int) -> str:
    if not time:
        return "never"
    return datetime.fromtimestamp(time // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _print_table(rows: list[list[str]]) -> None:
    """Columns as wide as they must be; the first is cut where a line would be over the limit."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[0] = min(widths[0], LINE_CHARACTERS_MAX - sum(widths[1:]) - len(widths))
    for first, *rest in rows:
        name = first if len(first) <= widths[0] else first[: widths[0] - 1] + "…"
        cells = [text.rjust(width) for text, width in zip(rest, widths[1:], strict=True)]
        print(" " + " ".join([name.ljust(widths[0]), *cells]))


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


if __name__ == "__main__":
    # A closed pipe (`… | head`) ends the program quietly.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
