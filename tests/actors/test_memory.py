"""The mailbox in memory: bounds, overflow, order, and what closes a batch."""

from __future__ import annotations

import asyncio

import pytest

from actors import ActorStopped, Asked, Batch, BatchOptions, MailboxFull, MailboxOptions, Overflow
from actors.memory import MemoryMailbox
from actors.testing import settle

pytestmark = pytest.mark.anyio


def mailbox(
    size_max: int = 1000, overflow: Overflow = "block", batch: BatchOptions | None = None
) -> MemoryMailbox:
    options = MailboxOptions(
        size_max=size_max, overflow=overflow, batch=batch or BatchOptions(count_max=3)
    )
    return MemoryMailbox(options, "box")


def asked(message: object) -> Asked:
    return Asked(message, asyncio.get_running_loop().create_future())


async def batch_of(box: MemoryMailbox) -> tuple[list[object], str]:
    batch = await box.next_batch()
    assert batch is not None
    return list(batch), batch.closed_by


async def test_putting_with_room_does_not_suspend() -> None:
    box = mailbox()
    with pytest.raises(StopIteration):
        box.put(1).send(None)
    assert len(box) == 1


async def test_a_batch_is_what_waits_now_up_to_its_count() -> None:
    box = mailbox()
    for number in range(5):
        await box.put(number)
    assert await batch_of(box) == ([0, 1, 2], "full")
    assert await batch_of(box) == ([3, 4], "drain")


async def test_a_full_mailbox_makes_senders_wait_and_lets_them_in_by_their_order() -> None:
    box = mailbox(size_max=2)
    senders = [asyncio.create_task(box.put(number)) for number in range(7)]
    await settle()
    assert [sender.done() for sender in senders] == [True] * 2 + [False] * 5
    with pytest.raises(MailboxFull, match="'box' holds 2 messages and has no room"):
        box.put_nowait("overtaking")
    taken: list[object] = []
    for _ in range(4):
        taken += (await batch_of(box))[0]
    assert taken == list(range(7))
    await asyncio.gather(*senders)


async def test_a_sender_that_leaves_while_it_waits_has_sent_nothing() -> None:
    box = mailbox(size_max=1)
    await box.put("first")
    leaving, staying = (asyncio.create_task(box.put(name)) for name in ("leaving", "staying"))
    await settle()
    leaving.cancel()
    await settle()
    assert await batch_of(box) == (["first"], "full")
    assert await batch_of(box) == (["staying"], "full")
    assert leaving.cancelled()
    await staying


async def test_a_sender_that_leaves_in_the_turn_in_which_it_is_let_in_has_sent() -> None:
    box = mailbox(size_max=1)
    await box.put("first")
    sender = asyncio.create_task(box.put("second"))
    await settle()
    await box.next_batch()
    sender.cancel()
    await settle()
    assert sender.cancelled()
    assert await batch_of(box) == (["second"], "full")


async def test_a_sender_cancelled_in_the_turn_of_the_taking_is_passed_over() -> None:
    box = mailbox(size_max=1)
    await box.put("first")
    leaving, staying = (asyncio.create_task(box.put(name)) for name in ("leaving", "staying"))
    await settle()
    leaving.cancel()
    await box.next_batch()
    assert await batch_of(box) == (["staying"], "full")
    await staying


async def test_an_exempt_letter_needs_no_room_and_an_open_mailbox() -> None:
    box = mailbox(size_max=1)
    box.put_nowait(1)
    box.put_nowait(2, exempt=True)
    sender = asyncio.create_task(box.put(3))
    await settle()
    assert [await batch_of(box) for _ in range(3)] == [([n], "full") for n in (1, 2, 3)]
    await sender
    box.close()
    with pytest.raises(ActorStopped):
        box.put_nowait(4, exempt=True)


async def test_the_policy_fail_raises_and_takes_nothing() -> None:
    box = mailbox(size_max=1, overflow="fail")
    await box.put(1)
    with pytest.raises(MailboxFull) as caught:
        await box.put(2)
    assert (caught.value.name, caught.value.size_max) == ("box", 1)
    assert list(box.letters) == [1]


async def test_dropping_the_oldest_counts_it_and_tells_its_asker() -> None:
    box = mailbox(size_max=2, overflow="drop-oldest")
    first = asked("first")
    for letter in (first, 2, 3, 4):
        await box.put(letter)
    assert (list(box.letters), box.dropped) == ([3, 4], 2)
    with pytest.raises(MailboxFull):
        await first.future


async def test_dropping_the_newest_counts_it_and_tells_its_asker() -> None:
    box = mailbox(size_max=2, overflow="drop-newest")
    last = asked("last")
    for letter in (1, 2, 3, last):
        box.put_nowait(letter)
    assert (list(box.letters), box.dropped) == ([1, 2], 2)
    with pytest.raises(MailboxFull):
        await last.future


async def test_a_dropped_letter_whose_asker_has_left_is_only_counted() -> None:
    box = mailbox(size_max=1, overflow="drop-newest")
    gone = asked("gone")
    gone.future.cancel()
    box.put_nowait(1)
    box.put_nowait(gone)
    assert box.dropped == 1


async def test_the_bytes_of_what_was_dropped_no_longer_count() -> None:
    """The sizes that were looked at follow the letters."""
    rules = BatchOptions(bytes_max=10, size_of=int_of, linger_seconds=1)
    box = mailbox(size_max=2, overflow="drop-oldest", batch=rules)
    batch = asyncio.create_task(batch_of(box))
    await settle()
    box.put_nowait(1)
    await settle()
    for size in (6, 4):
        box.put_nowait(size)
    assert await batch == ([6, 4], "bytes")


def int_of(message: object) -> int:
    assert isinstance(message, int)
    return message


async def test_a_batch_lingers_for_its_time_and_no_longer() -> None:
    box = mailbox(batch=BatchOptions(count_max=3, linger_seconds=2.5))
    loop = asyncio.get_running_loop()
    await box.put(1)
    loop.call_later(1, box.put_nowait, 2)
    assert await batch_of(box) == ([1, 2], "time")
    assert loop.time() == 2.5


async def test_a_lingering_batch_closes_when_it_is_full() -> None:
    box = mailbox(batch=BatchOptions(count_max=3, linger_seconds=60))
    loop = asyncio.get_running_loop()
    for second in range(5):
        loop.call_later(second, box.put_nowait, second)
    assert await batch_of(box) == ([0, 1, 2], "full")
    assert loop.time() == 2


async def test_a_mailbox_smaller_than_a_batch_fills_it() -> None:
    box = mailbox(size_max=2, batch=BatchOptions(count_max=100, linger_seconds=60))
    sender = asyncio.gather(*(box.put(number) for number in range(4)))
    assert await batch_of(box) == ([0, 1], "full")
    assert await batch_of(box) == ([2, 3], "full")
    await sender


@pytest.mark.parametrize(
    ("sizes", "batches"),
    [
        ([4, 6, 1], [([4, 6], "bytes"), ([1], "time")]),
        ([4, 7, 1], [([4], "bytes"), ([7, 1], "time")]),
        ([50, 1], [([50], "bytes"), ([1], "time")]),
        ([1, 1, 1, 1], [([1, 1, 1], "full"), ([1], "time")]),
        ([9, 9, 9], [([9], "bytes"), ([9], "bytes"), ([9], "time")]),
    ],
)
async def test_a_batch_stays_within_its_bytes_unless_one_message_does_not(
    sizes: list[int], batches: list[tuple[list[int], str]]
) -> None:
    rules = BatchOptions(count_max=3, bytes_max=10, size_of=int_of, linger_seconds=1)
    box = mailbox(batch=rules)
    waiting = asyncio.create_task(batch_of(box))
    await settle()
    for size in sizes:
        box.put_nowait(size)
    found = [await waiting, *[await batch_of(box) for _ in batches[1:]]]
    assert found == batches


async def test_the_bytes_of_an_asked_message_are_those_of_the_message() -> None:
    box = mailbox(batch=BatchOptions(bytes_max=10, size_of=int_of))
    box.put_nowait(asked(10))
    box.put_nowait(1)
    assert await batch_of(box) == ([10], "bytes")


async def test_each_message_is_measured_once() -> None:
    measured: list[object] = []

    def size_of(message: object) -> int:
        measured.append(message)
        return 1

    rules = BatchOptions(count_max=4, bytes_max=100, size_of=size_of, linger_seconds=1)
    box = mailbox(batch=rules)
    waiting = asyncio.create_task(batch_of(box))
    await settle()
    for number in range(6):
        box.put_nowait(number)
        await settle()
    assert await waiting == ([0, 1, 2, 3], "full")
    assert await batch_of(box) == ([4, 5], "time")
    assert measured == list(range(6))


async def test_closing_ends_a_linger_and_hands_out_what_is_inside() -> None:
    box = mailbox(batch=BatchOptions(linger_seconds=60))
    box.put_nowait(1)
    waiting = asyncio.create_task(batch_of(box))
    await settle()
    box.close()
    assert await waiting == ([1], "drain")
    assert await box.next_batch() is None
    assert asyncio.get_running_loop().time() == 0


async def test_closing_wakes_whoever_waits_and_may_be_done_twice() -> None:
    box = mailbox(size_max=1)
    waiting = asyncio.create_task(box.next_batch())
    await settle()
    box.close()
    box.close()
    assert await waiting is None
    with pytest.raises(ActorStopped, match="'box' has stopped; the message was not handled"):
        await box.put(1)


async def test_closing_tells_senders_that_wait_for_room() -> None:
    box = mailbox(size_max=1)
    box.put_nowait(1)
    staying, leaving = (asyncio.create_task(box.put(number)) for number in (2, 3))
    await settle()
    leaving.cancel()
    box.close()
    with pytest.raises(ActorStopped):
        await staying
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert await batch_of(box) == ([1], "full")


async def test_discarding_tells_askers_and_counts_the_told() -> None:
    box = mailbox(batch=BatchOptions(bytes_max=10, size_of=int_of))
    letter = asked(1)
    for item in (letter, 2, 3):
        box.put_nowait(item)
    assert box.discard(ActorStopped("box")) == 2
    assert (len(box), box.discard(ActorStopped("box"))) == (0, 0)
    with pytest.raises(ActorStopped):
        await letter.future


async def test_a_withdrawn_letter_makes_room() -> None:
    box = mailbox(size_max=2)
    letter = asked(1)
    box.put_nowait(0)
    box.put_nowait(letter)
    sender = asyncio.create_task(box.put(2))
    await settle()
    box.withdraw(letter)
    box.withdraw(letter)
    assert list(box.letters) == [0, 2]
    await sender


async def test_a_batch_that_loses_its_only_letter_while_it_lingers_waits_for_the_next() -> None:
    rules = BatchOptions(bytes_max=10, size_of=int_of, linger_seconds=1)
    box = mailbox(batch=rules)
    letter = asked(9)
    box.put_nowait(letter)
    waiting = asyncio.create_task(batch_of(box))
    await settle()
    box.withdraw(letter)
    await asyncio.sleep(5)
    box.put_nowait(8)
    assert await waiting == ([8], "time")
    assert asyncio.get_running_loop().time() == 6


async def test_cancelling_the_wait_for_a_batch_loses_nothing() -> None:
    box = mailbox(batch=BatchOptions(linger_seconds=60))
    box.put_nowait(1)
    waiting = asyncio.create_task(box.next_batch())
    await settle()
    waiting.cancel()
    await settle()
    box.put_nowait(2)
    assert await batch_of(box) == ([1, 2], "time")


async def test_a_batch_is_a_sequence_that_says_what_closed_it() -> None:
    letter = asked("b")
    batch = Batch[str](["a", letter, "c"], "full")
    assert (len(batch), batch[1], batch[-1], list(batch[:2])) == (3, "b", "c", ["a", "b"])
    assert list(reversed(batch)) == ["c", "b", "a"]
    assert repr(batch) == "<Batch of 3 closed by full>"
    assert Batch[str](batch.letters(), "full").asked == {1: letter.future}


async def test_a_reply_goes_to_the_asker_at_that_place_and_the_first_counts() -> None:
    letter = asked("b")
    batch = Batch[str](["a", letter], "full")
    for index, value in ((0, "nobody"), (1, "first"), (1, "second")):
        batch.reply(index, value)
    assert batch.fail(ValueError()) == 1
    assert await letter.future == "first"
