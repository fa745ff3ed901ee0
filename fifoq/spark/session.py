"""A Spark session with sane local defaults, and the registration of the source.

PySpark needs Java 17 or newer. It is looked for where JAVA_HOME says, on the PATH, and where
distributions install it; if there is none, the error says in one line what to install.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

JAVA_MIN: Final = 17
PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_INSTALLED: Final = ("/usr/lib/jvm", "/Library/Java/JavaVirtualMachines", "/opt/java")


class JavaMissing(RuntimeError):
    """There is no Java that Spark can run on."""


def session(
    app: str = "fifoq", master: str = "local[*]", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """The running Spark session, or a new one, with the source registered.

    Python workers run this interpreter; Arrow is on, times are UTC, logs are quiet, and there is
    no web UI. `conf` comes last and may change all of that. JavaMissing if there is no Java.
    """
    os.environ["JAVA_HOME"] = find_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app).master(master)
    for name, value in {**_defaults(master), **(conf or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Make the format "fifoq" known to this session, and turn filter push-down on for it."""
    # Here and not above: workers import the source without a session.
    from fifoq.spark.source import FifoqSource

    spark.conf.set(PUSHDOWN, "true")
    with _active(spark):
        spark.dataSource.register(FifoqSource)


@contextmanager
def _active(spark: SparkSession) -> Iterator[None]:
    """Let it be the active session of this thread for the time of the block.

    Spark asks the active session, not the one that it is called on, whether a format is known
    already, and refuses the second of two sessions otherwise.
    """
    sessions = SparkSession._get_j_spark_session_class(spark._jvm)
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def _defaults(master: str) -> dict[str, str]:
    found = {
        PUSHDOWN: "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Half as costly as TCP on the loopback, and batches of records are large.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING}",
    }
    if master.startswith("local"):
        # Nobody else talks to it, and a host's own name is not always one that it can resolve.
        found |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
        }
    return found


def find_java() -> str:
    """The home of a Java that is new enough. JavaMissing says what to install."""
    too_old: list[str] = []
    for home in _homes():
        version = _version(home)
        if version is not None and version >= JAVA_MIN:
            return home
        if version is not None:
            too_old.append(f"{home} is Java {version}")
    found = f" ({'; '.join(too_old)})" if too_old else ""
    raise JavaMissing(
        f"Spark needs Java {JAVA_MIN} or newer and none was found{found}: install it "
        f"(Debian, Ubuntu: apt install openjdk-{JAVA_MIN}-jre-headless or a newer one; macOS: "
        f"brew install openjdk@{JAVA_MIN}), or set JAVA_HOME."
    )


def _homes() -> Iterator[str]:
    """Where a Java may be, in the order of preference."""
    if home := os.environ.get("JAVA_HOME"):
        yield home
    if program := shutil.which("java"):
        yield str(Path(program).resolve().parents[1])
    for directory in _INSTALLED:
        for path in sorted(Path(directory).glob("*"), reverse=True):
            yield from (str(home) for home in (path, path / "Contents/Home") if home.is_dir())


@cache
def _version(home: str) -> int | None:
    """The main version of the Java there; None if there is none that runs."""
    try:
        done = subprocess.run(
            [f"{home}/bin/java", "-version"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    # Up to Java 8 it said 1.8.0.
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(match[1]) if match else None
