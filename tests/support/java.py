"""How tests start Java: for lives of seconds, in which it had better not compile twice."""

from __future__ import annotations

import os
from typing import Final

QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A driver that runs a few small queries then takes 19 CPU seconds instead of 28."""

VARIABLES: Final = ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS")
"""Where Spark's scripts look for options: of drivers, of what starts them, of a cluster's parts."""


def start_quickly() -> None:
    """For this process and all that it starts; what somebody has set already stays."""
    for variable in VARIABLES:
        os.environ.setdefault(variable, QUICK)
