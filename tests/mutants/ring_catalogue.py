"""Mutants of commits that are begun, and of the writer with a ring. See `catalogue`."""

from __future__ import annotations

from typing import Final

from tests.mutants.catalogue import Mutant
from tests.mutants.catalogue import of_fifoq as _mutant

RING: Final = "tests/fifoq/test_ring_writer.py"
BEGUN: Final = "tests/store/test_begun.py"

BEGUN_MUTANTS: Final = (
    Mutant(
        "a commit is begun behind what is not durable",
        "begun",
        "    if log.status is not OPEN or tail.dirty:\n",
        "    if log.status is not OPEN:\n",
        (BEGUN,),
    ),
    Mutant(
        "a commit that was begun holds no room for its removal",
        "begun",
        "    log.needed += draft.growth\n",
        "",
        (BEGUN,),
    ),
    Mutant(
        "a log goes on after a commit that was begun failed",
        "begun",
        "        self.log.turn.append(None)\n        failure = ",
        "        self.log.status = OPEN\n        self.log.turn.append(None)\n        failure = ",
        (BEGUN,),
    ),
    Mutant(
        "a log is free while a commit that was begun is under way",
        "begun",
        "    try:\n        log.turn.pop()\n    except IndexError:\n        return None\n",
        "",
        (BEGUN,),
    ),
)

RING_MUTANTS: Final = (
    _mutant(
        "a short write of the ring counts as a whole one",
        "ring_writer",
        "        if result == self._length:\n",
        "        if result >= 0:\n",
        RING,
    ),
    _mutant(
        "a sync that failed in the ring is tried again",
        "ring_writer",
        "        if (result >= 0 or -result in _NOT_TRIED) and not self._stopped:\n",
        "        if not self._stopped:\n",
        RING,
    ),
    _mutant(
        "the loop looks for the end of slow commits too",
        "ring_writer",
        "        elif time.perf_counter() - self._begun_at < LOOK_SECONDS:\n",
        "        elif True:\n",
        RING,
    ),
    _mutant(
        "the block in which the last frame ends is not kept",
        "direct",
        "            view[: end - last] = view[last - start : end - start]\n",
        "            pass\n",
        RING,
    ),
    _mutant(
        "what lies behind the frame is left over from another one",
        "direct",
        "            view[end:length] = _ZEROS[: length - end]\n",
        "            pass\n",
        RING,
    ),
    _mutant(
        "the bytes in front of a frame are not read",
        "direct",
        "                self._read(begun, start, inside)\n",
        "                pass\n",
        RING,
    ),
    _mutant(
        "simulated files are written directly",
        "direct",
        "        if type(log.directory.files) is not OsFiles or not overwrites",
        "        if not overwrites",
        RING,
    ),
    _mutant(
        "a store that is closed in the middle forgets what the kernel wrote",
        "ring_writer",
        "            self._ring.wait()\n            self._look()\n",
        "            self._ring.wait()\n",
        RING,
    ),
)
