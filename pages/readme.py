"""The figures of the README, taken from the kept run: `python -m pages.readme` writes them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from pages import bench

README: Final = Path(__file__).parents[1] / "README.md"
HEAD: Final = "| 100 bytes each | there | against, in the same run | command |\n|---|---|---|---|"
SHOWN: Final = {
    "64-sync": "64 tasks, each awaits the disk for each put",
    "one-sync": "one task that does",
    "put-many-sync": "batches of 100, each synced",
    "put-memory": "`put` at `memory`",
    "take-memory": "`take` at `memory`",
    "actor-tell": "actor, tell until handled, in memory",
}
"""Groups of rows, the first row of each."""


def table(run: dict[str, Any]) -> str:
    """A line for each of SHOWN that the run has."""
    lines = [HEAD]
    for group, title in SHOWN.items():
        row = next((row for row in run["rows"] if row["group"] == group), None)
        if row is not None:
            ours, _, rest = row["detail"].partition(" against ")
            against = rest.partition(";")[0]
            ratio = f"{row['value']:.2f} ×"
            lines.append(f"| {title} | {ours} | {ratio} {against} | `fifoq bench --rows {group}` |")
    return "\n".join(lines)


def verdict(run: dict[str, Any]) -> str:
    """How many rows met their target."""
    met = sum(row["met"] for row in run["rows"])
    return f"{met} of its {len(run['rows'])} rows met their target"


def main() -> None:
    run = json.loads(bench.KEPT.read_text())
    text = README.read_text()
    found = re.search(r"^\| 100 bytes each \|.*?(?=\n\n)", text, re.DOTALL | re.MULTILINE)
    assert found is not None
    text = text.replace(found[0], table(run))
    README.write_text(re.sub(r"\d+ of its \d+ rows met their target", verdict(run), text))


if __name__ == "__main__":
    main()
