"""What an interrupted repair left: whether the next run may go on with it.

A repair writes in an order that the damaged store alone decides, in commits that are durable before
the next one is begun. What is there after an interruption, in whatever way, is the beginning of
what an uninterrupted repair writes, if the damaged store is still what it was: `repair.json` says
what that is. In any other case the next run begins anew.
"""

from __future__ import annotations

import os
import shutil
import stat
from hashlib import sha256
from typing import Final

import msgspec

from fifoq.tools.copying import sync_directory, write_file
from fifoq.tools.evidence import Evidence
from store import FifoqError, Quarantine, Reader
from store.check import check_store
from store.segment import segment_number
from store.state import QueueState, State

BEGUN_NAME: Final = "repair.json"


class Half(msgspec.Struct, frozen=True, kw_only=True):
    """What a repair was begun from: files of the damaged store, and what was found intact."""

    fifoq_repair: int = 1
    """Raised when the order changes in which a repair writes."""
    store: str
    digest: str


def begun_from(evidence: Evidence, store_id: bytes, state: State, lost: Quarantine) -> Half:
    """What the damaged store is now: its files, and all that they were found to say.

    A disk that gives back more than before, or less, makes another one of it.
    """
    told = (
        _files_of(evidence.path),
        [queue.entry() for _, queue in sorted(state.queues.items())],
        sorted(state.states.items()),
        sorted(lost.missing.items()),
        lost.regions,
        lost.states,
        sorted(lost.unknown.items()),
        evidence.unreadable,
        evidence.notes,
    )
    return Half(store=store_id.hex(), digest=sha256(msgspec.msgpack.encode(told)).hexdigest())


def _files_of(path: str) -> list[tuple[str, int, int]]:
    """Names, sizes and times of change."""
    found = []
    for name in sorted(os.listdir(path)):
        status = os.lstat(f"{path}/{name}")
        if stat.S_ISREG(status.st_mode):
            found.append((name, status.st_size, status.st_mtime_ns))
    segments = [at for at, (name, _, _) in enumerate(found) if segment_number(name) is not None]
    for at in segments[-1:]:
        # Whoever locks the store touches the last one; what it holds is in the state.
        found[at] = (*found[at][:2], 0)
    return found


def take_up(partial: str, begun: Half, state: State, notes: list[str]) -> bool:
    """Whether to go on with what is in `partial`; otherwise that is there and empty.

    If somebody may have expected that it goes on, `notes` say why it does not.
    """
    if os.path.isdir(partial):
        reason = _why_not(partial, begun, state)
        if reason is None:
            return True
        notes.append(f"what was begun in {partial} {reason}: it was begun anew")
        shutil.rmtree(partial)
    os.mkdir(partial, 0o700)
    return False


def mark(partial: str, begun: Half) -> None:
    """Say what the new store is of, which holds nothing yet; durable on return."""
    write_file(f"{partial}/{BEGUN_NAME}", msgspec.json.encode(begun))
    sync_directory(partial)


def _why_not(partial: str, begun: Half, state: State) -> str | None:
    """What keeps one from going on; None if nothing does."""
    try:
        with open(f"{partial}/{BEGUN_NAME}", "rb") as file:
            before = msgspec.json.decode(file.read(), type=Half)
    except (FileNotFoundError, msgspec.MsgspecError):
        return "does not say what it is of"
    if before != begun:
        return "is not of the store as it is now"
    try:
        if not check_store(partial).sound:
            return "is damaged"
        with Reader(partial) as reader:
            is_beginning = reader.store_id.hex() == begun.store and all(
                _is_beginning(queue, state.queues.get(name))
                for name, queue in reader.state.queues.items()
            )
        return None if is_beginning else "is not as it was left"
    except FifoqError as error:
        return f"cannot be read ({type(error).__name__})"


def _is_beginning(new: QueueState, old: QueueState | None) -> bool:
    """Whether as many records are there as up to its end were intact: nobody took one since."""
    if old is None:
        return False
    end = min(new.genesis.next_counter, old.genesis.next_counter)
    return new.genesis.queue_size == old.live_count(1, end - 1)
