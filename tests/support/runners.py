"""Runners for tests of the queue: the job is run here and now, or when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fifoq.inline import InlineRunner
from fifoq.writer import Job


class SlowRunner(InlineRunner):
    """Runs each job as long after its start as `delay` says, in seconds of the loop."""

    delay: Callable[[], float] = staticmethod(lambda: 0.0)

    def start(self, job: Job) -> None:
        assert not self.stopped
        self.finished = False
        self.job_count += 1
        self._loop.call_later(self.delay(), self._run, self._begun(job))


class ManualRunner(InlineRunner):
    """Holds jobs back once it is told to: `hold()`, then `step()` for each job to be run."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_end: Callable[[], None], name: str
    ) -> None:
        super().__init__(loop, on_end, name)
        self.holds = False
        self.waiting: Job | None = None

    def start(self, job: Job) -> None:
        if not self.holds:
            super().start(job)
            return
        assert self.waiting is None
        self.finished = False
        self.job_count += 1
        self.waiting = self._begun(job)

    def hold(self) -> None:
        self.holds = True

    def step(self) -> bool:
        """Run the job that waits; False if there is none."""
        job, self.waiting = self.waiting, None
        if job is None:
            return False
        self._run(job)
        return True

    def let_go(self) -> None:
        """Run what waits, and everything from here on at once."""
        self.holds = False
        self.step()


class BeginningRunner(ManualRunner):
    """The same, but commits are begun when they start, as by a writer with a ring."""

    begins = True
