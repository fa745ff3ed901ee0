"""The history checker finds every kind of anomaly, and only those."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.history import Crash, History, Kind

SYNC, OS, MEMORY = 2, 1, 0


class Script:
    """Writes histories of one queue, one call after the other unless told otherwise."""

    def __init__(self) -> None:
        self.history = History()
        self._number = 0

    def call(self, kind: Kind, *items: int, level: int = SYNC, count: int = 1) -> int:
        self._number += 1
        self.history.called(self._number, kind, "q", level, items=items, count=count)
        return self._number

    def put(self, *items: int, level: int = SYNC, counter: int | None = None) -> None:
        number = self.call("put", *items, level=level)
        self.history.returned(number, (), items[0] if counter is None else counter)

    def take(self, *items: int, kind: Kind = "take", level: int = SYNC) -> None:
        self.history.returned(self.call(kind, level=level, count=len(items)), items)

    def do(self, kind: Kind, *items: int, level: int = SYNC) -> None:
        self.history.returned(self.call(kind, *items, level=level))

    def open(self, *items: int, after: Crash = "kill") -> list[str]:
        self.history.opened(after, {"q": [(item, item) for item in items]})
        return self.history.violations


@pytest.fixture
def script() -> Script:
    return Script()


def test_an_ordinary_history_has_no_violation(script: Script) -> None:
    script.put(1)
    script.put(2, 3, 4)
    script.take(1)
    script.take(2, kind="lease")
    script.take(3)
    script.do("nack", 2)
    script.take(2, kind="lease")
    script.do("ack", 2)
    script.put(5, level=OS)
    assert script.open(4, 5) == []
    script.take(4, 5)
    assert script.open(after="power") == []
    assert script.history.crash_count == 2


def phantom(script: Script) -> None:
    script.put(1)
    script.take(7)


def repeat(script: Script) -> None:
    script.put(1)
    script.take(1)
    script.take(1)


def repeat_of_a_lease(script: Script) -> None:
    script.put(1)
    script.take(1, kind="lease")
    script.take(1, kind="lease")


def order(script: Script) -> None:
    script.put(1)
    script.put(2)
    script.take(2)
    script.take(1)


def order_after_a_nack(script: Script) -> None:
    script.put(1, 2, 3)
    script.take(1, kind="lease")
    script.take(2)
    script.do("nack", 1)
    script.take(3)
    script.take(1)


def order_of_counters(script: Script) -> None:
    script.put(1, counter=5)
    script.put(2, counter=4)
    script.take(2)
    script.take(1)


def false_empty(script: Script) -> None:
    script.put(1)
    script.history.empty(script.call("take"))
    script.take(1)


def counter_used_twice(script: Script) -> None:
    script.put(1, counter=1)
    script.take(1)
    script.put(2, counter=1)
    script.take(2)


@pytest.mark.parametrize(
    ("play", "word"),
    [
        (phantom, "phantom"),
        (repeat, "repeat"),
        (repeat_of_a_lease, "repeat"),
        (order, "order"),
        (order_after_a_nack, "order"),
        (order_of_counters, "order"),
        (false_empty, "false empty"),
        (counter_used_twice, "was given to"),
    ],
)
def test_an_anomaly_within_a_life_is_found(
    script: Script, play: Callable[[Script], None], word: str
) -> None:
    play(script)
    violations = script.open()
    assert any(word in text for text in violations), violations


def lost(script: Script) -> list[str]:
    script.put(1)
    return script.open()


def lost_after_a_flush(script: Script) -> list[str]:
    script.put(1, level=MEMORY)
    script.do("flush")
    return script.open(after="power")


def lost_although_closed(script: Script) -> list[str]:
    script.put(1, level=MEMORY)
    return script.open(after="close")


def lost_by_the_power_after_the_kernel_had_it(script: Script) -> list[str]:
    script.put(1, level=OS)
    assert script.open(after="power") == []
    script.put(2, level=OS)
    return script.open(after="kill")


def lost_from_an_earlier_life(script: Script) -> list[str]:
    script.put(1)
    assert script.open(1) == []
    return script.open()


def lost_although_the_cancelled_take_was_undone(script: Script) -> list[str]:
    script.put(1)
    script.history.left(script.call("take"))
    script.put(2)
    return script.open(2)


def revived(script: Script) -> list[str]:
    script.put(1)
    script.take(1)
    return script.open(1)


def revived_ack(script: Script) -> list[str]:
    script.put(1)
    script.take(1, kind="lease")
    script.do("ack", 1)
    return script.open(1)


def revived_later(script: Script) -> list[str]:
    script.put(1)
    script.take(1)
    assert script.open() == []
    return script.open(1)


def phantom_on_disk(script: Script) -> list[str]:
    return script.open(9)


def torn(script: Script) -> list[str]:
    script.call("put", 1, 2, 3)
    return script.open(1, 2)


def hole(script: Script) -> list[str]:
    script.put(1, level=MEMORY)
    script.put(2, level=MEMORY)
    return script.open(2)


def refused_and_there(script: Script) -> list[str]:
    script.history.refused(script.call("put", 1))
    return script.open(1)


def out_of_order_on_disk(script: Script) -> list[str]:
    script.put(1)
    script.put(2)
    return script.open(2, 1)


def twice_on_disk(script: Script) -> list[str]:
    script.put(1)
    return script.open(1, 1)


@pytest.mark.parametrize(
    ("play", "word"),
    [
        (lost, "lost"),
        (lost_after_a_flush, "lost"),
        (lost_although_closed, "lost"),
        (lost_by_the_power_after_the_kernel_had_it, "lost"),
        (lost_from_an_earlier_life, "lost"),
        (lost_although_the_cancelled_take_was_undone, "lost"),
        (revived, "revived"),
        (revived_ack, "revived"),
        (revived_later, "revived"),
        (phantom_on_disk, "phantom"),
        (torn, "torn"),
        (hole, "hole"),
        (refused_and_there, "phantom"),
        (out_of_order_on_disk, "order"),
        (twice_on_disk, "repeat"),
    ],
)
def test_an_anomaly_across_an_end_is_found(
    script: Script, play: Callable[[Script], list[str]], word: str
) -> None:
    violations = play(script)
    assert any(word in text for text in violations), violations


def test_what_a_crash_may_do_is_no_violation(script: Script) -> None:
    script.put(1)
    script.put(2, level=MEMORY)
    script.call("put", 3, 4)
    script.call("take")
    assert script.open() == []
    script.put(5)
    script.take(5, level=MEMORY)
    script.put(6, level=MEMORY)
    assert script.open(5) == []
    script.history.left(script.call("put", 7))
    assert script.open(5, 7) == []
    script.put(8)
    script.history.distrust()
    script.put(9)
    assert script.open(5, 7, 8, after="power") == []


def test_a_taker_that_leaves_may_let_others_pass(script: Script) -> None:
    """While it leaves nobody knows which record it holds."""
    script.put(1, 2)
    leaving = script.call("take")
    script.take(2)
    script.history.left(leaving)
    script.put(3)
    script.take(1)
    assert script.open(3) == []


def test_once_a_taker_has_left_order_is_judged_again(script: Script) -> None:
    """Also before a commit has brought back what it held: until then nobody takes anything."""
    script.put(1, 2)
    script.history.left(script.call("take"))
    script.take(2)
    script.take(1)
    assert "order" in script.open()[0]


def test_once_a_taker_has_left_a_queue_may_look_empty_until_the_next_commit(script: Script) -> None:
    script.put(1)
    script.history.left(script.call("take"))
    script.history.empty(script.call("take"))
    script.put(2)
    assert script.open(1, 2) == []
    script.history.left(script.call("take"))
    script.put(3)
    script.history.empty(script.call("take"))
    assert "false empty" in script.open(1, 2, 3)[0]


def test_a_take_that_is_told_as_left_looks_like_a_record_that_was_passed(script: Script) -> None:
    """Why a rig must tell what a call returned even when nobody waits for it any more."""
    script.put(1, 2, level=MEMORY)
    took_1 = script.call("take", level=MEMORY)
    script.history.left(took_1)
    script.take(2, level=MEMORY)
    assert "order: 2 was handed out before counter 1" in script.open(after="close")[0]


def test_a_long_history_is_judged_in_a_moment(script: Script) -> None:
    """A quadratic check would need minutes here."""
    for item in range(1, 40_000):
        script.put(item)
        if item % 2:
            script.take((item + 1) // 2)
    assert script.open(*range(20_001, 40_000)) == []


def test_without_power_anything_may_fail_and_after_a_restart_nothing(script: Script) -> None:
    script.history.distrust()
    script.history.failed("the disk is gone")
    assert script.history.violations == []
    script.history.restarted()
    script.history.failed("cannot open")
    assert script.history.violations == ["cannot open"]
