"""Mutants of queues: one promise to a caller broken each. See `catalogue`."""

from __future__ import annotations

from typing import Final

from tests.mutants.catalogue import of_fifoq as _mutant
from tests.mutants.control_catalogue import CONTROL_MUTANTS
from tests.mutants.cursor_catalogue import CURSOR_MUTANTS
from tests.mutants.durable_catalogue import DURABLE_MUTANTS
from tests.mutants.joint_catalogue import JOINT_MUTANTS
from tests.mutants.ring_catalogue import BEGUN_MUTANTS, RING_MUTANTS
from tests.mutants.spark_catalogue import SPARK_MUTANTS
from tests.mutants.tools_catalogue import TOOLS_MUTANTS
from tests.mutants.waiting_catalogue import WAITING_MUTANTS

FAULTS: Final = "tests/fifoq/test_faults.py"
CANCELLATION: Final = "tests/fifoq/test_cancellation.py"
SWEEP: Final = f"{CANCELLATION}::test_whoever_leaves_at_any_moment_harms_nobody"
WAKING: Final = f"{CANCELLATION}::test_takers_that_are_woken_and_then_leave_pass_their_turn_on"
LEAVING: Final = "tests/fifoq/test_leaving.py"
LEASE: Final = "tests/fifoq/test_lease.py"
LINE: Final = "tests/fifoq/test_line.py"
REMOVE: Final = "tests/fifoq/test_remove_upto.py"
HOLDING: Final = "tests/fifoq/test_holding.py"
CONSUMERS: Final = "tests/fifoq/test_consumers.py"
DEDUP: Final = "tests/fifoq/test_dedup.py"
DEDUP_MANY: Final = "tests/fifoq/test_dedup_many.py"
TOPIC: Final = "tests/fifoq/test_topic.py"
SCHEDULES: Final = "tests/fifoq/test_schedules.py"
FIRING: Final = f"{SCHEDULES}::test_ended_at_any_moment_a_firing_came_once_or_comes_yet"
INTAKE: Final = "tests/fifoq/test_staged_intake.py"
STAGED_TIMES: Final = (
    "tests/fifoq/test_staged_attributes.py"
    "::test_ended_at_any_moment_a_staged_record_still_waits_for_its_time"
)

QUEUE_BATTERY: Final = (FAULTS, CANCELLATION)
"""Everything that is tried after a mutant's own killers."""

QUEUE_MUTANTS: Final = (
    _mutant(
        "a put returns before its commit",
        "putting",
        "        if first and level:\n            await self._committed(first, 1, level)\n"
        "        return Key(first, moment)\n",
        "        if first and level:\n            self._waiter(first, 1, level)\n"
        "        return Key(first, moment)\n",
        FAULTS,
        SWEEP,
    ),
    _mutant(
        "the records of a taker that left after the seal stay away",
        "settling",
        "                self.restore(waiter.line, waiter.claim)\n",
        "                pass\n",
        FAULTS,
        SWEEP,
    ),
    _mutant(
        "the records of a taker that left before the seal stay away",
        "taking",
        "                for record in claim.records:\n"
        "                    self.give_back(record)\n"
        "                self.records_came()\n        elif",
        "                self.records_came()\n        elif",
        SWEEP,
    ),
    _mutant(
        "the records of a taker that left as its commit ended stay away",
        "taking",
        "            if succeeded(waiter.future):\n"
        "                self._committer.restore(self, claim)\n",
        "",
        SWEEP,
    ),
    _mutant(
        "a taker that is woken and leaves wakes nobody",
        "turns",
        "            wake_one(waiting)\n        else:",
        "            pass\n        else:",
        WAKING,
    ),
    _mutant(
        "a put that left before the seal is written all the same",
        "admitting",
        "        if self.withdraw(waiter.first, waiter.count):\n            waiter.count = 0\n"
        "            self.records_went()\n            return True\n        return False\n",
        "        return False\n",
        f"{FAULTS}::test_a_put_that_leaves_before_the_seal_is_not_in_the_queue",
    ),
    _mutant(
        "a sync record is shown before its commit",
        "places",
        "        if strong:\n            self._hide(first, len(payloads))\n",
        "",
        FAULTS,
        SWEEP,
    ),
    _mutant(
        "a refused batch is forgotten",
        "line",
        "        if batch.upto:\n            self._unseal_tail(batch)\n",
        "",
        FAULTS,
    ),
    _mutant(
        "a refused batch counts as handed out",
        "line",
        "            self.tail_shown = batch.shown\n",
        "            self.tail_shown = self.tail_first\n",
        FAULTS,
    ),
    _mutant(
        "counters are not kept ahead when a queue is opened",
        "jobs",
        "            log.commit(draft, sync=True, upkeep=False)\n",
        "            pass\n",
        FAULTS,
    ),
    _mutant(
        "counters are not kept ahead again",
        "jobs",
        "    return bool(batch.runs) and keep_counters(draft, queue, line.next)\n",
        "    return False\n",
        FAULTS,
    ),
    _mutant(
        "a lease that ran out stays out",
        "held",
        '            delivery.state = "expired"\n            self._release(delivery)\n',
        '            delivery.state = "expired"\n',
        FAULTS,
    ),
    _mutant(
        "a lease whose caller left stays out",
        "lease",
        "                self._return(record)\n            raise\n",
        "            raise\n",
        SWEEP,
    ),
    _mutant(
        "a firing is written before its schedule's next time",
        "schedules",
        "            joint.states = [(state, encode_plan(after))]\n"
        "\n"
        "        joint.entered = entered\n"
        "        await self._committer.joints.commit(joint)\n",
        "            joint.states = []\n"
        "\n"
        "        joint.entered = entered\n"
        "        await self._committer.joints.commit(joint)\n"
        "        await self._write([(state, encode_plan(after))])\n",
        FIRING,
    ),
    _mutant(
        "a schedule's next time is written before its firing",
        "schedules",
        "            joint.states = [(state, encode_plan(after))]\n"
        "\n"
        "        joint.entered = entered\n",
        "            joint.states = []\n"
        "\n"
        "        joint.entered = entered\n"
        "        await self._write([(state, encode_plan(after))])\n",
        FIRING,
    ),
    _mutant(
        "a firing is not synced",
        "schedules",
        "        joint = Joint(level=SYNC)\n",
        "        joint = Joint(level=0)\n",
        FIRING,
        f"{SCHEDULES}::test_what_a_firing_put_survives_a_power_cut_once_it_is_seen",
    ),
    _mutant(
        "a schedule is kept in memory alone",
        "schedules",
        "            await self._write([(state_name(*key), encode_plan(plan))])\n",
        "",
        f"{SCHEDULES}::test_ended_at_any_moment_a_schedule_is_kept_whole_or_not_at_all",
    ),
    _mutant(
        "a clock that was set back is waited for",
        "recurring",
        "    if now < plan.set_time - JUMP_NS:\n        return after_setback(plan, cron, now)\n",
        "",
        SCHEDULES,
    ),
    _mutant(
        "a topic's partitions are counted anew",
        "topic",
        "    log.commit(draft)\n    return partitions\n",
        "    return partitions\n",
        TOPIC,
    ),
    _mutant(
        "a batch over partitions is several commits",
        "topic",
        "        async with self._store.transaction() as tx:\n"
        "            for index, item in zip(chosen, listed, strict=True):\n"
        "                tx.put(self._queues[index], item, durability=durability)\n"
        "        return list(zip(chosen, tx.keys, strict=True))\n",
        "        return [\n"
        "            (index, await self._queues[index].put(item, durability=durability))\n"
        "            for index, item in zip(chosen, listed, strict=True)\n"
        "        ]\n",
        f"{TOPIC}::test_ended_at_any_moment_a_topic_is_whole_and_a_batch_is_there_or_not",
    ),
    _mutant(
        "a backlog is not read for takers that do not wait",
        "open_queues",
        "            committer.request_read(queue)\n",
        "            pass\n",
        FAULTS,
    ),
    _mutant(
        "restored records are not shown after their commit",
        "line",
        "                self.restoring -= 1\n                self.give_back(record)\n"
        "\n    def _shelve_from",
        "                self.restoring -= 1\n\n    def _shelve_from",
        SWEEP,
    ),
    _mutant(
        "takers pass what is on its way back",
        "head",
        "        if self.restoring:\n            return False\n",
        "",
        f"{FAULTS}::test_nobody_passes_a_record_that_is_on_its_way_back",
    ),
    _mutant(
        "closing forgets what waits in memory",
        "owner",
        "            await committer.flush_all()\n",
        "            pass\n",
        "tests/fifoq/test_life.py",
    ),
    _mutant(
        "waiters of the next frame are resolved with this one",
        "settling",
        "        self._resolve(job.waiters)\n",
        "        self._resolve(job.waiters + self.waiters)\n",
        "tests/fifoq/test_put.py",
        SWEEP,
    ),
    _mutant(
        "a counter that was withdrawn is used again",
        "places",
        "        self.withdrawn_count += count\n",
        "        self.withdrawn_count += count\n        self.next -= count\n",
        LINE,
        SWEEP,
    ),
    _mutant(
        "a cancelled opening leaves the store locked",
        "opening",
        "        opening.give_up()\n",
        "",
        LEAVING,
    ),
    _mutant(
        "an opening that was given up keeps what it opens",
        "log_opening",
        "                if log is not None:\n                    log.release()\n",
        "                pass\n",
        LEAVING,
    ),
    _mutant(
        "an opening that ended keeps what is given up after that",
        "log_opening",
        "        if log is not None:\n            log.release()\n\n",
        "\n",
        LEAVING,
    ),
    _mutant(
        "an opening that was given up begins all the same",
        "log_opening",
        "            if self._given_up:\n                return None\n",
        "",
        LEAVING,
    ),
    _mutant(
        "nobody waits for an opening that was given up",
        "log_opening",
        "            leaving = list(_leaving)\n",
        "            leaving: list[LogOpening] = []\n",
        LEAVING,
    ),
    _mutant(
        "an opening that was given up is looked for too late",
        "log_opening",
        "                leaving = [other for other in leaving if other.leaves(self._path)]\n",
        "                leaving = [each for each in list(_leaving) if each.leaves(self._path)]\n",
        LEAVING,
    ),
    _mutant(
        "openings of other stores are waited for",
        "log_opening",
        "        return os.path.realpath(self._path) == os.path.realpath(path)\n",
        "        return True\n",
        LEAVING,
    ),
    _mutant(
        "an opening that was given up waits for itself",
        "log_opening",
        "                if self._given_up or not leaving:\n",
        "                if not leaving:\n",
        LEAVING,
    ),
    _mutant(
        "an opening that was given up while it waited opens all the same",
        "log_opening",
        "                    other.wait()\n                if self._given_up:\n"
        "                    raise\n",
        "                    other.wait()\n",
        LEAVING,
    ),
    _mutant(
        "an opening is looked for where the process is now",
        "log_opening",
        "        self._path = os.path.abspath(path)\n",
        "        self._path = path\n",
        LEAVING,
    ),
    _mutant(
        "a log that is being closed is not waited for",
        "committer",
        "                    self._leaving.begin()\n",
        "                    pass\n",
        LEAVING,
    ),
    _mutant(
        "a log whose closing nobody got stays open",
        "committer",
        "        elif runner.finished:\n            self._let_go()\n",
        "        elif runner.finished:\n",
        "tests/fifoq/test_telling.py",
    ),
    _mutant(
        "a log whose closing the thread had not taken yet stays open",
        "committer",
        "            runner.stop(self._let_go)\n",
        "            runner.stop()\n",
        LEAVING,
    ),
    _mutant(
        "a store that its loop left while it was closed is taken for closed",
        "committer",
        "        if not self.closed:\n            self._tell_of_unwritten()\n"
        "        self.closed = True\n",
        "        if self.closed:\n            return\n        self.closed = True\n",
        LEAVING,
    ),
    _mutant(
        "uvloop is asked for a loop when there are no descriptors",
        "loopthread",
        "        for _ in range(LOOP_DESCRIPTORS):\n",
        "        for _ in range(0):\n",
        "tests/fifoq/test_few_descriptors.py",
    ),
    _mutant(
        "one who is woken in vain goes to the end of the line",
        "turns",
        "    turn.place = place = next(_places) if place is None else place\n",
        "    turn.place = place = next(_places)\n",
        "tests/fifoq/test_take.py",
    ),
    _mutant(
        "a task that is done before it is got is one more",
        "asyncio_queue",
        "        self._got -= 1\n",
        "        self._got = max(0, self._got - 1)\n",
        "tests/fifoq/test_asyncio_queue.py",
    ),
    _mutant(
        "a full queue is asked whether it has room for nothing",
        "admitting",
        "        if self.unlimited or self._fits(count, size):\n",
        "        if self.unlimited or self._fits(1, 0):\n",
        "tests/fifoq/test_words.py",
    ),
    _mutant(
        "the child of a fork waits for openings of its parent",
        "log_opening",
        "os.register_at_fork(after_in_child=_leaving.clear)\n",
        "",
        LEAVING,
    ),
    _mutant(
        "an owner that stops closes what was never opened",
        "owner",
        "    if committer.closed:\n        return\n",
        "",
        "tests/fifoq/test_life.py",
        LEAVING,
    ),
    _mutant(
        "an opening begins after its writer was stopped",
        "committer",
        "        self._last = None\n        log, runner",
        "        log, runner",
        "tests/fifoq/test_life.py",
    ),
    _mutant(
        "removing up to a counter returns before its commit",
        "removing",
        "        self._committer.wait(waiter, self.level)\n        await waiter.future\n",
        "        self._committer.wait(waiter, self.level)\n",
        REMOVE,
    ),
    _mutant(
        "removing again does not wait for what was left behind",
        "removing",
        "        if not total and (self.dirty or self.sealed is not None):\n",
        "        if False:\n",
        REMOVE,
    ),
    _mutant(
        "what a leaving taker gives back is not removed",
        "removing",
        "                if not self._in_flight(upto):\n                    break\n",
        "                break\n",
        REMOVE,
    ),
    _mutant(
        "what is removed on disk still counts",
        "removing",
        "        self.skip_gap(measured.upto, count)\n",
        "        self.skip_gap(measured.upto, 0)\n",
        REMOVE,
    ),
    _mutant(
        "a lease outlives the removal of its record",
        "lease",
        '            delivery.state = "removed"\n',
        "            pass\n",
        REMOVE,
    ),
    _mutant(
        "a batch whose commit is empty counts as done",
        "consumers",
        " if done else []\n",
        "\n",
        CONSUMERS,
        HOLDING,
    ),
    _mutant(
        "a proof is believed before it is durable",
        "consumers",
        '            _make_durable(files, f"{root}/commits", str(batch))\n',
        "",
        CONSUMERS,
    ),
    _mutant(
        "positions that cannot be read hold nothing",
        "holding",
        "            return False\n        self._told",
        "            return True\n        self._told",
        HOLDING,
    ),
    _mutant(
        "consumers are not limited in what they hold",
        "holding",
        "            if total <= self._cap_bytes or not others:\n",
        "            if True:\n",
        HOLDING,
    ),
    _mutant(
        "a retention is forgotten until its queue is opened",
        "opening",
        "                keep_removed(state, kept_retention(state.configuration))\n",
        "                pass\n",
        HOLDING,
    ),
    _mutant(
        "how far a writer is gets lost with a refused frame",
        "line",
        "        self.marks = {**batch.marks, **self.marks}\n",
        "",
        INTAKE,
    ),
    _mutant(
        "records are taken in without how far their writer is",
        "staged_intake",
        "            draft.set_states([mark])\n",
        "",
        INTAKE,
    ),
    _mutant(
        "a batch that comes again after a later one is taken in",
        "staged_intake",
        "    return progress.batch > manifest.batch\n",
        "    return False\n",
        INTAKE,
    ),
    _mutant(
        "a damaged batch is taken in up to the damage",
        "staged_intake",
        "            step = await self._check(manifest)\n",
        "            step = STEP_BYTES\n",
        INTAKE,
    ),
    _mutant(
        "a batch is gone on with from other parts",
        "staged_intake",
        "            and progress.parts != manifest.parts_checksum\n",
        "            and False\n",
        INTAKE,
    ),
    _mutant(
        "nobody is told that staged records wait for a time",
        "staged_intake",
        "                    draft.configure(queue, configuration)\n",
        "                    pass\n",
        STAGED_TIMES,
    ),
    _mutant(
        "staged records of an open queue do not wait for their time",
        "putting",
        "            self.set_aside(first + index, [payloads[index]], self.put_time, of, "
        "shown=False)\n",
        "",
        STAGED_TIMES,
    ),
    *CONTROL_MUTANTS,
    *CURSOR_MUTANTS,
    *JOINT_MUTANTS,
    *BEGUN_MUTANTS,
    *RING_MUTANTS,
    *DURABLE_MUTANTS,
    *SPARK_MUTANTS,
    *TOOLS_MUTANTS,
    *WAITING_MUTANTS,
    _mutant(
        "the ids of puts are not in the frame of their records",
        "member",
        "            batch.marks.update((-at, entry) for at, entry in enumerate(states, 1))\n",
        "            self.marks.update((-at, entry) for at, entry in enumerate(states, 1))\n",
        f"{DEDUP}::test_power_cuts_at_every_disk_call_leave_record_and_id_or_none_of_them",
    ),
    _mutant(
        "the dedup window never ends",
        "dedup",
        "            if known.since > until:\n",
        "            if known:\n",
        f"{DEDUP}::test_after_the_window_the_id_is_new_again",
    ),
    _mutant(
        "a put that leaves takes the record of its duplicates with it",
        "dedup",
        "        if held[1]:\n            return False\n",
        "",
        f"{DEDUP}::test_the_record_stays_when_the_first_put_leaves_and_another_waits",
    ),
    _mutant(
        "the pages of a refused frame count",
        "dedup",
        "        if self._plan is not None and self._plan.batch is batch:\n"
        "            self._plan = None\n",
        "",
        f"{DEDUP}::test_pages_hold_what_a_window_holds",
    ),
    _mutant(
        "a refused frame takes the pages of the one before along",
        "dedup",
        "        if self._plan is not None and self._plan.batch is batch:\n",
        "        if self._plan is not None:\n",
        f"{DEDUP}::test_pages_are_remembered_when_a_frame_of_removals_is_refused_behind_them",
    ),
    _mutant(
        "a duplicate returns before the first put is durable",
        "once",
        "            if self.level == MEMORY:\n                return None\n",
        "            if self.level >= MEMORY:\n                return None\n",
        f"{DEDUP}::test_a_duplicate_waits_until_the_first_put_is_as_durable_as_it_asks",
    ),
    _mutant(
        "the ids of a transaction are not remembered",
        "putting",
        "        dedup.add(digest, counter, put_time, moment)\n",
        "",
        f"{DEDUP_MANY}::test_power_cuts_leave_a_transaction_with_its_ids_or_none_of_it",
    ),
    _mutant(
        "staged records of a queue that is not open leave no ids",
        "staged_intake",
        "    draft.set_states(dedup.seal(Batch(first=first, upto=upto - 1), 0.0))\n",
        "",
        f"{DEDUP_MANY}::test_ended_at_any_moment_staged_records_with_ids_are_there_once",
    ),
    _mutant(
        "staged records of an open queue are not looked up",
        "putting",
        "        if any(of.dedup_id for of in attributes.values()):\n",
        "        if False:\n",
        f"{DEDUP_MANY}::test_ended_at_any_moment_staged_records_with_ids_are_there_once",
    ),
)
