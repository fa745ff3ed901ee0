"""The runner where there is no disk to wait for: a job is run here and now, on no thread.

For stores in memory, and for simulated machines, where nothing may depend on a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fifoq.writer import Job


class InlineRunner:
    """Runs each job in `start`; its end is reported in the loop's next turn."""

    kind = "inline"
    beside = False

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_end: Callable[[], None], name: str
    ) -> None:
        self._loop = loop
        self._on_end = on_end
        self.name = name
        self.finished = True
        self.outcome: object = None
        self.error: BaseException | None = None
        self.job_count = 0
        self.stopped = False
        self._last: Callable[[], None] | None = None

    def start(self, job: Job) -> None:
        assert not self.stopped
        self.finished = False
        self.job_count += 1
        self._run(job)

    def _run(self, job: Job) -> None:
        try:
            self.outcome, self.error = job.run(), None
        except BaseException as error:
            self.outcome, self.error = None, error
        self.finished = True
        if self._last is not None:
            self._last()
        self._loop.call_soon(self._on_end)

    def stop(self, last: Callable[[], None] | None = None) -> None:
        self.stopped = True
        self._last = last

    def join(self) -> None:
        assert self.stopped
