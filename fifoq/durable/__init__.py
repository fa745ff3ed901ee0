"""Durable actors: mailboxes that survive, steps that are atomic. Built on queues and actors."""

from fifoq.durable.asks import AskFailed
from fifoq.durable.carried import traceparent
from fifoq.durable.dead import DeadMessage, DeadMessages, Reproduced, reproduce
from fifoq.durable.options import DurableMailbox
from fifoq.durable.system import ActorSystem

__all__ = [
    "ActorSystem",
    "AskFailed",
    "DeadMessage",
    "DeadMessages",
    "DurableMailbox",
    "Reproduced",
    "reproduce",
    "traceparent",
]
