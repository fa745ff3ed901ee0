"""Power cuts on a mounted image: `python -m tests.rigs.cuts PLAN`, in a mount namespace.

The file system is shut down under a working writer, which is then killed; the image is mounted
again, which replays its journal, and the next writer opens the store. Prints the outcome as JSON.

Linux file systems make a new file's name durable together with its content, although nothing
asks them to. So after a cut some of the names whose directory was never synced are taken away:
a store must not need them, and one that leaves out a directory sync is found out.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from random import Random
from typing import Literal

import msgspec

from tests.rigs import mounts
from tests.rigs.driver import Writers
from tests.rigs.events import Dumped, Job, Started
from tests.rigs.lives import Tally, life_lengths
from tests.rigs.oracle import Oracle

IMAGE_BYTES = 32 * mounts.MIB
XFS_IMAGE_BYTES = 320 * mounts.MIB
DELAY_SECONDS_MAX = 0.040
KILL_FIRST = 0.2
"""How often a writer is killed and another one started before the power goes."""
FLUSHES = (mounts.FLUSH_NOTHING,) * 8 + (mounts.FLUSH_LOG, mounts.FLUSH_ALL)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`directory` is for images; each store gets one of the mount options in turn."""

    directory: str
    seed: int
    cuts: int
    kind: Literal["ext4", "xfs"] = "ext4"
    options: tuple[str, ...] = ("",)
    mutant: Literal["", "datasync", "sync_dir"] = ""
    stop_early: bool = False


class Outcome(msgspec.Struct, kw_only=True):
    cuts: int
    confirmed: int
    names_taken: int
    violations: list[str]
    interrupted: dict[str, int]


class CutRig:
    """One image, mounted again after every cut."""

    def __init__(self, plan: Plan, writers: Writers, random: Random) -> None:
        directory = Path(plan.directory)
        self._plan, self._writers, self._random = plan, writers, random
        self._template, self._image = directory / "template", directory / "image"
        self._point = directory / "mounted"
        self._point.mkdir()
        size = IMAGE_BYTES if plan.kind == "ext4" else XFS_IMAGE_BYTES
        mounts.make_image(self._template, size, plan.kind)
        self.names_taken = 0

    def live(self, length: int, options: str, oracle: Oracle) -> None:
        """Make a file system and cut the power of one store on it `length` times."""
        mounts.copy_image(self._template, self._image)
        mounts.mount_image(self._image, self._point, options)
        try:
            for _ in range(length):
                self._cut(options, oracle)
                if oracle.violations:
                    return
        finally:
            mounts.unmount(self._point)

    def _cut(self, options: str, oracle: Oracle) -> None:
        if self._random.random() < KILL_FIRST:
            self._work(oracle)
            self._writers.kill(oracle)
            oracle.crash_count -= 1
        self._work(oracle)
        # Everything heard so far was confirmed while there was power; nothing behind it counts.
        self._writers.hear_all(oracle)
        oracle.distrust()
        mounts.cut_power(self._point, self._random.choice(FLUSHES))
        self._writers.kill(oracle)
        mounts.unmount(self._point)
        mounts.mount_image(self._image, self._point, options)
        self._take_names(oracle)

    def _work(self, oracle: Oracle) -> None:
        path = str(self._point / "parent" / "store")
        seed = self._random.getrandbits(32)
        self._writers.start(Job(path=path, seed=seed, mutant=self._plan.mutant, names=True), oracle)
        after = Started if self._random.random() < 0.4 else Dumped
        self._writers.listen(oracle, self._random.uniform(0, DELAY_SECONDS_MAX), after=after)

    def _take_names(self, oracle: Oracle) -> None:
        """Take away some names that no directory sync covered; the others are durable now."""
        for directory, names in sorted(oracle.loose_names.items()):
            for name in sorted(names):
                path = os.path.join(directory, name)
                if self._random.random() < 0.5 and os.path.lexists(path):
                    self.names_taken += 1
                    shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        oracle.loose_names.clear()


def run(plan: Plan) -> Outcome:
    random = Random(plan.seed)
    tally = Tally()
    with Writers() as writers:
        rig = CutRig(plan, writers, random)
        for life, length in enumerate(life_lengths(random, plan.cuts)):
            oracle = Oracle(power=True)
            options = plan.options[life % len(plan.options)]
            rig.live(length, options, oracle)
            tally.add(oracle, f"seed {plan.seed}, store {life}, mounted {options or 'plainly'}")
            if plan.stop_early and tally.violations:
                break
    return Outcome(
        cuts=tally.crash_count,
        confirmed=tally.confirmed_count,
        names_taken=rig.names_taken,
        violations=tally.violations,
        interrupted=dict(tally.interrupted),
    )


if __name__ == "__main__":
    outcome = run(msgspec.json.decode(sys.argv[1], type=Plan))
    sys.stdout.write(msgspec.json.encode(outcome).decode())
