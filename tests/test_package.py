"""What is built from a clean tree: a wheel with all packages and nothing else, which works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import fifoq

ROOT = Path(__file__).parents[1]
PACKAGES = ("store", "actors", "fifoq")
# One build for all of them.
pytestmark = pytest.mark.xdist_group("package")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built of what the repository tracks, in a copy, without asking an index."""
    directory = tmp_path_factory.mktemp("wheel")
    tree = directory / "tree"
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, tracked.stdout.split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"),
            *("--no-build-isolation", "-w", directory, tree),
        ],
        check=True,
        timeout=120,
    )
    (found,) = directory.glob("*.whl")
    return found


def test_the_wheel_holds_every_module_and_nothing_that_is_not_for_users(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    modules = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    extra = {f"{package}/py.typed" for package in PACKAGES} | {"fifoq/spark/log4j2.properties"}
    assert names == modules | extra


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        said = archive.read(metadata).decode()
        entry_points = archive.read(metadata.replace("METADATA", "entry_points.txt")).decode()
        licence = metadata.replace("METADATA", "licenses/LICENSE")
        assert licence in archive.namelist()
    assert f"Version: {fifoq.__version__}\n" in said
    assert PROJECT["project"]["version"] == fifoq.__version__
    assert "Requires-Python: >=3.11" in said
    assert "fifoq = fifoq.cli:main" in entry_points


def test_what_the_wheel_holds_works_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    """Unpacked elsewhere, in front of everything else, with the checkout not on the path."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "there")
    code = (
        "import fifoq, fifoq.sync, store, actors, sys\n"
        "assert all(m.__file__.startswith(sys.argv[1]) for m in (fifoq, store, actors))\n"
        "with fifoq.sync.open(sys.argv[2]) as q:\n"
        "    q.put(b'x'); print(q.take())\n"
        "from fifoq.cli import main; sys.argv[1:] = ['version']; main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "there"), str(tmp_path / "store")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "there")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"b'x'\n{fifoq.__version__}\n"


def test_the_changelog_has_a_section_for_what_comes_next() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert text.index("## Unreleased") < len(text)
    version = PROJECT["project"]["version"].partition(".dev")[0]
    assert version.count(".") == 2
