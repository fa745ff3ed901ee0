"""The same queue for blocking code: threads put, threads take, no event loop in sight.

Run it: python examples/threads.py
"""

from __future__ import annotations

import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

import fifoq
import fifoq.sync

PRODUCERS, CONSUMERS, RECORDS = 3, 2, 20


def produce(q: fifoq.sync.Queue[bytes], name: int) -> None:
    for number in range(RECORDS):
        # Threads that wait at the same time share one commit, and one sync.
        q.put(b"%d/%d" % (name, number))


def consume(q: fifoq.sync.Queue[bytes]) -> int:
    count = 0
    for _ in q:  # ends when the queue is shut down and empty
        count += 1
    return count


def main(path: str) -> None:
    with fifoq.sync.open(path) as q, ThreadPoolExecutor(CONSUMERS) as pool:
        counts = [pool.submit(consume, q) for _ in range(CONSUMERS)]
        producers = [threading.Thread(target=produce, args=(q, i)) for i in range(PRODUCERS)]
        for thread in producers:
            thread.start()
        for thread in producers:
            thread.join()
        q.shutdown()
        taken = sum(count.result() for count in counts)
    print(f"{PRODUCERS * RECORDS} put by {PRODUCERS} threads, {taken} taken by {CONSUMERS}")

    with fifoq.sync.open(path) as q:
        q.put(b"handle with care")
        with q.lease(seconds=30) as delivery:  # acked at the end of the block
            print(delivery.item, "attempt", delivery.attempt)
        try:
            q.take(timeout=0.01)
        except TimeoutError:
            print("nothing left")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(f"{scratch}/store")
