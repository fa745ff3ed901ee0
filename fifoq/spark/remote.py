"""The far side of the seam: a store behind a frame server, as `fifoq://host:port/queue`.

Blocks come as they lie in the log, are checked here, and become Arrow here: the server converts
nothing. The token comes with option `token` or the variable FIFOQ_TOKEN, and is never shown.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec
import numpy as np

from fifoq.consumers import Position
from fifoq.description import QueueDescription
from fifoq.server.client import FrameClient
from fifoq.server.link import BROKEN, ServerError
from fifoq.server.protocol import check_token
from fifoq.spark.access import Piece
from fifoq.spark.options import OptionError
from store import RecordBlock

TOKEN_OPTION: Final = "token"
TOKEN_VARIABLE: Final = "FIFOQ_TOKEN"


class Address(msgspec.Struct, frozen=True):
    """Where a frame server is, and the queue that the address names, or ""."""

    host: str
    port: int
    queue: str


def open_remote(path: str, options: Mapping[str, str], store_id: str = "") -> RemoteAccess:
    """Connect to the server of the address. OptionError for a wrong one; ServerError

    A task names the store that its planner saw; without a name, everything that was confirmed
    before is seen.
    """
    address = parse_address(path)
    client = FrameClient(address.host, address.port, _token(options))
    if store_id not in ("", client.store_id):
        client.close()
        reason = f"it serves store {client.store_id}, and the query was planned for {store_id}"
        raise ServerError(client.address, BROKEN, reason)
    return RemoteAccess(client, fresh=not store_id)


def parse_address(path: str) -> Address:
    """What `fifoq://host:port/queue` says. OptionError for the option `path` if it is not one."""
    wrong = f"{path!r} is not fifoq://host:port/queue"
    try:
        parts = urlsplit(path)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise OptionError("path", f"{wrong}: {error}") from None
    if parts.username is not None or parts.password is not None:
        # Not shown: it may be the token.
        raise OptionError("path", "an address has no user and no password; the token is an option")
    if parts.scheme != "fifoq" or not host or not port or parts.query or parts.fragment:
        raise OptionError("path", wrong)
    return Address(host, port, parts.path.removeprefix("/"))


def _token(options: Mapping[str, str]) -> str:
    token = options.get(TOKEN_OPTION) or os.environ.get(TOKEN_VARIABLE)
    if not token:
        raise OptionError(
            TOKEN_OPTION,
            f"it is missing; give the frame server's token, or set {TOKEN_VARIABLE} for driver "
            f"and executors",
        )
    try:
        return check_token(token)
    except ValueError as error:
        raise OptionError(TOKEN_OPTION, str(error)) from None


class RemoteAccess:
    """A store behind a frame server. What `LocalAccess` is for a directory."""

    def __init__(self, client: FrameClient, *, fresh: bool) -> None:
        self._client = client
        self._fresh = fresh
        self._views: dict[str, QueueDescription] = {}

    @property
    def store_id(self) -> str:
        assert self._client.store_id is not None
        return self._client.store_id

    def queues(self) -> list[str]:
        return self._client.queues()

    def queue(self, name: str) -> QueueDescription:
        view = self._views.get(name)
        if view is None:
            view = self._views[name] = self._client.describe(name, fresh=self._fresh)
            self._fresh = False
        return view

    def seek(self, name: str, time_ns: int) -> int:
        return self._client.seek(name, time_ns)

    def attempts(self, name: str, first: int, last: int) -> list[tuple[int, int]]:
        return self._client.attempts(name, first, last)

    def removed(self, name: str, first: int, last: int) -> list[tuple[int, int]]:
        return self._client.removed(name, first, last)

    def pieces(
        self, name: str, first: int, last: int, *, piece_bytes: int, total_bytes: int | None = None
    ) -> list[Piece]:
        """Cut by counters, as if all records of a span were of one size."""
        found: list[Piece] = []
        left = total_bytes
        for span in self.queue(name).spans:
            each = span.bytes / (span.last - span.first + 1)
            counter, upto = max(first, span.first), min(last, span.last)
            while counter <= upto:
                most = piece_bytes if left is None else min(piece_bytes, left)
                end = min(upto, counter + max(1, int(most / each)) - 1)
                size = max(1, round(each * (end - counter + 1)))
                if left is not None and found and size > left:
                    return found
                found.append(Piece(counter, end, size))
                left = None if left is None else left - size
                counter = end + 1
        return found

    def read(self, name: str, piece: Piece) -> Iterator[RecordBlock]:
        return self.blocks(name, piece.first, piece.last)

    def blocks(
        self, name: str, first: int, last: int, *, removed: bool = True
    ) -> Iterator[RecordBlock]:
        """As for a directory; ServerError if the server cannot be reached or is not believed."""
        for block in self._client.blocks(name, first, last, removed=removed):
            # Arrow takes offsets on trust, and here they came from elsewhere.
            if np.any(np.diff(np.asarray(block.offsets)) < 0):
                reason = f"end offsets of records {block.first} to {block.last} go back"
                raise ServerError(self._client.address, BROKEN, reason)
            yield block

    def position(self, consumer: str) -> Position | None:
        return self._client.position(consumer)

    def set_position(self, consumer: str, position: Position) -> None:
        self._client.advance(consumer, position)

    def refresh(self) -> None:
        # The server looks anew for each request.
        self._views.clear()

    def close(self) -> None:
        self._client.close()
