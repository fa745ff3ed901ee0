"""Mutants of what Spark reads and writes, killed by tests that need no session. See `catalogue`.

A mutant lives in one process, and Spark's workers are others: what runs in them is called here.
"""

from __future__ import annotations

from typing import Final

from tests.mutants.catalogue import Mutant

ARCHIVE: Final = "tests/spark/test_archive.py"
RANGES: Final = f"{ARCHIVE}::test_ranges_are_taken_from_a_range"
UNITS: Final = f"{ARCHIVE}::test_units_of_one_queue_are_told_from_those_of_another"
ONE_RUN: Final = f"{ARCHIVE}::test_a_shelf_is_of_one_store_and_for_one_run_at_a_time"
LACKING: Final = f"{ARCHIVE}::test_a_position_is_the_first_counter_that_the_archive_lacks"
EDGES: Final = "tests/spark/test_edges.py"
EARLIER: Final = (
    f"{EDGES}::test_a_batch_that_is_refused_when_nobody_waits_any_more_fails_the_next_one"
)
LOCAL: Final = "tests/spark/test_local.py"
PARTS: Final = "tests/spark/test_staged_parts.py"
PUT_TIMES: Final = (
    "tests/spark/test_pipelines.py::test_put_times_are_found_behind_what_was_reclaimed"
)
REMOTE: Final = "tests/spark/test_remote.py"
SINK: Final = "tests/spark/test_sink.py"
COUNTED: Final = f"{SINK}::test_only_the_attempt_that_spark_counts_is_in_the_queue"
TWO_DRIVERS: Final = f"{SINK}::test_a_batch_that_two_drivers_commit_at_once_is_there_once"


def _mutant(name: str, module: str, old: str, new: str, *killers: str) -> Mutant:
    return Mutant(name, f"spark.{module}", old, new, killers, "fifoq")


SPARK_MUTANTS: Final = (
    _mutant(
        "an abort takes back what was published",
        "sink",
        "    names = [part.name for part in there.parts] if there is not None else []\n",
        "    names: list[str] = []\n",
        EDGES,
    ),
    _mutant(
        "a second query with a writer's name is dropped in silence",
        "sink",
        "            _check_same_query(sink, ours)\n",
        "            pass\n",
        EDGES,
    ),
    _mutant(
        "a query goes on behind a batch that was refused",
        "sink",
        "            check_earlier(sink.path, sink.queue, sink.writer, batch, query)\n",
        "            pass\n",
        EARLIER,
    ),
    _mutant(
        "attempts of a task that Spark does not count stay",
        "sink",
        "    for run in runs:\n        _discard_run(sink, batch, run)\n    if parts:\n",
        "    if parts:\n",
        COUNTED,
    ),
    _mutant(
        "a part that failed stays",
        "sink",
        "        file.discard()\n        raise\n",
        "        raise\n",
        EDGES,
    ),
    _mutant(
        "parts that a manifest names are cleaned away when they are old",
        "staged",
        "    discard(directory, set(old) - named)\n",
        "    discard(directory, old)\n",
        PARTS,
    ),
    _mutant(
        "two drivers commit one batch",
        "staged",
        "        os.link(drafted, directory / name)\n",
        "        (directory / name).write_bytes(drafted.read_bytes())\n",
        TWO_DRIVERS,
    ),
    _mutant(
        "what a killed run of the archive wrote stays beside what the next one writes",
        "pipelines.shelf",
        "                shutil.rmtree(directory)\n",
        "                pass\n",
        UNITS,
    ),
    _mutant(
        "two runs add to one archive",
        "pipelines.shelf",
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
        ONE_RUN,
    ),
    _mutant(
        "an archive frees what it has not got",
        "pipelines.archiving",
        "    counter = min(lacking, default=view.next)\n",
        "    counter = view.next\n",
        LACKING,
    ),
    _mutant(
        "a record is archived again with its segment's next part",
        "pipelines.archiving",
        "        first = max(first, high + 1)\n",
        "        first = max(first, high)\n",
        RANGES,
    ),
    _mutant(
        "the archive of another store is added to",
        "pipelines.shelf",
        "        if others:\n",
        "        if False:\n",
        ONE_RUN,
    ),
    _mutant(
        "put times behind what was reclaimed are unknown",
        "pipelines.segments",
        "            first = max(first + 1, gone.oldest)\n",
        "            return\n",
        PUT_TIMES,
    ),
    _mutant(
        "offsets that came over the wire are taken on trust",
        "remote",
        "            if np.any(np.diff(np.asarray(block.offsets)) < 0):\n",
        "            if False:\n",
        f"{REMOTE}::test_end_offsets_that_go_back_are_not_believed",
    ),
    _mutant(
        "a task reads whatever store the server has now",
        "remote",
        '    if store_id not in ("", client.store_id):\n',
        "    if False:\n",
        f"{REMOTE}::test_a_task_refuses_another_store_than_the_one_that_was_planned",
    ),
    _mutant(
        "a view of a server is never renewed",
        "remote",
        "        self._views.clear()\n",
        "        pass\n",
        f"{REMOTE}::test_a_view_holds_until_the_next_refresh",
    ),
    _mutant(
        "the pieces of a server have records twice",
        "remote",
        "            counter, upto = max(first, span.first), min(last, span.last)\n",
        "            counter, upto = span.first, span.last\n",
        f"{REMOTE}::test_pieces_are_the_range_once_and_keep_to_their_sizes",
    ),
    _mutant(
        "what was moved or reclaimed since the planning is left out",
        "local",
        "        if counter <= piece.last:\n            yield from self.blocks",
        "        if False:\n            yield from self.blocks",
        LOCAL,
    ),
    _mutant(
        "a task reads whatever store lies there now",
        "local",
        '        if self._expected not in ("", found):\n',
        "        if False:\n",
        LOCAL,
    ),
    _mutant(
        "a checkpoint ahead of its store removes what was never drained",
        "staging",
        "        if proved is not None and proved > self._queue.next:\n",
        "        if False:\n",
        EDGES,
    ),
)
