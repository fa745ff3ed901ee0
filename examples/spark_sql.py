"""Ask a queue questions in SQL while the service that fills it runs.

Run it: python examples/spark_sql.py
"""

from __future__ import annotations

import tempfile

import msgspec
from pyspark.sql import SparkSession

import fifoq.spark
import fifoq.sync


class Order(msgspec.Struct):
    customer: str
    cents: int


def main(spark: SparkSession, path: str) -> None:
    with fifoq.sync.open(path, type=Order, queue="orders") as orders:
        for number in range(1, 101):
            orders.put_nowait(Order(f"customer {number % 3}", number * 100))
        orders.flush()
        orders.take()

        # The owner is still at work: nothing is locked, and what is taken is still in the log.
        table = spark.read.format("fifoq").option("queue", "orders").option("typed", "true")
        table.load(path).createOrReplaceTempView("orders")
        best = spark.sql(
            "SELECT customer, count(*) AS orders, sum(cents) / 100 AS total "
            "FROM orders GROUP BY customer ORDER BY total DESC"
        )
        for row in best.collect():
            print(f"{row.customer}: {row.orders} orders, {row.total:.2f}")

        waiting = table.option("records", "pending").load(path)
        print(waiting.count(), "wait")

        # Bounds of counter and timestamp are pushed down: only those segments are opened.
        newest = spark.sql("SELECT max(cents) FROM orders WHERE counter > 90").collect()
        print("the largest of the last ten:", newest[0][0])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(fifoq.spark.session(), f"{scratch}/store")
