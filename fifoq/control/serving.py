"""One client of an owner's socket: read a request, do it, answer, until he goes.

The owner never waits for him: a client that takes nothing, or sends half a request, is dropped
after a while, and one that goes while his request is under way has it cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from socket import socket
from typing import Any, Final

from fifoq.control.desk import Visit
from fifoq.control.messages import (
    ANSWER,
    FAILURE,
    HEADER_BYTES,
    REQUEST,
    Failure,
    MessageError,
    Request,
    decode_header,
    decode_request,
    encode_message,
)
from fifoq.logs import fields, name_of
from fifoq.store import Store
from store import FifoqError

IDLE_SECONDS: Final = 300.0
REQUEST_SECONDS: Final = 10.0
SEND_SECONDS: Final = 30.0

logger = logging.getLogger("fifoq")


async def serve(client: socket, store: Store) -> None:
    """Serve one client until he goes, breaks a rule, or the store is closed."""
    reader, writer = await asyncio.open_unix_connection(sock=client)
    visit = Visit(store)
    try:
        await _serve(reader, writer, visit)
    except (ConnectionError, TimeoutError, asyncio.IncompleteReadError, MessageError) as error:
        logger.info(
            "a client of the store's socket is dropped (%s)",
            type(error).__name__,
            extra=fields("client_dropped", store.path, error=name_of(error)),
        )
    except asyncio.CancelledError:
        # The store is being closed. Nobody waits for this task but the listener.
        pass
    finally:
        visit.leave()
        writer.transport.abort()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, visit: Visit) -> None:
    while (body := await _next_request(reader)) is not None:
        try:
            request = decode_request(body)
        except MessageError as error:
            # The message was whole, so the next one can be read.
            reply = encode_message(FAILURE, _failure(error))
        else:
            answer = await _unless_gone(reader, _reply(visit, request))
            if answer is None:
                return
            reply = answer
        writer.write(reply)
        async with asyncio.timeout(SEND_SECONDS):
            await writer.drain()


async def _next_request(reader: asyncio.StreamReader) -> bytes | None:
    """The next request's body, or None if the client has gone between two of them."""
    async with asyncio.timeout(IDLE_SECONDS):
        first = await reader.read(1)
    if not first:
        return None
    async with asyncio.timeout(REQUEST_SECONDS):
        body_bytes, kind = decode_header(first + await reader.readexactly(HEADER_BYTES - 1))
        if kind != REQUEST:
            raise MessageError(f"kind {kind} is no request")
        return await reader.readexactly(body_bytes)


async def _reply(visit: Visit, request: Request) -> bytes:
    try:
        return encode_message(ANSWER, await visit.answer(request))
    except (FifoqError, OSError, ValueError, TypeError) as error:
        return encode_message(FAILURE, _failure(error))
    except Exception as error:
        # Our own mistake: the client learns that there was one, the log which.
        logger.exception(
            "a request of kind %s failed",
            type(request).__name__,
            extra=fields("bug", None, error=name_of(error)),
        )
        return encode_message(FAILURE, Failure(kind=type(error).__name__, message="see the log"))


def _failure(error: Exception) -> Failure:
    return Failure(kind=type(error).__name__, message=str(error))


async def _unless_gone(
    reader: asyncio.StreamReader, doing: Coroutine[Any, Any, bytes]
) -> bytes | None:
    """What is being done, or None, and it is cancelled, if the client goes meanwhile.

    A client sends nothing before it has its answer, so whatever can be read is the end.
    """
    work = asyncio.ensure_future(doing)
    gone = asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if work.done() and not gone.done():
            return work.result()
        return None
    finally:
        for task in (work, gone):
            task.cancel()
        await asyncio.wait({work, gone})
