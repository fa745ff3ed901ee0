"""Whose code is running: the actor's in whose handler a call is made, or nobody's.

Tasks that a handler starts count as the actor's.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actors.cell import Cell
    from actors.tree import Tree

running: ContextVar[Cell[Any] | None] = ContextVar("running", default=None)


def is_inside(tree: Tree) -> bool:
    """Whether the caller is an actor of this tree that has not ended."""
    cell = running.get()
    return cell is not None and cell.tree is tree and not cell.ended.is_set()
