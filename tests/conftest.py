"""For every test: the end of a run says which rigs did not run; Java starts quickly."""

from tests.rigs.summary import pytest_terminal_summary
from tests.support.java import start_quickly

__all__ = ["pytest_terminal_summary"]

start_quickly()
