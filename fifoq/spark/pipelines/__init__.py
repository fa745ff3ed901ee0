"""Pipelines that people run on a queue: archive and replay, delays, rates, dead letters."""

from fifoq.spark.pipelines.archiving import Archived, Replayed, archive, archived, replay
from fifoq.spark.pipelines.delay import DelayRow, Delays, delays
from fifoq.spark.pipelines.rate import RateRow, Rates, rates
from fifoq.spark.pipelines.shelf import ArchiveError, Unit
from fifoq.spark.pipelines.triage import Triage, TriageRow, triage

__all__ = [
    "ArchiveError",
    "Archived",
    "DelayRow",
    "Delays",
    "RateRow",
    "Rates",
    "Replayed",
    "Triage",
    "TriageRow",
    "Unit",
    "archive",
    "archived",
    "delays",
    "rates",
    "replay",
    "triage",
]
