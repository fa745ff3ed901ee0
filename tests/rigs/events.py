"""What a writer process tells the oracle, one message each on a socket that keeps them whole.

A message is sent before a commit is tried and another one after it returned, so whoever listens
knows at any moment what was confirmed and what may or may not have happened.
"""

from __future__ import annotations

import socket
from typing import Literal

import msgspec

MESSAGE_BYTES_MAX = 256 << 10


class Put(msgspec.Struct, tag=True, array_like=True):
    """Records first, first + 1, … of a queue."""

    queue: str
    first: int
    payloads: list[bytes]


class Take(msgspec.Struct, tag=True, array_like=True):
    """The oldest `count` records of a queue go."""

    queue: str
    count: int


class Remove(msgspec.Struct, tag=True, array_like=True):
    """These records go, wherever they stand."""

    queue: str
    counters: list[int]


class Restore(msgspec.Struct, tag=True, array_like=True):
    """A removed record is back at its place."""

    queue: str
    counter: int
    payload: bytes


class Lease(msgspec.Struct, tag=True, array_like=True):
    """Records were handed out, each for that attempt."""

    queue: str
    attempts: dict[int, int]


class SetStates(msgspec.Struct, tag=True, array_like=True):
    """Newest values by name; None deletes."""

    entries: list[tuple[str, bytes | None]]


class Configure(msgspec.Struct, tag=True, array_like=True):
    """A queue's configuration."""

    queue: str
    configuration: bytes


Effect = Put | Take | Remove | Restore | Lease | SetStates | Configure


class Started(msgspec.Struct, tag=True, array_like=True):
    """A writer runs, and is about to open the store."""

    pid: int


class Trying(msgspec.Struct, tag=True, array_like=True):
    """A step begins. All of its effects or none; `sync` if everything is durable after it."""

    step: str
    effects: list[Effect]
    sync: bool


class Done(msgspec.Struct, tag=True, array_like=True):
    """The step returned; `taken` is what it handed out, by counter."""

    taken: list[tuple[int, bytes]]


class Rows(msgspec.Struct, tag=True, array_like=True):
    """Part of what was found in a queue: counter, timestamp and payload, in the order read."""

    queue: str
    rows: list[tuple[int, int, bytes]]


class QueueFacts(msgspec.Struct, array_like=True):
    """What the store says of a queue beside its records."""

    size: int
    next_counter: int
    attempts: dict[int, int]
    configuration: bytes | None


class Dumped(msgspec.Struct, tag=True, array_like=True):
    """The end of what was found after opening."""

    queues: dict[str, QueueFacts]
    states: dict[str, bytes]


class Failed(msgspec.Struct, tag=True, array_like=True):
    """The store raised; the writer ends."""

    reason: str


class Made(msgspec.Struct, tag=True, array_like=True):
    """A name is about to be made in a directory; until a `Synced` it may vanish."""

    directory: str
    name: str


class Synced(msgspec.Struct, tag=True, array_like=True):
    """The names in a directory are durable."""

    directory: str


class Exited(msgspec.Struct, tag=True, array_like=True):
    """The writer is gone; `status` is what waitpid said."""

    status: int


Event = Started | Trying | Done | Rows | Dumped | Failed | Made | Synced | Exited


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a writer is to do: open the store at `path`, dump it, work until it is killed.

    `steps` bounds the work where nobody kills it by time. `mutant` leaves out a kind of sync, to
    see whether that is noticed; with `names` the making of names is reported as well.
    """

    path: str
    seed: int
    steps: int = 1 << 30
    mutant: Literal["", "datasync", "sync_dir"] = ""
    names: bool = False


_events = msgspec.msgpack.Decoder(Event)
_jobs = msgspec.msgpack.Decoder(Job)
_encode = msgspec.msgpack.Encoder().encode


class Channel:
    """One end of the conversation. Messages arrive whole or not at all, even from a killed end."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in left, right:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MESSAGE_BYTES_MAX)
        return cls(left), cls(right)

    @classmethod
    def of_descriptor(cls, descriptor: int) -> Channel:
        return cls(socket.socket(fileno=descriptor))

    def send(self, message: Event | Job) -> None:
        self.end.send(_encode(message))

    def event(self, timeout_seconds: float | None = None) -> Event | None:
        """The next event; None at the end, TimeoutError (at once for 0) if there is none yet."""
        self.end.settimeout(timeout_seconds)
        try:
            data = self.end.recv(MESSAGE_BYTES_MAX)
        except BlockingIOError:
            raise TimeoutError from None
        except ConnectionResetError:
            return None
        return _events.decode(data) if data else None

    def job(self) -> Job | None:
        """The next job; None when the other side hangs up."""
        try:
            data = self.end.recv(MESSAGE_BYTES_MAX)
        except ConnectionResetError:
            return None
        return _jobs.decode(data) if data else None

    def close(self) -> None:
        self.end.close()
