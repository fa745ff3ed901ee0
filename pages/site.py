"""Build the site: `./dev docs [DIRECTORY]`. Every warning is an error."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]


def main(arguments: list[str]) -> int:
    # The theme advertises a successor of mkdocs on every run.
    os.environ["NO_MKDOCS_2_WARNING"] = "1"
    from mkdocs.commands.build import build
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    target = Path(arguments[0] if arguments else ROOT / "build/docs").resolve()
    os.chdir(ROOT)
    try:
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(target)))
    except Abort as error:
        print(error, file=sys.stderr)
        return 1
    print(f"built {target / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
