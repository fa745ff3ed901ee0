"""The coverage command: `python -m tests.cover` measures branches of `store` and demands them all.

The long sweeps are left out: what they reach by chance, a test with a name must reach on purpose.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
SWEEPS = (
    *("exhaustive", "stateful", "damage", "io_errors", "memory_errors", "fuzz"),
    *("full_disk", "golden"),
)
PERCENT = 100


def main() -> int:
    """Print the report; the exit status is 0 if the tests passed and no branch is missing."""
    status, _ = measure()
    return status


def measure() -> tuple[int, dict[str, int | float]]:
    """Run the store's tests under coverage; returns an exit status and the totals."""
    ignored = [f"--ignore=tests/store/test_{name}.py" for name in SWEEPS]
    with tempfile.TemporaryDirectory() as scratch:
        environment = {**os.environ, "COVERAGE_FILE": f"{scratch}/data"}
        # These tests are counted where the whole suite runs.
        environment.pop("FIFOQ_FIGURES", None)

        def run(*arguments: str) -> int:
            command = [sys.executable, "-m", "coverage", *arguments]
            return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode

        tests = ["pytest", "-q", "-m", "not deep", "--hypothesis-seed=0", "tests/store", *ignored]
        status = run("run", "-m", *tests)
        status = run("report", f"--fail-under={PERCENT}", "--skip-covered") or status
        run("json", "-q", "-o", f"{scratch}/totals")
        totals = json.loads(Path(f"{scratch}/totals").read_text())["totals"]
    return status, {
        "statements": totals["num_statements"],
        "branches": totals["num_branches"],
        "missing_statements": totals["missing_lines"],
        "missing_branches": totals["missing_branches"],
        "percent": round(totals["percent_covered"], 2),
    }


if __name__ == "__main__":
    sys.exit(main())
