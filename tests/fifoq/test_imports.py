"""What importing fifoq brings along, and what it refuses."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import actors
import fifoq
from fifoq import _shadow

ROOT = Path(__file__).parents[2]
HEAVY = ("pyspark", "py4j", "pyarrow", "numpy", "pandas", "typer", "rich", "uvloop")


def python(code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    lines = f"import sys; sys.path[:0] = {[str(p) for p in (*path, ROOT)]!r}\n{code}"
    return subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, cwd="/")


def test_importing_fifoq_loads_nothing_heavy() -> None:
    found = python(f"import fifoq; print([m for m in {HEAVY!r} if m in sys.modules])")
    assert found.stdout == "[]\n", found.stderr


@pytest.mark.parametrize("name", ["store", "actors"])
def test_a_file_in_the_way_is_named(name: str, tmp_path: Path) -> None:
    shadow = tmp_path / f"{name}.py"
    shadow.write_text("")
    found = python("import fifoq", tmp_path)
    assert found.returncode == 1
    last = found.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: fifoq needs its own package '{name}'")
    assert str(shadow) in last
    assert last.endswith("Rename that file, or run from another directory.")


def test_a_missing_package_and_windows_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(ImportError, match="finds none"):
            _shadow.check_packages()
    with monkeypatch.context() as patch:
        patch.setattr("fifoq._shadow.os.name", "nt")
        with pytest.raises(ImportError, match="Windows"):
            _shadow.check_packages()


@pytest.mark.parametrize("package", ["store", "actors"])
def test_nothing_below_fifoq_knows_it(package: str) -> None:
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            tops = {name.partition(".")[0] for name in names}
            assert not tops & ({"store", "actors", "fifoq"} - {package}), path


def test_public_names_are_sorted_importable_and_documented() -> None:
    assert fifoq.__all__ == sorted(fifoq.__all__)
    for name in fifoq.__all__:
        assert inspect.getdoc(getattr(fifoq, name)), name
    assert actors.Actor.__module__.startswith("actors")
