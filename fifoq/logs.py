"""What the messages of the logger `fifoq` carry besides their text, for whoever collects them.

Each has the fields `event` and `store` (its path, or None), and those of its event. No message and
no field holds a payload, a header or an id of a put.
"""

from __future__ import annotations


def fields(event: str, store: str | None, **more: str | int | None) -> dict[str, str | int | None]:
    """The `extra` of a message."""
    return {"event": event, "store": store, **more}


def name_of(error: BaseException | None) -> str | None:
    """An error as a field: its type, since its text may be long."""
    return None if error is None else type(error).__name__
