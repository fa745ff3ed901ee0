"""A line: one queue's records in order, as far as they are in memory, and what waits to be sealed.

Knows no files, no loop and no waiting. Records stand, oldest first, in these places:

    returned  given back by a cancelled take or a lease that ended; a heap by counter
    ready     one run of consecutive counters, taken from its left end
    chunks    runs that were written and kept, because takers will want them soon
    gap       a stretch of counters that is only on disk
    aside     those that nobody may have yet: of what follows, they are in no run
    sealed    the batch whose commit is under way
    tail      what was put since

A put appends to the tail and a take pops from ready; everything else happens once for a whole
batch, or in the rare path. The rare path opens a window of a few puts or takes and gives it the
time; only one of the two windows is open, so the size moves one way in between and the water
marks are exact.
"""

from __future__ import annotations

from itertools import repeat
from typing import Final

from fifoq.head import Head
from fifoq.runs import (
    COLUMN_BYTES,
    Batch,
    Returned,
    Run,
    before,
    first_of,
    index_at,
    part_of,
    removal_of,
    run_bytes,
    runs_without_holes,
)
from store.blocks import records_weight

CACHE_BYTES_MAX: Final = 29 << 20
"""What a queue keeps in memory of records that are on disk as well, with their overhead."""
RESTORED_MAX: Final = 16384
"""Records that one frame restores: each is a block of its own."""
RESTORED_BYTES_MAX: Final = 4 << 20
"""And about how many bytes, if there is more than one."""


class Line(Head):
    """See the module. Here is how what waits is sealed into a commit, and what comes of that."""

    __slots__ = ()

    @property
    def dirty(self) -> bool:
        """Whether a commit would hold anything of this queue."""
        return bool(
            self.tail
            or self.head > self.taken_from
            or self.removed
            or self.claims
            or self.acked
            or self.leases
            or self.restored
            or self.dropped
            or self.expired
            or self.purged
            or self.configuration
        )

    @property
    def departed(self) -> int:
        """Records that the frame under way removes for a joint."""
        sealed = self.sealed.joined if self.sealed is not None else ()
        return len(self.joined) + len(sealed)

    @property
    def waits(self) -> bool:
        """Whether something waits to be written that needs space."""
        return len(self.tail) > self.tail.count(None)

    @property
    def only_puts(self) -> bool:
        """Whether new records, one after the other, are all that a commit would hold."""
        return self.head == self.taken_from and not (
            self.withdrawn
            or self.tail_attributes
            or self.marks
            or self.removed
            or self.claims
            or self.acked
            or self.leases
            or self.restored
            or self.dropped
            or self.expired
            or self.purged
            or self.back_early
            or self.configuration
        )

    def seal_puts(self) -> Batch:
        """The same as `seal` for a line that has `only_puts`, and a tail."""
        assert self.sealed is None
        self.close_windows()
        self.sealed = batch = Batch()
        self._seal_tail(batch)
        return batch

    def seal(self, *, puts: bool = True) -> Batch:
        """Hand everything that waits over to a commit; without `puts` all but the tail."""
        assert self.sealed is None
        self.close_windows()
        self.close_run()
        batch = Batch()
        if self.tail and puts:
            self._seal_tail(batch)
        if self.tail:
            self._seal_removals_of_written(batch)
        else:
            batch.taken, self.removed = self.removed, []
            batch.claims, self.claims = self.claims, []
            batch.acked, self.acked = self.acked, []
            batch.dropped, self.dropped = self.dropped, []
            batch.expired, self.expired = self.expired, []
            batch.purged, self.purged = self.purged, []
            batch.leases, self.leases = self.leases, {}
        batch.joined, self.joined = self.joined, []
        for claim in batch.claims:
            claim.sealed = True
            batch.taken += map(removal_of, claim.records)
        if self.back_early:
            self._seal_away(batch)
        count = min(first_of(self.restored, RESTORED_BYTES_MAX), RESTORED_MAX)
        batch.restored, self.restored = self.restored[:count], self.restored[count:]
        if puts:
            batch.configuration, self.configuration = self.configuration, None
        if batch.removes:
            # Delays are written with removals: those of what is leased wait for its ack.
            batch.delay_ns, self.delay_ns = self.delay_ns, 0
        self.sealed = batch
        return batch

    def _seal_away(self, batch: Batch) -> None:
        """What was back early and is removed by this batch need not be restored before."""
        removed = {first for first, _, _ in batch.removals}
        away = removed & self.back_early
        batch.away = [record for record in self.restored if record.counter in away]
        self.restored = [record for record in self.restored if record.counter not in away]
        self.back_early -= away

    def _seal_removals_of_written(self, batch: Batch) -> None:
        """What waits in the tail can not be removed before it is put."""
        first = self.tail_first
        batch.taken, self.removed = before(first, self.removed)
        batch.acked, self.acked = before(first, self.acked)
        batch.dropped, self.dropped = before(first, self.dropped)
        batch.expired, self.expired = before(first, self.expired)
        batch.purged, self.purged = before(first, self.purged)
        batch.claims = [claim for claim in self.claims if claim.last < first]
        self.claims = [claim for claim in self.claims if claim.last >= first]
        batch.leases = {c: attempt for c, attempt in self.leases.items() if c < first}
        self.leases = {c: attempt for c, attempt in self.leases.items() if c >= first}

    def _seal_tail(self, batch: Batch) -> None:
        self.count_tail()
        first, payloads = self.tail_first, self.tail
        if self.withdrawn:
            batch.runs = list(runs_without_holes(first, payloads, self.tail_times))
        else:
            batch.runs = [Run(first, payloads, self.tail_times, self.tail_item_bytes)]  # type: ignore[arg-type]
        batch.shown = max(first, self.tail_shown)
        batch.first, batch.upto = first, self.next - 1
        batch.frame_bytes = self.tail_bytes
        batch.attributes, self.tail_attributes = self.tail_attributes, {}
        batch.marks, self.marks = self.marks, {}
        self.tail = []
        self.tail_first = self.tail_shown = self.next
        self.tail_times = [(self.next, self.put_time)]
        self.tail_bytes = self.tail_counted = 0
        self.withdrawn = False
        batch.hidden, self.hidden = self.hidden, 0
        batch.strong_first, self.strong_first = self.strong_first, 0

    def confirm(self) -> None:
        """The sealed batch is committed: what it hid is there for takers now."""
        batch, self.sealed = self.sealed, None
        assert batch is not None
        if batch.upto:
            self._show(batch)
            runs = batch.runs if not self.aside else self._shelve_from(batch)
            for run in runs:
                if run.first >= batch.shown:
                    self._keep(run)
                elif run.end > batch.shown:
                    self._keep(part_of(run, batch.shown, run.end))
        for record in batch.restored:
            if record.counter in self.back_early:
                self.back_early.discard(record.counter)
            else:
                self.restoring -= 1
                self.give_back(record)

    def _shelve_from(self, batch: Batch) -> list[Run]:
        """Shelve what was set aside of a batch; returns the runs of the others."""
        aside = self.aside
        plain: list[Run] = []
        records: list[Returned] = []
        for run in batch.runs:
            start, counters = run.first, range(run.first, run.end)
            found = list(map(aside.pop, counters, repeat(None)))
            if all(found):
                # As usual where many are put with a delay: the shelf has had them since.
                continue
            for counter, shelved in zip(counters, found, strict=True):
                if shelved is None:
                    continue
                if start < counter:
                    plain.append(part_of(run, start, counter))
                start = counter + 1
                if not shelved:
                    time = run.times[index_at(run.times, counter)][1]
                    payload = run.payloads[counter - run.first]
                    of = batch.attributes.get(counter)
                    records.append(Returned(counter, time, payload, of))
            if start < run.end:
                plain.append(part_of(run, start, run.end))
        if records:
            self.shelve(records)
        return plain

    def _show(self, batch: Batch) -> None:
        if not self.strong_upto:
            return
        # Counters that were withdrawn stay out of the size for ever.
        self.bias += batch.hidden
        if self.strong_upto <= batch.upto or not self.hidden:
            self.strong_upto = 0
        else:
            # What was put behind the batch is there up to the next one that must wait.
            self.visible = self.strong_first - 1

    def _keep(self, run: Run) -> None:
        """Hold a written run in memory if takers come to it soon, else leave it on disk."""
        size = run_bytes(run)
        if self.gap is not None:
            self.gap = (self.gap[0], run.end - 1)
            self.forget_attributes(run.first, run.end)
        elif self.cached_bytes + size > CACHE_BYTES_MAX:
            self.gap = (run.first, run.end - 1)
            self.forget_attributes(run.first, run.end)
        else:
            self.chunks.append(run)
            self.cached_bytes += size

    def unseal(self) -> None:
        """The sealed batch was refused: put it back as it was."""
        # The tail becomes another list, which an open window would not see.
        self.close_windows()
        batch, self.sealed = self.sealed, None
        assert batch is not None
        if batch.upto:
            self._unseal_tail(batch)
        for claim in batch.claims:
            claim.sealed = False
        claimed = {record.counter for claim in batch.claims for record in claim.records}
        self.removed = [entry for entry in batch.taken if entry[0] not in claimed] + self.removed
        self.claims = batch.claims + self.claims
        self.acked = batch.acked + self.acked
        self.dropped = batch.dropped + self.dropped
        self.expired = batch.expired + self.expired
        self.purged = batch.purged + self.purged
        self.leases = {**batch.leases, **self.leases}
        self.restored = batch.away + batch.restored + self.restored
        self.back_early.update(record.counter for record in batch.away)
        self.configuration = self.configuration or batch.configuration
        self.delay_ns += batch.delay_ns

    def _unseal_tail(self, batch: Batch) -> None:
        self.count_tail()
        first = batch.first
        payloads: list[bytes | None] = []
        for run in batch.runs:
            payloads += [None] * (run.first - first - len(payloads))
            payloads += run.payloads
        payloads += [None] * (self.tail_first - first - len(payloads))
        times = sorted({*(mark for run in batch.runs for mark in run.times), *self.tail_times})
        self.withdrawn = self.withdrawn or None in payloads
        self.tail = payloads + self.tail
        if self.tail_shown <= self.tail_first:
            # Takers have not come to the tail: how far they are is for the batch to say.
            self.tail_shown = batch.shown
        self.tail_first = first
        self.tail_times = times
        # Both parts may have even lengths, and different ones.
        self.tail_item_bytes = None
        self.tail_bytes += batch.frame_bytes
        self.tail_counted = len(self.tail)
        self.hidden += batch.hidden
        self.strong_first = batch.strong_first or self.strong_first
        self.tail_attributes = {**batch.attributes, **self.tail_attributes}
        self.marks = {**batch.marks, **self.marks}

    def unwritten_bytes(self) -> int:
        """By how many payload bytes the records that are there differ from those committed."""
        self.close_run()
        size = sum(len(payload) for payload in self.tail if payload is not None)
        removed = [*self.removed, *self.acked, *self.dropped, *self.expired, *self.purged]
        for claim in self.claims:
            removed += map(removal_of, claim.records)
        if self.sealed is not None:
            size += sum(len(payload) for run in self.sealed.runs for payload in run.payloads)
            removed += self.sealed.removals
        for first, last, weight in removed:
            size -= weight - records_weight(0, last - first + 1)
        return size

    def give_back_early(self) -> None:
        """The disk is too full to restore records: takers get them all the same."""
        for record in self.restored:
            if record.counter not in self.back_early:
                self.back_early.add(record.counter)
                self.restoring -= 1
                self.give_back(record)

    def restored_bytes(self) -> int:
        """What the next batch restores, in bytes of a frame."""
        count = first_of(self.restored, RESTORED_BYTES_MAX)
        return sum(len(record.payload) + COLUMN_BYTES for record in self.restored[:count])
