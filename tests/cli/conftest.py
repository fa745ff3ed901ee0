"""One live store for all tests of a module that do not care what else is in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.support import Owner, owner


class Live:
    """A store that another process owns."""

    def __init__(self, path: Path, process: Owner) -> None:
        self.path, self.process = path, process

    def do(self, line: str) -> str:
        return self.process.do(line)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    path = tmp_path_factory.mktemp("live")
    with owner(path) as process:
        yield Live(path, process)
