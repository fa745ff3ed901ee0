"""Every error of the actors, one class for each case that a caller would treat differently."""

from __future__ import annotations


class ActorError(Exception):
    """Base of all errors that the actor runtime raises by itself.

    What an actor's own code raises is never wrapped: an asker gets the exception itself.
    """


class ActorStopped(ActorError):
    """The actor takes no more messages, or stopped before it handled this one.

    Whoever tells gets it only for a message that was not taken; an asker also for one that was
    waiting. If the actor stopped because of a failure, that is the `__cause__`.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"actor {name!r} has stopped; the message was not handled to its end")
        self.name = name


class SystemStopped(ActorError):
    """The actor system is not running, so it can not do this; nothing was changed."""

    def __init__(self, action: str) -> None:
        super().__init__(f"the actor system is not running: it can not {action}")
        self.action = action


class MailboxFull(ActorError):
    """The mailbox has no room and the message was not taken."""

    def __init__(self, name: str, size_max: int) -> None:
        super().__init__(
            f"the mailbox of actor {name!r} holds {size_max} messages and has no room; "
            "the message was not taken"
        )
        self.name, self.size_max = name, size_max


class AskTimeout(ActorError, TimeoutError):
    """No reply came in time. A message whose handling had not begun will not be handled."""

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(f"actor {name!r} did not reply within {seconds} seconds")
        self.name, self.seconds = name, seconds


class NoReply(ActorError):
    """The handler returned without a reply, so there will be none."""

    def __init__(self, name: str) -> None:
        super().__init__(f"actor {name!r} handled the message and did not reply to it")
        self.name = name


class NameTaken(ActorError, ValueError):
    """A living actor has this name already; nothing was spawned."""

    def __init__(self, name: str) -> None:
        super().__init__(f"an actor with the name {name!r} is alive; nothing was spawned")
        self.name = name


class HandlerCancelled(ActorError):
    """A handler let a `CancelledError` out though nobody had cancelled its actor.

    It awaited something that others cancelled. That is a failure of the message, and the
    supervision decides about it as about any other; the `CancelledError` is the `__cause__`.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"a handler of actor {name!r} awaited something that was cancelled")
        self.name = name
