"""Handing bytes to whoever reads stdout, who may stop reading, as a pager does.

A verb that owns a store must go on answering meanwhile. A thread could not be ended by a signal,
and a descriptor that does not block would be shared with the shell, so neither is used.
"""

from __future__ import annotations

import asyncio
import os
import select
from io import UnsupportedOperation
from typing import BinaryIO


async def hand_over(out: BinaryIO, data: bytes) -> None:
    """On return whoever reads has all of it; BrokenPipeError if nobody does. The loop goes on."""
    out.flush()
    try:
        descriptor = out.fileno()
    except UnsupportedOperation:
        # Something in memory.
        out.write(data)
        return
    look = select.poll()
    look.register(descriptor, select.POLLOUT)
    rest = memoryview(data)
    while rest:
        if not look.poll(0):
            await _writable(descriptor)
        # So much never blocks where there is room at all.
        rest = rest[os.write(descriptor, rest[: select.PIPE_BUF]) :]


async def _writable(descriptor: int) -> None:
    """Wait until there is room. A regular file never comes here: it always has some."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_writer(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(descriptor)
