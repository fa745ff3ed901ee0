"""Runners for tests of the queue: the job is run here and now, or when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fifoq.inline import InlineRunner
from fifoq.writer import Job, Started
from store import Begun

BLOCK_BYTES = 4096


class SlowRunner(InlineRunner):
    """Runs each job as long after its start as `delay` says, in seconds of the loop."""

    delay: Callable[[], float] = staticmethod(lambda: 0.0)

    def start(self, job: Job) -> None:
        assert not self.stopped
        self.finished = False
        self.job_count += 1
        self._loop.call_later(self.delay(), self._run, job)


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
            super().start(self._begun(job))
            return
        assert self.waiting is None
        self.finished = False
        self.job_count += 1
        self.waiting = self._begun(job)

    def _begun(self, job: Job) -> Job:
        """What is to be run of the job."""
        return job

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
    """The same, but commits are begun when they start, and written as a ring does."""

    beside = True

    def _begun(self, job: Job) -> Job:
        begun = job.begin()
        return job if begun is None else WholeBlocks(begun)


class WholeBlocks:
    """The rest of what was begun: its blocks of the disk, synced if they are to be, and its end."""

    def __init__(self, begun: Started) -> None:
        self._begun_commit = begun

    awaited = True

    def begin(self) -> None:
        return None

    def run(self) -> None:
        begun = self._begun_commit
        if isinstance(begun, Begun) and begun.sync:
            self._write_blocks(begun)
        else:
            self._write_frame(begun)

    def _write_frame(self, begun: Started) -> None:
        """As a ring does what is not synced: the kernel has all of it, or the thread is told."""
        file = begun.file
        try:
            written = file.files.pwrite(file.handle, begun.frame, begun.offset)
        except OSError:
            written = -1
        if written == len(begun.frame):
            begun.end(0.0)
        else:
            begun.write()

    def _write_blocks(self, begun: Begun) -> None:
        file = begun.file
        start = begun.offset // BLOCK_BYTES * BLOCK_BYTES
        try:
            front = file.files.pread(file.handle, begun.offset - start, start)
            blocks = front + begun.frame
            blocks += bytes(-len(blocks) % BLOCK_BYTES)
            written = 0
            if start + len(blocks) <= begun.filled and len(front) == begun.offset - start:
                written = file.files.pwrite(file.handle, blocks, start)
            if written == len(blocks):
                if begun.log.sequence % 2:
                    begun.note()
                file.files.datasync(file.handle)
            else:
                # As of a write that was not tried, or that was cut short.
                begun.write()
                return
        except OSError as error:
            raise begun.fail(error) from error
        begun.end(0.0)
