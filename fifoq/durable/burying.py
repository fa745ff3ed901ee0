"""Burying: letters that their actor could not handle go to the dead letters of the post.

Beside what every dead letter has, these hold the class of the actor and the state that it was in
when the letter failed for the last time: what it takes to run that letter again elsewhere.
"""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fifoq.attributes import NONE
from fifoq.burying import PREFIX, SUFFIX, Cause, letter_headers
from fifoq.codec import decode_headers, encode_own_headers
from fifoq.durable.steps import Step
from fifoq.runs import Returned
from store.blocks import DEAD_LETTERED

if TYPE_CHECKING:
    from fifoq.queue import Queue

ACTOR: Final = PREFIX + "actor"
STATE: Final = PREFIX + "state"
STATE_BYTES: Final = PREFIX + "state_bytes"
STATE_BYTES_MAX: Final = 1 << 20
"""A larger state does not go along; its size does."""


def bury(
    step: Step,
    queue: Queue[Any],
    record: Returned,
    cause: Cause,
    *,
    attempts: int,
    reason: str,
    error: BaseException | None,
    actor: str,
    state: bytes | None,
) -> None:
    """Make the move of a letter to the dead letters part of a step."""
    encoded = letter_headers(
        queue.name, record, cause, time.time_ns(), attempts=attempts, reason=reason, error=error
    )
    headers = {**decode_headers(encoded), ACTOR: actor}
    if state is not None:
        headers[STATE_BYTES] = str(len(state))
        if len(state) <= STATE_BYTES_MAX:
            headers[STATE] = base64.b64encode(state).decode()
    attributes = msgspec.structs.replace(
        record.attributes or NONE, headers=encode_own_headers(headers)
    )
    step.put(queue.name + SUFFIX, record.payload, attributes)
    step.remove(queue, record, DEAD_LETTERED)
