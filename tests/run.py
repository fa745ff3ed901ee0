"""The test command: `python -m tests.run [--deep] [pytest arguments]`.

Without arguments the whole suite runs on all cores. `--deep` adds the long programme.
"""

from __future__ import annotations

import os
import sys

import pytest


def main(arguments: list[str]) -> int:
    """Run pytest; returns its exit status."""
    deep = "--deep" in arguments
    rest = [argument for argument in arguments if argument != "--deep"]
    os.environ["FIFOQ_DEEP"] = "1" if deep else ""
    defaults = [] if deep else ["-m", "not deep"]
    if not any(argument.startswith("-n") for argument in rest):
        defaults += ["-n", str(os.cpu_count() or 1), "--dist", "worksteal"]
    return int(pytest.main([*defaults, *rest]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
