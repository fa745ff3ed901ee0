"""The frame server: committed records of a store, over TCP, for readers that have no path to it."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
from typing import Final

import msgspec

from fifoq.opening import Opening
from fifoq.server.connection import Connection, Traffic
from fifoq.server.limits import ServerLimits
from fifoq.server.protocol import check_token
from fifoq.server.served import Served
from fifoq.store import Store
from store.genesis import check_name

TOLD_MAX: Final = 64
"""How many connections beyond those allowed are told so at the same time."""

_log = logging.getLogger("fifoq.server")


class ServerStats(msgspec.Struct, frozen=True, kw_only=True):
    """What a frame server has done since it began; `refused` counts connections it ended."""

    connections: int
    requests: int
    records: int
    bytes: int
    refused: int


class FrameServer:
    """A running server. Made by `serve`; it reads the files and never disturbs their owner."""

    def __init__(self, served: Served, token: str, limits: ServerLimits) -> None:
        self.path = served.path
        self.host = ""
        self.port = 0
        self._served = served
        self._token = token
        self._limits = limits
        self._traffic = Traffic()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._admitted = 0
        self._closing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = "closed" if self._closing is not None else "open"
        return f"<FrameServer {self.path!r} {self.host}:{self.port} {state}>"

    def url(self, queue: str = "main") -> str:
        """What Spark loads: `fifoq://host:port/queue`. InvalidName"""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"fifoq://{host}:{self.port}/{check_name(queue)}"

    def stats(self) -> ServerStats:
        traffic = self._traffic
        return ServerStats(
            connections=self._admitted,
            requests=traffic.requests,
            records=traffic.records,
            bytes=traffic.bytes,
            refused=traffic.refused,
        )

    async def close(self) -> None:
        """Tell every client, close every connection, let the files go. Twice is fine."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._served.close()

    async def __aenter__(self) -> FrameServer:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def listen(self, host: str, port: int) -> None:
        """OSError if the address is taken or not ours."""
        self._server = await asyncio.start_server(self._connected, host, port)
        self.host, self.port = self._server.sockets[0].getsockname()[:2]
        if not ipaddress.ip_address(self.host.partition("%")[0]).is_loopback:
            _log.warning(
                "%s: serving beyond this machine, and nothing is encrypted: use a private network "
                "or a tunnel",
                self,
            )

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        most = self._limits.connections
        if self._closing is not None or len(self._tasks) >= most + TOLD_MAX:
            # Too many even to tell them why.
            writer.transport.abort()
            return
        too_many = self._admitted >= most
        self._admitted += not too_many
        self._tasks.add(task)
        try:
            connection = Connection(
                self._served, self._token, self._limits, self._traffic, reader, writer
            )
            await connection.run(too_many=too_many)
        except asyncio.CancelledError:
            # Ours, at close: nobody waits for this task but `close`.
            pass
        finally:
            self._admitted -= not too_many
            self._tasks.discard(task)


def serve(
    store: Store | str | os.PathLike[str],
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    token: str,
    limits: ServerLimits | None = None,
) -> Opening[FrameServer]:
    """Serve the committed records of a store to whoever has the token.

    `await` it or use it with `async with`. Given an open `Store` it serves that one's path, from
    the owner's process; a path may belong to any process or to none. Port 0 takes a free one.
    ValueError for a token that is too short; FormatError or AccessError if there is no store;
    OSError if the address cannot be had. The server goes on when the store's owner closes it.
    """
    path = store.path if isinstance(store, Store) else os.fspath(store)
    check_token(token)
    chosen = limits or ServerLimits()

    async def open_it() -> FrameServer:
        served = Served(path)
        await served.open()
        server = FrameServer(served, token, chosen)
        try:
            await server.listen(host, port)
        except BaseException:
            await server.close()
            raise
        return server

    return Opening(open_it)
