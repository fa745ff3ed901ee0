"""Other queues that a user might take instead, each with what it loses and when.

A peer that is not installed is listed as absent. All are measured as their documentation shows
them, with records of 100 bytes; none is a dependency of ours (the extra `peers` installs them).
"""

from __future__ import annotations

import importlib.util
import shutil
import statistics
from collections import defaultdict

import msgspec

from fifoq.bench.measure import Absent, Setting
from fifoq.bench.peer import RATES, Peer
from fifoq.bench.peers_embedded import EMBEDDED
from fifoq.bench.peers_ours import OURS
from fifoq.bench.peers_served import SERVED

__all__ = ["PEERS", "RATES", "PeerResult", "measure_peer"]

PEERS: tuple[Peer, ...] = (*OURS, *EMBEDDED, *SERVED)
ROUNDS = 3


class PeerResult(msgspec.Struct, frozen=True):
    """Records per second of one peer, by the names of `RATES`; None where it has no such thing."""

    name: str
    rates: dict[str, float]
    lost_on_kill: str
    lost_on_power_cut: str


def measure_peer(peer: Peer, setting: Setting) -> PeerResult | Absent:
    """Medians of a few rounds, each with an empty directory; or why there are none."""
    if not is_installed(peer):
        return Absent(peer.name, peer.install)
    found: dict[str, list[float]] = defaultdict(list)
    try:
        for _ in range(min(setting.rounds, ROUNDS)):
            with setting.fresh("peer") as path:
                path.mkdir()
                for name, per_second in peer.measure(path, setting).items():
                    found[name].append(per_second)
    except Exception as error:
        # Other people's code, in a version we may never have met: the rest of a long run stays.
        return Absent(peer.name, f"failed: {error!r}")
    rates = {name: statistics.median(found[name]) for name in RATES if name in found}
    return PeerResult(peer.name, rates, peer.lost_on_kill, peer.lost_on_power_cut)


def is_installed(peer: Peer) -> bool:
    """Whether its Python modules can be imported and its programs are on the PATH."""
    return all(importlib.util.find_spec(module) for module in peer.modules) and all(
        shutil.which(program) for program in peer.programs
    )
