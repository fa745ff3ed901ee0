"""Mutants of delays, expiry, lanes, keys and retries: one promise broken each. See `catalogue`."""

from __future__ import annotations

from typing import Final

from tests.mutants.catalogue import of_fifoq as _mutant

DELAY: Final = "tests/fifoq/test_delay.py"
EXPIRY: Final = "tests/fifoq/test_expiry.py"
KEYS: Final = "tests/fifoq/test_ordering_keys.py"
LANES: Final = "tests/fifoq/test_lanes.py"
MANY: Final = "tests/fifoq/test_lease_many.py"
RETRY: Final = "tests/fifoq/test_retry.py"

WAITING_MUTANTS: Final = (
    _mutant(
        "a delayed record is there before its commit",
        "admitting",
        "            self.set_aside(first, payloads, moment, attributes, shown=level == MEMORY)\n",
        "            self.set_aside(first, payloads, moment, attributes, shown=True)\n",
        DELAY,
    ),
    _mutant(
        "nobody looks for delayed records at opening",
        "shelving",
        "                self.codec.aside = True\n",
        "                pass\n",
        DELAY,
    ),
    _mutant(
        "a delayed record is read from disk as well",
        "jobs",
        "            if of.deliver_at:\n",
        "            if False:\n",
        DELAY,
    ),
    _mutant(
        "a clock that was set back makes records wait",
        "shelving",
        "            for left in (min(due - now, due - put),)\n",
        "            for left in (due - now,)\n",
        DELAY,
    ),
    _mutant(
        "what came due while the store was closed is behind younger ones",
        "waiting",
        "        return there and (not self.fetching or head < min(self.fetching))\n",
        "        return there\n",
        DELAY,
    ),
    _mutant(
        "a record on its way to the dead letters lets its key go",
        "lease",
        '            self.burials.begin(record, "max-retries", attempts=attempt - 1, '
        "reason=NEVER_BACK)\n",
        '            self.burials.begin(record, "max-retries", attempts=attempt - 1, '
        "reason=NEVER_BACK)\n            queue.key_free(record)\n",
        f"{KEYS}::test_a_record_on_its_way_to_the_dead_letters_has_its_key_until_it_is_there",
    ),
    _mutant(
        "a cancelled delay stays on disk",
        "waiting",
        "        self._leave(record, self.purged)\n",
        "        self._leave(record, [])\n",
        DELAY,
    ),
    _mutant(
        "a copy that is not written is let go",
        "shelf",
        "            if counter > self.written:\n",
        "            if False:\n",
        LANES,
        DELAY,
        "tests/fifoq/test_shelf.py",
    ),
    _mutant(
        "what expired is handed out",
        "waiting",
        "attributes.expires_at <= (now := time.time_ns())",
        "attributes.expires_at <= (now := 0)",
        EXPIRY,
    ),
    _mutant(
        "a row of expired records ends with one that is not",
        "waiting",
        "            if of is None or not 0 < of.expires_at <= now or of.ordering_key:\n",
        "            if of is None:\n",
        EXPIRY,
        KEYS,
    ),
    _mutant(
        "a row of expired records stays on disk",
        "waiting",
        "        self.expired.append(removal)\n",
        "",
        EXPIRY,
    ),
    _mutant(
        "a clock that counts in steps makes a record early",
        "shelving",
        "* _NS) + committer.clock_step\n",
        "* _NS)\n",
        DELAY,
    ),
    _mutant(
        "a delayed put of a window is taken at once",
        "shelving",
        "        self.aside[counter] = True\n        due",
        "        due",
        DELAY,
    ),
    _mutant(
        "a delayed put of a window is on disk without its time",
        "shelving",
        "        self.tail_attributes[counter] = attributes\n",
        "",
        DELAY,
    ),
    _mutant(
        "a clock that was set back begins the window of an id anew",
        "putting",
        "            wall = max(time.time_ns(), self.put_time)\n",
        "            wall = time.time_ns()\n",
        "tests/fifoq/test_dedup.py",
    ),
    _mutant(
        "what expired stays on disk",
        "waiting",
        "            self._leave(record, self.expired)\n",
        "            self._leave(record, [])\n",
        EXPIRY,
    ),
    _mutant(
        "a strict queue lets younger records pass",
        "waiting",
        "            if self.stops and counter > self.stops[0]:\n                return False\n",
        "",
        RETRY,
    ),
    _mutant(
        "two records of a key are out",
        "waiting",
        "            elif key and self.keys_out.get(key, counter) != counter:\n",
        "            elif False:\n",
        KEYS,
    ),
    _mutant(
        "a key is free while its record waits",
        "shelving",
        "        self.wait_on_shelf([record], delay)\n\n    def fill_shelf",
        "        self.key_in(record.counter, record.attributes)\n"
        "        self.wait_on_shelf([record], delay)\n\n    def fill_shelf",
        KEYS,
    ),
    _mutant(
        "a key that came back wakes nobody",
        "waiting",
        "        if key in self.blocked:\n            self._bring_next(key)\n",
        "",
        KEYS,
    ),
    _mutant(
        "a taken record does not free its key",
        "waiting",
        "        if self.keys_out or self.blocked:\n",
        "        if self.keys_out:\n",
        KEYS,
    ),
    _mutant(
        "a record that was given back behind others keeps its key for ever",
        "waiting",
        "                    self._free(key)\n",
        "                    return False\n",
        KEYS,
    ),
    _mutant(
        "at the limit a key that is out is given to another record",
        "waiting",
        "                elif self._will_be_heard_of(self.keys_out[key]):\n",
        "                elif False:\n",
        KEYS,
    ),
    _mutant(
        "a record that is about to be handed out counts as given back",
        "lease",
        "        self.noting.add(record.counter)\n",
        "",
        KEYS,
    ),
    _mutant(
        "what is due is passed by while it is read",
        "waiting",
        "        return there and (not self.fetching or head < min(self.fetching))\n",
        "        return there\n",
        DELAY,
    ),
    _mutant(
        "what is due is read however large it is",
        "fetching",
        "self._counters, FETCH_BYTES_MAX)",
        "self._counters)",
        DELAY,
        LANES,
    ),
    _mutant(
        "what there was no room for is forgotten",
        "shelving",
        "            self.come_due(fetched.rest)\n",
        "            pass\n",
        DELAY,
    ),
    _mutant(
        "lanes forget what was given back",
        "lane_queue",
        "        self._enter(record)\n        self.bias += 1\n",
        "        self.bias += 1\n",
        LANES,
    ),
    _mutant(
        "records that wait for a key use up the share of their lane",
        "waiting",
        "                    self._block(key, self.pass_head())\n",
        "                    self._block(key, self.claim_head())\n",
        f"{LANES}::test_records_that_nobody_gets_cost_their_lane_no_turn",
    ),
    _mutant(
        "in lanes a key is free while its next record is read",
        "lane_queue",
        "            self.keys_out[key] = counter\n",
        "            pass\n",
        f"{KEYS}::test_in_lanes_a_record_that_must_be_read_is_not_passed_by_a_younger_one_of_its_key",
    ),
    _mutant(
        "lanes are not looked for at opening",
        "open_queues",
        "            queue.fill_lanes(found.lanes)\n",
        "",
        LANES,
    ),
    _mutant(
        "a take that was given up forgets attempts",
        "member",
        "                self.leases[record.counter] = attempts\n",
        "                pass\n",
        RETRY,
    ),
    _mutant(
        "a stale lease lets the others be acked",
        "lease",
        "            # All before the first is acked: a stale one must change nothing.\n"
        "            self._require_held(delivery)\n",
        "            pass\n",
        MANY,
    ),
    _mutant(
        "many leases whose caller left stay out but for one",
        "lease",
        "            for record in records:\n                if queue.leases",
        "            for record in records[:1]:\n                if queue.leases",
        MANY,
    ),
)
