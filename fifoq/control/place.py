"""Where the owner of a store listens: a socket in the store's own directory.

There it needs no name that two stores could share, it is found through whatever mount shows the
store, and the directory's mode keeps strangers out. Blocking calls, for a thread that may wait.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

SOCKET_NAME: Final = "owner.sock"
SOCKET_PATH_BYTES_MAX: Final = 103
"""What the address of a socket holds on every system: 107 on Linux, 103 on macOS."""
BACKLOG: Final = 16


def listen(path: str) -> socket.socket:
    """Listen for the store at `path`, which the caller owns; a dead owner's socket is replaced.

    OSError if the file system has no sockets.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        if sys.platform == "linux":
            # There the name gets the descriptor's mode, so that it is never open to others.
            os.fchmod(listening.fileno(), 0o600)
        with address(path) as short:
            with suppress(FileNotFoundError):
                os.unlink(short)
            listening.bind(short)
            os.chmod(short, 0o600)
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def withdraw(path: str) -> None:
    """Remove the socket's name, while the store is still owned."""
    with suppress(OSError):
        os.unlink(f"{path}/{SOCKET_NAME}")


def is_there(path: str) -> bool:
    """Whether somebody listens there, or did once."""
    return os.path.lexists(f"{path}/{SOCKET_NAME}")


@contextmanager
def address(path: str) -> Iterator[str]:
    """A path of the socket that fits into its address, however long the store's own is."""
    whole = f"{path}/{SOCKET_NAME}"
    if len(os.fsencode(whole)) <= SOCKET_PATH_BYTES_MAX:
        yield whole
    elif sys.platform == "linux":
        descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.TemporaryDirectory(prefix="fifoq-") as scratch:
            os.symlink(os.path.abspath(path), f"{scratch}/s")
            yield f"{scratch}/s/{SOCKET_NAME}"
