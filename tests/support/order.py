"""The order of tests on several workers: those that wait stand among those that keep a core busy.

Rigs wait for disks and killed processes, mutants for a process each. One after the other, as they
are found, they leave the cores idle in the middle of a run.
"""

from __future__ import annotations

from typing import Final, TypeVar

import pytest

WAITING: Final = ("mutants", "rigs", "spark")
SHARE: Final = 0.6
"""They stand in this first part of a run: whatever is long and comes last is waited for alone."""

T = TypeVar("T")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        waiting = [item for item in items if item.path.parent.name in WAITING]
        busy = [item for item in items if item.path.parent.name not in WAITING]
        items[:] = spread(waiting, busy)


def spread(waiting: list[T], busy: list[T]) -> list[T]:
    """All of them, the waiting ones evenly among the first of the busy ones."""
    step = SHARE * len(busy) / max(1, len(waiting))
    placed = [(step * at, 0, item) for at, item in enumerate(waiting)]
    placed += [(at, 1, item) for at, item in enumerate(busy)]
    return [item for *_, item in sorted(placed, key=lambda place: place[:2])]
