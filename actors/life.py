"""The life of an actor, as a table of (state, event) to state."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where an actor is in its life; its ref's `repr` says it."""

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    STOPPED = "stopped"


OPEN = frozenset({State.STARTING, State.RUNNING, State.RESTARTING})
"""The states in which an actor takes messages."""


class Event(StrEnum):
    """What changes the state of an actor."""

    STARTED = "started"
    FAILED = "failed"
    STOP = "stop"
    ENDED = "ended"


TABLE: dict[tuple[State, Event], State] = {
    (State.STARTING, Event.STARTED): State.RUNNING,
    (State.STARTING, Event.FAILED): State.RESTARTING,
    (State.STARTING, Event.STOP): State.STOPPING,
    (State.RUNNING, Event.FAILED): State.RESTARTING,
    (State.RUNNING, Event.STOP): State.STOPPING,
    (State.RESTARTING, Event.STARTED): State.RUNNING,
    (State.RESTARTING, Event.FAILED): State.RESTARTING,
    (State.RESTARTING, Event.STOP): State.STOPPING,
    # An actor that fails while it stops is restarted and goes on stopping.
    (State.STOPPING, Event.STARTED): State.STOPPING,
    (State.STOPPING, Event.FAILED): State.STOPPING,
    (State.STOPPING, Event.STOP): State.STOPPING,
    (State.STOPPING, Event.ENDED): State.STOPPED,
    (State.STOPPED, Event.STOP): State.STOPPED,
}
"""Whatever is not here can not happen. To end, an actor is told to stop first."""
