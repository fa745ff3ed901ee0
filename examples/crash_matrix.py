"""A program is killed wherever it could be, and is asked each time whether anything is wrong.

Run it: python examples/crash_matrix.py, or pytest examples/crash_matrix.py
"""

from __future__ import annotations

import fifoq
from fifoq.testing import CrashFailure, Machine, crash_matrix

ORDERS = ["tea", "coffee", "cake"]


async def bill_carelessly(store: fifoq.Store) -> None:
    orders = await store.queue("orders", type=str)
    bills = await store.queue("bills", type=str)
    while not orders.empty():
        await bills.put(await orders.take())


async def bill(store: fifoq.Store) -> None:
    orders = await store.queue("orders", type=str)
    bills = await store.queue("bills", type=str)
    while not orders.empty():
        async with store.transaction() as tx:
            order = await tx.lease(orders)
            tx.put(bills, order.item)
            tx.ack(order)


async def take_orders(store: fifoq.Store, machine: Machine) -> None:
    orders = await store.queue("orders", type=str)
    for order in ORDERS:
        await orders.put(order)
        machine.notes.append(order)  # the customer was told that we have it


async def careless_day(machine: Machine) -> None:
    async with fifoq.open_store("shop") as store:
        await take_orders(store, machine)
        await bill_carelessly(store)


async def day(machine: Machine) -> None:
    async with fifoq.open_store("shop") as store:
        await take_orders(store, machine)
        await bill(store)


async def every_order_is_billed_once(machine: Machine) -> None:
    async with fifoq.open_store("shop") as store:
        await bill(store)  # what a restart does: it goes on
        bills = await store.queue("bills", type=str)
        billed = [record.item async for record in bills.browse()]
    assert billed == ORDERS[: len(billed)], f"billed: {billed}"
    assert len(billed) >= len(machine.notes), f"confirmed: {machine.notes}, billed: {billed}"


def test_every_order_is_billed_once() -> None:
    crash_matrix(day, every_order_is_billed_once, power=True)


def main() -> None:
    try:
        crash_matrix(careless_day, every_order_is_billed_once)
    except CrashFailure as failure:
        print(failure)
    report = crash_matrix(day, every_order_is_billed_once, power=True)
    print(f"{report.points} crash points in {report.states} states: each order is billed once")


if __name__ == "__main__":
    main()
