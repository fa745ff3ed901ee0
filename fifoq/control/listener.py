"""The owner's ear: a socket that costs one descriptor until somebody asks.

Everything else (the protocol, what can be asked) is imported when the first client comes. Files are
touched on the writer, never on the loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from socket import socket
from typing import TYPE_CHECKING, Final

from fifoq.control.place import listen, withdraw
from fifoq.logs import fields, name_of

if TYPE_CHECKING:
    from fifoq.committer import Committer
    from fifoq.store import Store

logger = logging.getLogger("fifoq")

LISTEN_AFTER_SECONDS: Final = 0.25
"""A store that is open for less is asked nothing: whoever wants it waits until it is free."""
CLIENTS_MAX: Final = 8
"""Clients beyond wait until one has gone."""


class Listener:
    """Listens for one open store, from a moment after its opening to its closing."""

    def __init__(self, committer: Committer, store: Store) -> None:
        self._committer = committer
        # Weakly: a store that nobody closed must be able to say so.
        self._store = weakref.ref(store)
        # Whoever opened it may go to another directory later.
        self._path = os.path.abspath(store.path)
        self._timer: asyncio.TimerHandle | None = None
        self._socket: socket | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._stopped = False

    def start(self) -> None:
        """On the loop, once the store is open."""
        self._timer = self._committer.loop.call_later(LISTEN_AFTER_SECONDS, self._begin)

    def _begin(self) -> None:
        self._timer = None
        committer = self._committer
        if committer.usable and not committer.closing:
            committer.before_release.append(lambda log: withdraw(self._path))
            committer.call(lambda log: listen(self._path)).add_done_callback(self._bound)

    def _bound(self, binding: asyncio.Future[object]) -> None:
        if binding.cancelled():
            return
        error = binding.exception()
        if error is not None:
            # The store works as well without; who asks is told that nobody answers.
            logger.info(
                "%s: nobody can ask this owner: %s",
                self._committer.path,
                error,
                extra=fields("not_listening", self._committer.path, error=name_of(error)),
            )
            return
        listening = binding.result()
        assert isinstance(listening, socket)
        if self._stopped:
            listening.close()
            return
        self._socket = listening
        # For a store that nobody closed.
        self._last = weakref.finalize(self, listening.close)
        log = self._committer.log
        assert log is not None
        log.directory.files.watch_fork(self._after_fork)
        self._committer.loop.add_reader(listening.fileno(), self._accept)

    def _after_fork(self) -> None:
        """In the child, which must not keep clients waiting when the parent has gone."""
        if self._socket is not None:
            self._socket.close()

    def _accept(self) -> None:
        store, listening = self._store(), self._socket
        assert listening is not None
        try:
            client, _ = listening.accept()
        except OSError:
            # It has gone again, or there are no descriptors left.
            return
        if store is None or self._stopped:
            client.close()
            return
        # Not before somebody asks.
        from fifoq.control.serving import serve

        task = self._committer.loop.create_task(serve(client, store))
        self._clients.add(task)
        task.add_done_callback(self._left)
        if len(self._clients) >= CLIENTS_MAX:
            self._committer.loop.remove_reader(listening.fileno())

    def _left(self, task: asyncio.Task[None]) -> None:
        self._clients.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error(
                "a client of the store's socket failed",
                exc_info=task.exception(),
                extra=fields("bug", self._committer.path, error=name_of(task.exception())),
            )
        if self._socket is not None and len(self._clients) == CLIENTS_MAX - 1:
            self._committer.loop.add_reader(self._socket.fileno(), self._accept)

    async def stop(self) -> None:
        """Hear no more, and let every client go; what they have leased is back on return."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        listening, self._socket = self._socket, None
        if listening is not None:
            self._committer.loop.remove_reader(listening.fileno())
            self._last.detach()
            listening.close()
        if self._clients:
            # A task that was cancelled before its first step would leave its socket open.
            await asyncio.sleep(0)
        for task in self._clients:
            task.cancel()
        if self._clients:
            await asyncio.wait(self._clients)
