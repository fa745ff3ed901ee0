"""Mutants of what changes several queues at once, as a transaction does. See `catalogue`."""

from __future__ import annotations

from typing import Final

from tests.mutants.catalogue import of_fifoq as _mutant

JOINT: Final = "tests/fifoq/test_joint.py"
TRANSACTION: Final = "tests/fifoq/test_transaction.py"
BURYING: Final = "tests/fifoq/test_burying.py"
LETTERS: Final = "tests/fifoq/test_dead_letters.py"

JOINT_MUTANTS: Final = (
    _mutant(
        "what belongs into one frame is split over two",
        "committer",
        "            whole = line in bound\n",
        "            whole = False\n",
        JOINT,
    ),
    _mutant(
        "removals are written without the puts that belong to them",
        "joint",
        "        return not (self.puts or self.states) and all(\n",
        "        return all(\n",
        JOINT,
    ),
    _mutant(
        "what was withdrawn from several queues happens all the same",
        "joint",
        "        self.waiting.remove(joint)\n        self._leave(joint)\n",
        "",
        JOINT,
    ),
    _mutant(
        "a queue is opened beside a frame that puts into it",
        "open_queues",
        "            if name not in committer.lines and found.next_counter == "
        "state.genesis.next_counter:\n",
        "            if True:\n",
        JOINT,
    ),
    _mutant(
        "a transaction whose lease has ended commits the rest",
        "transaction",
        "        for delivery in (*self._acked, *self._nacked, *self._rejected):\n"
        "            # All before the first is parted with: a stale one must change nothing.\n"
        "            delivery._leases._require_held(delivery)\n",
        "        self._acked = [d for d in self._acked if d.state == 'leased']\n",
        TRANSACTION,
    ),
    _mutant(
        "the records of a transaction that was rolled back stay away",
        "transaction",
        "            delivery._leases.take_back(delivery)\n",
        "            pass\n",
        TRANSACTION,
    ),
    _mutant(
        "a dead letter is in its queue as well",
        "burying",
        "    joint.remove(queue, record, DEAD_LETTERED)\n",
        "",
        BURYING,
    ),
    _mutant(
        "a record that kills its consumer is handed out for ever",
        "lease",
        "        elif not self.burials.allowed(attempt - 1):\n",
        "        elif False:\n",
        BURYING,
    ),
    _mutant(
        "a move that a full disk refused is forgotten",
        "burying",
        "            self._timer = loop.call_later(RETRY_SECONDS, self._again)\n",
        "        pass\n",
        BURYING,
    ),
    _mutant(
        "a dead letter that was picked is handed out as well",
        "picking",
        "            self.absent |= ahead\n",
        "",
        LETTERS,
    ),
    _mutant(
        "dead letters whose replay was refused stay away",
        "dead_letters",
        "            self._committer.run_call(Unpick(self.queue, picked))\n",
        "            pass\n",
        LETTERS,
    ),
    _mutant(
        "a replayed dead letter stays one",
        "dead_letters",
        "        joint.remove(queue, record, ACKED)\n",
        "",
        LETTERS,
    ),
)
