"""Whom a message of a durable actor is for: through the store, or in memory alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from actors import Ref
from actors.draining import InsideOnly
from actors.keyed import KeyedRef
from fifoq.durable.box import Box

if TYPE_CHECKING:
    from actors.tree import Tree
    from fifoq.durable.post import Post


class Target(NamedTuple):
    """One that gets a message: in memory if there is a `ref`, else by its name in the store.

    `box` is that of a durable actor that is alive: it knows what the actor takes.
    """

    name: str
    box: Box | None = None
    ref: Ref[Any] | None = None


def targets(post: Post, tree: Tree, to: Ref[Any] | str, message: object) -> Sequence[Target]:
    """All that get it: several for a router that passes it on to all."""
    if not isinstance(to, str):
        return [_of_ref(post, tree, ref) for ref in to._targets(message)]
    box = post.boxes.get(to)
    if box is not None:
        return [Target(to, box)]
    cell = tree.cells.get(to)
    ref = tree.keyed_ref(to) if cell is None else cell.ref
    return [Target(to)] if ref is None else targets(post, tree, ref, message)


def _of_ref(post: Post, tree: Tree, ref: Ref[Any]) -> Target:
    if isinstance(ref, KeyedRef):
        # Its actor need not be there: a letter in the store activates it.
        durable = ref.durable and ref.tree is tree
        return Target(ref.name, post.boxes.get(ref.name)) if durable else Target(ref.name, ref=ref)
    mailbox = ref._mailbox
    if isinstance(mailbox, InsideOnly):
        mailbox = mailbox.intake
    if isinstance(mailbox, Box) and mailbox.post is post:
        return Target(ref.name, mailbox)
    return Target(ref.name, ref=ref)
