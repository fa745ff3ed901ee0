"""The session helper: defaults that a laptop can live with, and Java that is found or asked for."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import fifoq.spark
from fifoq.spark.session import JavaMissing, find_java
from tests.spark.support import counters, error_of, fill, numbered, read

# The package has a function of that name.
module = importlib.import_module("fifoq.spark.session")


def test_the_defaults_are_there_and_the_same_session_comes_again(spark: SparkSession) -> None:
    conf = spark.conf
    assert conf.get("spark.sql.session.timeZone") == "UTC"
    assert conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
    assert conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert conf.get("spark.ui.enabled") == "false"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert fifoq.spark.session() is spark


def test_registering_again_turns_push_down_on_again(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    fifoq.spark.register(spark)
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"


def test_another_session_of_the_context_has_the_format_once_it_is_registered(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark looked for the name in the active session, found it there, and refused the new one."""
    fill(tmp_path / "store", numbered(5))
    other = spark.newSession()
    told = error_of(lambda: read(other, tmp_path / "store"))
    assert "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: fifoq" in told
    fifoq.spark.register(other)
    assert counters(read(other, tmp_path / "store").filter("counter > 3")) == [4, 5]
    assert SparkSession.getActiveSession() is spark
    # The first one is as it was.
    assert counters(read(spark, tmp_path / "store")) == [1, 2, 3, 4, 5]


def fake_java(home: Path, version: str) -> str:
    (home / "bin").mkdir(parents=True)
    program = home / "bin/java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o700)
    return str(home)


def test_java_is_taken_from_java_home_then_the_path_then_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, found = fake_java(tmp_path / "home", "25"), fake_java(tmp_path / "found", "21.0.2")
    installed = fake_java(tmp_path / "jvm/temurin", "17.0.1")
    monkeypatch.setattr(module, "_INSTALLED", (str(tmp_path / "jvm"),))
    monkeypatch.setenv("PATH", f"{found}/bin")
    monkeypatch.setenv("JAVA_HOME", home)
    assert find_java() == home
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    assert find_java() == found
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_java() == installed


def test_without_java_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_INSTALLED", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", fake_java(tmp_path / "old", "1.8.0_392"))
    with pytest.raises(JavaMissing) as told:
        find_java()
    assert str(told.value) == (
        f"Spark needs Java 17 or newer and none was found ({tmp_path}/old is Java 8): install it "
        "(Debian, Ubuntu: apt install openjdk-17-jre-headless or a newer one; macOS: brew install "
        "openjdk@17), or set JAVA_HOME."
    )
