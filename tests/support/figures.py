"""Figures that a test measured: printed, and kept as JSON lines where FIFOQ_FIGURES says."""

from __future__ import annotations

import json
import os


def record(name: str, **figures: int | float | str) -> None:
    """Print one line of figures and append it, if asked to, to the file of all figures."""
    line = json.dumps({"name": name, **figures}, sort_keys=False)
    print(line)
    path = os.environ.get("FIFOQ_FIGURES")
    if path:
        # One short write to a file opened for appending: workers beside us do not mix with it.
        with open(path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
