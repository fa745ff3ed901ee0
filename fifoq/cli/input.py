"""Input: records from stdin, as they come, without a thread that a signal could not end."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from typing import Final

from fifoq.options import ITEM_BYTES_MAX

PIECE_BYTES: Final = 1 << 20


async def records(descriptor: int, *, end: bytes) -> AsyncIterator[list[bytes]]:
    """Records that end with `end`, those that came together in one list; the last may lack it.

    ValueError if one is over what any queue takes.
    """
    rest: list[bytes] = []
    size = 0
    async for piece in pieces(descriptor):
        first, *more = piece.split(end)
        rest.append(first)
        size += len(first)
        if more:
            yield [b"".join(rest), *more[:-1]]
            rest, size = [more[-1]], len(more[-1])
        if size > ITEM_BYTES_MAX:
            raise ValueError(
                f"a record of more than {ITEM_BYTES_MAX} bytes came in. What came before it was "
                f"put. Records end as the option --null says."
            )
    if size:
        yield [b"".join(rest)]


async def whole(descriptor: int) -> bytes:
    """Everything there is. ValueError if that is over what any queue takes."""
    data = bytearray()
    async for piece in pieces(descriptor):
        data += piece
        if len(data) > ITEM_BYTES_MAX:
            raise ValueError(f"the input is over {ITEM_BYTES_MAX} bytes. Nothing was put.")
    return bytes(data)


async def pieces(descriptor: int) -> AsyncIterator[bytes]:
    """What can be read, as soon as it can, until the end."""
    waits = not stat.S_ISREG(os.fstat(descriptor).st_mode)
    while True:
        if waits:
            waits = await _readable(descriptor)
        piece = os.read(descriptor, PIECE_BYTES)
        if not piece:
            return
        yield piece


async def _readable(descriptor: int) -> bool:
    """Wait until there is something; False if this kind of file is always ready."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(descriptor, ready.set)
    except PermissionError:
        # /dev/null and the like.
        return False
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
    return True
