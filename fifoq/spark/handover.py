"""Handing a batch over: how long a commit waits until the store's owner has taken it in.

The batch is durable before anybody waits, so to wait is a courtesy: who commits sees it in the
queue, hears of a refusal, and does not run away from an owner that is slower. But Spark interrupts
no commit: `query.stop()` takes as long, and where the loop that owns the store is the one that
stops the query, nothing can be taken in meanwhile.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

import fifoq.sync
from fifoq.spark.staged import refusal, staged_path
from fifoq.staged import (
    MANIFEST_SUFFIX,
    REFUSED_SUFFIX,
    decode_manifest,
    manifest_name,
)
from store import AlreadyOpen, DamageError, FifoqError, FormatError, InvalidName

logger = logging.getLogger("fifoq")

JOB_SECONDS: Final = 60.0
STREAM_SECONDS: Final = 10.0
"""The most that the commit of a job waits, and that of a micro-batch."""
FIRST_SECONDS: Final = 1.0
"""How long a micro-batch waits for the owner if no earlier one does: an owner that has time
takes milliseconds."""
POLL_SECONDS: Final = 0.01
OPEN_AGAIN_SECONDS: Final = 0.5
"""How often a commit looks whether the owner has gone."""


class SinkRefused(FifoqError):
    """A batch was set aside; the message says why. As a rule none of it is in the queue."""


class Patience(msgspec.Struct, frozen=True):
    """Seconds that a commit waits for somebody else's loop, and the most that it waits at all.

    The former is for a batch that is the only one of its writer; behind another that waits, or
    where this process owns the store for so long, it is the latter.
    """

    first: float
    most: float


def patience(given: float | None, *, stream: bool) -> Patience:
    """What somebody asked for; else what a job or a stream can do with."""
    if given is not None:
        return Patience(given, given)
    return Patience(FIRST_SECONDS, STREAM_SECONDS) if stream else Patience(JOB_SECONDS, JOB_SECONDS)


def check_earlier(path: str, queue: str, writer: str, batch: int, query: str) -> None:
    """SinkRefused if an earlier batch of the query was refused when nobody waited any more.

    Without this the query would go on behind a batch that is missing, and only a log would know.
    """
    for name in _of_writer(path, queue, writer, REFUSED_SUFFIX):
        number = int(name.removesuffix(REFUSED_SUFFIX).rpartition("~")[2])
        try:
            reason, _, manifest = (staged_path(path) / name).read_bytes().partition(b"\n")
        except FileNotFoundError:
            continue
        if number < batch and _may_be_of(manifest, query):
            raise SinkRefused(
                f"{staged_path(path) / name}: batch {number} of writer {writer!r} was refused "
                f"after its commit had gone on: {reason.decode(errors='replace')}. Nothing of "
                f"batch {batch} was handed over. Save the parts that the file names, if they are "
                f"needed, and delete it: then the query goes on without that batch."
            )


def wait_until_taken_in(path: str, queue: str, writer: str, batch: int, wait: Patience) -> None:
    """Until the owner has taken the batch in; if there is no owner, be it meanwhile.

    SinkRefused if it was set aside. A warning, and no error, when the time is over: the batch will
    be in the queue, and whoever runs a failed job again would have it there twice.
    """
    directory, name = staged_path(path), manifest_name(queue, writer, batch)
    waiting = _of_writer(path, queue, writer, MANIFEST_SUFFIX)
    seconds = wait.most if any(other < name for other in waiting) else wait.first
    began = time.monotonic()
    while (directory / name).exists():
        if not _take_in(path, directory / name, began + seconds, began + wait.most):
            logger.warning(
                "%s: not taken in after %.0f seconds. It is durable, and will be in the queue when "
                "the store's owner has time, or when the store is opened next.",
                directory / name,
                seconds,
            )
            return
    reason = refusal(directory, name)
    if reason is not None:
        raise SinkRefused(
            f"{directory / name}: the owner of the store refused it: {reason}. Nothing more of it "
            f"gets into the queue. The manifest is kept beside it as .refused, and its parts as "
            f"they were."
        )


def _of_writer(path: str, queue: str, writer: str, suffix: str) -> list[str]:
    """Files of that kind of a writer, in the order of their batches."""
    prefix = manifest_name(queue, writer, 0).rpartition("~")[0] + "~"
    names = os.listdir(staged_path(path))
    return sorted(name for name in names if name.startswith(prefix) and name.endswith(suffix))


def _may_be_of(manifest: bytes, query: str) -> bool:
    """Whether a manifest is the query's; one that nobody can read may be."""
    try:
        return decode_manifest(manifest).query in ("", query)
    except (DamageError, FormatError, InvalidName):
        return True


def _take_in(path: str, manifest: Path, deadline: float, own_deadline: float) -> bool:
    """Wait for the owner for a while, or be the owner; False when the time is over."""
    try:
        # Only the store's real owner knows the cap for its consumers.
        owned = fifoq.sync.open_store(path, cursor_cap_bytes=sys.maxsize)
    except AlreadyOpen:
        return _wait_for(manifest, min(deadline, time.monotonic() + OPEN_AGAIN_SECONDS)) or (
            time.monotonic() < deadline
        )
    with owned:
        return _wait_for(manifest, own_deadline)


def _wait_for(manifest: Path, deadline: float) -> bool:
    while manifest.exists():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
