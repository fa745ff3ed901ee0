"""What tests of a ring share: a look at the runner, and kernels that say what they want."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

import fifoq
from fifoq import Queue, ring_writer
from fifoq.file_clock import FileClock
from fifoq.ring_writer import RingWriter
from fifoq.uring import Ring
from store import Begun, Filling

SECONDS_MAX: Final = 20
"""Nothing that these tests wait for takes so long; who waits longer hangs."""


def runner_of(queue: Queue[bytes]) -> RingWriter:
    runner = queue._committer.runner
    assert isinstance(runner, RingWriter)
    return runner


def count_writes(monkeypatch: pytest.MonkeyPatch, *, durably: bool = True) -> list[int]:
    """The lengths of what rings are asked to write from here on, durably or not."""
    lengths: list[int] = []
    write = Ring.write

    def counting(ring: Ring, *where: int, durably: bool, at_once: bool) -> None:
        assert durably or not at_once, "the page cache may make whoever writes wait"
        if durably is wanted:
            lengths.append(where[2])
        write(ring, *where, durably=durably, at_once=at_once)

    wanted = durably
    monkeypatch.setattr(Ring, "write", counting)
    return lengths


def answer(monkeypatch: pytest.MonkeyPatch, change: Callable[[int], int]) -> None:
    """Have the kernel's results say something else."""
    result = Ring.result

    def changed(ring: Ring) -> int | None:
        found = result(ring)
        return None if found is None else change(found)

    monkeypatch.setattr(Ring, "result", changed)


def refuse_the_next_write(monkeypatch: pytest.MonkeyPatch, place: Path) -> list[int]:
    """Have the kernel refuse one write, none of which reaches the segment.

    The list holds what the kernel said of it, each time it was asked.
    """
    result, write, said = Ring.result, Ring.write, list[int]()
    count = 0

    def writing(ring: Ring, handle: int, *where: int, durably: bool, at_once: bool) -> None:
        nonlocal count
        count += 1
        if count > 1:
            write(ring, handle, *where, durably=durably, at_once=at_once)
            return
        with place.with_name("elsewhere").open("wb") as elsewhere:
            write(ring, elsewhere.fileno(), *where, durably=False, at_once=False)

    def answering(ring: Ring) -> int | None:
        found = result(ring)
        if found is None or count > 1:
            return found
        said.append(-errno.EAGAIN)
        return said[-1]

    monkeypatch.setattr(Ring, "write", writing)
    monkeypatch.setattr(Ring, "result", answering)
    return said


LOOKS = 5


def let_notes(monkeypatch: pytest.MonkeyPatch, queue: Queue[bytes], notes: bool) -> list[Begun]:
    """Have the disk be slower than a few looks, so that commits are noted first; or none be."""
    monkeypatch.setattr(FileClock, "stands_still", lambda *_: notes)
    # Only who looks notes anything, and a busy machine is not to be too slow for that.
    monkeypatch.setattr(ring_writer, "LOOK_SECONDS", 10.0)
    monkeypatch.setattr(ring_writer, "NOTE_SECONDS", 0.0)
    runner_of(queue)._quick = True
    noted: list[Begun] = []
    result, note, looks = Ring.result, Begun.note, iter(range(LOOKS if notes else 0))

    def late(ring: Ring) -> int | None:
        return result(ring) if next(looks, None) is None else None

    def noting(begun: Begun) -> None:
        note(begun)
        noted.append(begun)

    monkeypatch.setattr(Ring, "result", late)
    monkeypatch.setattr(Begun, "note", noting)
    return noted


async def contents(place: Path) -> list[bytes]:
    async with fifoq.open(place) as queue:
        return [record.item async for record in queue.browse()]


def count_filled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many zeros were written ahead, each time somebody did."""
    counts: list[int] = []
    end = Filling.end

    def ended(filling: Filling, seconds: float) -> None:
        end(filling, seconds)
        counts.append(len(filling.frame))

    monkeypatch.setattr(Filling, "end", ended)
    return counts


class Stumble:
    """Raises something once, before or behind one call of a method."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        place: tuple[Any, str],
        raised: type[BaseException],
        *,
        after: bool,
        when: Callable[..., bool] = lambda *_: True,
    ) -> None:
        self.came = False
        plain = getattr(*place)

        def stumbling(*arguments: Any, **keywords: Any) -> Any:
            stumbles = not self.came and when(*arguments)
            self.came = self.came or stumbles
            if stumbles and not after:
                raise raised
            found = plain(*arguments, **keywords)
            if stumbles:
                raise raised
            return found

        monkeypatch.setattr(*place, stumbling)


def go_on_after_interrupts(monkeypatch: pytest.MonkeyPatch, queue: Queue[bytes]) -> None:
    """As a loop does that is run again."""
    committer, loop = queue._committer, asyncio.get_running_loop()
    monkeypatch.setattr(committer, "pump", calm(committer.pump))
    monkeypatch.setattr(asyncio.Handle, "_run", calm(asyncio.Handle._run))
    monkeypatch.setattr(loop, "call_exception_handler", lambda _: None)


def calm(call: Callable[..., None]) -> Callable[..., None]:
    def calmly(*arguments: Any) -> None:
        with suppress(KeyboardInterrupt):
            call(*arguments)

    return calmly
