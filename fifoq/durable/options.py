"""The mailbox of a durable actor: its size, and how often a message is tried."""

from __future__ import annotations

import random
from typing import Final

from actors import MailboxOptions

DOUBLINGS_MAX: Final = 64


class DurableMailbox(MailboxOptions, frozen=True, kw_only=True):
    """Options of a durable actor's mailbox; `batch` is of no use to it.

    A message whose handler fails stays the first. It is tried again after `retry_backoff` seconds,
    twice as long each time, up to `retry_backoff_max`, less up to half by chance. After
    `max_retries` further attempts (None: for ever) it goes to the dead letters, and the actor goes
    on with the next one.
    """

    max_retries: int | None = 3
    retry_backoff: float = 0.1
    retry_backoff_max: float = 30.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_retries is not None and self.max_retries < 0:
            raise ValueError(f"max_retries is {self.max_retries}: it must be 0 or more, or None")
        if not 0 <= self.retry_backoff <= self.retry_backoff_max < float("inf"):
            raise ValueError(
                f"retry_backoff is {self.retry_backoff}: it must lie between 0 and "
                f"retry_backoff_max, {self.retry_backoff_max}"
            )

    def allows(self, attempts: int) -> bool:
        """Whether a message that was tried that often may be tried again."""
        return self.max_retries is None or attempts <= self.max_retries

    def pause(self, attempt: int) -> float:
        """Seconds to wait after that attempt failed."""
        doubled = self.retry_backoff * 2.0 ** min(attempt - 1, DOUBLINGS_MAX)
        return min(doubled, self.retry_backoff_max) * (0.5 + random.random() / 2)
