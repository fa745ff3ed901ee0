"""Dead letters for blocking code and any number of threads. See `fifoq.sync`."""

from __future__ import annotations

from collections.abc import Sequence

from fifoq import dead_letters as _dead_letters
from fifoq.dead_letters import DeadLetter
from fifoq.loopthread import LoopThread


class DeadLetters:
    """The dead letters of one queue; made by `Store.dead_letters`. As `fifoq.DeadLetters`."""

    def __init__(self, thread: LoopThread, letters: _dead_letters.DeadLetters) -> None:
        self.name = letters.name
        self._thread = thread
        self._letters = letters

    def __repr__(self) -> str:
        return f"<sync.{repr(self._letters)[1:]}"

    def __len__(self) -> int:
        return self._thread.call(self._letters.__len__)

    def list(self, *, start: int = 1, count: int = 100) -> Sequence[DeadLetter]:
        """The oldest ones from counter `start` on; nothing changes."""
        return self._thread.run(lambda: self._letters.list(start=start, count=count))

    def get(self, counter: int) -> DeadLetter | None:
        """The one with that counter, or None; nothing changes."""
        return self._thread.run(lambda: self._letters.get(counter))

    def replay(self, *counters: int, dry_run: bool = False) -> int:
        """Put some or all back into their queue; returns how many."""
        return self._thread.run(lambda: self._letters.replay(*counters, dry_run=dry_run))

    def purge(self, *counters: int, dry_run: bool = False) -> int:
        """Remove some or all for good; returns how many."""
        return self._thread.run(lambda: self._letters.purge(*counters, dry_run=dry_run))
