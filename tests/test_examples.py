"""The examples run as a user runs them, and print what a reader is told to expect."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fifoq.sync

ROOT = Path(__file__).parents[1]
# These have tests of their own.
ELSEWHERE = {
    *("__init__", "actors_in_memory", "events_to_parquet"),
    *("spark_cluster", "spark_micro_batches", "spark_pipelines", "spark_replay", "spark_sql"),
}
HERE = {
    "asgi_actors",
    "asgi_backpressure",
    "bank",
    "compress",
    "crash_matrix",
    "deduplicate",
    "delayed_jobs",
    "deploy_with_sigterm",
    "durability",
    "explain_a_record",
    "fan_out",
    "metrics_server",
    "keyed_actors",
    "migrate_from_pykka",
    "partitioned_topic",
    "priority_lanes",
    "producer_consumer",
    "put_for_ever",
    "put_from_an_actor",
    "quick_start",
    "recurring_jobs",
    "replace_asyncio_queue",
    "replay_by_time",
    "stats_poller",
    "supervise",
    "threads",
    "transaction",
    "what_is_left",
    "work_queue",
}


def command(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", str(ROOT / f"examples/{name}.py"), *arguments]


def environment(scratch: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)}


def printed_by(name: str, directory: Path, *arguments: str) -> list[str]:
    """What the example prints; it must end well, say nothing else and leave no scratch behind."""
    scratch = directory / "scratch"
    scratch.mkdir(exist_ok=True)
    done = subprocess.run(
        command(name, *arguments),
        cwd=directory,
        env=environment(scratch),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert list(scratch.iterdir()) == []
    return done.stdout.splitlines()


def test_every_example_is_run_by_some_test() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == HERE | ELSEWHERE


def test_the_quick_start_prints_what_its_comments_say_and_may_be_run_again(tmp_path: Path) -> None:
    source = (ROOT / "examples/quick_start.py").read_text()
    said = re.findall(r"print\(.*\)\s+# (.+)$", source, re.MULTILINE)
    assert len(said) == 4
    assert printed_by("quick_start", tmp_path) == said
    assert printed_by("quick_start", tmp_path) == said
    assert (tmp_path / "data/orders").is_dir()


def test_the_quick_start_has_about_ten_lines() -> None:
    source = (ROOT / "examples/quick_start.py").read_text()
    body = source.partition("async def main")[2].partition("asyncio.run")[0]
    assert len([line for line in body.splitlines()[1:] if line.strip()]) <= 10


def test_the_service_refuses_under_pressure_and_accepts_again_below_it(tmp_path: Path) -> None:
    assert printed_by("asgi_backpressure", tmp_path) == [
        "24 orders, nobody takes them: 20 x 202, 4 x 503",
        "the last answer says: (503, {b'retry-after': b'1'})",
        "5 were taken, 15 wait: 503",
        "10 wait: 202",
        "after a restart 11 orders wait, the oldest is b'order 11'",
    ]


def test_the_poller_sees_both_queues_move_and_never_a_size_above_the_high_water_mark(
    tmp_path: Path,
) -> None:
    lines = [line for line in printed_by("stats_poller", tmp_path) if line]
    row = re.compile(r"(bills|orders) +[#.]{30} +(\d+) of at most +(\d+)  in +(\d+)  out +(\d+)")
    seen: dict[str, list[tuple[int, ...]]] = {"bills": [], "orders": []}
    for line in lines:
        match = row.fullmatch(line)
        assert match is not None, line
        seen[match[1]].append(tuple(map(int, match.groups()[1:])))
    for looks in seen.values():
        assert len(looks) >= 4
        assert all(size == put - taken for size, _, put, taken in looks)
        assert all(size <= most for size, most, _, _ in looks)
    assert seen["orders"][-1][3] > seen["orders"][0][3]


def test_the_metrics_are_served_and_scraped(tmp_path: Path) -> None:
    assert printed_by("metrics_server", tmp_path) == [
        'fifoq_queue_records{queue="orders"} 15',
        'fifoq_queue_put_total{queue="orders"} 20',
        'fifoq_queue_taken_total{queue="orders"} 5',
    ]


def test_a_put_that_is_repeated_is_one_record(tmp_path: Path) -> None:
    assert printed_by("deduplicate", tmp_path) == [
        "True 1",
        "b'two apples'",
        "True 0",
        "1 1",
    ]


def test_a_queue_that_compresses_needs_a_part_of_the_disk(tmp_path: Path) -> None:
    assert printed_by("compress", tmp_path) == [
        "406890 bytes were put",
        "on disk less than a quarter: True",
        """b'{"event":"page_view","user":0,"ms":0}' zlib""",
    ]


def test_the_bank_has_40_lines() -> None:
    source = (ROOT / "examples/bank.py").read_text()
    bank = source[source.index("class Transfer") : source.index("async def balances_of")]
    assert len([line for line in bank.splitlines() if line.strip()]) <= 40


def test_the_bank_goes_on_after_a_restart_and_no_crash_takes_its_money(tmp_path: Path) -> None:
    """As its tutorial says; the second run goes on where the first one ended."""
    for balances in ([70, 110, 120], [40, 120, 140]):
        assert printed_by("bank", tmp_path) == [
            f"alice, bob and carol have {balances}",
            "after a restart they have 300 together",
        ]
    said = subprocess.run(
        command("bank", "--crash"),
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    )
    counts = re.fullmatch(r"(\d+) crash points, (\d+) states, [\d.]+ s\n", said.stdout)
    assert counts is not None
    assert 40 <= int(counts[1]) < int(counts[2])


def test_a_careless_program_is_caught_and_a_careful_one_holds(tmp_path: Path) -> None:
    lines = printed_by("crash_matrix", tmp_path)
    found = re.fullmatch(
        r"crash at (\d+), killed before disk call \d+, pwrite: the invariant does not hold: "
        r"AssertionError: billed: \['coffee', 'cake'\]",
        lines[0],
    )
    assert found is not None, lines
    at = found[1]
    assert lines[1] == f'This one alone: crash_matrix(..., at="{at}"), or pytest --crash-at={at}'
    counts = re.fullmatch(
        r"(\d+) crash points in (\d+) states: each order is billed once", lines[2]
    )
    assert counts is not None
    assert 40 <= int(counts[1]) < int(counts[2])


def test_the_program_for_asyncio_queue_does_the_same_with_both_queues(tmp_path: Path) -> None:
    lines = printed_by("replace_asyncio_queue", tmp_path)
    assert (lines[0], lines[5]) == ("asyncio.Queue:", "fifoq:")
    for part in (lines[1:5], lines[6:]):
        assert [line.partition(" did ")[2] for line in part] == [f"job {i}" for i in range(4)]


def test_a_record_is_explained(tmp_path: Path) -> None:
    lines = printed_by("explain_a_record", tmp_path)
    assert lines[0] == "orders 1: acked"
    assert lines[1].split() == ["headers:", "customer"] or lines[2].split()[0] == "headers:"
    told = [line.split()[0] for line in lines if line.startswith("  ")]
    assert told[-5:] == ["put", "leased,", "returned", "leased,", "acked"]
    assert lines[-2:] == [
        "2: dead-lettered after 1 attempts, it is orders.dlq 1",
        "from outside: there",
    ]


def test_orders_of_one_customer_stay_in_order_over_partitions(tmp_path: Path) -> None:
    assert printed_by("partitioned_topic", tmp_path) == [
        "alice has partition 1 and her order is number 1 there",
        "refused: queue 'orders-2' takes Order: Object missing required field `number`. "
        "Nothing was stored.",
        "alice [1, 2, 3]",
        "bob [2, 3]",
        "carol [2, 3]",
    ]


def test_delayed_jobs_come_in_time_and_not_too_late(tmp_path: Path) -> None:
    assert printed_by("delayed_jobs", tmp_path) == [
        "4 jobs, 2 of them for later",
        "True",
        "send the welcome",
        "send the reminder",
        "not too early: True",
        "1 expired, 0 left",
        "1 waits after a restart",
    ]


def test_urgent_letters_come_first_and_accounts_keep_their_order(tmp_path: Path) -> None:
    assert printed_by("priority_lanes", tmp_path) == [
        "['password reset', 'receipt 1', 'receipt 2', 'newsletter']",
        "aabaaaabaa",
        "b'+5' b'+1'",
        "b'-3'",
    ]


def test_recurring_jobs_come_again_and_are_made_up_for_once(tmp_path: Path) -> None:
    assert printed_by("recurring_jobs", tmp_path) == [
        "sweep b'sweep the cache' attempt 1",
        "sweep b'sweep the cache' attempt 1",
        "report 0 6 * * mon-fri put 0",
        "sweep 0.2 put 2",
        "after the pause: sweep and 1 waits",
        "left: ['report']",
    ]


def test_threads_put_and_take_everything_once(tmp_path: Path) -> None:
    assert printed_by("threads", tmp_path) == [
        "60 put by 3 threads, 60 taken by 2",
        "b'handle with care' attempt 1",
        "nothing left",
    ]


def test_a_record_moves_on_with_its_bill_or_not_at_all(tmp_path: Path) -> None:
    assert printed_by("transaction", tmp_path) == [
        "billed tea: 1 order left, 1 bill",
        "coffee: the printer is out of paper",
        "rolled back: 1 order left, 1 bill",
        "billed coffee at attempt 2: 0 orders left, 2 bills",
    ]


def test_what_always_fails_ends_in_the_dead_letters(tmp_path: Path) -> None:
    assert printed_by("work_queue", tmp_path) == [
        "tea goes to Lisbon",
        "no address for b'cake'",
        "coffee goes to Oslo",
        "no address for b'cake'",
        "dead after 1: b'', an empty order",
        "dead after 2: b'cake', b'cake'",
        "1 replayed, 1 purged",
        "cake goes to Vienna",
        "0 orders, 0 dead letters",
    ]


def test_a_stronger_put_and_a_flush_make_what_came_before_durable(tmp_path: Path) -> None:
    assert printed_by("durability", tmp_path) == [
        "here at once: b'page viewed'",
        "outside, after a sync put: 2",
        "outside, after a flush: 3",
    ]


def test_every_number_that_was_printed_before_a_kill_is_left(tmp_path: Path) -> None:
    """Twice, as the tutorial says: the second run goes on where the first one ended."""
    for least in (30, 60):
        process = subprocess.Popen(
            command("put_for_ever"),
            cwd=tmp_path,
            env=environment(tmp_path),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        seen = [int(process.stdout.readline()) for _ in range(30)]
        process.kill()
        # Not `communicate`, which passes by what the line reader has read ahead.
        seen += map(int, process.stdout.read().split())
        process.wait(60)
        process.stdout.close()
        lines = printed_by("what_is_left", tmp_path)
        match = re.fullmatch(r"(\d+) records, the last is (\d+)", lines[0])
        assert match is not None
        assert int(match[1]) == int(match[2]) >= least
        assert seen[-1] <= int(match[1]) <= seen[-1] + 1
        assert lines[1:] == ["none is missing: True"]


class Served:
    """What one run of the service said at its end."""

    def __init__(self, directory: Path, number: signal.Signals, *arguments: str) -> None:
        process = subprocess.Popen(
            command("producer_consumer", str(directory / "store"), *arguments),
            env=environment(directory),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        begin = process.stdout.readline()
        # So that there is something in hand.
        assert "begins with" in process.stdout.readline()
        process.send_signal(number)
        output, self.errors = process.communicate(timeout=60)
        self.status = process.returncode
        self.found = int(re.findall(r"found (\d+) records", begin)[0])
        said = re.findall(r"took in (\d+), handled (\d+), (\d+) wait; (\d+) cut short", output)
        assert len(said) == 1, (output, self.errors)
        self.taken_in, self.handled, self.waiting, self.late = map(int, said[0])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_service_with_nothing_in_hand_and_nothing_lost(
    tmp_path: Path, number: signal.Signals
) -> None:
    with fifoq.sync.open(tmp_path / "store") as q:
        q.put_many([b"from before"] * 20)
    served = Served(tmp_path, number)
    assert (served.status, served.late, served.errors) == (0, 0, "")
    assert served.found == 20
    assert served.found + served.taken_in == served.handled + served.waiting
    with fifoq.sync.open(tmp_path / "store") as q:
        assert len(q) == served.waiting


def test_a_worker_that_misses_the_deadline_is_cut_short_and_its_record_is_back(
    tmp_path: Path,
) -> None:
    with fifoq.sync.open(tmp_path / "store") as q:
        q.put_many([b"from before"] * 20)
    served = Served(tmp_path, signal.SIGTERM, "--work", "600", "--deadline", "0.2")
    assert (served.status, served.handled, served.errors) == (1, 0, "")
    assert served.late >= 1
    with fifoq.sync.open(tmp_path / "store") as q:
        assert len(q) == 20 + served.taken_in
        with q.lease(timeout=1.0) as delivery:
            assert (delivery.item, delivery.attempt) == (b"from before", 2)


def test_fan_out_gives_every_record_to_every_cursor(tmp_path: Path) -> None:
    assert printed_by("fan_out", tmp_path) == [
        "billed 6, in order: True",
        "mailed 6, each once: True",
        "mailers that died: 1",
        "cursors: billing, mailing",
    ]


def test_replay_by_time_reads_what_was_taken_once_more(tmp_path: Path) -> None:
    assert printed_by("replay_by_time", tmp_path) == [
        "0 records wait",
        "3 records to read again",
        "3 b'order 1'",
        "4 b'order 2'",
        "5 b'order 3'",
        "and from the beginning: b'early 1'",
    ]


def test_actors_of_an_asgi_service_finish_after_the_last_answer(tmp_path: Path) -> None:
    assert printed_by("asgi_actors", tmp_path) == [
        "lifespan.startup.complete",
        *["answered 202"] * 3,
        *(f"mailed /orders/{number}" for number in (1, 2, 3)),
        "lifespan.shutdown.complete",
    ]


def test_actors_that_fail_are_supervised_alone_and_together(tmp_path: Path) -> None:
    assert printed_by("supervise", tmp_path) == [
        "tea: 1",
        "refused: an empty order",
        "tea: 2 generation 0",
        "refused: the machine is broken",
        "tea: 1 generation 1",
        "link: connected",
        "session: logged in",
        "session: gone",
        "link: again, after LinkDown",
        "link: connected",
        "session: logged in",
        "hello, done",
        "session: gone",
        "boss/desk-1 ended: RuntimeError: the machine is broken",
        "then came boss/desk-2",
    ]


def test_a_program_that_was_one_of_pykka(tmp_path: Path) -> None:
    assert printed_by("migrate_from_pykka", tmp_path) == [
        "started as total",
        "total 6",
        "sums [0, 2, 4]",
        "dead: adder",
        "stopped with 6",
        "made anew after ActorStopped",
        "started as total",
        "total 0",
        "stopped with 0",
    ]


@pytest.mark.parametrize(("work", "deadline", "status"), [("0.02", "30", 0), ("600", "0.1", 1)])
def test_a_service_of_actors_ends_at_a_signal_and_says_how(
    tmp_path: Path, work: str, deadline: str, status: int
) -> None:
    arguments = ("--work", work, "--deadline", deadline)
    process = subprocess.Popen(
        command("deploy_with_sigterm", *arguments),
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "worker begins with 1\n"
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == status
    taken_in, said = re.findall(r"took in (\d+), status (\d)", output)[0]
    assert int(said) == status
    if status == 0:
        assert (f"ledger: {taken_in} done" in output, errors) == (True, "")
    else:
        assert "ledger: 0 done" in output
        assert "told messages were not handled" in errors


def test_every_customer_has_an_actor_and_few_are_in_memory(tmp_path: Path) -> None:
    assert printed_by("keyed_actors", tmp_path) == [
        "100 customers, at most 10 in memory: True",
        "customer-3 has ['tea 3']",
        "after a restart baskets/customer-4 has ['tea 4', 'tea 3']",
    ]


def test_every_order_has_one_parcel(tmp_path: Path) -> None:
    assert printed_by("put_from_an_actor", tmp_path) == [
        *("sent parcel 1, tea", "sent parcel 2, vase", "sent parcel 3, cake"),
        "0 parcels are left",
    ]
