"""Four pipelines on one queue: delays, rates and depth, an archive, and a replay of it."""

import tempfile

import fifoq.spark
import fifoq.sync
from fifoq.spark import pipelines


def use_a_queue(path: str) -> None:
    """Some orders come, most of them go; the log keeps what was taken."""
    with fifoq.sync.open(path, queue="orders", retention="all", segment_bytes=64 << 10) as q:
        for number in range(40):
            q.put_many([b"order %d.%d " % (number, i) * 20 for i in range(20)])
            q.take_many(15)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        store, parquet = f"{directory}/store", f"{directory}/archive"
        use_a_queue(store)
        spark = fifoq.spark.session("pipelines")
        pipelines.delays(spark, store, queue="orders").show()
        pipelines.rates(spark, store, queue="orders", seconds=60).show()
        pipelines.archive(spark, store, parquet, queue="orders").show()
        pipelines.archive(spark, store, parquet, queue="orders", tail=True).show()
        print(pipelines.archive(spark, store, parquet, queue="orders", tail=True).records, "more")
        found = pipelines.archived(spark, parquet).groupBy("queue").count().collect()
        print([tuple(row) for row in found])
        pipelines.replay(spark, parquet, f"{directory}/again", queue="orders").show()


if __name__ == "__main__":
    main()
