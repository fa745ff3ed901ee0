"""Mutants of durable actors: what makes a step atomic. See `catalogue`."""

from __future__ import annotations

from typing import Final

from tests.mutants.catalogue import Mutant

MAILBOX: Final = "tests/durable/test_mailbox.py"
STEPS: Final = "tests/durable/test_steps.py"
UNHEARD: Final = "tests/durable/test_unheard.py"
LARGE: Final = "tests/durable/test_large_steps.py"
ASKS: Final = "tests/durable/test_asks.py"
TIMERS: Final = "tests/durable/test_timers.py"
DEAD: Final = "tests/durable/test_dead.py"
CARRIED: Final = "tests/durable/test_carried.py"
KEYED: Final = "tests/durable/test_keyed.py"
KEPT: Final = "tests/durable/test_kept.py"
PUTS: Final = "tests/durable/test_puts.py"
BOUNDS: Final = "tests/durable/test_bounds.py"


def _mutant(name: str, module: str, old: str, new: str, *killers: str) -> Mutant:
    return Mutant(name, f"durable.{module}", old, new, killers, "fifoq")


DURABLE_MUTANTS: Final = (
    _mutant(
        "a message is acked before its handler returns",
        "handling",
        "        tokens = box.office.carried.enter(letter.given) if letter.given else None\n",
        "        tokens = None\n        box.remove(record)\n",
        STEPS,
    ),
    _mutant(
        "the ack of a message is not a part of its step",
        "handling",
        "            step.remove(box.post.queue, record)\n"
        "            self._note_state(step, context.encoded)\n",
        "            box.remove(record)\n            box.post.steps._submit()\n"
        "            self._note_state(step, context.encoded)\n",
        STEPS,
    ),
    _mutant(
        "the state of an actor is written in a frame of its own",
        "handling",
        "            step.set_state(STATE_PREFIX + self._box.name, states.keep(encoded))\n",
        "            other = Step()\n"
        "            other.set_state(STATE_PREFIX + self._box.name, states.keep(encoded))\n"
        "            self._box.post.steps.add(other)\n"
        "            self._box.post.steps._submit()\n",
        STEPS,
    ),
    _mutant(
        "the state of a handler that failed is kept",
        "handling",
        "        cell, box = self._cell, self._box\n        self._reload()\n",
        "        cell, box = self._cell, self._box\n",
        STEPS,
    ),
    _mutant(
        "a state is written that nobody can read",
        "handling",
        "            states.decode(encoded)\n",
        "",
        STEPS,
    ),
    _mutant(
        "a message that nobody waits for overtakes those before it",
        "box",
        "            self.post.queue.submit(payload)\n",
        "            step = Step()\n"
        "            step.put(self.post.queue.name, payload)\n"
        "            self.post.steps.add(step)\n",
        MAILBOX,
    ),
    _mutant(
        "a message is told before its step is committed",
        "context",
        "            step.put(box.post.queue.name, letter)\n",
        "            early = type(step)()\n"
        "            early.put(box.post.queue.name, letter)\n"
        "            box.post.steps.add(early)\n",
        STEPS,
    ),
    _mutant(
        "an actor in memory is told before the step is committed",
        "context",
        "                step.when_committed(partial(_tell, target.ref, message))\n",
        "                _tell(target.ref, message)\n",
        STEPS,
    ),
    _mutant(
        "a reply is given before its step is committed",
        "handling",
        "            step.when_committed(partial(resolve, asker, answer))\n",
        "            resolve(asker, answer)\n",
        STEPS,
    ),
    _mutant(
        "a message that failed is the last one to be tried again",
        "box",
        "        self.loaded.insert(0, delivered)\n",
        "        self.loaded.append(delivered)\n",
        STEPS,
    ),
    _mutant(
        "attempts are forgotten by a restart",
        "handling",
        "            box.post.note_attempt(record.counter, attempt)\n",
        "            box.post.queue.leasing._attempts[record.counter] = attempt\n",
        STEPS,
    ),
    _mutant(
        "what kills the process is begun for ever",
        "handling",
        "            if record.counter <= box.post.old_upto and self._careful:\n",
        "            if False:\n",
        STEPS,
    ),
    _mutant(
        "who can not be told of a commit ends the store",
        "steps",
        "                    self._tell(call)\n",
        "                    call()\n",
        UNHEARD,
    ),
    _mutant(
        "a step may be larger than a frame",
        "handling",
        "        if size > STEP_BYTES_MAX:\n",
        "        if size > 2 * STEP_BYTES_MAX:\n",
        LARGE,
    ),
    Mutant(
        "records beside a large step are put into its frame",
        "committer",
        "        room = FRAME_BYTES_MAX - sum(joint.state_bytes() for joint in joints)\n",
        "        room = FRAME_BYTES_MAX\n",
        (LARGE,),
        "fifoq",
    ),
    _mutant(
        "large steps share a frame",
        "steps",
        "size + step.size <= JOINT_BYTES_MAX",
        "size <= 2 * JOINT_BYTES_MAX * STEP_BYTES_MAX",
        LARGE,
    ),
    _mutant(
        "steps that a full disk refused are dropped",
        "steps",
        "        self._retry = self._committer.loop.call_later("
        "RETRY_SECONDS, self._again, joint)\n",
        "        assert joint.done is not None\n        joint.done()\n",
        STEPS,
    ),
    _mutant(
        "letters that wait on disk are passed by those that come",
        "box",
        "            self.unloaded\n            or self._fetching\n",
        "            False\n",
        MAILBOX,
    ),
    _mutant(
        "letters of an actor that ended are nobody's",
        "post",
        '            self.absent[box.name] = array("Q", sorted(counters))\n',
        "            pass\n",
        MAILBOX,
    ),
    _mutant(
        "the letter in hand is lost when its actor is killed",
        "box",
        "            self.post.return_to_absent(self.name, delivered[0].counter)\n",
        "            pass\n",
        MAILBOX,
    ),
    _mutant(
        "what nobody waits for is handled all the same",
        "handling",
        "            if letter.given and box.is_abandoned(record, letter):\n",
        "            if False:\n",
        STEPS,
        ASKS,
    ),
    _mutant(
        "an ask with an id is told again each time",
        "asks",
        "            if time_answered is None:\n",
        "            if True:\n",
        ASKS,
    ),
    _mutant(
        "the answer to an ask is not in the frame of its step",
        "asks",
        "        step.set_state(STATE_PREFIX + id, _encode(answer))\n",
        "",
        ASKS,
    ),
    _mutant(
        "whoever asked for a step that is never committed waits for ever",
        "steps",
        "    if step.asker is not None and not step.asker.done():\n",
        "    if False:\n",
        ASKS,
    ),
    _mutant(
        "whoever asked a system that has stopped waits for ever",
        "asks",
        "        waiters, self._waiters = self._waiters, {}\n",
        "        waiters: dict[str, list[asyncio.Future[Answer]]] = {}\n",
        ASKS,
    ),
    _mutant(
        "a dead letter that was asked is thrown away when it is replayed",
        "box",
        "            and ORIGINAL_KEY not in decode_headers(record.headers)\n",
        "",
        ASKS,
    ),
    _mutant(
        "a stop in good order is held against the letter in hand",
        "handling",
        "            # A stop in good order is no fault of the letter.\n"
        "            post.note_attempt(record.counter, attempts)\n",
        "",
        STEPS,
    ),
    _mutant(
        "a timer that is forgotten rings",
        "timers",
        "            joint.remove(self._queue, found, PURGED)\n",
        "            self._queue.come_back(found)\n",
        TIMERS,
    ),
    _mutant(
        "a timer that was replaced or forgotten as it rang repeats itself",
        "timers",
        "        if not isinstance(held, Returned) or held.counter != record.counter:\n"
        "            return\n        del self._named[named]\n",
        "        self._named.pop(named, None)\n",
        TIMERS,
    ),
    _mutant(
        "a timer is set before its step is committed",
        "timers",
        "        step.when_made(partial(self._put_named, step, payload, attributes, named))\n",
        "        early = Step()\n"
        "        early.when_made(partial(self._put_named, early, payload, attributes, named))\n"
        "        self._post.steps.add(early)\n",
        TIMERS,
    ),
    _mutant(
        "a dead letter does not know the state that it met",
        "burying",
        "            headers[STATE] = base64.b64encode(state).decode()\n",
        "            pass\n",
        DEAD,
    ),
    _mutant(
        "the context of a message stays behind when it is handled",
        "handling",
        "                box.office.carried.leave(tokens)\n",
        "                pass\n",
        CARRIED,
    ),
    _mutant(
        "a step tells a keyed actor in memory, after its commit",
        "targets",
        "        durable = ref.durable and ref.tree is tree\n",
        "        durable = False\n",
        KEYED,
    ),
    _mutant(
        "a letter for a keyed actor that is not there wakes nobody",
        "post",
        "            self.wake(letter.to)\n",
        "            pass\n",
        KEYED,
    ),
    _mutant(
        "letters of an earlier life wake no keyed actor",
        "system",
        "            self._tree.absent = self._office.post.absent\n",
        "            pass\n",
        KEYED,
    ),
    _mutant(
        "a mailbox takes letters over before there is an actor",
        "box",
        '        self.unloaded = array("Q")\n        self.in_hand',
        "        self.unloaded = self.post.enter(self)\n        self.in_hand",
        KEPT,
    ),
    _mutant(
        "a message that raises as it is decoded is in nobody's hand",
        "handling",
        "        except Exception as error:\n            # Not msgspec's alone",
        "        except ValueError as error:\n            # Not msgspec's alone",
        KEPT,
    ),
    _mutant(
        "a handler that fails has deferred its reply",
        "context",
        "self._box.asker_of(self._letter, stays=True)",
        "self._box.asker_of(self._letter)",
        KEPT,
    ),
    _mutant(
        "an attempt counts that never began",
        "handling",
        "            # It never began.\n            post.note_attempt(record.counter, attempts)\n",
        "",
        KEPT,
    ),
    _mutant(
        "what a handler puts into a queue is there before its step",
        "context",
        "        step.put_beside(queue.name, payload, attributes, level)\n",
        "        queue._store([payload], attributes, level)\n",
        PUTS,
    ),
    _mutant(
        "what a step puts is no more durable than the actors are",
        "steps",
        "                joint.level = max(joint.level, step.level)\n",
        "",
        PUTS,
    ),
    _mutant(
        "an actor has what its spawner's context carries",
        "system",
        "            self._tree.durable_context = self._office.carried.others\n",
        "",
        BOUNDS,
    ),
    _mutant(
        "whoever asked by an id waits for the stop of a failed system",
        "office",
        "            office.asks.close(error)\n",
        "",
        BOUNDS,
    ),
)
