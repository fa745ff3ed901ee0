"""The shape of the packages, read from their syntax trees: who may reach the world, and whom."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Literal, get_origin

import pytest

import actors
import store

ROOT = Path(__file__).parents[2]
PACKAGES = ("store", "actors", "fifoq")

# Everything that touches the operating system, time or chance. `osfiles` alone may use it.
WORLD = {
    *("os", "io", "time", "random", "threading", "pathlib", "socket", "subprocess", "fcntl"),
    *("shutil", "tempfile", "mmap", "select", "selectors", "signal", "secrets", "datetime"),
    *("multiprocessing", "concurrent", "asyncio", "glob", "fileinput", "ctypes", "uuid"),
}
WORLD_CALLS = {"open", "input", "print", "breakpoint"}
UNSAFE = {"pickle", "marshal", "shelve", "dbm", "dill", "cloudpickle", "code", "codeop"}
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__"}

# The seam itself; and what may name the real thing as the default on its other side.
SEAM = {"store/osfiles.py"}
SURFACES = {"store/__main__.py"}
# What single modules of the actors need of the world: an event loop that is made, signals that are
# heard, and the wall clock for a moment that somebody names. Handlers are timed by a clock that
# decides nothing.
ACTORS_WORLD = {
    "actors/actor.py": {"datetime"},
    "actors/draining.py": {"signal"},
    "actors/system.py": {"signal"},
    "actors/testing/virtual.py": {"selectors"},
    "actors/timers.py": {"datetime", "time"},
    "actors/timing.py": {"time"},
}
ALLOWED_IMPORTS = {"store": set(), "actors": set(), "fifoq": {"store", "actors"}}


def modules(package: str) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(), str(path))


def imported(tree: ast.Module) -> set[str]:
    """Top-level names of everything that is imported, anywhere in the module."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found.add((node.module or "").partition(".")[0])
    return found


def called(tree: ast.Module) -> set[str]:
    """Plain names that are called."""
    return {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


ACTORS = [pytest.param(name, tree, id=name) for name, tree in modules("actors")]
STORE = [pytest.param(name, tree, id=name) for name, tree in modules("store")]


@pytest.mark.parametrize(("name", "tree"), STORE)
def test_only_the_seam_touches_the_world(name: str, tree: ast.Module) -> None:
    if name not in SEAM | SURFACES:
        assert not imported(tree) & WORLD
        assert not called(tree) & WORLD_CALLS


@pytest.mark.parametrize(("name", "tree"), STORE)
def test_only_opening_names_the_real_disk(name: str, tree: ast.Module) -> None:
    users = {"store/opening.py", "store/reader.py", "store/check.py", *SEAM, *SURFACES}
    sources = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert name in users or "store.osfiles" not in sources


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_stored_is_ever_run(package: str) -> None:
    for name, tree in modules(package):
        assert not imported(tree) & UNSAFE, name
        assert not called(tree) & UNSAFE_CALLS, name


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_down(package: str) -> None:
    for name, tree in modules(package):
        others = imported(tree) & set(PACKAGES) - {package}
        assert others <= ALLOWED_IMPORTS[package], name


@pytest.mark.parametrize(("name", "tree"), ACTORS)
def test_actors_touch_no_files_and_take_time_from_the_loop(name: str, tree: ast.Module) -> None:
    allowed = {"asyncio", "random"} | ACTORS_WORLD.get(name, set())
    assert not imported(tree) & (WORLD - allowed | {"aiofiles"})
    assert not called(tree) & WORLD_CALLS
    assert "sleep" not in called(tree), "asyncio.sleep is named in full"


FORMAT = (
    "keys",
    "checksum",
    "compression",
    "frames",
    "blocks",
    "encoding",
    "genesis",
    "checkpoint",
    "index",
    "packing",
    "ranges",
)


@pytest.mark.parametrize("module", FORMAT)
def test_the_format_knows_no_files_and_no_log(module: str) -> None:
    tree = dict(modules("store"))[f"store/{module}.py"]
    sources = {
        (node.module or "").removeprefix("store.")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("store")
    }
    assert sources <= {*FORMAT, "errors"}
    assert "logging" not in imported(tree)


@pytest.mark.parametrize("package", [store, actors])
def test_public_names_are_sorted_importable_and_documented(package: ModuleType) -> None:
    assert package.__all__ == sorted(package.__all__)
    assert len(set(package.__all__)) == len(package.__all__)
    for name in package.__all__:
        found = getattr(package, name)
        if get_origin(found) is Literal:
            continue  # A set of words has no docstring; the reference explains each.
        assert inspect.getdoc(found), name
        if inspect.isclass(found):
            assert "__doc__" in vars(found), name
            assert vars(found)["__doc__"], name


@pytest.mark.parametrize("package", [store, actors])
def test_everything_imported_by_the_package_is_public(package: ModuleType) -> None:
    tree = dict(modules(package.__name__))[f"{package.__name__}/__init__.py"]
    names = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert names == set(package.__all__)


@pytest.mark.parametrize(("name", "tree"), STORE + ACTORS)
def test_every_module_says_what_it_knows(name: str, tree: ast.Module) -> None:
    assert ast.get_docstring(tree)
