"""Dead letters of actors: look at them, send them again, and run one again to see why it died.

A dead letter has the message, the state that it met and the class of its actor. That is all that a
step depends on inside the runtime, so `reproduce` makes it fail anywhere as it failed there.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn, TypeVar, Unpack

import msgspec

from actors import Actor, Context, Ref, Reply
from actors.timers import TimerKeywords
from fifoq.burying import PREFIX
from fifoq.dead_letters import DeadLetter, DeadLetters
from fifoq.durable.burying import ACTOR, STATE
from fifoq.durable.letters import Letter, Messages, decode_letter
from fifoq.durable.state import States

M = TypeVar("M")

PAGE_COUNT: Final = 100
"""Dead letters that are read at a time while those of one actor are looked for."""


class DeadMessage(msgspec.Struct, frozen=True):
    """A message that its actor could not handle."""

    letter: DeadLetter
    """As it lies among the dead letters: key, attempts, cause, reason, traceback, time."""
    actor: str
    """The name of the actor."""
    kind: str
    """Its class, as `module:name`."""
    message: bytes
    """As msgpack."""
    headers: dict[str, str]
    """What came along with the message."""
    state: bytes | None
    """What was kept of the actor when the last attempt began; None if it has no state, or over
    1 MiB of it."""

    @property
    def counter(self) -> int:
        """Its number among the dead letters, for `replay` and `purge`."""
        return self.letter.key.counter

    def __repr__(self) -> str:
        return f"<DeadMessage {self.counter} of {self.actor!r}: {self.letter.error_type}>"


class DeadMessages:
    """What `ActorSystem.dead_letters` gives."""

    def __init__(self, letters: DeadLetters) -> None:
        self._letters = letters

    def __len__(self) -> int:
        return len(self._letters)

    async def list(
        self, actor: str | None = None, *, start: int = 1, count: int = 100
    ) -> Sequence[DeadMessage]:
        """The oldest ones from counter `start` on, of one actor or all; nothing changes.

        At most `count`, which is up to 1000. For the next ones start behind the last counter.
        """
        found: list[DeadMessage] = []
        # Those of one actor may be few among many.
        size = count if actor is None else max(count, PAGE_COUNT)
        while len(found) < count:
            page = await self._letters.list(start=start, count=size)
            found += [dead for dead in map(read_dead, page) if actor in (None, dead.actor)]
            if len(page) < size:
                break
            start = page[-1].key.counter + 1
        return found[:count]

    async def replay(self, *counters: int, dry_run: bool = False) -> int:
        """Tell messages again, those with these counters or all; returns how many.

        With `dry_run` nothing changes.
        """
        return await self._letters.replay(*counters, dry_run=dry_run)

    async def purge(self, *counters: int, dry_run: bool = False) -> int:
        """Remove messages for good, those with these counters or all; returns how many.

        With `dry_run` nothing changes.
        """
        return await self._letters.purge(*counters, dry_run=dry_run)


def read_dead(letter: DeadLetter) -> DeadMessage:
    """A dead letter of the queue of mailboxes, as actors know it."""
    try:
        found = decode_letter(letter.payload)
    except msgspec.MsgspecError:
        found = Letter("", msgspec.Raw(letter.payload))
    state = letter.told.get(STATE.removeprefix(PREFIX))
    return DeadMessage(
        letter=letter,
        actor=found.to,
        kind=letter.told.get(ACTOR.removeprefix(PREFIX), ""),
        message=bytes(found.message),
        headers=dict(found.headers),
        state=None if state is None else base64.b64decode(state),
    )


class Reproduced(msgspec.Struct):
    """What one message did when it was run again: nothing of it left the process."""

    before: Any
    """The state that it met; None if the class has none."""
    state: Any
    """The state as the handler left it."""
    told: list[tuple[str, object]] = []
    """Names and messages."""
    puts: list[tuple[str, object]] = []
    """Queues and items."""
    scheduled: list[tuple[str, object]] = []
    replies: list[object] = []
    error: Exception | None = None


async def reproduce(
    dead: DeadMessage,
    factory: Callable[..., Actor[M]],
    *args: object,
    raises: bool = True,
    **kwargs: object,
) -> Reproduced:
    """Run a message that died again, in a new actor object with the state that it met.

    `factory(*args, **kwargs)` makes the object; its `on_start` runs first. Effects are noted and go
    nowhere. What the handler raises is raised, for a debugger to stop at, or noted as `error` if
    `raises` is False. SchemaMismatch and msgspec errors if message or state are not of that class.
    """
    actor = factory(*args, **kwargs)
    states = States(type(actor))
    found = Reproduced(None, None)
    if states.kind is not None:
        kept = states.first() if dead.state is None else states.restore(dead.actor, dead.state)
        found.before = states.decode(kept)
        found.state = actor.state = states.decode(kept)  # type: ignore[attr-defined]
    message = Messages(type(actor)).decode(dead.message)
    attempt = max(1, dead.letter.attempts)
    await actor.on_start(_DryContext(dead, attempt, Reproduced(None, None)))
    try:
        await actor.receive(message, _DryContext(dead, attempt, found))
    except Exception as error:
        if raises:
            raise
        found.error = error
    if states.kind is not None:
        found.state = actor.state  # type: ignore[attr-defined]
    return found


class _DryContext(Context[Any]):
    """Notes what a handler does."""

    __slots__ = ("_attempt", "_dead", "_found")

    def __init__(self, dead: DeadMessage, attempt: int, found: Reproduced) -> None:
        self._dead = dead
        self._attempt = attempt
        self._found = found

    @property
    def self_ref(self) -> Ref[Any]:
        return _DryRef(self._dead.actor)

    @property
    def attempt(self) -> int:
        return self._attempt

    @property
    def headers(self) -> Mapping[str, str]:
        return self._dead.headers

    def reply(self, value: object) -> None:
        self._found.replies.append(value)

    def defer_reply(self) -> Reply:
        return Reply()

    def tell(self, ref: Ref[Any] | str, message: Any) -> None:
        self._found.told.append((ref if isinstance(ref, str) else ref.name, message))

    def put(self, queue: Any, item: Any, *args: Any, **kwargs: Any) -> None:
        self._found.puts.append((getattr(queue, "name", repr(queue)), item))

    def schedule(
        self,
        message: Any,
        *,
        to: Ref[Any] | str | None = None,
        name: str | None = None,
        **when: Unpack[TimerKeywords],
    ) -> None:
        target = self._dead.actor if to is None else to if isinstance(to, str) else to.name
        self._found.scheduled.append((target, message))

    def unschedule(self, name: str) -> None:
        """There is nothing to forget."""

    def spawn(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError("a message that is run again has no system: it can not spawn")

    def watch(self, ref: Ref[Any]) -> None:
        """There is nobody to watch."""

    def unwatch(self, ref: Ref[Any]) -> None:
        """There is nobody to watch."""

    def find(self, name: str, kind: type[Actor[Any]] | None = None) -> None:
        """Nobody else is alive."""

    def stop(self) -> None:
        """There is nothing to stop."""


class _DryRef(Ref[Any]):
    """The address of an actor that is only run again."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        return self._name
