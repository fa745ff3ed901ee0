"""What a log would write of its state."""

from __future__ import annotations

from store.checkpoint import Checkpoint
from store.state import State


def checkpoint_of(state: State) -> Checkpoint:
    """A checkpoint at the beginning of the first segment."""
    return Checkpoint(
        number=1,
        clean=False,
        written_at=0,
        segment=1,
        offset=0,
        sequence=0,
        last_checksum=0,
        segments=state.segment_entries(),
        queues=[queue.entry() for queue in state.queues.values() if queue.genesis_segment],
        states=state.states,
        damage=state.damage,
        unlogged=list(state.unlogged.values()),
    )
