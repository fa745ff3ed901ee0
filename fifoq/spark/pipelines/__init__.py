"""Pipelines that people run on a queue: an archive and its replay, delays, rates and depth."""

from fifoq.spark.pipelines.archiving import Archived, Replayed, archive, archived, replay
from fifoq.spark.pipelines.delay import DelayRow, Delays, delays
from fifoq.spark.pipelines.rate import RateRow, Rates, rates
from fifoq.spark.pipelines.shelf import ArchiveError, Unit

__all__ = [
    "ArchiveError",
    "Archived",
    "DelayRow",
    "Delays",
    "RateRow",
    "Rates",
    "Replayed",
    "Unit",
    "archive",
    "archived",
    "delays",
    "rates",
    "replay",
]
