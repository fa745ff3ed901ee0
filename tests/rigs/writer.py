"""A process that works on a store until somebody kills it, and says what it does all the while.

`python -m tests.rigs.writer DESCRIPTOR` waits for jobs on that socket and forks a process for
each, which is cheaper than starting Python anew. With a job as JSON behind it, it does that job
itself. Either way the store is opened by the process that will be killed.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate
from random import Random

import msgspec

from store import Key, Log, LogOptions, open_log
from store.blocks import ACKED, records_weight
from store.draft import Draft
from store.files import Handle
from store.osfiles import OsFiles
from store.ranges import merged
from tests.rigs.events import (
    Channel,
    Configure,
    Done,
    Dumped,
    Effect,
    Event,
    Exited,
    Failed,
    Job,
    Lease,
    Made,
    Put,
    QueueFacts,
    Remove,
    Restore,
    Rows,
    SetStates,
    Started,
    Synced,
    Take,
    Trying,
)

QUEUES = ("orders", "mail", "orders.dlq")
STATES = ("timer", "cursor", "window")
DEPTH_MAX = 40
SMALL_BYTES_MAX = 400
LARGE_BYTES_MAX = 24 << 10
ROWS_BYTES_MAX = 64 << 10
OPTIONS = LogOptions(
    segment_bytes=64 << 10, checkpoint_bytes=16 << 10, fill_bytes=4 << 10, reserve_bytes=4 << 10
)


class RigFiles(OsFiles):
    """The real files, with one kind of sync left out or with a report on names, as the job says."""

    def __init__(self, job: Job, report: Callable[[Event], None]) -> None:
        self._mutant = job.mutant
        self._report = report if job.names else lambda event: None
        self._paths: dict[Handle, str] = {}

    def make_dir(self, path: str) -> None:
        if not os.path.lexists(path):
            self._report(Made(os.path.dirname(path), os.path.basename(path)))
        super().make_dir(path)

    def open_dir(self, path: str) -> Handle:
        handle = super().open_dir(path)
        self._paths[handle] = path
        return handle

    def create(self, directory: Handle, name: str) -> Handle:
        self._report(Made(self._paths[directory], name))
        return super().create(directory, name)

    def datasync(self, handle: Handle) -> None:
        if self._mutant != "datasync":
            super().datasync(handle)

    def sync_dir(self, directory: Handle) -> None:
        if self._mutant != "sync_dir":
            super().sync_dir(directory)
            self._report(Synced(self._paths[directory]))


class Writer:
    """Opens the store, dumps it and then takes random steps."""

    def __init__(self, job: Job, report: Callable[[Event], None]) -> None:
        self._job = job
        self._report = report
        self._random = Random(job.seed)
        self._files = RigFiles(job, report)
        self._log = self._open()
        self._last_taken: tuple[str, Key, bytes] | None = None

    def work(self) -> None:
        steps = {
            self.put: 20,
            self.put_large: 4,
            self.put_weak: 10,
            self.put_to_two: 8,
            self.take: 12,
            self.take_weak: 6,
            self.transfer: 6,
            self.remove: 6,
            self.restore: 3,
            self.lease: 4,
            self.set_states: 6,
            self.configure: 2,
            self.flush: 2,
            self.seal: 4,
            self.rotate: 3,
            self.checkpoint: 3,
            self.compact: 4,
            self.reopen: 1,
        }
        names, weights = list(steps), list(accumulate(steps.values()))
        for _ in range(self._job.steps):
            (step,) = self._random.choices(names, cum_weights=weights)
            step()

    def _open(self) -> Log:
        log = open_log(self._job.path, files=self._files, options=OPTIONS)
        for name in log.state.queues:
            self._send_rows(log, name)
        facts = {
            name: QueueFacts(
                queue.genesis.queue_size,
                queue.genesis.next_counter,
                queue.attempts,
                queue.configuration,
            )
            for name, queue in log.state.queues.items()
        }
        states = {name: log.state_of(name) for name in log.state.states}
        found = {name: value for name, value in states.items() if value is not None}
        self._report(Dumped(facts, found))
        return log

    def _send_rows(self, log: Log, name: str) -> None:
        rows: list[tuple[int, int, bytes]] = []
        size = 0
        for block in log.read(name):
            for key, payload in zip(block.keys(), block.payloads(), strict=True):
                if size + len(payload) > ROWS_BYTES_MAX:
                    self._report(Rows(name, rows))
                    rows, size = [], 0
                rows.append((key.counter, key.timestamp, payload))
                size += len(payload)
        self._report(Rows(name, rows))

    def _try(self, step: str, *effects: Effect, sync: bool) -> None:
        self._report(Trying(step, list(effects), sync))

    def _done(self, taken: list[tuple[Key, bytes]] | None = None) -> None:
        self._report(Done([(key.counter, payload) for key, payload in taken or ()]))

    # Puts.

    def put(self) -> None:
        self._put("put", self._payloads(), sync=True)

    def put_large(self) -> None:
        count = self._random.randint(SMALL_BYTES_MAX, LARGE_BYTES_MAX)
        self._put("put", [self._random.randbytes(count)], sync=True)

    def put_weak(self) -> None:
        self._put("put weak", self._payloads(), sync=False)

    def _put(self, step: str, payloads: list[bytes], *, sync: bool) -> None:
        name = self._queue()
        if self._depth(name) >= DEPTH_MAX:
            self._take(name, DEPTH_MAX // 2, sync=sync)
        first = self._log.queue(name).genesis.next_counter
        self._try(step, Put(name, first, payloads), sync=sync)
        counters = self._log.put(name, payloads, sync=sync)
        assert counters == range(first, first + len(payloads)), (counters, first)
        self._done()

    def put_to_two(self) -> None:
        draft = self._log.draft()
        effects: list[Effect] = []
        for name in self._random.sample(QUEUES, 2):
            payloads = self._payloads()
            first = draft.put(self._log.queue(name), payloads)
            effects.append(Put(name, first, payloads))
        self._try("commit", *effects, sync=True)
        self._log.commit(draft)
        self._done()

    # Takes and other removals.

    def take(self) -> None:
        self._take(self._queue(), self._random.randint(1, 6), sync=True)

    def take_weak(self) -> None:
        self._take(self._queue(), self._random.randint(1, 3), sync=False)

    def _take(self, name: str, count: int, *, sync: bool) -> None:
        if not self._depth(name):
            return
        self._try("take" if sync else "take weak", Take(name, count), sync=sync)
        taken = self._log.take(name, count, sync=sync)
        self._done(taken)
        self._last_taken = (name, *taken[-1])

    def transfer(self) -> None:
        """Move a record from the head of one queue to the tail of another, in one commit."""
        source, target = self._random.sample(QUEUES, 2)
        found = self._peek(source, 1)
        if not found:
            return
        draft = self._log.draft()
        self._add_removal(draft, source, found)
        key, payload = found[0]
        first = draft.put(self._log.queue(target), [payload])
        removed = Remove(source, [key.counter])
        self._try("commit", removed, Put(target, first, [payload]), sync=True)
        self._log.commit(draft)
        self._done()

    def remove(self) -> None:
        """Remove records out of the middle, as acks in any order do."""
        name = self._queue()
        found = [pair for pair in self._peek(name, DEPTH_MAX) if self._random.random() < 0.2]
        if not found:
            return
        draft = self._log.draft()
        self._add_removal(draft, name, found)
        sync = self._random.random() < 0.7
        self._try("ack", Remove(name, [key.counter for key, _ in found]), sync=sync)
        self._log.commit(draft, sync=sync)
        self._done()

    def restore(self) -> None:
        if self._last_taken is None:
            return
        name, key, payload = self._last_taken
        self._last_taken = None
        draft = self._log.draft()
        draft.move(self._log.queue(name), [key.counter], [key.timestamp], [payload])
        self._try("restore", Restore(name, key.counter, payload), sync=True)
        self._log.commit(draft)
        self._done()

    def lease(self) -> None:
        name = self._queue()
        queue = self._log.queue(name)
        counters = [key.counter for key, _ in self._peek(name, 3)]
        if not counters:
            return
        attempts = {counter: queue.attempts.get(counter, 0) + 1 for counter in counters}
        draft = self._log.draft()
        draft.lease(queue, counters, list(attempts.values()), deadline=0)
        sync = self._random.random() < 0.5
        self._try("lease", Lease(name, attempts), sync=sync)
        self._log.commit(draft, sync=sync)
        self._done()

    # States and configurations.

    def set_states(self) -> None:
        entries = [(name, self._value()) for name in self._random.sample(STATES, 2)]
        draft = self._log.draft()
        draft.set_states(entries)
        sync = self._random.random() < 0.7
        self._try("state", SetStates(entries), sync=sync)
        self._log.commit(draft, sync=sync)
        self._done()

    def configure(self) -> None:
        name = self._queue()
        configuration = f'{{"n":{self._random.getrandbits(32)}}}'.encode()
        draft = self._log.draft()
        draft.configure(self._log.queue(name), configuration)
        self._try("configure", Configure(name, configuration), sync=True)
        self._log.commit(draft)
        self._done()

    # Upkeep.

    def flush(self) -> None:
        self._step("flush", self._log.flush, sync=True)

    def seal(self) -> None:
        self._step("seal", self._log.seal, sync=False)

    def rotate(self) -> None:
        self._step("rotate", self._log.rotate, sync=True)

    def checkpoint(self) -> None:
        self._step("checkpoint", self._log.checkpoint, sync=True)

    def compact(self) -> None:
        size = self._random.choice((2 << 10, 1 << 20))
        self._step("compact", lambda: self._log.compact(size), sync=False)

    def reopen(self) -> None:
        self._step("close", self._log.close, sync=True)
        self._log = self._open()

    def _step(self, name: str, action: Callable[[], object], *, sync: bool) -> None:
        self._try(name, sync=sync)
        action()
        self._done()

    # Helpers.

    def _queue(self) -> str:
        return self._random.choice(QUEUES)

    def _depth(self, name: str) -> int:
        return self._log.queue(name).genesis.queue_size

    def _payloads(self) -> list[bytes]:
        sizes = self._random.choices((0, 1, 16, 100, SMALL_BYTES_MAX), k=self._random.randint(1, 5))
        return [self._random.randbytes(size) for size in sizes]

    def _value(self) -> bytes | None:
        if self._random.random() < 0.3:
            return None
        return self._random.randbytes(self._random.randint(0, 60))

    def _peek(self, name: str, count: int) -> list[tuple[Key, bytes]]:
        found: list[tuple[Key, bytes]] = []
        for block in self._log.read(name):
            found += zip(block.keys(), block.payloads(), strict=True)
            if len(found) >= count:
                break
        return found[:count]

    def _add_removal(self, draft: Draft, name: str, found: list[tuple[Key, bytes]]) -> None:
        ranges = [
            (key.counter, key.counter, records_weight(len(payload), 1)) for key, payload in found
        ]
        draft.remove(self._log.queue(name), merged(ranges), reason=ACKED)


def run(job: Job, channel: Channel) -> None:
    """Do one job. What the store raises is reported, whatever it is."""
    channel.send(Started(os.getpid()))
    try:
        Writer(job, channel.send).work()
    except (BrokenPipeError, ConnectionResetError):
        return
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {error} ({place.name}, line {place.lineno})"
        channel.send(Failed(reason))


def serve(channel: Channel) -> None:
    """Fork a writer for each job and report its end, until the other side hangs up."""
    while (job := channel.job()) is not None:
        pid = os.fork()
        if pid == 0:
            try:
                run(job, channel)
                # Whoever kills us by number must not find another process under it.
                channel.job()
            finally:
                # Nothing of the parent's is ours to clean up, and the store is left as it is.
                os._exit(0)
        _, status = os.waitpid(pid, 0)
        with suppress(BrokenPipeError):
            channel.send(Exited(status))


def main(arguments: list[str]) -> None:
    logging.getLogger("store").addHandler(logging.NullHandler())
    channel = Channel.of_descriptor(int(arguments[0]))
    if arguments[1:]:
        run(msgspec.json.decode(arguments[1], type=Job), channel)
        os._exit(0)
    serve(channel)


if __name__ == "__main__":
    main(sys.argv[1:])
