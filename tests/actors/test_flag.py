"""A flag is set once, and lets everybody go on."""

from __future__ import annotations

import asyncio

import pytest

from actors.flag import Flag
from actors.testing import settle

pytestmark = pytest.mark.anyio


async def test_a_flag_lets_all_go_on_who_wait_and_those_who_come_later() -> None:
    flag = Flag()
    waiting = [asyncio.ensure_future(flag.wait()) for _ in range(3)]
    await settle()
    waiting[0].cancel()
    await settle()
    assert [task.done() for task in waiting] == [True, False, False]
    assert not flag.is_set()
    flag.set()
    await asyncio.gather(*waiting[1:])
    await flag.wait()
    assert flag.is_set()


async def test_whoever_leaves_as_the_flag_is_set_has_left() -> None:
    flag = Flag()
    waiting = asyncio.ensure_future(flag.wait())
    await settle()
    flag.set()
    waiting.cancel()
    await settle()
    assert waiting.cancelled()
