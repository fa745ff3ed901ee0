"""What the runtime logs, all of it to the logger `actors`: one function for each event.

Every record has the fields `event` and `actor`; others depend on the event. Their names are stable
(`docs/reference/actors.md` lists them), so that a formatter may rely on them. No record holds a
message; a failure's traceback holds what the actor's own code put into the exception.
"""

from __future__ import annotations

import logging

logger = logging.getLogger("actors")


def failed(actor: str, strategy: str, error: Exception) -> None:
    """An actor failed, and what its supervision says."""
    fields = {"event": "failed", "actor": actor, "strategy": strategy, "error": _name(error)}
    logger.error("actor %r failed: %s", actor, strategy, exc_info=error, extra=fields)


def taken_along(actor: str, leader: str) -> None:
    """An actor is restarted because a sibling is."""
    fields = {"event": "taken_along", "actor": actor, "leader": leader}
    logger.warning("actor %r is restarted with %r", actor, leader, extra=fields)


def on_stop_late(actor: str, seconds: float) -> None:
    """The hook was cancelled."""
    fields = {"event": "on_stop_late", "actor": actor, "seconds": seconds}
    logger.error("actor %r: on_stop took over %s s", actor, seconds, extra=fields)


def on_stop_failed(actor: str, error: Exception) -> None:
    """The hook raised; the stop or the restart goes on."""
    fields = {"event": "on_stop_failed", "actor": actor, "error": _name(error)}
    logger.error("actor %r: on_stop failed", actor, exc_info=error, extra=fields)


def ended(actor: str, undelivered: int) -> None:
    """An actor ended; a warning if messages were told to it and not handled."""
    if undelivered:
        fields = {"event": "undelivered", "actor": actor, "count": undelivered}
        text = "actor %r stopped; %d told messages were not handled"
        logger.warning(text, actor, undelivered, extra=fields)


def unheard(actor: str, ended: str, error: Exception) -> None:
    """A watcher could not be told that another has ended."""
    fields = {"event": "unheard", "actor": actor, "ended": ended, "error": _name(error)}
    text = "actor %r could not be told that %r has ended: %s"
    logger.error(text, actor, ended, _name(error), extra=fields)


def signalled(seconds: float) -> None:
    """A signal asks the system to stop."""
    fields = {"event": "signalled", "actor": None, "seconds": seconds}
    logger.info("told to stop by a signal, within %s s", seconds, extra=fields)


def drained(undelivered: int, cut_short: int) -> None:
    """The system has stopped after a signal; a warning if that was not clean."""
    clean = not (undelivered or cut_short)
    fields = {"event": "drained", "actor": None, "count": undelivered, "cut_short": cut_short}
    text = "stopped; %d told messages were not handled, %d handlers were cut short"
    logger.log(
        logging.INFO if clean else logging.WARNING, text, undelivered, cut_short, extra=fields
    )


def _name(error: BaseException) -> str:
    return type(error).__name__
