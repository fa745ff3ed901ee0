"""`store` and `actors` are common names: see that the ones Python found are those of fifoq."""

from __future__ import annotations

import importlib.util
import os


def check_packages() -> None:
    """ImportError that names the file which stands in the way of one of our packages."""
    if os.name == "nt":
        raise ImportError("fifoq does not run on Windows: it needs flock and fdatasync")
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for name in ("store", "actors"):
        spec = importlib.util.find_spec(name)
        found = None if spec is None else spec.origin
        if found is None or os.path.dirname(os.path.dirname(os.path.abspath(found))) != home:
            raise ImportError(
                f"fifoq needs its own package {name!r} from {home}, but Python finds "
                f"{found or 'none'}. Rename that file, or run from another directory."
            )
