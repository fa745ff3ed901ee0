"""For every test: the end of a run says which rigs did not run."""

from tests.rigs.summary import pytest_terminal_summary

__all__ = ["pytest_terminal_summary"]
