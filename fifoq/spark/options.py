"""Options of the source, parsed and checked: a wrong one is named, with what was given.

Spark hands options over as strings under names of any case. What is parsed is a frozen Struct of
plain values, which Spark may send to other processes.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeVar

import msgspec

from fifoq.consumers import check_consumer_name
from fifoq.spark.access import REMOTE_SCHEME
from store.genesis import check_name
from store.keys import COUNTER_MAX

T = TypeVar("T")

DEFAULT_QUEUE: Final = "main"
PARTITION_BYTES: Final = 128 << 20
PARTITION_BYTES_MIN: Final = 4 << 20
"""About what a task reads where there is much, and at the least where there is little."""
PARTITIONS_MAX: Final = 100_000
TRIGGER_DELAY_SECONDS: Final = 15 * 60.0

SHARED: Final = ("path", "queue")
READING: Final = (
    *("partitionBytes", "numPartitions", "includeHeaders", "includeAttributes", "typed"),
)
BATCH: Final = (
    *("startingCounter", "endingCounter", "startingTimestamp", "endingTimestamp", "records"),
)
STREAM: Final = (
    *("startingPosition", "maxRecordsPerTrigger", "maxBytesPerTrigger", "minRecordsPerTrigger"),
    *("maxTriggerDelay", "failOnDataLoss", "consumer", "checkpoint"),
)
REMOTE: Final = ("token",)
"""What an address of a server takes beside them."""

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_UNITS: Final = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SECONDS: Final = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


class OptionError(ValueError):
    """An option that cannot be used; the message begins with its name."""

    def __init__(self, option: str, message: str) -> None:
        super().__init__(f"option {option}: {message}")
        self.option = option


class Target(msgspec.Struct, frozen=True):
    """Which queue of which store, and what else is needed to reach it."""

    path: str
    queue: str
    remote: dict[str, str] = {}

    def __repr__(self) -> str:
        # Without `remote`, which holds the token.
        return f"Target(path={self.path!r}, queue={self.queue!r})"


class Reading(msgspec.Struct, frozen=True):
    """What scans and streams share: how partitions are made, and which columns there are."""

    partition_bytes: int | None
    partitions: int | None
    headers: bool
    typed: bool
    attributes: bool = False


class ScanOptions(msgspec.Struct, frozen=True):
    """A scan. Counters include both ends; times (ns) include the start and not the end."""

    target: Target
    reading: Reading
    first: int | None
    last: int | None
    since: int | None
    until: int | None
    pending: bool


class Start(msgspec.Struct, frozen=True):
    """Where a new stream starts; `value` is a counter, or a time in nanoseconds."""

    kind: Literal["earliest", "latest", "counter", "time"]
    value: int = 0


class StreamOptions(msgspec.Struct, frozen=True):
    """A stream; the limits are those of one trigger."""

    target: Target
    reading: Reading
    start: Start
    records_max: int | None
    bytes_max: int | None
    records_min: int
    delay_seconds: float
    fail_on_loss: bool
    consumer: str | None
    checkpoint: str | None


def target_of(options: Mapping[str, str]) -> Target:
    """The store and the queue that options of the source or the sink name."""
    found = Options(options)
    path = found.text("path")
    if not path:
        raise OptionError("path", "it is missing. Give the store's directory to load() or save().")
    queue = found.text("queue")
    remote: dict[str, str] = {}
    if path.startswith(REMOTE_SCHEME):
        queue = queue or path.removeprefix(REMOTE_SCHEME).partition("/")[2] or None
        remote = {name: value for name in REMOTE if (value := found.text(name)) is not None}
    try:
        return Target(path, check_name(DEFAULT_QUEUE if queue is None else queue), remote)
    except ValueError as error:
        raise OptionError("queue", str(error)) from None


def scan_options(options: Mapping[str, str]) -> ScanOptions:
    """What `spark.read` was given. OptionError for the first option that is wrong."""
    found = Options(options)
    found.refuse_others(BATCH, STREAM, "spark.readStream")
    first, last = found.counter("startingCounter"), found.counter("endingCounter")
    if first is not None and last is not None and last < first:
        raise OptionError("endingCounter", f"{last} is below startingCounter, which is {first}.")
    since, until = found.time("startingTimestamp"), found.time("endingTimestamp")
    if since is not None and until is not None and until < since:
        raise OptionError(
            "endingTimestamp",
            f"{found.text('endingTimestamp')} is before startingTimestamp, which is "
            f"{found.text('startingTimestamp')}.",
        )
    pending = found.one_of("records", ("all", "pending")) == "pending"
    return ScanOptions(target_of(options), _reading(found), first, last, since, until, pending)


def stream_options(options: Mapping[str, str]) -> StreamOptions:
    """What `spark.readStream` was given. OptionError for the first option that is wrong."""
    found = Options(options)
    found.refuse_others(STREAM, BATCH, "spark.read")
    consumer, checkpoint = found.text("consumer"), found.text("checkpoint")
    if consumer is not None:
        try:
            check_consumer_name(consumer)
        except ValueError as error:
            raise OptionError("consumer", str(error)) from None
        if not checkpoint:
            raise OptionError(
                "checkpoint",
                "it is missing, and a consumer needs it: give the query's checkpointLocation here "
                "as well, since a Python source is not told it.",
            )
    elif checkpoint:
        raise OptionError("consumer", "it is missing, and checkpoint means nothing without it.")
    delay = found.duration("maxTriggerDelay")
    least = found.number("minRecordsPerTrigger", 1)
    most = found.number("maxRecordsPerTrigger", 1)
    if most is not None and least is not None and least > most:
        raise OptionError(
            "minRecordsPerTrigger", f"{least} is over maxRecordsPerTrigger, which is {most}."
        )
    return StreamOptions(
        target_of(options),
        _reading(found),
        found.start("startingPosition"),
        most,
        found.size("maxBytesPerTrigger"),
        least or 0,
        TRIGGER_DELAY_SECONDS if delay is None else delay,
        found.flag("failOnDataLoss", True),
        consumer,
        _absolute(checkpoint) if checkpoint else None,
    )


def _reading(found: Options) -> Reading:
    size, count = found.size("partitionBytes"), found.number("numPartitions", 1)
    if size is not None and count is not None:
        raise OptionError("numPartitions", "give it or partitionBytes, not both.")
    if count is not None and count > PARTITIONS_MAX:
        raise OptionError("numPartitions", f"{count} is over the limit of {PARTITIONS_MAX}.")
    return Reading(
        size,
        count,
        found.flag("includeHeaders", False),
        found.flag("typed", False),
        found.flag("includeAttributes", False),
    )


def parse_time(text: str) -> int:
    """Nanoseconds since the epoch. ISO 8601, UTC where it names no zone; ValueError otherwise."""
    moment = datetime.datetime.fromisoformat(text.strip())
    return time_ns(moment)


def time_ns(moment: datetime.datetime) -> int:
    """A moment in nanoseconds since the epoch; one without a zone is UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return (moment - _EPOCH) // _MICROSECOND * 1000


def _absolute(checkpoint: str) -> str:
    """The same directory whoever asks: processes of Spark have others as their current one."""
    return (
        checkpoint
        if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:", checkpoint)
        else os.path.abspath(checkpoint)
    )


class Options:
    """Options by name, in whatever case; each is parsed by the method of its kind."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in options.items()}

    def refuse_others(self, own: tuple[str, ...], others: tuple[str, ...], where: str) -> None:
        """OptionError for an option that is none, or one of another way of reading."""
        known = {name.lower() for name in (*SHARED, *READING, *own, *REMOTE)}
        elsewhere = {name.lower(): name for name in others}
        for name in self._given:
            if name in elsewhere:
                raise OptionError(elsewhere[name], f"it is for {where} alone.")
            if name not in known:
                names, more = ", ".join((*SHARED, *READING, *own)), ", ".join(others)
                raise OptionError(
                    name, f"there is no such option; there are {names}; and with {where} {more}."
                )

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def _parsed(self, name: str, parse: Callable[[str], T], wanted: str) -> T | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            return parse(text)
        except (ValueError, KeyError, OverflowError):
            raise OptionError(name, f"{text!r:.80} is not {wanted}.") from None

    def number(self, name: str, least: int) -> int | None:
        def parse(text: str) -> int:
            number = int(text)
            if number < least:
                raise ValueError
            return number

        return self._parsed(name, parse, f"a whole number from {least} on")

    def counter(self, name: str) -> int | None:
        counter = self.number(name, 1)
        if counter is not None and counter > COUNTER_MAX:
            raise OptionError(name, f"{counter} is over {COUNTER_MAX}, the last counter there is.")
        return counter

    def size(self, name: str) -> int | None:
        def parse(text: str) -> int:
            match = re.fullmatch(r"(\d+) *([bkmg]?)(?:i?b)?", text.strip().lower())
            size = int(match[1]) * _UNITS[match[2] or "b"] if match else 0
            if not size:
                raise ValueError
            return size

        return self._parsed(name, parse, "a number of bytes such as 67108864 or 64m")

    def duration(self, name: str) -> float | None:
        def parse(text: str) -> float:
            match = re.fullmatch(r"(\d+(?:\.\d+)?) *(ms|s|m|h|)", text.strip().lower())
            if not match:
                raise ValueError
            return float(match[1]) * _SECONDS[match[2]]

        return self._parsed(name, parse, "a duration such as 500ms, 30s or 15m")

    def time(self, name: str) -> int | None:
        wanted = "a time such as 2026-11-16T08:30:00Z or 2026-11-16"
        return self._parsed(name, parse_time, wanted)

    def flag(self, name: str, default: bool) -> bool:
        found = self._parsed(
            name, lambda text: {"true": True, "false": False}[text.strip().lower()], "true or false"
        )
        return default if found is None else found

    def one_of(self, name: str, choices: tuple[str, ...]) -> str:
        """One of the choices; the first if nothing is given."""

        def parse(text: str) -> str:
            return {choice: choice for choice in choices}[text.strip().lower()]

        return self._parsed(name, parse, " or ".join(choices)) or choices[0]

    def start(self, name: str) -> Start:
        def parse(text: str) -> Start:
            text = text.strip()
            if text.lower() == "earliest":
                return Start("earliest")
            if text.lower() == "latest":
                return Start("latest")
            if text.isdecimal():
                return Start("counter", int(text))
            return Start("time", parse_time(text))

        wanted = "earliest, latest, a counter, or a time such as 2026-11-16T08:30:00Z"
        return self._parsed(name, parse, wanted) or Start("earliest")
