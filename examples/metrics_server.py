"""Serve a store's metrics to Prometheus, from the process that owns the store.

Run it: python examples/metrics_server.py               a small service, scraped once by itself
        python examples/metrics_server.py --port 9464   until it is stopped: curl localhost:9464
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import urllib.request

import fifoq
from fifoq.metrics import CONTENT_TYPE

SHOWN = ("fifoq_queue_records", "fifoq_queue_put_total", "fifoq_queue_taken_total")


class Metrics:
    """Answers every request with the metrics of now; anything else is not served here."""

    def __init__(self, store: fifoq.Store) -> None:
        self._store = store

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5):
                await reader.readuntil(b"\r\n\r\n")
            body = self._store.metrics().encode()
            head = f"HTTP/1.1 200 OK\r\ncontent-type: {CONTENT_TYPE}\r\n"
            head += f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            writer.write(head.encode() + body)
            await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # Whoever asked has gone, or never asked.
        finally:
            writer.close()


async def work(orders: fifoq.Queue[bytes]) -> None:
    await orders.put_many([b"an order"] * 20)
    await orders.take_many(5)


async def main(port: int | None, path: str) -> None:
    async with fifoq.open_store(path) as store:
        await work(await store.queue("orders"))
        server = await asyncio.start_server(Metrics(store).answer, "127.0.0.1", port or 0)
        async with server:
            if port is not None:
                await server.serve_forever()
            address = server.sockets[0].getsockname()
            print(await asyncio.to_thread(scrape, f"http://127.0.0.1:{address[1]}/metrics"))


def scrape(url: str) -> str:
    """What Prometheus would read, in part."""
    with urllib.request.urlopen(url) as response:
        lines = response.read().decode().splitlines()
    return "\n".join(line for line in lines if line.startswith(SHOWN))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, help="serve there until you stop it")
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(main(parser.parse_args().port, f"{scratch}/store"))
