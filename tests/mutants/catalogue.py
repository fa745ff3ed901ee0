"""Mutants: stores with one sync, one check or one order taken away, as text.

`old` must stand in the module exactly once, else running the mutant is an error: the list cannot
rot in silence. `killers` are tried first, since they should notice; then comes the battery. A
mutant that cannot be noticed by anything the contract promises does not belong here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_SAMPLES: Final = "tests/mutants/killers.py"
CUTS: Final = f"{_SAMPLES}::test_single_operations_survive_every_cut"
CHAINS: Final = f"{_SAMPLES}::test_telling_workloads_survive_every_cut"
RECOVERIES: Final = f"{_SAMPLES}::test_recoveries_survive_every_cut"
ERRORS: Final = f"{_SAMPLES}::test_calls_may_fail"
OPENINGS: Final = f"{_SAMPLES}::test_calls_of_an_opening_may_fail"
HOLES: Final = "tests/store/test_holes.py"
FRAMES: Final = "tests/store/test_frames.py"
CHECKPOINT: Final = "tests/store/test_checkpoint.py"
CHECKSUM: Final = "tests/store/test_checksum.py"
INDEX: Final = "tests/store/test_index.py"
LOOKUP: Final = "tests/store/test_lookup.py"
READER: Final = "tests/store/test_reader.py"
CHECK: Final = "tests/store/test_check.py"
QUARANTINE: Final = "tests/store/test_quarantine_cases.py"
STATE: Final = "tests/store/test_state.py"
FULL_DISK: Final = "tests/store/test_full_disk.py"
DRAFT: Final = "tests/store/test_draft.py"
PACKING: Final = "tests/store/test_packing.py"
LOG: Final = "tests/store/test_log.py"
MEMORY: Final = "tests/store/test_no_memory.py"
HOUSEWORK: Final = "tests/store/test_upkeep.py"
PLAIN_PUTS: Final = "tests/store/test_plain.py"
KEEPING: Final = "tests/store/test_keeping.py"
COMPRESSION: Final = "tests/store/test_compression.py"

BATTERY: Final = (
    HOLES,
    READER,
    CHECK,
    FRAMES,
    CHECKPOINT,
    CHECKSUM,
    INDEX,
    LOOKUP,
    FULL_DISK,
    PLAIN_PUTS,
    _SAMPLES,
    STATE,
)
"""Everything, in the order in which it is tried; the quick and narrow come first."""


class Mutant(NamedTuple):
    """One change to one module; the name says what goes wrong."""

    name: str
    module: str
    old: str
    new: str
    killers: tuple[str, ...]
    package: str = "store"


def of_fifoq(name: str, module: str, old: str, new: str, *killers: str) -> Mutant:
    """A mutant of the other package."""
    return Mutant(name, module, old, new, killers, "fifoq")


COMMITS: Final = (
    Mutant(
        "a commit returns without its sync",
        "drafted",
        "    if sync:\n        log.sync_tail()\n    log.status = status\n",
        "    log.status = status\n",
        (CUTS,),
    ),
    Mutant(
        "only puts are synced, removals are not",
        "drafted",
        "    if sync:\n        log.sync_tail()\n    log.status = status\n",
        "    if sync and draft.holds_records:\n        log.sync_tail()\n    log.status = status\n",
        (CUTS,),
    ),
    Mutant(
        "a commit is synced before it is written",
        "drafted",
        "        append(log, draft, *encode(log, draft, genesis), sync=sync)\n",
        "        if sync:\n            log.sync_tail()\n"
        "        append(log, draft, *encode(log, draft, genesis), sync=False)\n",
        (CUTS,),
    ),
    Mutant(
        "a sync is believed to have happened",
        "tail",
        "                file.files.datasync(file.handle)\n",
        "                pass\n",
        (CUTS,),
    ),
    Mutant(
        "a frame calls frames durable that were never synced",
        "appending",
        "durable_upto=self.durable_upto,",
        "durable_upto=self.sequence,",
        (READER,),
    ),
    Mutant(
        "counters are shown that nothing durable covers",
        "drafted",
        "    return bool(uncovered)\n",
        "    return False\n",
        (CHAINS,),
    ),
    Mutant(
        "the state is changed before the frame is written",
        "drafted",
        "    offset = log.write(frame)\n",
        "    number = log.tail.file.number\n"
        "    draft.apply(number, log.tail.length, log.cache.tail_index(number))\n"
        "    draft._effects.clear()\n"
        "    offset = log.write(frame)\n",
        (ERRORS,),
    ),
    Mutant(
        "a refused frame keeps its sequence",
        "drafted",
        "    offset = log.write(frame)\n",
        "    log.sequence += 1\n    offset = log.write(frame)\n",
        (HOLES,),
    ),
    Mutant(
        "a refused frame stays in the chain",
        "drafted",
        "    offset = log.write(frame)\n",
        "    log.checksum = checksum\n    offset = log.write(frame)\n",
        (HOLES,),
    ),
    Mutant(
        "a commit is called refused because upkeep after it was",
        "log",
        '            logger.warning("%s: upkeep put off: %s", self.path, error)\n',
        "            raise\n",
        (ERRORS,),
    ),
    Mutant(
        "a short write counts as a whole one",
        "directory",
        "    while count < len(data):\n",
        "    while count < 0:\n",
        (ERRORS,),
    ),
    Mutant(
        "a frame that was refused is not cut off again",
        "tail",
        "            self._cut_back(offset)\n",
        "",
        (HOLES,),
    ),
    Mutant(
        "the cut of a refused frame is not synced",
        "tail",
        "        self.filled = offset\n"
        "        sync_file(self.file.files, self.file.handle, self.name)\n",
        "        self.filled = offset\n",
        (HOLES,),
    ),
    Mutant(
        "a seal shares its sector with the commit that it witnesses",
        "appending",
        "SECTOR_BYTES: Final = 512\n",
        "SECTOR_BYTES: Final = 64\n",
        (HOLES,),
    ),
)

FAILURES: Final = (
    Mutant(
        "a failed sync is tried again",
        "directory",
        "        files.datasync(handle)\n"
        "    except OSError as error:\n"
        "        raise sync_error(path, error) from error\n",
        "        files.datasync(handle)\n    except OSError:\n        files.datasync(handle)\n",
        (ERRORS,),
    ),
    Mutant(
        "a failed sync is passed over",
        "directory",
        "        files.datasync(handle)\n"
        "    except OSError as error:\n"
        "        raise sync_error(path, error) from error\n",
        "        files.datasync(handle)\n    except OSError:\n        pass\n",
        (ERRORS,),
    ),
    Mutant(
        "a failed sync of the directory is passed over",
        "directory",
        "            self.files.sync_dir(self.handle)\n"
        "        except OSError as error:\n"
        "            raise sync_error(self.path, error) from error\n",
        "            self.files.sync_dir(self.handle)\n        except OSError:\n            pass\n",
        (HOLES,),
    ),
    Mutant(
        "the log goes on after a failed sync",
        "appending",
        "        status, self.status = self.status, FAILED\n        started =",
        "        status = self.status\n        started =",
        (LOG,),
    ),
    Mutant(
        "the log goes on after a write whose outcome is unknown",
        "appending",
        "        status, self.status = self.status, FAILED\n"
        "        try:\n"
        "            return self.tail.append(frames)\n",
        "        status = self.status\n        try:\n            return self.tail.append(frames)\n",
        (ERRORS,),
    ),
    Mutant(
        "the log goes on although file and state differ",
        "drafted",
        "    offset = log.write(frame)\n",
        "    offset = log.write(frame)\n    log.status = status\n",
        (HOLES,),
    ),
    Mutant(
        "the log goes on after a removal in place whose outcome is unknown",
        "drafted",
        "    status, log.status = log.status, FAILED\n    draft.apply(",
        "    status = log.status\n    draft.apply(",
        (FULL_DISK,),
    ),
    Mutant(
        "the log goes on after upkeep failed",
        "life",
        "            self.status = FAILED\n"
        "            raise sync_error(self.path, error) from error\n"
        "        except DurabilityError:\n"
        "            self.status = FAILED\n"
        "            raise\n",
        "            raise sync_error(self.path, error) from error\n",
        (ERRORS,),
    ),
    Mutant(
        "a log that failed takes work",
        "life",
        "        if self.status is OPEN:\n            return\n",
        "        if self.status in (OPEN, FAILED):\n            return\n",
        (ERRORS,),
    ),
    Mutant(
        "a log that failed is closed as if nothing had been",
        "log",
        "            if self.status is OPEN:\n                with self.sorting_errors():\n",
        "            if self.status is not CLOSED:\n                with self.sorting_errors():\n",
        (ERRORS,),
    ),
)

SPACE: Final = (
    Mutant(
        "puts use the space held for removals",
        "tail",
        "        if not reserve:\n            return self.filled >= with_reserve\n",
        "",
        (FULL_DISK,),
    ),
    Mutant(
        "the reserve counts as free space",
        "tail",
        "        return self.length + count + self._reserve <= self.filled and not self.closed\n",
        "        return self.length + count <= self.filled and not self.closed\n",
        (FULL_DISK, HOLES),
    ),
    Mutant(
        "a new segment is taken without its reserve",
        "upkeep",
        "        if not tail.make_room(0, reserve=False)",
        "        if not tail.make_room(0, reserve=False) and log.sequence < 0",
        (HOLES,),
    ),
    Mutant(
        "a removal overwrites a checkpoint that it may not fit",
        "drafted",
        "    if not _fits_in_place(log, draft, room):\n",
        "    if room < 0:\n",
        (HOLES,),
    ),
    Mutant(
        "checkpoints have no space to grow on a full disk",
        "checkpoints",
        "        self._hold_room(handle, size, needed)\n",
        "",
        (FULL_DISK,),
    ),
    Mutant(
        "no room is held for removals in any order",
        "drafted",
        "            _hold_for(log, max(draft.growth, 1))\n",
        "            pass\n",
        (FULL_DISK,),
    ),
    Mutant(
        "what a rotation adds to checkpoints is not counted",
        "upkeep",
        "    log.recount_room()\n",
        "",
        (LOG,),
    ),
    Mutant(
        "a removal in place is in one checkpoint copy only",
        "drafted",
        "not undo it.\n        upkeep.write_checkpoint(log)\n",
        "not undo it.\n",
        (FULL_DISK, HOLES),
    ),
    Mutant(
        "packed removals forget what a piece has got since",
        "ranges",
        "                    packed.pop(chunk, None)\n",
        "                    packed.get(chunk)\n",
        (PACKING, FULL_DISK),
    ),
    Mutant(
        "a removal elsewhere passes for one that was repeated",
        "state",
        "        if start in removed:\n",
        "        if removed:\n",
        (FULL_DISK, DRAFT),
    ),
    Mutant(
        "a chunk that changed is not packed anew",
        "ranges",
        "                    packed.pop(chunk, None)\n",
        "                    pass\n",
        (FULL_DISK, PACKING),
    ),
    Mutant(
        "a new store has one checkpoint copy",
        "opening",
        "        elif recovered.checkpoint_number == 1:\n",
        "        elif recovered.checkpoint_number == 0:\n",
        (HOLES,),
    ),
    Mutant(
        "removals that only a checkpoint holds are never logged",
        "drafted",
        "        draft.repeat(repeats)\n",
        "        pass\n",
        (HOLES,),
    ),
    Mutant(
        "a checkpoint does not say which removals the log lacks",
        "drafted",
        "    log.state.unlogged = unlogged\n",
        "",
        (FULL_DISK,),
    ),
    Mutant(
        "on a full disk recovery goes on in the torn segment",
        "opening",
        "            old.closed = True\n",
        "            pass\n",
        (FULL_DISK, HOLES),
    ),
)

FILES: Final = (
    Mutant(
        "the header of a new segment is not synced",
        "directory",
        "            write_all(files, handle, data, 0)\n"
        '            sync_file(files, handle, f"{self.path}/{name}")\n',
        "            write_all(files, handle, data, 0)\n",
        (CHAINS,),
    ),
    Mutant(
        "the name of a new segment is not synced",
        "directory",
        "            self.sync()\n"
        "            return SegmentFile(self.files, handle, header.number, header.store_id)\n",
        "            return SegmentFile(self.files, handle, header.number, header.store_id)\n",
        (CHAINS,),
    ),
    Mutant(
        "the names of new checkpoints are not synced",
        "checkpoints",
        "                    directory.sync()\n",
        "                    pass\n",
        (FULL_DISK,),
    ),
    Mutant(
        "the names of the directories above are not synced",
        "opening",
        "    directory.sync_parents()\n",
        "",
        (CUTS,),
    ),
    Mutant(
        "only the directory right above is synced",
        "directory",
        '            if parent in (path, "."):\n                break\n            path = parent\n',
        "            break\n",
        (HOLES,),
    ),
    Mutant(
        "a segment that could not be completed stays",
        "upkeep",
        "        log.directory.uncreate(segment_name(header.number))\n",
        "",
        (HOLES,),
    ),
    Mutant(
        "a segment whose name could not be made durable stays",
        "directory",
        "            let_go(self.files, handle)\n"
        "            if not isinstance(error, DurabilityError):\n"
        "                self.uncreate(name)\n"
        "            raise\n\n"
        "    def create(",
        "            let_go(self.files, handle)\n            raise\n\n    def create(",
        (HOLES,),
    ),
    Mutant(
        "a segment that was taken back may return",
        "directory",
        '            raise sync_error(f"{self.path}/{name}", error) from error\n'
        "        self.sync()\n",
        '            raise sync_error(f"{self.path}/{name}", error) from error\n',
        (HOLES,),
    ),
    Mutant(
        "the owner takes no lock",
        "directory",
        "            self.files.lock_dir(self.handle)\n",
        "            pass\n",
        (HOLES,),
    ),
    Mutant(
        "the lock can be shared",
        "osfiles",
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
        (HOLES,),
    ),
    Mutant(
        "nobody hears of a fork",
        "log",
        "        directory.files.watch_fork(self._after_fork)\n",
        "",
        (HOLES,),
    ),
    Mutant(
        "the child of a fork in the middle of opening keeps the lock",
        "directory",
        "        self.files.watch_fork(self.close)\n",
        "",
        ("tests/fifoq/test_leaving.py",),
    ),
    Mutant(
        "a forked child keeps the handles, and the lock with them",
        "log",
        "            self.status = FORKED\n            self.release()\n",
        "            self.status = FORKED\n",
        (HOLES,),
    ),
    Mutant(
        "the real disk is not told to sync a file",
        "osfiles",
        "            os.fdatasync(handle)\n",
        "            pass\n",
        (HOLES,),
    ),
    Mutant(
        "the real disk is not told to sync a directory",
        "osfiles",
        "        os.fsync(directory)\n",
        "        pass\n",
        (HOLES,),
    ),
)

UPKEEP: Final = (
    Mutant(
        "rotation does not sync the old segment first",
        "upkeep",
        "    log.sync_tail()\n    old = log.tail\n",
        "    old = log.tail\n",
        (CHAINS,),
    ),
    Mutant(
        "rotation writes no checkpoint",
        "upkeep",
        "    retire(log, old)\n    write_checkpoint(log)\n",
        "    retire(log, old)\n",
        (HOLES,),
    ),
    Mutant(
        "a new segment names a wrong length of the one before",
        "upkeep",
        "        previous_length=log.tail.length,\n",
        "        previous_length=log.tail.filled,\n",
        (HOLES,),
    ),
    Mutant(
        "a new segment names a wrong checksum of the one before",
        "upkeep",
        "        previous_checksum=log.checksum,\n",
        "        previous_checksum=0,\n",
        (CUTS,),
    ),
    Mutant(
        "a segment made in place of a leftover is unlinked like it",
        "upkeep",
        "        if header.number in log.doomed:\n",
        "        if header.number < 0:\n",
        (CUTS, RECOVERIES),
    ),
    Mutant(
        "a checkpoint is written of a log that is not synced",
        "upkeep",
        "    log.sync_tail()\n    checkpoint = _snapshot(log, clean=clean)\n",
        "    checkpoint = _snapshot(log, clean=clean)\n",
        (CHAINS,),
    ),
    Mutant(
        "a checkpoint is not synced",
        "checkpoints",
        '        sync_file(files, handle, f"{self._directory.path}/{name}")\n',
        "",
        (CHAINS,),
    ),
    Mutant(
        "a checkpoint overwrites the newest copy",
        "checkpoints",
        "CHECKPOINT_NAMES[1 if self._newest == CHECKPOINT_NAMES[0] else 0]",
        "CHECKPOINT_NAMES[0 if self._newest == CHECKPOINT_NAMES[0] else 1]",
        (CHAINS, FULL_DISK),
    ),
    Mutant(
        "a checkpoint has no higher number than the one before",
        "upkeep",
        "        number=log.checkpoints.number + 1,\n",
        "        number=log.checkpoints.number,\n",
        (CHAINS,),
    ),
    Mutant(
        "a segment is unlinked before the checkpoint that does not need it is durable",
        "upkeep",
        "    log.checkpoints.write(checkpoint.number, data, needed=needed)\n",
        "    for number in log.doomed:\n"
        "        log.directory.remove(segment_name(number))\n"
        "    log.checkpoints.write(checkpoint.number, data, needed=needed)\n",
        (CHAINS,),
    ),
    Mutant(
        "a segment is unlinked although newest entries lie in it",
        "upkeep",
        "        if log.state.segments[number].dead:\n",
        "        if not log.state.segments[number].live_count:\n",
        (HOLES,),
    ),
    Mutant(
        "compaction forgets how often a record was handed out",
        "upkeep",
        "    if attempted:\n",
        "    if not counters:\n",
        (HOLES,),
    ),
    Mutant(
        "the clean checkpoint is written before the end is sealed",
        "upkeep",
        "    log.sync_tail()\n    log.write_seal()\n",
        "    write_checkpoint(log, clean=True)\n    log.write_seal()\n    return\n",
        (HOLES,),
    ),
    Mutant(
        "a closed store is not sealed",
        "upkeep",
        "    log.write_seal()\n",
        "",
        (HOLES,),
    ),
)

RECOVERY: Final = (
    Mutant(
        "recovery does not sync the directory",
        "recovery",
        "    directory.sync()\n    for name in names.checkpoints:\n",
        "    for name in names.checkpoints:\n",
        (CHAINS,),
    ),
    Mutant(
        "recovery does not settle the checkpoints",
        "recovery",
        "    for name in names.checkpoints:\n        _settle(directory, name)\n",
        "",
        (HOLES,),
    ),
    Mutant(
        "recovery does not settle the segments",
        "recovery",
        "        if number >= checkpoint.segment:\n",
        "        if number < 0:\n",
        (CHAINS,),
    ),
    Mutant(
        "a full scan does not settle the segments",
        "recovery",
        "    for number in names.segments:\n        _settle(directory, segment_name(number))\n",
        "    pass\n",
        (HOLES,),
    ),
    Mutant(
        "recovery does not sync what it reads",
        "recovery",
        '        sync_file(directory.files, handle, f"{directory.path}/{name}")\n',
        "",
        (CHAINS,),
    ),
    Mutant(
        "recovery believes the cache",
        "recovery",
        "        directory.files.forget_cache(handle)\n",
        "",
        (HOLES,),
    ),
    Mutant(
        "recovery steps over a bad frame",
        "recovery",
        "        except DamageError as error:\n"
        "            return position, error\n"
        "        if frame is None:\n",
        "        except DamageError as error:\n"
        "            found = next(file.sound_headers(error.offset + 8, limit), None)\n"
        "            if found is None:\n"
        "                return position, error\n"
        "            frames = file.frames(found[0], limit)\n"
        "            continue\n"
        "        if frame is None:\n",
        (CHAINS,),
    ),
    Mutant(
        "a witness behind a bad frame is not believed",
        "recovery",
        "if header.durable_upto > sequence:",
        "if header.durable_upto < 0:",
        (HOLES,),
    ),
    Mutant(
        "damage in the middle counts as a torn tail",
        "recovery",
        "            elif damage is not None:\n",
        "            elif following is not None:\n"
        "                pass\n"
        "            elif damage is not None:\n",
        (HOLES,),
    ),
    Mutant(
        "recovery reads an old segment past the length that the next one names",
        "recovery",
        "            limit = size if following is None else following.previous_length\n",
        "            limit = size\n",
        (RECOVERIES,),
    ),
    Mutant(
        "a damaged header with frames behind it counts as never written",
        "recovery",
        "                if number != numbers[-1] or frame is not None:\n",
        "                if number != numbers[-1]:\n",
        (HOLES,),
    ),
    Mutant(
        "genesis and log may disagree",
        "recovery",
        "    wrong = state.disagreements(touched)\n",
        "    wrong = state.disagreements([])\n",
        (HOLES,),
    ),
    Mutant(
        "a full scan is accepted whatever genesis says",
        "state",
        "            if live != queue.genesis.queue_size\n",
        "            if live < 0\n",
        (HOLES,),
    ),
    Mutant(
        "an older checkpoint is no witness in a full scan",
        "recovery",
        "    if older is not None and end.sequence < older.sequence:\n",
        "    if older is not None and end.sequence < 0:\n",
        (HOLES,),
    ),
    Mutant(
        "a segment that the checkpoint knows may be missing",
        "recovery",
        "        if number not in names.segments:\n",
        "        if number not in names.segments:\n"
        "            continue\n"
        "        if number not in names.segments:\n",
        (HOLES,),
    ),
    Mutant(
        "a segment behind the checkpoint may be missing",
        "recovery",
        "        if number != expected:\n",
        "        if number < expected:\n",
        (HOLES,),
    ),
    Mutant(
        "a segment that the checkpoint knows may be shorter",
        "recovery",
        "            if size < length and not any(",
        "            if size < 0 and not any(",
        (HOLES,),
    ),
    Mutant(
        "the two checkpoints may belong to different stores",
        "recovery",
        "    if len({store_id for _, store_id, _ in copies}) > 1:\n",
        "    if len({store_id for _, store_id, _ in copies}) > 2:\n",
        (HOLES,),
    ),
    Mutant(
        "the older checkpoint is believed",
        "recovery",
        "    copies.sort(key=lambda copy: copy[2].number, reverse=True)\n",
        "    copies.sort(key=lambda copy: copy[2].number)\n",
        (CHAINS, FULL_DISK),
    ),
    Mutant(
        "a store without checkpoints counts as never made",
        "recovery",
        "        return file.is_zero(SEGMENT_HEADER_BYTES, directory.files.size(handle))\n",
        "        return True\n",
        (HOLES,),
    ),
    Mutant(
        "a store without segments counts as never made",
        "recovery",
        "        if names.checkpoints:\n            raise CorruptionError(",
        "        if not names.checkpoints and names.indexes:\n            raise CorruptionError(",
        (HOLES,),
    ),
    Mutant(
        "a clean checkpoint is believed although frames follow",
        "recovery",
        " and end == start and not headers and _ends_at(directory, start)\n",
        " and not headers\n",
        (CHAINS,),
    ),
    Mutant(
        "after a crash counters go on without a gap",
        "opening",
        "        log.state.skip_counters(queue, queue.genesis.reserved_upto)\n",
        "        pass\n",
        (CHAINS,),
    ),
    Mutant(
        "recovery goes on in the torn segment",
        "opening",
        "            if not stays:\n",
        "            if log.sequence < 0:\n",
        (HOLES,),
    ),
    Mutant(
        "recovery writes no checkpoint",
        "opening",
        "                upkeep.retire(log, old)\n            upkeep.write_checkpoint(log)\n",
        "                upkeep.retire(log, old)\n",
        (HOLES,),
    ),
    Mutant(
        "checkpoints of a store that was half made may return",
        "opening",
        "a checkpoint without it would look like a loss.\n    directory.sync()\n",
        "a checkpoint without it would look like a loss.\n",
        (HOLES,),
    ),
)

FORMAT: Final = (
    Mutant(
        "frames need not follow each other",
        "segment",
        "            if sequence is not None and header.sequence != sequence:\n",
        "            if sequence is not None and header.sequence < 0:\n",
        (LOOKUP,),
    ),
    Mutant(
        "the chain from frame to frame is not checked",
        "segment",
        "            if previous is not None and header.previous != previous:\n",
        "            if previous is not None and header.previous < 0:\n",
        (LOOKUP,),
    ),
    Mutant(
        "a segment may lie under another number",
        "segment",
        "        if header.number != self.number:\n",
        "        if header.number < 0:\n",
        (LOOKUP,),
    ),
    Mutant(
        "a segment may belong to another store",
        "segment",
        "        if header.store_id != self.store_id:\n",
        "        if not header.store_id:\n",
        (LOOKUP,),
    ),
    Mutant(
        "a short read counts as the end of the file",
        "segment",
        "    if len(data) == count or not data:\n",
        "    if len(data) <= count:\n",
        (LOOKUP,),
    ),
    Mutant(
        "the checksum of a frame header is not checked",
        "frames",
        "    if seen != checksum:\n",
        "    if seen < 0:\n",
        (FRAMES,),
    ),
    Mutant(
        "the checksum of a body is not checked",
        "frames",
        "    if check(body, header.checksum) != stored:\n",
        "    if check(body, header.checksum) < 0:\n",
        (FRAMES,),
    ),
    Mutant(
        "a length is believed before it is held against the limit",
        "frames",
        "    if body_bytes > BODY_BYTES_MAX or genesis > body_bytes:\n",
        "    if body_bytes < 0:\n",
        (FRAMES,),
    ),
    Mutant(
        "the checksum of a segment header is not checked",
        "frames",
        "        if not intact:\n",
        "        if len(data) < 0:\n",
        (FRAMES,),
    ),
    Mutant(
        "a checksum does not know the place of its bytes",
        "checksum",
        "    return check(_OFFSET.pack(offset), seed)\n",
        "    return check(_OFFSET.pack(0), seed)\n",
        (CHECKSUM,),
    ),
    Mutant(
        "a checksum does not know its segment",
        "checksum",
        "    return check(_PLACE.pack(store_id, number), 0)\n",
        "    return check(_PLACE.pack(store_id, 0), 0)\n",
        (CHECKSUM,),
    ),
    Mutant(
        "a checksum does not know its store",
        "checksum",
        "    return check(_PLACE.pack(store_id, number), 0)\n",
        "    return check(_PLACE.pack(bytes(16), number), 0)\n",
        (CHECKSUM,),
    ),
    Mutant(
        "the checksum of a checkpoint's body is not checked",
        "checkpoint",
        "    if check_function(algorithm)(body, 0) != body_checksum:\n",
        "    if check_function(algorithm)(body, 0) < 0:\n",
        (CHECKPOINT,),
    ),
    Mutant(
        "the checksum of a checkpoint's header is not checked",
        "checkpoint",
        " or not zlib_or_crc32c_matches(data[:_CHECKED_BYTES], checksum):\n",
        ":\n",
        (CHECKPOINT,),
    ),
    Mutant(
        "the checksum of an index is not checked",
        "index",
        " or check(body, start) != checksum:\n",
        ":\n",
        (INDEX,),
    ),
)

STATES: Final = (
    Mutant(
        "a restored record stays removed",
        "state",
        "            queue.removed.remove(counter, counter)\n",
        "            pass\n",
        (STATE,),
    ),
    Mutant(
        "a restored record takes the ones behind it back with it",
        "state",
        "                queue.removed.add(counter + 1, genesis.floor)\n",
        "                pass\n",
        (STATE,),
    ),
    Mutant(
        "a removed range keeps its last counter",
        "state",
        "            newly = self._remove_counters(queue, first, end)\n",
        "            newly = self._remove_counters(queue, first, max(first, end - 1))\n",
        (STATE,),
    ),
    Mutant(
        "the floor moves past a live record",
        "state",
        "        if first == floor + 1 and not queue.removed:\n",
        "        if not queue.removed:\n",
        (STATE,),
    ),
    Mutant(
        "the deletion of a state is forgotten at once",
        "state",
        "if not e.present and e.segment <= oldest]",
        "if not e.present]",
        (HOLES,),
    ),
    Mutant(
        "counters that a commit skips may be used later",
        "state",
        "        self.skip_counters(queue, first - 1)\n",
        "",
        (STATE,),
    ),
    Mutant(
        "a replay does not skip the counters that genesis says were used",
        "replay",
        "    state.skip_counters(queue, entry.next_counter - 1)\n",
        "",
        (STATE,),
    ),
    Mutant(
        "a replay does not believe a floor",
        "replay",
        "        state.remove(queue, floor + 1, entry.floor, 0)\n",
        "        pass\n",
        (HOLES,),
    ),
    Mutant(
        "a counter may come again",
        "replay",
        "        if block.first < queue.genesis.next_counter:\n",
        "        if block.first < 0:\n",
        (STATE,),
    ),
    Mutant(
        "a reservation of counters is not replayed",
        "state",
        "        queue.reserved_durable = queue.genesis.reserved_upto\n        return queue\n",
        "        queue.genesis.reserved_upto = 0\n        return queue\n",
        (CHAINS,),
    ),
    Mutant(
        "a handed out record is forgotten by a checkpoint",
        "state",
        "        queue.attempts = dict(entry.attempts)\n",
        "",
        (CUTS,),
    ),
)

READING: Final = (
    Mutant(
        "a reader believes what nothing witnesses",
        "reader",
        "        self._apply(file, size, witness)\n",
        "        self._apply(file, size, newest)\n",
        (READER,),
    ),
    Mutant(
        "a reader believes an unwitnessed tail without a sync",
        "reader",
        "            sync_file(self._files, file.handle, "
        'f"{self.path}/{segment_name(file.number)}")\n',
        "",
        (READER, HOLES),
    ),
    Mutant(
        "a reader believes the cache of an owner that failed",
        "reader",
        "            self._files.forget_cache(file.handle)\n",
        "",
        (HOLES,),
    ),
    Mutant(
        "a reader believes what came after its own sync",
        "reader",
        "            self._apply(file, size, newest)\n",
        "            newest, _ = self._look_ahead(file, size)\n"
        "            self._apply(file, size, newest)\n",
        (HOLES,),
    ),
    Mutant(
        "a reader takes damage for the end",
        "reader",
        "        if hidden:\n",
        "        if len(hidden) < 0:\n",
        (CHECK, READER),
    ),
    Mutant(
        "a hole among live records is passed over",
        "lookup",
        "        if queue.live_count(first, last) or (damage and not live):\n",
        "        if last < first:\n",
        (LOOKUP,),
    ),
    Mutant(
        "without memory for its sync a frame counts as not written",
        "drafted",
        "    if sync:\n        log.sync_tail()\n    log.status = status\n",
        "    log.status = status\n    if sync:\n        log.sync_tail()\n",
        (MEMORY,),
    ),
    Mutant(
        "without memory for its sync a plain frame counts as not written",
        "plain",
        "    if sync:\n        log.sync_tail()\n    log.status = status\n",
        "    log.status = status\n    if sync:\n        log.sync_tail()\n",
        (MEMORY,),
    ),
    Mutant(
        "without the zeros of a killed owner a full disk has no room for a segment",
        "opening",
        "                    old.filled = log.directory.files.size(old.file.handle)\n",
        "                    pass\n",
        (FULL_DISK,),
    ),
    Mutant(
        "a frame of moved records is decoded for each of its blocks",
        "lookup",
        "@lru_cache(FRAMES_AT_HAND)",
        "@lru_cache(0)",
        (LOOKUP,),
    ),
    Mutant(
        "the oldest copy of a record that moved twice counts",
        "lookup",
        "[entries[n] for n in sorted(group)]",
        "[entries[n] for n in sorted(group, reverse=True)]",
        (LOOKUP,),
    ),
    Mutant(
        "moved records that lie across each other are read one block after the other",
        "lookup",
        "        if entries[place].first > end:\n",
        "        if True:\n",
        (LOOKUP,),
    ),
    Mutant(
        "a hole in a moved block is passed over",
        "lookup",
        " and i == stop and counter == end:\n",
        " and i == stop:\n",
        (LOOKUP,),
    ),
    Mutant(
        "a step of compaction does not count columns",
        "blocks",
        "                size += sum(map(len, column[start:stop]))\n",
        "                pass\n",
        (HOUSEWORK,),
    ),
    Mutant(
        "records with other columns become one block",
        "upkeep",
        "    return same and before.last_time <= block.first_time\n",
        "    return before.last_time <= block.first_time\n",
        (HOUSEWORK,),
    ),
    Mutant(
        "records whose times go back become one block",
        "upkeep",
        "    return same and before.last_time <= block.first_time\n",
        "    return same\n",
        (HOUSEWORK,),
    ),
    Mutant(
        "an index is believed beyond the end of its segment",
        "cache",
        "        if index is None or index.length > length:\n",
        "        if index is None:\n",
        (HOLES,),
    ),
    Mutant(
        "a removed record is delivered again",
        "lookup",
        "queue.is_live(counters[stop]):",
        "counters[stop] > 0:",
        (LOOKUP,),
    ),
    Mutant(
        "quarantine does not list the records that it gives up",
        "quarantine",
        "        self._missing.setdefault(queue.name, RangeSet()).add(first, last)\n",
        "",
        (CHECK,),
    ),
    Mutant(
        "quarantine forgets where the damage lies",
        "quarantine",
        "        self._state.damage = _joined(sorted({*self._state.damage, *self._regions}))\n",
        "",
        (CHECK,),
    ),
    Mutant(
        "quarantine uses counters again that damage behind the checkpoint may have held",
        "quarantine",
        "        self._losses += lost\n",
        "",
        (QUARANTINE,),
    ),
    Mutant(
        "quarantine takes a commit for torn whose witness lies beside its place",
        "recovery",
        "    for astray in (0, *ASTRAY_BYTES):\n",
        "    for astray in (0,):\n",
        (QUARANTINE,),
    ),
    Mutant(
        "quarantine leaves indexes that speak of lost frames",
        "quarantine",
        "            self._directory.remove(index_name(number))\n",
        "            pass\n",
        (QUARANTINE,),
    ),
    Mutant(
        "quarantine makes a segment of a lost one's number while a checkpoint speaks of that",
        "opening",
        "            if recovered.is_cut:\n",
        "            if recovered is None:\n",
        (QUARANTINE,),
    ),
    Mutant(
        "the check passes over damage",
        "check",
        "            if not self._zeros_ahead or end < length or not file.is_zero(offset, end):\n",
        "            if end < 0:\n",
        (CHECK,),
    ),
)

PLAIN: Final = (
    Mutant(
        "a plain put returns without its sync",
        "plain",
        "    if sync:\n        log.sync_tail()\n",
        "",
        (CUTS,),
    ),
    Mutant(
        "a plain put shows counters that nothing durable covers",
        "plain",
        "        or not (sync or last <= queue.reserved_durable)\n",
        "",
        (CHAINS,),
    ),
    Mutant(
        "a plain put goes back to counters that were given out",
        "plain",
        "        first != genesis.next_counter\n        or not",
        "        not",
        (PLAIN_PUTS,),
    ),
    Mutant(
        "a plain put lets times go back",
        "plain",
        " or time_runs[0][1] < time:",
        ":",
        (PLAIN_PUTS,),
    ),
    Mutant(
        "a plain put holds no room for its removal",
        "plain",
        "    log.needed += put.growth\n",
        "",
        (PLAIN_PUTS, FULL_DISK),
    ),
    Mutant(
        "a plain put never starts another segment",
        "plain",
        "        or rotation_due(log, size, now)\n",
        "",
        (PLAIN_PUTS,),
    ),
    Mutant(
        "a plain put changes the state before it is written",
        "plain",
        "    log.write(put.frame)\n",
        "    log.state.set_genesis(put.queue, put.genesis, log.tail.file.number)\n"
        "    log.write(put.frame)\n",
        (ERRORS,),
    ),
    Mutant(
        "the log goes on although a plain put's state could not follow",
        "plain",
        "    log.write(put.frame)\n",
        "    log.write(put.frame)\n    log.status = status\n",
        (HOLES,),
    ),
    Mutant(
        "a plain put is not in the index",
        "plain",
        "        index.note(queue.name, RECORDS, first, first + count - 1, put.time, put.offset)\n",
        "        pass\n",
        (PLAIN_PUTS,),
    ),
)

KEEPS: Final = (
    Mutant(
        "what is held is reclaimed all the same",
        "keeping",
        "        if queue.held:\n",
        "        if False:\n",
        (KEEPING,),
    ),
    Mutant(
        "who holds records is not asked before they go",
        "keeping",
        "    return log.before_reclaim is None or log.before_reclaim()\n",
        "    return True\n",
        (KEEPING,),
    ),
    Mutant(
        "records go although nobody knows who holds them",
        "keeping",
        "    if not free or not may_reclaim(log):\n",
        "    if not (may_reclaim(log) or free):\n",
        (KEEPING,),
    ),
    Mutant(
        "what is held is forgotten by a checkpoint",
        "state",
        "            held=self.held,\n",
        "",
        (KEEPING,),
    ),
    Mutant(
        "what a hold lets go is never looked at again",
        "log",
        "        if before and not 0 < queue.held <= before:\n",
        "        if False:\n",
        (KEEPING,),
    ),
    Mutant(
        "a queue's own limits do not count",
        "keeping",
        "    limits = queue.retention or log.options.retention\n",
        "    limits = log.options.retention\n",
        (KEEPING,),
    ),
)

COMPRESSING: Final = (
    Mutant(
        "what saves nothing is compressed all the same",
        "compression",
        "    return smaller if saved * SAVED_MIN >= len(data) else None\n",
        "    return smaller\n",
        (f"{COMPRESSION}::test_what_saves_less_than_five_percent_is_stored_as_it_is",),
    ),
    Mutant(
        "compressed payloads may be of any length",
        "compression",
        "        whole = len(found) == size and unfolding.ended\n",
        "        whole = unfolding.ended\n",
        (f"{COMPRESSION}::test_a_length_that_lies_is_damage",),
    ),
    Mutant(
        "there is no limit to what a block unfolds to",
        "compression",
        "    if not 0 <= size <= DECOMPRESSED_BYTES_MAX:\n",
        "    if size < 0:\n",
        (f"{COMPRESSION}::test_a_length_that_lies_is_damage",),
    ),
    Mutant(
        "moved records are no longer compressed",
        "draft",
        "        if queue.compression is not None:\n"
        "            self._compress_later(len(parts), 1, queue.compression)\n"
        "        self.holds_records = True\n",
        "        self.holds_records = True\n",
        (f"{COMPRESSION}::test_moved_records_are_compressed_again",),
    ),
)

MUTANTS: Final = (
    *COMPRESSING,
    *COMMITS,
    *PLAIN,
    *FAILURES,
    *SPACE,
    *FILES,
    *UPKEEP,
    *RECOVERY,
    *FORMAT,
    *STATES,
    *READING,
    *KEEPS,
)
