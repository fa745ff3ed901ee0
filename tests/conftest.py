"""For every test: its place in a run, whose end says which rigs did not run; a quick Java."""

from tests.rigs.summary import pytest_terminal_summary
from tests.support.java import start_quickly
from tests.support.order import pytest_collection_modifyitems

__all__ = ["pytest_collection_modifyitems", "pytest_terminal_summary"]

start_quickly()
