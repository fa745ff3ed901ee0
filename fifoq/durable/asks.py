"""Asks that outlive their asker: by an id of the asker's choice, and a box for the answers.

The first ask with an id puts the message and notes the id in one frame; another one, also after a
restart, waits for the same answer. The answer is written in the frame of the step that gave it and
kept for a while. Asks without an id are not in here: their answer goes from memory to memory.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from actors import ActorError
from fifoq.burying import printable, text_of
from fifoq.durable.letters import UNWRITABLE, Letter, why_unwritable
from fifoq.durable.steps import Step
from store import Log

if TYPE_CHECKING:
    from fifoq.durable.post import Post

ID_HEADER: Final = "fifoq.ask_id"
STATE_PREFIX: Final = "ask/"
ID_BYTES_MAX: Final = 200
ANSWERS_KEPT_SECONDS: Final = 24 * 3600.0
FORGOTTEN_MAX: Final = 64
"""Answers that one step forgets: a day's worth at once would be more than a frame holds."""
_NS: Final = 1_000_000_000

_encode = msgspec.msgpack.Encoder().encode


class AskFailed(ActorError):
    """The message of an ask with an id went to the dead letters, or was handled without a reply."""

    def __init__(self, id: str, reason: str) -> None:
        super().__init__(f"ask {id!r} has no answer: {reason}")
        self.id, self.reason = id, reason


class Answer(msgspec.Struct, array_like=True):
    """What is kept of an ask: pending (time 0), answered, or failed with a reason."""

    time: int = 0
    value: msgspec.Raw = msgspec.Raw(b"\xc0")
    failure: str | None = None


_decode: Final = msgspec.msgpack.Decoder(Answer).decode
_PENDING: Final = _encode(Answer())


class Asks:
    """The asks with an id that one system knows."""

    def __init__(self, post: Post, kept_seconds: float) -> None:
        self._post = post
        self._kept_ns = round(kept_seconds * _NS)
        self._times: dict[str, int] = {}
        """When each was answered; 0 while it is not."""
        self._order: deque[tuple[int, str]] = deque()
        """Answers by age."""
        self._waiters: dict[str, list[asyncio.Future[Answer]]] = {}
        self._failure: Exception | None = None

    async def open(self) -> None:
        """See what is kept, and forget what was kept long enough."""
        self._times = cast("dict[str, int]", await self._post.committer.call(_times_in))
        self._order.extend(sorted((t, id) for id, t in self._times.items() if t))
        while True:
            step = Step()
            self._forget_old(step)
            if not step:
                return
            self._post.steps.add(step)

    async def ask(self, id: str, payload: bytes) -> Answer:
        """The answer to the ask with that id; `payload` is put if nobody asked so before."""
        if self._failure is not None:
            raise self._failure
        time_answered = self._times.get(id)
        if time_answered:
            # None if it was forgotten while it was read: then nobody asked so before.
            return await self._read(id) or await self.ask(id, payload)
        future: asyncio.Future[Answer] = self._post.loop.create_future()
        self._waiters.setdefault(id, []).append(future)
        try:
            if time_answered is None:
                self._times[id] = 0
                step = Step()
                step.put(self._post.queue.name, payload)
                step.set_state(STATE_PREFIX + id, _PENDING)
                self._post.steps.add(step)
            return await future
        finally:
            waiters = self._waiters.get(id)
            if waiters is not None and future in waiters:
                waiters.remove(future)
                if not waiters:
                    del self._waiters[id]

    def close(self, error: Exception) -> None:
        """Whoever waits, or asks from now on, gets the error: no answer will come in this life."""
        self._failure = self._failure or error
        waiters, self._waiters = self._waiters, {}
        for futures in waiters.values():
            for future in futures:
                if not future.done():
                    future.set_exception(error)

    async def _read(self, id: str) -> Answer | None:
        name = STATE_PREFIX + id
        values: Any = await self._post.committer.call(lambda log: log.states_of([name]))
        kept = values.get(name)
        return None if kept is None else _decode(kept)

    def answer(
        self, step: Step, letter: Letter, value: bytes | None, failure: Exception | None
    ) -> None:
        """Make the answer to a letter, if it was asked with an id, a part of its step."""
        id = letter.headers.get(ID_HEADER)
        if id is None or self._times.get(id, 1):
            return
        reason = None
        if failure is not None:
            reason = printable(f"{type(failure).__name__}: {text_of(failure)}")
        answer = Answer(time.time_ns(), msgspec.Raw(value or b"\xc0"), reason)
        step.set_state(STATE_PREFIX + id, _encode(answer))
        self._forget_old(step)
        step.when_committed(partial(self._answered, id, answer))

    def _answered(self, id: str, answer: Answer) -> None:
        self._times[id] = answer.time
        self._order.append((answer.time, id))
        for future in self._waiters.pop(id, ()):
            if not future.done():
                future.set_result(answer)

    async def forget(self, id: str) -> bool:
        """Forget an answer, durable on return; False if there is none."""
        if not self._times.get(id):
            return False
        step = Step()
        self._forget(step, id)
        await self._post.steps.committed(self._post.steps.add(step))
        return True

    def _forget(self, step: Step, id: str) -> None:
        del self._times[id]
        step.set_state(STATE_PREFIX + id, None)

    def _forget_old(self, step: Step) -> None:
        oldest = time.time_ns() - self._kept_ns
        for _ in range(FORGOTTEN_MAX):
            if not self._order or self._order[0][0] > oldest:
                return
            answered, id = self._order.popleft()
            if self._times.get(id) == answered:
                self._forget(step, id)


def check_id(id: str) -> str:
    """ValueError unless it can be the id of an ask."""
    if not 0 < len(id.encode()) <= ID_BYTES_MAX:
        raise ValueError(f"an id of {len(id.encode())} bytes is not one of 1 to {ID_BYTES_MAX}")
    return id


def encode_answer(value: object) -> bytes:
    """A reply as it is kept. TypeError if it can not be written."""
    try:
        return _encode(value)
    except UNWRITABLE as error:
        raise TypeError(
            f"a reply of type {type(value).__name__} can not be kept: {why_unwritable(error)}"
        ) from None


def _times_in(log: Log) -> dict[str, int]:
    names = _names(name for name, entry in log.state.states.items() if entry.present)
    values = log.states_of(names)
    return {name.removeprefix(STATE_PREFIX): _decode(values[name]).time for name in names}


def _names(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(STATE_PREFIX)]
