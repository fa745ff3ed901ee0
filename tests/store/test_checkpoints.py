"""Writing checkpoints: two copies in turn, with room to be overwritten on a full disk."""

from __future__ import annotations

import errno

import pytest

from fifoq.testing.disk import SyncFailure
from fifoq.testing.simfiles import SimFiles
from store import DurabilityError, Log, Status
from store.checkpoint import decode_checkpoint
from store.checkpoints import SLACK_BYTES
from store.files import Handle
from tests.store.conftest import PATH, OpenStore

NAMES = ("checkpoint.a", "checkpoint.b")


def numbers(files: SimFiles) -> list[int]:
    return [decode_checkpoint(files.content(f"{PATH}/{name}"))[1].number for name in NAMES]


def test_the_two_copies_are_written_in_turn(log: Log, files: SimFiles) -> None:
    seen = [numbers(files)]
    for _ in range(3):
        log.checkpoint()
        seen.append(numbers(files))
    assert seen == [[1, 2], [3, 2], [3, 4], [5, 4]]


def test_the_turn_goes_on_after_a_reopen(log: Log, open_store: OpenStore, files: SimFiles) -> None:
    log.close()
    assert numbers(files) == [3, 2]
    again = open_store()
    again.checkpoint()
    assert numbers(files) == [3, 4]


def test_a_copy_that_is_missing_is_made_and_its_name_is_durable(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [b"a"])
    log.close()
    files.unlink(files.open_dir(PATH), "checkpoint.b")
    again = open_store()
    again.checkpoint()
    assert numbers(files) == [3, 4]
    assert not files.disk.pending


def test_a_copy_whose_name_cannot_be_made_durable_is_not_relied_on(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [b"a"])
    log.close()
    files.unlink(files.open_dir(PATH), "checkpoint.b")
    again = open_store()
    handles = len(files._handles)

    def fail(index: int, name: str, args: tuple[object, ...]) -> None:
        if name == "sync_dir":
            raise OSError(errno.EIO, "Input/output error")

    files.before_op = fail
    with pytest.raises(DurabilityError):
        again.checkpoint()
    files.before_op = None
    assert again.status is Status.FAILED
    assert len(files._handles) == handles
    again.release()
    assert [key.counter for key in open_store().keys("orders")] == [1]


def test_a_copy_has_room_to_grow_and_is_overwritten_in_place(log: Log, files: SimFiles) -> None:
    room = log.checkpoints.room()
    assert room >= log.checkpoints.size + SLACK_BYTES
    log.put("orders", [b"a"])
    files.op_log = []
    log.checkpoint()
    writes = [args for name, args in files.op_log if name == "pwrite"]
    assert len(writes) == 1
    assert isinstance(writes[0][1], bytes)
    assert len(writes[0][1]) == log.checkpoints.size < room


def test_a_copy_that_outgrew_its_room_gets_half_as_much_again(log: Log, files: SimFiles) -> None:
    log.checkpoints.write(9, b"x" * 10_000)
    assert sizes(files) == [15_000 + SLACK_BYTES, sizes(files)[1]]


def test_a_copy_holds_what_removals_may_need_and_an_eighth_more(log: Log, files: SimFiles) -> None:
    log.checkpoints.write(9, b"x" * 10_000, needed=80_000)
    log.checkpoints.write(10, b"x" * 10_000, needed=81_000)
    assert sizes(files) == [90_000, 91_125]
    log.checkpoints.write(11, b"x" * 11_000, needed=90_000)
    assert sizes(files) == [90_000, 91_125]
    assert log.checkpoints.room() == 90_000


def sizes(files: SimFiles) -> list[int]:
    return [len(files.content(f"{PATH}/{name}")) for name in NAMES]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_room_that_cannot_be_held_is_done_without_unless_the_disk_fails(
    log: Log, open_store: OpenStore, files: SimFiles, error: int
) -> None:
    for number in range(30):
        log.put(f"queue-{number}", [b"a"])
    for name in NAMES:
        files.truncate(log.checkpoints._open(name), log.checkpoints.size)

    def fail(index: int, name: str, args: tuple[object, ...]) -> None:
        if name == "pwrite" and isinstance(args[1], bytes) and not any(args[1]):
            raise OSError(error, "as the test wants it")

    files.before_op = fail
    if error == errno.EIO:
        with pytest.raises(DurabilityError):
            log.checkpoint()
    else:
        log.checkpoint()
    files.before_op = None
    assert log.status is (Status.FAILED if error == errno.EIO else Status.OPEN)
    log.close()
    assert len(open_store().state.queues) == 30


def test_a_failed_sync_leaves_the_other_copy_the_newest(
    log: Log, open_store: OpenStore, files: SimFiles
) -> None:
    log.put("orders", [b"a"])
    files.fail_next_datasync(SyncFailure.LOST)
    with pytest.raises(DurabilityError):
        log.checkpoint()
    log.close()
    assert [key.counter for key in open_store().keys("orders")] == [1]


def test_a_handle_that_cannot_be_kept_is_given_back(log: Log, files: SimFiles) -> None:
    class NoMemory(dict[str, Handle]):
        def __setitem__(self, name: str, handle: Handle) -> None:
            raise MemoryError

    log.checkpoints.close()
    handles = len(files._handles)
    log.checkpoints._handles = NoMemory()
    with pytest.raises(MemoryError):
        log.checkpoint()
    assert len(files._handles) == handles


def test_closing_twice_is_fine(log: Log) -> None:
    log.checkpoints.close()
    log.checkpoints.close()
    log.checkpoint()
    assert log.status is Status.OPEN
