"""Mutants of cursors and of what they hold. See `catalogue`."""

from __future__ import annotations

from typing import Final

from tests.mutants.catalogue import of_fifoq as _mutant

CURSOR: Final = "tests/fifoq/test_cursor.py"
MEMBERS: Final = "tests/fifoq/test_cursor_members.py"
CURSOR_CUTS: Final = (
    "tests/fifoq/test_cursor_model.py"
    "::test_a_committed_position_survives_a_cut_or_a_kill_at_every_call"
)

CURSOR_MUTANTS: Final = (
    _mutant(
        "a cursor's position counts what was only read ahead",
        "reading",
        "            self.done.counter, self.done.above, self._first_undone() or 0,",
        "            self._since, self.done.above, self._first_undone() or 0,",
        f"{CURSOR}::test_what_was_committed_is_where_the_cursor_is_after_a_crash",
        CURSOR_CUTS,
    ),
    _mutant(
        "cursors hold nothing after a reopen",
        "holding",
        "        self._load_cursors()\n",
        "",
        CURSOR,
    ),
    _mutant(
        "the commit of a cursor returns before it is written",
        "reading",
        "        self.committer.wait(waiter, level)\n        await waiter.future\n",
        "        self.committer.wait(waiter, level)\n",
        CURSOR_CUTS,
        CURSOR,
    ),
    _mutant(
        "a refused position is forgotten",
        "cursor_line",
        "        self.due |= self._sealing is not None\n",
        "",
        CURSOR,
    ),
    _mutant(
        "a cursor that is let go does not say what it needs",
        "holding",
        "        first = first_from(log, hold.queue, hold.position.counter) or 0\n",
        "        return True\n        first = 0\n",
        CURSOR,
    ),
    _mutant(
        "what a cursor lost is passed over",
        "cursor_page",
        "    if oldest > hold.there:\n",
        "    if False:\n",
        CURSOR,
    ),
    _mutant(
        "a member that has ended keeps its records",
        "cursor_lease",
        "            task.add_done_callback(self._ended)\n",
        "            pass\n",
        MEMBERS,
    ),
    _mutant(
        "a cursor is moved in memory alone",
        "cursor",
        "        draft.set_states([(hold.state, encode_position(position))])\n"
        "        log.commit(draft, sync=sync)\n",
        "        pass\n",
        CURSOR_CUTS,
    ),
)
