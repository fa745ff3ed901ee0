"""Read a queue on a Spark cluster whose machines have no path to its files.

    python examples/spark_cluster.py [MASTER]

MASTER is spark://host:port of a cluster; without it Spark runs in this process.
"""

import asyncio
import secrets
import sys
import tempfile

import fifoq
import fifoq.server
import fifoq.spark


def count_orders(master: str, address: str, token: str) -> int:
    spark = fifoq.spark.session("orders", master)
    orders = spark.read.format("fifoq").option("token", token).load(address)
    return orders.where("counter > 100").count()


async def main(master: str = "local[2]") -> None:
    token = secrets.token_urlsafe(32)
    with tempfile.TemporaryDirectory() as directory:
        async with fifoq.open_store(directory) as store:
            orders = await store.queue("orders")
            await orders.put_many([b"order %d" % number for number in range(1000)])
            async with fifoq.server.serve(store, token=token) as server:
                address = server.url("orders")
                found = await asyncio.to_thread(count_orders, master, address, token)
                print(f"{found} orders are behind counter 100")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
