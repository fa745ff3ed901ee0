"""Fan-out by cursors: every consumer sees every record, at its own pace, from one log.

Billing is one task that commits what it has done. Mailing is three tasks that share a cursor by
leases. Run it: python examples/fan_out.py [DIRECTORY]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile

import fifoq

ORDERS = [b"order %d" % number for number in range(1, 7)]


async def bill(q: fifoq.Queue[bytes]) -> list[bytes]:
    """One task: it takes, works, and commits how far it is."""
    cursor = await q.cursor("billing")
    billed: list[bytes] = []
    while len(billed) < len(ORDERS):
        batch = await cursor.take_many(4)
        billed += batch  # your work
        await cursor.commit()  # after a crash it goes on behind these
    return billed


async def mail(q: fifoq.Queue[bytes], mailed: list[bytes]) -> None:
    """One of several: each record goes to one of them, and comes back if it fails."""
    cursor = await q.cursor("mailing")
    while True:
        async with cursor.lease() as delivery:
            if delivery.item == b"order 3" and delivery.attempt == 1:
                raise ConnectionError("the mail server is away")
            mailed.append(delivery.item)


async def fan_out(path: str) -> None:
    mailed: list[bytes] = []
    async with fifoq.open(path) as q:
        for name in ("billing", "mailing"):
            await q.cursor(name)  # from here on records are kept for it
        await q.put_many(ORDERS)
        for _ in ORDERS:
            await q.take()  # the queue's own consumer; cursors see what it has taken

        mailers = [asyncio.create_task(mail(q, mailed)) for _ in range(3)]
        billed = await bill(q)
        mailing = await q.cursor("mailing")
        while (await mailing.lag()).records:
            await asyncio.sleep(0.01)
        died = [task for task in mailers if task.done()]
        for task in mailers:
            task.cancel()
        await asyncio.gather(*mailers, return_exceptions=True)

        print(f"billed {len(billed)}, in order: {billed == ORDERS}")
        print(f"mailed {len(mailed)}, each once: {sorted(mailed) == ORDERS}")
        print(f"mailers that died: {len(died)}")
        print(f"cursors: {', '.join(q.cursors())}")


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(fan_out(sys.argv[1] if len(sys.argv) > 1 else f"{scratch}/store"))


if __name__ == "__main__":
    main()
