"""A client of the owner of a live store."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Final, TypeVar

from fifoq.control.messages import (
    ANSWER,
    HEADER_BYTES,
    REQUEST,
    Request,
    decode_answer,
    decode_failure,
    decode_header,
    encode_message,
)
from fifoq.control.place import address
from store import FifoqError

A = TypeVar("A")

ANSWER_SECONDS: Final = 60.0
"""How long a client waits for an answer beyond what it asked the owner to wait."""


class NoAnswer(FifoqError):
    """The owner of the store went away, or said nothing in time: what was asked for may be done."""


class Refused(FifoqError):
    """The owner said no. `kind` is the name of the error that it met."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Client:
    """A connection to the owner. Closing it gives back whatever is leased and not acked."""

    def __init__(
        self, path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._path = path
        self._reader, self._writer = reader, writer

    async def ask(
        self, request: Request, type: type[A], *, seconds: float | None = ANSWER_SECONDS
    ) -> A:
        """The owner's answer. Refused if it says no; NoAnswer if none comes within `seconds`."""
        try:
            self._writer.write(encode_message(REQUEST, request))
            async with asyncio.timeout(seconds):
                await self._writer.drain()
                body_bytes, kind = decode_header(await self._reader.readexactly(HEADER_BYTES))
                body = await self._reader.readexactly(body_bytes)
        except TimeoutError:
            raise NoAnswer(
                f"{self._path}: the owner of the store gave no answer in {seconds:g} s. Whether it "
                f"did what it was asked is not known. See whether that process is stuck."
            ) from None
        except (ConnectionError, asyncio.IncompleteReadError):
            raise NoAnswer(
                f"{self._path}: the owner of the store went away before it answered. Whether it "
                f"did what it was asked is not known. Look, and ask again."
            ) from None
        if kind == ANSWER:
            return decode_answer(body, type)
        failure = decode_failure(body)
        raise Refused(failure.kind, failure.message)

    async def close(self) -> None:
        """Twice is fine."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


async def connect(path: str) -> Client | None:
    """Reach whoever owns the store; None if nobody listens there."""
    try:
        with address(path) as short:
            reader, writer = await asyncio.open_unix_connection(short)
    except (FileNotFoundError, ConnectionError, NotADirectoryError):
        return None
    return Client(path, reader, writer)
