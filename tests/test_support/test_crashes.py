"""The crash model, rule by rule (RELIABILITY 3.2), and the enumeration of its states."""

from __future__ import annotations

import pytest

from fifoq.testing.crashes import after_process_crash, crash_points, image_after, power_images
from fifoq.testing.image import Image
from fifoq.testing.pending import ABSENT, Fill, Link, Outcome, Truncate, Unlink, Write, done
from fifoq.testing.simfiles import SimFiles
from store.files import Handle

NOISE = SimFiles().disk.scraps.read


def found(files: SimFiles, path: str = "/a") -> set[bytes | None]:
    """Every content that a power cut may leave under a path; None if the name may be gone."""
    return {image.files.get(path) for image in power_images(files)}


def with_file(content: bytes = b"") -> tuple[SimFiles, Handle, Handle]:
    """A disk with one durable file `/a`, the root's handle and the file's."""
    files = SimFiles.from_image(Image.of({"/a": content}))
    root = files.open_dir("/")
    return files, root, files.open(root, "a", write=True)


class TestWrites:
    def test_an_unsynced_overwrite_is_there_or_not(self) -> None:
        files, _, handle = with_file(b"old")
        files.pwrite(handle, b"NEW", 0)
        assert found(files) == {b"old", b"NEW"}

    def test_an_unsynced_append_may_have_grown_without_its_data(self) -> None:
        files, _, handle = with_file(b"old")
        files.pwrite(handle, b"NEW", 3)
        assert found(files) == {b"old", b"oldNEW", b"old\0\0\0", b"old" + NOISE(3, 6)}

    def test_any_subset_of_sectors_survives(self) -> None:
        files, _, handle = with_file(b"." * 1536)
        files.pwrite(handle, b"a" * 400 + b"b" * 512 + b"c" * 100, 112)
        assert found(files) == {
            b"." * 112 + first * 400 + second * 512 + third * 100 + b"." * 412
            for first in (b".", b"a")
            for second in (b".", b"b")
            for third in (b".", b"c")
        }

    def test_an_append_torn_in_the_middle_leaves_a_hole(self) -> None:
        files, _, handle = with_file()
        files.pwrite(handle, b"a" * 512 + b"b" * 10, 0)
        assert found(files) == {
            b"",
            bytes(522),
            NOISE(0, 522),
            b"a" * 512,
            b"a" * 512 + bytes(10),
            b"a" * 512 + NOISE(512, 522),
            bytes(512) + b"b" * 10,
            NOISE(0, 512) + b"b" * 10,
            b"a" * 512 + b"b" * 10,
        }

    def test_datasync_makes_it_whole(self) -> None:
        files, _, handle = with_file(b"old")
        files.pwrite(handle, b"NEW!", 0)
        files.datasync(handle)
        assert found(files) == {b"NEW!"}

    def test_datasync_of_one_file_does_nothing_for_another(self) -> None:
        files = SimFiles.from_image(Image.of({"/a": b"old", "/b": b"old"}))
        root = files.open_dir("/")
        first, second = (files.open(root, name, write=True) for name in "ab")
        files.pwrite(first, b"NEW", 0)
        files.pwrite(second, b"NEW", 0)
        files.datasync(first)
        files.sync_dir(root)
        assert found(files, "/a") == {b"NEW"}
        assert found(files, "/b") == {b"old", b"NEW"}

    def test_order_within_a_file_is_not_kept_and_the_later_write_wins(self) -> None:
        files, _, handle = with_file(b"...")
        files.pwrite(handle, b"11", 0)
        files.pwrite(handle, b"22", 1)
        assert found(files) == {b"...", b"11.", b".22", b"122"}

    def test_closing_makes_nothing_durable(self) -> None:
        files, _, handle = with_file(b"old")
        files.pwrite(handle, b"NEW", 0)
        files.close(handle)
        assert found(files) == {b"old", b"NEW"}

    def test_a_sync_through_any_handle_counts(self) -> None:
        files, root, handle = with_file(b"old")
        files.pwrite(handle, b"NEW", 0)
        files.datasync(files.open(root, "a", write=False))
        assert found(files) == {b"NEW"}

    def test_garbage_is_what_the_freed_blocks_held(self) -> None:
        files, root, handle = with_file()
        old = files.create(root, "old")
        files.pwrite(old, b"deleted", 0)
        files.close(old)
        files.unlink(root, "old")
        files.pwrite(handle, b"FRESH", 0)
        assert b"delet" in found(files)

    def test_garbage_may_be_the_tail_that_was_cut_off(self) -> None:
        files, _, handle = with_file(b"head+tail")
        files.truncate(handle, 5)
        files.datasync(handle)
        files.pwrite(handle, b"MORE", 5)
        assert found(files) == {b"head+", b"head+MORE", b"head+\0\0\0\0", b"head+tail"}


class TestTruncates:
    def test_an_unsynced_truncate_is_done_or_not(self) -> None:
        files, _, handle = with_file(b"12345")
        files.truncate(handle, 2)
        assert found(files) == {b"12345", b"12"}
        files.datasync(handle)
        assert found(files) == {b"12"}

    def test_it_is_independent_of_writes(self) -> None:
        files, _, handle = with_file(b"12345")
        files.pwrite(handle, b"X", 0)
        files.truncate(handle, 2)
        assert found(files) == {b"12345", b"X2345", b"12", b"X2"}

    def test_a_write_over_the_cut_may_have_grown_without_its_data(self) -> None:
        files, _, handle = with_file(b"12345")
        files.truncate(handle, 2)
        files.pwrite(handle, b"X", 2)
        assert found(files) == {b"12345", b"12X45", b"12", b"12X", b"12\0", b"123"}

    def test_it_may_lengthen_and_shows_zeros(self) -> None:
        files, _, handle = with_file(b"1")
        files.truncate(handle, 3)
        assert found(files) == {b"1", b"1\0\0"}


class TestNames:
    def test_datasync_does_not_make_a_name_durable(self) -> None:
        files = SimFiles()
        handle = files.create(files.open_dir("/"), "a")
        files.pwrite(handle, b"data", 0)
        files.datasync(handle)
        assert found(files) == {None, b"data"}

    def test_a_synced_name_without_a_synced_file_may_be_empty(self) -> None:
        files = SimFiles()
        root = files.open_dir("/")
        files.pwrite(files.create(root, "a"), b"data", 0)
        files.sync_dir(root)
        assert found(files) == {b"", b"data", b"\0\0\0\0", NOISE(0, 4)}

    def test_sync_dir_of_the_file_itself_does_nothing(self) -> None:
        files, _, handle = with_file(b"old")
        files.pwrite(handle, b"NEW", 0)
        files.sync_dir(handle)
        assert found(files) == {b"old", b"NEW"}

    def test_an_unsynced_unlink_may_come_back(self) -> None:
        files, root, _ = with_file(b"data")
        files.unlink(root, "a")
        assert found(files) == {None, b"data"}
        files.sync_dir(root)
        assert found(files) == {None}

    def test_each_name_goes_its_own_way(self) -> None:
        files = SimFiles()
        root = files.open_dir("/")
        files.create(root, "a")
        files.create(root, "b")
        assert {tuple(image.files) for image in power_images(files)} == {
            (),
            ("/a",),
            ("/b",),
            ("/a", "/b"),
        }

    def test_a_name_used_again_may_show_the_old_file(self) -> None:
        files, root, _ = with_file(b"old")
        files.unlink(root, "a")
        handle = files.create(root, "a")
        files.pwrite(handle, b"new", 0)
        files.datasync(handle)
        assert found(files) == {b"old", None, b"new"}

    def test_a_directory_is_durable_by_its_parent(self) -> None:
        files = SimFiles()
        root = files.open_dir("/")
        files.make_dir("/q")
        inner = files.open_dir("/q")
        files.create(inner, "a")
        files.sync_dir(inner)
        assert {image.paths[1:] for image in power_images(files)} == {(), ("/q", "/q/a")}
        files.sync_dir(root)
        assert {image.paths[1:] for image in power_images(files)} == {("/q", "/q/a")}

    def test_sync_of_the_parent_says_nothing_about_names_below(self) -> None:
        files = SimFiles()
        root = files.open_dir("/")
        files.make_dir("/q")
        files.create(files.open_dir("/q"), "a")
        files.sync_dir(root)
        assert {image.paths[1:] for image in power_images(files)} == {("/q",), ("/q", "/q/a")}


class TestEnumeration:
    def test_the_images_are_new_machines_and_the_disk_is_left_alone(self) -> None:
        files, root, handle = with_file(b"old")
        files.pwrite(handle, b"NEW", 0)
        files.lock_dir(root)
        before = files.copy()
        for image in power_images(files):
            again = SimFiles.from_image(image)
            again.lock_dir(again.open_dir("/"))
            assert found(again) == {again.content("/a")}
        assert found(files) == found(before)
        assert files.pread(handle, 9, 0) == b"NEW"

    def test_unreachable_files_make_no_images(self) -> None:
        files = SimFiles()
        root = files.open_dir("/")
        handle = files.create(root, "a")
        files.unlink(root, "a")
        files.sync_dir(root)
        files.pwrite(handle, b"x" * 5000, 0)
        assert list(power_images(files)) == [Image.of({})]

    def test_no_image_comes_twice_and_all_come_at_the_limit(self) -> None:
        files, _, handle = with_file(bytes(2048))
        files.pwrite(handle, b"x" * 2048, 0)
        assert len(list(power_images(files, limit=16))) == 16
        sampled = list(power_images(files, limit=15, samples=4))
        assert len(sampled) == len(set(sampled)) < 16

    def test_equal_outcomes_merge_before_they_are_counted(self) -> None:
        """Twenty writes of the same bytes have 2**20 choices and two results."""
        files, _, handle = with_file(b"old")
        for _ in range(20):
            files.pwrite(handle, b"NEW", 0)
        assert found(files) == {b"old", b"NEW"}

    def test_the_sample_holds_the_telling_images(self) -> None:
        files, _, handle = with_file(b"." * 20)
        for index in range(20):
            files.pwrite(handle, b"x", index)
        sample = {image.files["/a"] for image in power_images(files, samples=5)}
        for index in range(20):
            assert b"x" * index + b"." * (20 - index) in sample
            assert b"." * index + b"x" + b"." * (19 - index) in sample
            assert b"x" * index + b"." + b"x" * (19 - index) in sample
        assert b"x" * 20 in sample

    def test_samples_follow_the_seed(self) -> None:
        files, _, handle = with_file()
        for index in range(30):
            files.pwrite(handle, b"x" * 700, index * 700)
        first, again, other = (
            [image.digest for image in power_images(files, samples=20, seed=seed)]
            for seed in (1, 1, 2)
        )
        assert first == again
        assert first != other

    def test_sampling_and_enumeration_agree_on_the_whole_set(self) -> None:
        """They are computed in two ways; enough samples of a small state meet all of it."""
        files = SimFiles.from_image(Image.of({"/a": b"." * 600, "/b": b"bb"}))
        root = files.open_dir("/")
        handle = files.open(root, "a", write=True)
        files.pwrite(handle, b"1" * 700, 0)
        files.unlink(root, "b")
        files.truncate(handle, 650)
        files.pwrite(files.create(root, "c"), b"new", 0)
        every = set(power_images(files))
        sampled = set(power_images(files, limit=1, samples=20_000))
        assert sampled == every

    def test_a_plan_says_how_an_image_came_about(self) -> None:
        files, root, handle = with_file()
        files.pwrite(handle, b"NEW", 0)
        files.create(root, "b")
        for limit in (1, 4096):
            for image in power_images(files, limit=limit):
                plan = dict(image.plan)
                assert image_after(files, plan.__getitem__) == image
                assert image.describe().count("->") == 2

    def test_one_chosen_image(self) -> None:
        files, root, handle = with_file(b"old")
        files.pwrite(handle, b"NEW", 3)
        files.unlink(root, "a")

        def outcome(operation: Write | Truncate | Link | Unlink) -> Outcome:
            return Outcome(0, Fill.ZERO) if isinstance(operation, Write) else ABSENT

        assert image_after(files, outcome).files == {"/a": b"old\0\0\0"}
        assert image_after(files, done).files == {}


class TestCrashPoints:
    @staticmethod
    def scenario(files: SimFiles) -> None:
        root = files.open_dir("/")
        handle = files.create(root, "a")
        files.pwrite(handle, b"one", 0)
        files.datasync(handle)
        files.datasync(handle)
        files.sync_dir(root)
        files.sync_dir(root)
        files.close(handle)

    def test_every_state_is_visited_once(self) -> None:
        seen: list[tuple[int, int, set[bytes | None]]] = []
        count = crash_points(
            self.scenario,
            lambda index, files: seen.append((index, len(files.disk.pending), found(files))),
        )
        assert count == 5
        assert seen == [
            (0, 0, {None}),
            (1, 1, {None, b""}),
            (2, 2, {None, b"", b"one", b"\0\0\0", NOISE(0, 3)}),
            (3, 1, {None, b"one"}),
            (4, 0, {b"one"}),
        ]

    def test_a_visit_sees_what_was_confirmed_of_its_state(self) -> None:
        confirmed: list[bytes] = []
        seen: list[int] = []

        def run(files: SimFiles) -> None:
            handle = files.open(files.open_dir("/"), "a", write=True)
            for index in range(3):
                files.pwrite(handle, b"x", index)
                files.datasync(handle)
                confirmed.append(b"x")

        def visit(index: int, files: SimFiles) -> None:
            seen.append(len(confirmed))
            for image in power_images(files):
                assert image.files["/a"].startswith(b"".join(confirmed))

        files = SimFiles.from_image(Image.of({"/a": b""}))
        crash_points(run, visit, files=files)
        assert seen == [0, 0, 1, 1, 2, 2, 3]

    def test_a_scenario_that_raises_is_visited_where_it_stopped(self) -> None:
        seen: list[int] = []

        def run(files: SimFiles) -> None:
            files.make_dir("/q")
            files.make_dir("/q")

        with pytest.raises(FileExistsError):
            crash_points(run, lambda index, files: seen.append(len(files.disk.pending)))
        assert seen == [0, 1]

    def test_process_crash_then_work_then_power_crash(self) -> None:
        """What only the page cache held is still lost after the next process has read it."""
        after: list[set[bytes | None]] = []

        def visit(index: int, files: SimFiles) -> None:
            if index != 2:
                return
            second = after_process_crash(files)
            root = second.open_dir("/")
            handle = second.open(root, "a", write=True)
            assert second.pread(handle, 9, 0) == b"one"
            after.append(found(second))
            second.datasync(handle)
            second.sync_dir(root)
            after.append(found(second))

        crash_points(self.scenario, visit)
        assert after == [{None, b"", b"one", b"\0\0\0", NOISE(0, 3)}, {b"one"}]

    def test_a_forgotten_sync_is_found(self) -> None:
        """The tools find a store that confirms before it syncs, and clear one that does not."""

        def lost_count(*, sync: bool) -> int:
            confirmed, lost = 0, 0

            def run(files: SimFiles) -> None:
                nonlocal confirmed
                root = files.open_dir("/")
                handle = files.create(root, "log")
                files.sync_dir(root)
                for index in range(4):
                    files.pwrite(handle, b"record--", index * 8)
                    if sync:
                        files.datasync(handle)
                    confirmed += 1

            def visit(index: int, files: SimFiles) -> None:
                nonlocal lost
                for image in power_images(files):
                    kept = image.files.get("/log", b"")
                    lost += not kept.startswith(b"record--" * confirmed)

            crash_points(run, visit)
            return lost

        assert lost_count(sync=True) == 0
        assert lost_count(sync=False) > 0
