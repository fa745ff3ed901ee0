"""`python -m fifoq.server PATH`: serve a store until SIGTERM or SIGINT. It only translates."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

from fifoq.server.server import serve
from store import FifoqError

TOKEN_VARIABLE = "FIFOQ_TOKEN"


def main(arguments: list[str] | None = None) -> int:
    """Serve until told to stop. Status 1, with one line, if that cannot be."""
    parser = argparse.ArgumentParser(
        prog="python -m fifoq.server",
        description="Serve the committed records of a store over TCP. Nothing is encrypted.",
    )
    parser.add_argument("path", help="the store's directory")
    parser.add_argument("--host", default="127.0.0.1", help="address to bind (%(default)s)")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument(
        "--token-file",
        help=f"file that holds the token; without it, the variable {TOKEN_VARIABLE} does",
    )
    given = parser.parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s")
    try:
        asyncio.run(_serve(given.path, given.host, given.port, _token(given.token_file)))
    except (FifoqError, OSError, ValueError) as error:
        print(f"fifoq.server: {error}", file=sys.stderr)
        return 1
    return 0


def _token(path: str | None) -> str:
    if path is not None:
        return Path(path).read_text(encoding="utf-8").strip()
    token = os.environ.get(TOKEN_VARIABLE)
    if not token:
        raise ValueError(f"there is no token: give --token-file, or set {TOKEN_VARIABLE}")
    return token


async def _serve(path: str, host: str, port: int, token: str) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with serve(path, host, port, token=token) as server:
        print(f"serving {server.path} at {server.url().rpartition('/')[0]}", flush=True)
        await stop.wait()


if __name__ == "__main__":
    sys.exit(main())
