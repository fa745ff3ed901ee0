"""Where tests that wait stand among the others."""

from __future__ import annotations

from tests.support.order import spread


def test_those_that_wait_stand_evenly_in_the_first_part() -> None:
    order = spread(["W", "X", "Y"], list("abcdefghij"))
    assert "".join(order) == "WabXcdYefghij"


def test_nothing_is_lost_where_one_kind_is_missing() -> None:
    assert spread([], ["a", "b"]) == ["a", "b"]
    assert spread(["a", "b"], []) == ["a", "b"]
