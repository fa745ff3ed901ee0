"""Is the model honest? Random calls must come out alike on SimFiles and on real file systems.

Every sequence follows from its seed. A difference fails with the seed, the file system and the
calls that led to it; `_compare(seed, directory)` runs it again.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from fifoq.testing.image import Kind
from fifoq.testing.simfiles import OFFSET_MAX, SimFiles
from store.files import Files, Handle
from store.osfiles import OsFiles
from tests.support.figures import record

SEQUENCES = 3_000
CALLS_MIN, CALLS_MAX = 12, 25
FINAL = "final state"

FILE_NAMES = ("a", "b", "c", "é")
ODD_NAMES = (
    *("sub", "to_sub", "to_a", "dangling", "loop", "fifo"),
    *("missing", "", ".", "..", "x" * 255, "x" * 256, "nul\0"),
)
PATHS = (
    *("", "/", "/sub", "/sub/", "/sub/../sub", "/sub/in", "/to_sub", "/to_sub/in"),
    *("/new", "/new/x", "/a", "/a/x", "/to_a", "/dangling", "/dangling/x", "/loop", "/loop/x"),
    *("/fifo", "/fifo/x", "/missing/x", "/" + "x" * 256, "/nul\0"),
)
SIM_BASE = "/base"
WORTH_MEETING = (
    *("make_dir", "open_dir", "lock_dir", "list_dir", "sync_dir", "create", "open", "unlink"),
    *("size", "pread", "pwrite", "truncate", "datasync", "forget_cache", "close"),
    *("('OSError', 9)", "('OSError', 22)", "('OSError', 40)", "('OSError', 36)"),
    *("('BlockingIOError', 11)", "('FileExistsError', 17)", "('FileNotFoundError', 2)"),
    *("('IsADirectoryError', 21)", "('NotADirectoryError', 20)", "('ValueError', None)"),
)


@dataclass
class Pair:
    """One handle on both sides."""

    simulated: Handle
    real: Handle
    directory: bool


class Sequence:
    """One random sequence, driven by its seed, on a model and a real directory."""

    def __init__(self, seed: int, base: Path) -> None:
        self.random = Random(seed)
        self.base = str(base)
        self.simulated = SimFiles()
        self.real = OsFiles()
        self.open: list[Pair] = []
        self.closed: list[Pair] = []
        self.history: list[str] = []
        self._prepare()

    def run(self) -> str | None:
        """Returns what differed, or None."""
        difference = self._step("open_dir", "", directory=True)
        for index in range(self.random.randint(CALLS_MIN, CALLS_MAX)):
            if difference is not None:
                return difference
            if index == 0:
                difference = self._step("open for writing", "a", pair=self.open[0])
            else:
                difference = self._random_step()
        if difference is not None:
            return difference
        simulated, real = self._simulated_tree(), self._real_tree()
        return None if simulated == real else f"{FINAL}: {simulated} but really {real}"

    def close_real(self) -> None:
        for pair in self.open:
            os.close(pair.real)

    def _prepare(self) -> None:
        links = {"to_sub": "sub", "to_a": "a", "dangling": "missing", "loop": "loop"}
        os.mkdir(self.base)
        os.mkdir(f"{self.base}/sub")
        os.mkfifo(f"{self.base}/fifo")
        self.simulated.add_dir(SIM_BASE)
        self.simulated.add_dir(f"{SIM_BASE}/sub")
        self.simulated.add_fifo(f"{SIM_BASE}/fifo")
        for name, target in links.items():
            os.symlink(target, f"{self.base}/{name}")
            self.simulated.add_symlink(f"{SIM_BASE}/{name}", target)
        if self.random.random() < 0.7:
            content = self.random.randbytes(self.random.choice((0, 5, 600)))
            Path(self.base, "a").write_bytes(content)
            self.simulated.add_file(f"{SIM_BASE}/a", content)

    def _random_step(self) -> str | None:
        random = self.random
        name = random.choice(FILE_NAMES if random.random() < 0.75 else ODD_NAMES)
        offset = random.choice((0, 0, 1, 7, 40, 511, 600, 5000, -1, OFFSET_MAX))
        count = random.choice((0, 1, 10, 512, 700, 9000, -1))
        data = random.randbytes(random.choice((0, 1, 9, 30, 513, 1500)))
        wrapped = random.choice((bytes, bytearray, memoryview))(data)
        size = random.choice((0, 3, 20, 600, 6000, -1))
        in_directory: dict[str, tuple[object, ...]] = {
            "create": (name,),
            "open for reading": (name,),
            "open for writing": (name,),
            "unlink": (name,),
            "list_dir": (),
            "sync_dir": (),
            "lock_dir": (),
        }
        on_file: dict[str, tuple[object, ...]] = {
            "size": (),
            "pread": (count, offset),
            "pwrite": (wrapped, offset),
            "truncate": (size,),
            "datasync": (),
            "forget_cache": (),
            "close": (),
        }
        kind = random.random()
        if kind < 0.05:
            return self._step("open_dir", random.choice(("", "/sub")), directory=True)
        if kind < 0.1:
            return self._step("open_dir", random.choice(PATHS), directory=True)
        if kind < 0.15:
            return self._step("make_dir", random.choice(PATHS))
        calls = in_directory if kind < 0.5 else on_file
        call = random.choice(tuple(calls))
        if call == "close" and random.random() < 0.5:
            call = "pwrite"
        pair = self._pick(directory=calls is in_directory)
        return None if pair is None else self._step(call, *calls[call], pair=pair)

    def _pick(self, *, directory: bool) -> Pair | None:
        """Mostly a fitting handle, at times a wrong one, at times one that is closed.

        The kernel gives a closed number out again, so it is used only while nobody has it.
        """
        taken = {pair.real for pair in self.open}
        closed = [pair for pair in self.closed if pair.real not in taken]
        if closed and self.random.random() < 0.06:
            return self.random.choice(closed)
        fitting = [pair for pair in self.open if pair.directory is directory]
        if self.random.random() < 0.06 or not fitting:
            fitting = self.open
        return self.random.choice(fitting) if fitting else None

    def _step(
        self, call: str, *args: object, pair: Pair | None = None, directory: bool = False
    ) -> str | None:
        simulated, simulated_handle = self._outcome(self.simulated, call, args, pair)
        real, real_handle = self._outcome(self.real, call, args, pair)
        label = "" if pair is None else f"#{pair.simulated} "
        self.history.append(f"{call} {label}{args!r:.80} -> {simulated!r:.80}")
        if simulated != real:
            if real_handle is not None:
                os.close(real_handle)
            return f"{self.history[-1]} but really {real!r:.80}"
        if simulated_handle is not None and real_handle is not None:
            self.open.append(Pair(simulated_handle, real_handle, directory))
        if call == "close" and pair in self.open:
            self.open.remove(pair)
            self.closed.append(pair)
        return None

    def _outcome(
        self, files: Files, call: str, args: tuple[object, ...], pair: Pair | None
    ) -> tuple[object, Handle | None]:
        """What a call gave, in a form both sides share, and the handle if it opened one."""
        on_model = files is self.simulated
        if pair is not None:
            args = (pair.simulated if on_model else pair.real, *args)
        else:
            args = (f"{SIM_BASE if on_model else self.base}{args[0]}",)
        method, _, mode = call.partition(" for ")
        options = {"write": mode == "writing"} if mode else {}
        try:
            result: object = getattr(files, method)(*args, **options)
        except (OSError, ValueError) as error:
            return (type(error).__name__, getattr(error, "errno", None)), None
        if method in ("create", "open", "open_dir"):
            assert isinstance(result, int)
            return "a handle", Handle(result)
        if isinstance(result, list):
            return sorted(result), None
        if method == "size" and pair is not None and pair.directory:
            return "whatever a directory says", None
        return result, None

    def _simulated_tree(self) -> dict[str, object]:
        image = self.simulated.image()
        rows = zip(image.paths, image.places, image.contents, strict=True)
        tree: dict[str, object] = {}
        for path, place, content in rows:
            if path.startswith(f"{SIM_BASE}/"):
                name = path.removeprefix(SIM_BASE)
                tree[name] = content if place.kind is Kind.FILE else place.kind
        return tree

    def _real_tree(self) -> dict[str, object]:
        tree: dict[str, object] = {}
        for path in Path(self.base).rglob("*"):
            name = str(path).removeprefix(self.base)
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                tree[name] = path.read_bytes()
            elif stat.S_ISLNK(mode):
                tree[name] = Kind.SYMLINK
            else:
                tree[name] = Kind.DIRECTORY if stat.S_ISDIR(mode) else Kind.FIFO
        return tree


def _compare(seed: int, directory: Path) -> Sequence:
    sequence = Sequence(seed, directory / str(seed))
    try:
        difference = sequence.run()
    finally:
        sequence.close_real()
        shutil.rmtree(sequence.base)
    if difference is not None:
        calls = "\n  ".join(sequence.history)
        pytest.fail(f"seed {seed} on {_file_system(directory)}: {difference}\n  {calls}")
    return sequence


def _file_system(directory: Path) -> str:
    """The type of the file system that holds a directory, as the kernel calls it."""
    found = ("", "unknown")
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, kind, *_ = line.split()
        if directory.resolve().is_relative_to(mount) and len(mount) >= len(found[0]):
            found = (mount, kind)
    return found[1]


@pytest.fixture(params=["ext4", "tmpfs"])
def real_directory(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Path]:
    """A directory on the wanted file system, or on what there is, and then that is printed."""
    wanted: str = request.param
    parent = Path("/dev/shm") if wanted == "tmpfs" else tmp_path
    if not parent.is_dir():
        pytest.skip(f"differential: {SEQUENCES} sequences NOT run: no {parent} for {wanted}")
    if _file_system(parent) != wanted:
        with capsys.disabled():
            print(f"\ndifferential: {SEQUENCES} sequences on {_file_system(parent)}, not {wanted}")
    with tempfile.TemporaryDirectory(dir=parent) as name:
        yield Path(name)


def test_the_model_answers_as_the_real_file_system_does(real_directory: Path) -> None:
    met: Counter[str] = Counter()
    calls = 0
    for seed in range(SEQUENCES):
        for line in _compare(seed, real_directory).history:
            calls += 1
            met[line.partition(" ")[0]] += 1
            met[line.rpartition("-> ")[2]] += 1
    kind = _file_system(real_directory)
    record("differential", file_systems=kind, sequences=SEQUENCES, calls=calls, differences=0)
    # A comparison that never met an error, or never wrote, would prove nothing.
    rare = {expected: met[expected] for expected in WORTH_MEETING if met[expected] < 50}
    assert not rare


def test_a_model_that_answers_wrongly_is_found(tmp_path: Path) -> None:
    """The comparison itself is tried on a model with one errno changed."""

    class WrongFiles(SimFiles):
        def unlink(self, directory: Handle, name: str) -> None:
            try:
                super().unlink(directory, name)
            except IsADirectoryError:
                raise PermissionError(1, "as POSIX has it") from None

    differences = 0
    for seed in range(300):
        sequence = Sequence(seed, tmp_path / str(seed))
        wrong = WrongFiles.from_image(sequence.simulated.image())
        sequence.simulated = wrong
        differences += sequence.run() is not None
        sequence.close_real()
    assert differences > 0
