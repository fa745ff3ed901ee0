"""Mutants of the operator's tools: what would lose, double or spoil records. See `catalogue`."""

from __future__ import annotations

from typing import Final

from tests.mutants.catalogue import Mutant

EXPORT: Final = "tests/tools/test_export.py"
RESUMED: Final = f"{EXPORT}::test_an_import_that_was_interrupted_goes_on_and_doubles_nothing"
EARLY: Final = f"{EXPORT}::test_a_source_that_stops_early_is_told_and_can_be_finished"
ASKED: Final = f"{EXPORT}::test_the_owner_of_a_live_store_is_asked_to_put"
BACKUP: Final = "tests/tools/test_backup.py"
SEALED: Final = f"{BACKUP}::test_sealed_segments_are_linked_and_the_last_ones_are_copies"
CUT: Final = f"{BACKUP}::test_the_last_segment_is_cut_at_the_commit_point"
ONCE: Final = f"{BACKUP}::test_a_batch_that_is_taken_in_meanwhile_is_there_once"
CHECKED: Final = f"{BACKUP}::test_a_backup_is_checked_before_it_is_restored"
REPAIR: Final = "tests/tools/test_repair.py"
GIVEN_ONCE: Final = f"{REPAIR}::test_no_counter_is_given_out_again"
SHOWN: Final = f"{REPAIR}::test_no_counter_that_a_killed_owner_may_have_shown_is_given_out_again"
LEFT_ALONE: Final = f"{REPAIR}::test_what_cannot_be_repaired_is_left_alone"
UNHEARD: Final = (
    f"{REPAIR}::test_commits_behind_a_checkpoint_that_nothing_speaks_of_are_not_passed_over"
)


def _mutant(name: str, module: str, old: str, new: str, *killers: str) -> Mutant:
    return Mutant(name, f"tools.{module}", old, new, killers, "fifoq")


TOOLS_MUTANTS: Final = (
    _mutant(
        "records are imported without their count",
        "pouring",
        "        draft.set_states([(self._state, msgspec.json.encode(mark))])\n",
        "",
        RESUMED,
    ),
    _mutant(
        "records before the early end of a source are dropped",
        "pouring",
        "    except FormatError as error:\n        failure = error\n",
        "    except FormatError:\n        raise\n",
        EARLY,
    ),
    _mutant(
        "an export without its end is taken for whole",
        "sources",
        "    if whole:\n        raise Incomplete(\n",
        "    if False:\n        raise Incomplete(\n",
        EARLY,
    ),
    _mutant(
        "a segment that may still be written is shared with the backup",
        "backup",
        "        copy = self._copy or beside_tail\n",
        "        copy = self._copy\n",
        SEALED,
    ),
    _mutant(
        "a backup has more of the log than was believed",
        "backup",
        "size=point.offset)\n",
        "size=None)\n",
        CUT,
    ),
    _mutant(
        "a staged batch is in a backup beside its records",
        "backup",
        "        return all(map(os.path.exists, names))\n",
        "        return True\n",
        ONCE,
    ),
    _mutant(
        "a backup is restored unread",
        "backup",
        "        if check:\n",
        "        if False:\n",
        CHECKED,
    ),
    _mutant(
        "a store is repaired under its owner's hands",
        "repair",
        "            directory.lock()\n",
        "",
        LEFT_ALONE,
    ),
    _mutant(
        "a repaired queue gives out counters again",
        "repair",
        "    if new.genesis.next_counter <= last:\n",
        "    if False:\n",
        GIVEN_ONCE,
    ),
    _mutant(
        "a repair forgets counters that a killed owner may have shown",
        "repair",
        "    last = max(old.genesis.next_counter - 1, old.genesis.reserved_upto)\n",
        "    last = old.genesis.next_counter - 1\n",
        SHOWN,
    ),
    _mutant(
        "an owner gives new keys to records that were to keep theirs",
        "pouring",
        "        if not (as_new or self.mark.done):\n",
        "        if False:\n",
        ASKED,
    ),
    _mutant(
        "a repair does not tell that more may be lost than is known",
        "repair",
        "lost.unknown.get(queue.name)\n",
        "None\n",
        UNHEARD,
    ),
)
