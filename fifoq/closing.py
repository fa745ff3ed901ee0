"""How a log is closed: past every counter that was given out, whatever goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fifoq.runs import LINES_PER_FRAME_MAX
from store import DiskFull, Log, Status
from store.blocks import DROPPED, records_weight


def close_log(given: dict[str, int], before: Iterable[Callable[[Log], None]], log: Log) -> None:
    """Close the log; `given` has the last counter that was given out of each queue.

    Somebody may have seen one that no record in the log has: no other record must get it.
    """
    # Nobody else is there: who still has the turn was interrupted as it was taken.
    log.free_turn()
    noted = False
    try:
        for prepare in before:
            prepare(log)
        if log.status is Status.OPEN:
            _note(given, log)
        noted = True
    except DiskFull:
        # Without a clean end nobody counts on from before.
        pass
    finally:
        log.close(clean=noted)


def _note(given: dict[str, int], log: Log) -> None:
    """Have the log count on behind those counters."""
    missing = [name for name, upto in given.items() if log.queue(name).genesis.next_counter <= upto]
    for start in range(0, len(missing), LINES_PER_FRAME_MAX):
        draft = log.draft()
        for name in missing[start : start + LINES_PER_FRAME_MAX]:
            queue, upto = log.queue(name), given[name]
            draft.put(queue, [b""], first=upto)
            draft.remove(queue, [(upto, upto, records_weight(0, 1))], reason=DROPPED)
        log.commit(draft, sync=False, upkeep=False)
