"""An actor runtime for asyncio: actors, typed refs, batching mailboxes, supervision.

Knows no files. All of it belongs to one event loop, asyncio's own or uvloop, and takes the time
from it.
"""

from actors.actor import Actor, Context
from actors.batch import Asked, Batch, ClosedBy, Reply
from actors.errors import (
    ActorError,
    ActorStopped,
    AskTimeout,
    HandlerCancelled,
    MailboxFull,
    NameTaken,
    NoReply,
    SystemStopped,
)
from actors.keyed import Keyed, KeyedStats
from actors.life import State
from actors.mailbox import BatchOptions, Intake, Mailbox, MailboxOptions, Overflow
from actors.ref import Ref
from actors.router import Pool, Router
from actors.routing import Routing
from actors.stats import ActorStats, SystemStats
from actors.supervision import Scope, Strategy, Supervision
from actors.system import ActorSystem
from actors.watch import Terminated

__all__ = [
    "Actor",
    "ActorError",
    "ActorStats",
    "ActorStopped",
    "ActorSystem",
    "AskTimeout",
    "Asked",
    "Batch",
    "BatchOptions",
    "ClosedBy",
    "Context",
    "HandlerCancelled",
    "Intake",
    "Keyed",
    "KeyedStats",
    "Mailbox",
    "MailboxFull",
    "MailboxOptions",
    "NameTaken",
    "NoReply",
    "Overflow",
    "Pool",
    "Ref",
    "Reply",
    "Router",
    "Routing",
    "Scope",
    "State",
    "Strategy",
    "Supervision",
    "SystemStats",
    "SystemStopped",
    "Terminated",
]
