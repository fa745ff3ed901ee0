"""fifoq on Spark: the files of a store as a table, a stream and a sink. Needs `fifoq[spark]`."""

from fifoq.spark import pipelines
from fifoq.spark.drain import Drained, DrainError
from fifoq.spark.session import JavaMissing, register, session
from fifoq.spark.staging import BlockingStagingBuffer, StagingBuffer, StagingStats

__all__ = [
    "BlockingStagingBuffer",
    "DrainError",
    "Drained",
    "JavaMissing",
    "StagingBuffer",
    "StagingStats",
    "pipelines",
    "register",
    "session",
]
