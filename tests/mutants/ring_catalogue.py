"""Mutants of commits that are begun, and of the writer with a ring. See `catalogue`."""

from __future__ import annotations

from typing import Final

from tests.mutants.catalogue import Mutant
from tests.mutants.catalogue import of_fifoq as _mutant

RING: Final = "tests/fifoq/ring"
WRITER: Final = "tests/fifoq/test_writer.py"
TELLING: Final = "tests/fifoq/test_telling.py"
CLOCK: Final = "tests/fifoq/test_file_clock.py"
BEGUN: Final = "tests/store/test_begun.py"
FILLING: Final = "tests/store/test_filling.py"

BEGUN_MUTANTS: Final = (
    Mutant(
        "the child of a fork is told of another thread",
        "life",
        "    if life.status is FORKED:\n",
        "    if False:\n",
        (RING,),
    ),
    Mutant(
        "zeros ahead that nobody wrote count",
        "filling",
        '        """Leave it: the next frame sees to the space that it needs, '
        'and tells if there is none."""\n',
        "        return self.end(0.0)\n",
        (FILLING,),
    ),
    Mutant(
        "zeros ahead that are not synced count as durable",
        "filling",
        "        tail.dirty = True\n",
        "",
        (FILLING,),
    ),
    Mutant(
        "zeros for which there is no space are tried again behind every commit",
        "filling",
        "        self.log.tail.fills = False\n",
        "",
        (FILLING,),
    ),
    Mutant(
        "zeros are written ahead while somebody else has the log",
        "filling",
        "        log.turn.pop()\n    except",
        "        pass\n    except",
        (FILLING,),
    ),
    Mutant(
        "zeros ahead that cannot be begun keep the turn",
        "filling",
        "    filling = Filling(log, zeros, tail.filled, tail.file)\n"
        "    try:\n"
        "        # Last: whatever is raised before leaves everything as it was.\n"
        "        log.turn.pop()\n"
        "    except IndexError:\n"
        "        return None\n"
        "    return filling\n",
        "    try:\n"
        "        log.turn.pop()\n"
        "    except IndexError:\n"
        "        return None\n"
        "    return Filling(log, zeros, tail.filled, tail.file)\n",
        (FILLING,),
    ),
    Mutant(
        "the removal of what is put takes no more room while records are few",
        "packing",
        "        return min(most, before + RUN_BYTES * count) * 4 // 3 - before * 4 // 3\n",
        "        return 0\n",
        ("tests/store/test_plain.py",),
    ),
    Mutant(
        "a commit is begun behind what is not durable",
        "begun",
        "    if sync and log.tail.dirty:\n",
        "    if False:\n",
        (BEGUN,),
    ),
    Mutant(
        "a commit that was begun holds no room for its removal",
        "begun",
        "    log.needed += draft.growth\n",
        "",
        (BEGUN,),
    ),
    Mutant(
        "a log goes on after a commit that was begun failed",
        "begun",
        "        self.log.free_turn()\n        failure = ",
        "        self.log.status = OPEN\n        self.log.free_turn()\n        failure = ",
        (BEGUN,),
    ),
    Mutant(
        "the handle for direct writes outlives its segment",
        "segment",
        "                let_go(self.files, self.direct)\n",
        "                pass\n",
        (RING,),
    ),
    Mutant(
        "a commit that was begun and failed keeps the turn",
        "begun",
        "        self.log.free_turn()\n        failure = ",
        "        failure = ",
        (BEGUN,),
    ),
    Mutant(
        "a commit that was begun does not say that it is durable",
        "begun",
        "                log.note_sync(seconds)\n",
        "                pass\n",
        (BEGUN,),
    ),
    Mutant(
        "what was begun without a sync counts as durable",
        "begun",
        "            if self.sync:\n                log.note_sync(seconds)\n",
        "            log.note_sync(seconds)\n",
        (BEGUN,),
    ),
    Mutant(
        "a frame that was begun without a sync is forgotten by the next one",
        "begun",
        "            tail.dirty = True\n        tail.advance",
        "            pass\n        tail.advance",
        (BEGUN,),
    ),
    Mutant(
        "what was noted while it was written is noted again at its end",
        "begun",
        "            if not self.noted:\n                self.note()\n            if self.sync:\n",
        "            self.note()\n            if self.sync:\n",
        (BEGUN,),
    ),
    Mutant(
        "what was noted half way counts as noted",
        "begun",
        "        if self.noted is None:\n            raise InterruptedError",
        "        if False:\n            raise InterruptedError",
        (BEGUN,),
    ),
    Mutant(
        "what was noted is appended behind itself",
        "begun",
        "            if self.noted is False:\n                log.status = OPEN\n",
        "            if True:\n                log.status = OPEN\n",
        (BEGUN,),
    ),
    Mutant(
        "a frame that was noted and then refused is forgotten",
        "begun",
        "            raise sync_error(tail.name, error) from error\n        tail.dirty = True\n",
        "            pass\n        tail.dirty = True\n",
        (BEGUN,),
    ),
    Mutant(
        "a frame that was noted and then written is not synced",
        "begun",
        "            raise sync_error(tail.name, error) from error\n        tail.dirty = True\n",
        "            raise sync_error(tail.name, error) from error\n",
        (BEGUN,),
    ),
    Mutant(
        "a commit that was begun shows counters that nothing durable covers",
        "begun",
        "        or not (sync or drafted.counters_are_covered(draft))\n",
        "",
        (BEGUN,),
    ),
    Mutant(
        "a log is free while a commit that was begun is under way",
        "begun",
        "    try:\n        log.turn.pop()\n    except IndexError:\n        return None\n",
        "",
        (BEGUN,),
    ),
)

RING_MUTANTS: Final = (
    _mutant(
        "the end of the thread's last job is that of one that it never got",
        "writer",
        "        self.outcome, self.error = None, NOT_HANDED_OVER\n        patience",
        "        patience",
        WRITER,
    ),
    _mutant(
        "the end of the thread's last job is that of a commit on its way there",
        "ring_writer",
        "        self._writer.error = NOT_HANDED_OVER\n        self._begun,",
        "        self._begun,",
        RING,
    ),
    _mutant(
        "nobody sees to a commit that neither ring nor thread has",
        "ring_writer",
        "        elif self.finished:\n            self._on_end()\n",
        "        elif self._in_ring and self._ended:\n            self._on_end()\n",
        RING,
    ),
    _mutant(
        "nobody sees to a pump that was interrupted as it began",
        "intake",
        "        if self._scheduled:\n            self.pump()\n",
        "        if False:\n            self.pump()\n",
        RING,
    ),
    _mutant(
        "a commit whose log has failed is confirmed",
        "jobs",
        "        if self.log.status is not Status.OPEN:\n            # Also",
        "        if error is not None and self.log.status is not Status.OPEN:\n            # Also",
        RING,
    ),
    _mutant(
        "what the kernel is writing the thread writes too",
        "ring_writer",
        "            if self._kernel_has_it:\n",
        "            if False:\n",
        RING,
    ),
    _mutant(
        "a request that the kernel did not take is submitted with the next one",
        "ring_writer",
        "                    for_good=lies or ",
        "                    for_good=False and ",
        RING,
    ),
    _mutant(
        "without memory nobody hears that a commit was given up",
        "ring_writer",
        "        try:\n            failure = begun.fail(NOT_HANDED_OVER)\n        finally:\n"
        "            # Even without memory to say more.\n"
        "            self._end(error or failure)\n",
        "        failure = begun.fail(NOT_HANDED_OVER)\n        self._end(error or failure)\n",
        RING,
    ),
    _mutant(
        "a mistake is logged before anybody is told",
        "committer",
        "            self._abandon(as_ours(error))\n            logger.exception(\n"
        '                "the committer failed", '
        'extra=fields("bug", self.path, error=name_of(error))\n'
        "            )\n",
        '            logger.exception("the committer failed", extra=fields("bug", self.path))\n'
        "            self._abandon(as_ours(error))\n",
        RING,
    ),
    _mutant(
        "no memory for a read is told as a store that failed",
        "jobs",
        "            self._line.read_ended(refusal(error))\n",
        "            self._line.read_ended(as_ours(error))\n",
        RING,
    ),
    _mutant(
        "no memory to seal puts stops the store",
        "committer",
        "                sync=sync,\n            )\n        except MemoryError as error:\n",
        "                sync=sync,\n            )\n        except ZeroDivisionError as error:\n",
        RING,
    ),
    _mutant(
        "no memory to seal a draft stops the store",
        "committer",
        "                    must_sync |= add_batch(draft, log, line, batch)\n"
        "                except MemoryError as error:\n",
        "                    must_sync |= add_batch(draft, log, line, batch)\n"
        "                except ZeroDivisionError as error:\n",
        RING,
    ),
    _mutant(
        "a close says nothing of lost records that nobody waited for",
        "owner",
        "        elif committer.lost_unheard:\n",
        "        elif False:\n",
        "tests/fifoq/test_disk_trouble.py",
    ),
    _mutant(
        "who was interrupted while a failure was told has told everybody",
        "committer",
        "        if self._settling is not None or self._at_hand is not None:\n",
        "        if self._at_hand is not None:\n",
        RING,
    ),
    _mutant(
        "who was interrupted as a job began has left it to somebody",
        "committer",
        "        if self._settling is not None or self._at_hand is not None:\n",
        "        if self._settling is not None:\n",
        RING,
    ),
    _mutant(
        "what is tried again on a full disk is at hand for ever",
        "settling",
        "        self._at_hand = None\n",
        "",
        "tests/fifoq/test_disk_trouble.py",
    ),
    _mutant(
        "what is still to be begun is in the ring",
        "ring_writer",
        "        self._writer.error, self._in_ring = NOT_HANDED_OVER, False\n",
        "        self._writer.error, self._in_ring, self._ended = NOT_HANDED_OVER, True, False\n",
        RING,
    ),
    _mutant(
        "the end of the last job is that of one which the ring could not begin",
        "ring_writer",
        "        self._writer.error, self._in_ring = NOT_HANDED_OVER, False\n",
        "        self._in_ring = False\n",
        RING,
    ),
    _mutant(
        "those who wait are forgotten before they are told of a failure",
        "settling",
        "        waiting = waiters + self.waiters\n",
        "        waiting, self.waiters = waiters + self.waiters, []\n",
        TELLING,
    ),
    _mutant(
        "transactions are forgotten before they are told of a failure",
        "joint",
        "        for joint in self.under_way + self.waiting:\n",
        "        told, self.under_way, self.waiting = self.under_way + self.waiting, [], []\n"
        "        for joint in told:\n",
        TELLING,
    ),
    _mutant(
        "those who wait for room in a store are forgotten before they are told",
        "intake",
        "        for future in self._room_waiters:\n",
        "        waiting, self._room_waiters = self._room_waiters, []\n"
        "        for future in waiting:\n",
        TELLING,
    ),
    _mutant(
        "those who wait for room in a queue are forgotten before they are woken",
        "turns",
        "                future.set_result(None)\n                del self._putters[future]\n",
        "                del self._putters[future]\n                future.set_result(None)\n",
        TELLING,
    ),
    _mutant(
        "what a background sync made durable is lost with its store",
        "jobs",
        "            committer.unsynced_records = 0\n",
        "            pass\n",
        TELLING,
    ),
    _mutant(
        "what was withdrawn is lost with its store",
        "settling",
        "    return sealed + len(line.tail) - line.tail.count(None)\n",
        "    return sealed + len(line.tail)\n",
        TELLING,
    ),
    _mutant(
        "a transaction tells of nothing",
        "settling",
        "        return self.unsynced_records + unwritten - self.joints.arrived_count()\n",
        "        return self.unsynced_records + unwritten\n",
        TELLING,
    ),
    _mutant(
        "a transaction tells of all that is in its frame",
        "settling",
        "        return self.unsynced_records + unwritten - self.joints.arrived_count()\n",
        "        return self.unsynced_records + (0 if self.joints.under_way else unwritten)\n",
        TELLING,
    ),
    _mutant(
        "a log that could not note what was given out is closed cleanly",
        "closing",
        "        log.close(clean=noted)\n",
        "        log.close()\n",
        TELLING,
    ),
    _mutant(
        "an end that the disk holds up keeps the store for ever",
        "owner",
        "            self._committer.cut_short()\n",
        "            pass\n",
        "tests/fifoq/test_leaving.py",
    ),
    _mutant(
        "an end that is cut short is not waited for",
        "committer",
        "            self._leaving.begin()\n            runner.stop(self._let_go)\n",
        "            runner.stop(self._let_go)\n",
        "tests/fifoq/test_leaving.py",
    ),
    _mutant(
        "a job that began as another one ended counts as told of",
        "writer",
        "        if finished and number == self._jobs_started:\n",
        "        if finished:\n",
        WRITER,
    ),
    _mutant(
        "a job that is told of before its end counts as told of",
        "writer",
        "        if finished and number == self._jobs_started:\n",
        "        if number == self._jobs_started:\n",
        WRITER,
    ),
    _mutant(
        "what is written and not synced is not lost with its store",
        "settling",
        "            self.unsynced_records += job.record_count\n",
        "            pass\n",
        "tests/fifoq/test_disk_trouble.py",
    ),
    _mutant(
        "the error of a close hides that of its block",
        "errors",
        "    if error is None:\n        raise failure\n",
        "    raise failure\n",
        "tests/fifoq/test_disk_trouble.py",
    ),
    _mutant(
        "another thread may close the store",
        "store",
        "        self._committer.require_no_other()\n",
        "",
        "tests/fifoq/test_life.py",
    ),
    _mutant(
        "another thread may shut a queue down",
        "queue",
        "        self._committer.require_no_other()\n",
        "",
        "tests/fifoq/test_life.py",
    ),
    _mutant(
        "the loop has no other way to see the end of a job than to be told",
        "writer",
        "            with suppress(MemoryError):\n                tell()\n",
        "            tell()\n",
        WRITER,
    ),
    _mutant(
        "what goes to the thread is held as if the kernel were at it",
        "ring_writer",
        "        rest = Rest(begun, awaited=self._awaited)\n        self.under_way.discard(self)\n",
        "        rest = Rest(begun, awaited=self._awaited)\n",
        RING,
    ),
    _mutant(
        "a limit on files that ends with a frame gives the ring up",
        "ring_writer",
        "for_good=never and _may_reach(self._end_offset)",
        "for_good=never",
        RING,
    ),
    _mutant(
        "the log of who was interrupted with the turn is never closed",
        "closing",
        "    log.free_turn()\n",
        "",
        RING,
    ),
    _mutant(
        "no memory for a frame is told as a store that failed",
        "jobs",
        "            committer.refuse(self, refusal(error))\n",
        "            committer.refuse(self, as_ours(error))\n",
        RING,
    ),
    _mutant(
        "a short write of the ring counts as a whole one",
        "ring_writer",
        "        if result == self._length:\n",
        "        if result >= 0:\n",
        RING,
    ),
    _mutant(
        "a sync that failed in the ring is tried again",
        "ring_writer",
        "            not begun.sync or result >= 0 or",
        "            True or",
        RING,
    ),
    _mutant(
        "who is told twice of the end of a job waits for another",
        "writer",
        "os.EFD_CLOEXEC | os.EFD_NONBLOCK",
        "os.EFD_CLOEXEC",
        WRITER,
    ),
    _mutant(
        "a job begins while the thread is at one that was given up",
        "writer",
        "        if self._is_at_work():\n",
        "        if False:\n",
        WRITER,
    ),
    _mutant(
        "the end of a job that nobody was told of is never told",
        "writer",
        "            self._see_that_it_is_told()\n",
        "            pass\n",
        WRITER,
    ),
    _mutant(
        "those who wait are forgotten while their frame is put together",
        "committer",
        "        self._at_hand = self.waiters\n",
        "",
        "tests/fifoq/test_life.py",
    ),
    _mutant(
        "a commit that was given up goes to the thread beside the next job",
        "ring_writer",
        "            self._look(tries_again=False)\n",
        "            self._look()\n",
        RING,
    ),
    _mutant(
        "a commit on its way to the thread is nobody's",
        "ring_writer",
        "            never = -result in _NOT_HERE or (begun.sync and result >= 0)\n",
        "            never = -result in _NOT_HERE or (begun.sync and result >= 0)\n"
        "            self._begun = None\n",
        RING,
    ),
    _mutant(
        "a result is thrown away before the commit has ended",
        "ring_writer",
        "            self._note_written(begun, seconds)\n            ring.next()\n",
        "            ring.next()\n            self._note_written(begun, seconds)\n",
        RING,
    ),
    _mutant(
        "the thread that opened a store may use it wherever its loop runs",
        "intake",
        "        if running is not self.loop or threading.get_ident() != self.thread:\n",
        "        if not self.loop.is_running() or threading.get_ident() != self.thread:\n",
        "tests/fifoq/test_life.py",
    ),
    _mutant(
        "a commit is noted before the kernel could refuse it",
        "ring_writer",
        "            self._look_and_report()\n            begun = self._begun\n",
        "            if self._at_once and self._begun is not None and not self._begun.noted:\n"
        "                self._begun.note()\n"
        "            self._look_and_report()\n            begun = self._begun\n",
        RING,
    ),
    _mutant(
        "a frame that a limit on files cuts through is noted",
        "ring_writer",
        "                and _may_reach(self._end_offset)\n",
        "",
        RING,
    ),
    _mutant(
        "zeros are left unsynced ahead of synced records",
        "committer",
        " and not job.synced\n",
        "\n",
        RING,
    ),
    _mutant(
        "zeros ahead are the thread's",
        "committer",
        "        return puts and idle and runner.beside and self._open_log.filling_due()\n",
        "        return False\n",
        RING,
    ),
    _mutant(
        "who looks for the end of a commit does not see ticks grow old",
        "file_clock",
        "        if age > self._age:\n",
        "        if False:\n",
        CLOCK,
    ),
    _mutant(
        "who is interrupted between two clocks takes a tick for older than it is",
        "file_clock",
        "        now = time.time_ns()\n        tick = time.clock_gettime_ns(_COARSE)\n",
        "        tick = time.clock_gettime_ns(_COARSE)\n        now = time.time_ns()\n",
        CLOCK,
    ),
    _mutant(
        "a commit is not noted while the disk is at it",
        "ring_writer",
        "                and begun.noted is False\n",
        "                and False\n",
        RING,
    ),
    _mutant(
        "the loop looks for the end of slow commits too",
        "ring_writer",
        "        elif (seconds := time.perf_counter() - self._begun_at) < LOOK_SECONDS:\n",
        "        elif seconds := time.perf_counter() - self._begun_at:\n",
        RING,
    ),
    _mutant(
        "the end of one commit is taken for that of the next",
        "ring_writer",
        "                self._in_ring, self._ended = True, False\n",
        "                self._in_ring = True\n",
        RING,
    ),
    _mutant(
        "the loop starts writes that the journal may hold up",
        "ring_writer",
        "            self._at_once = self._clock.stands_still(begun.file)\n",
        "            self._at_once = True\n",
        RING,
    ),
    _mutant(
        "the child of a fork keeps the ring",
        "ring_writer",
        "            # Not taken from the loop: what that watches with is the parent's too.\n"
        "            ring.close()\n",
        "            pass\n",
        RING,
    ),
    _mutant(
        "puts that never suspend do not look for the end",
        "ring_writer",
        "        if self._in_ring and self._begun is not None and self._ring is not None:\n"
        "            self._look()\n",
        "",
        f"{RING}/test_ring_writer.py",
    ),
    _mutant(
        "the block in which the last frame ends is not kept",
        "direct",
        "            view[: end - last] = view[last - start : end - start]\n",
        "            pass\n",
        RING,
    ),
    _mutant(
        "what lies behind the frame is left over from another one",
        "direct",
        "            view[end:length] = _ZEROS[: length - end]\n",
        "            pass\n",
        RING,
    ),
    _mutant(
        "the bytes in front of a frame are not read",
        "direct",
        "            self._read(file.handle, start, inside)\n",
        "            pass\n",
        RING,
    ),
    _mutant(
        "simulated files are written directly",
        "direct",
        "        if type(file.files) is not OsFiles or not overwrites",
        "        if not overwrites",
        RING,
    ),
    _mutant(
        "a new segment is written as if it had the time of the last one",
        "file_clock",
        "        return same and age < latest - CLOSE_NS\n",
        "        return age < latest - CLOSE_NS\n",
        CLOCK,
    ),
    _mutant(
        "a tick that is nearly over is trusted",
        "file_clock",
        "        return same and age < latest - CLOSE_NS\n",
        "        return same\n",
        CLOCK,
    ),
    _mutant(
        "a new tick is no new time",
        "file_clock",
        "            return False\n",
        "            pass\n",
        CLOCK,
    ),
    _mutant(
        "the result of an earlier request is taken for that of the last",
        "uring",
        "            if request == self._submitted:\n",
        "            if True:\n",
        RING,
    ),
    _mutant(
        "nobody sees to a commit whose looker was interrupted",
        "ring_writer",
        "        if self._begun_at >= self._watch_at:\n",
        "        if False:\n",
        RING,
    ),
    _mutant(
        "a write that was cancelled before it was tried stops the store",
        "ring_writer",
        "errno.EOPNOTSUPP, errno.ECANCELED}",
        "errno.EOPNOTSUPP}",
        RING,
    ),
    _mutant(
        "what is not synced is written by the loop itself",
        "ring_writer",
        "            self._at_once = False\n",
        "            self._at_once = True\n",
        RING,
    ),
    _mutant(
        "a store that is closed in the middle forgets what the kernel wrote",
        "ring_writer",
        "            self._ring.wait()\n            self._look(tries_again=False)\n",
        "            self._ring.wait()\n",
        RING,
    ),
)
