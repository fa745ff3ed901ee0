"""A real Spark cluster on loopback: a master and workers, each a process in its own directory.

Processes can be kept away from a directory: they run with mounts of their own, in which an empty
file system lies over it.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark

from fifoq.spark.session import find_java
from tests.rigs.mounts import private
from tests.support.java import QUICK, VARIABLES

PATIENCE_SECONDS = 240.0
"""After this it counts as hung; on a machine with nothing else to do all takes half a minute."""
_HOME = Path(pyspark.__file__).parent


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class Cluster:
    """One master and as many workers as asked for, until the end of the block.

    With `hidden`, neither the workers nor what `run` starts can see that directory.
    """

    def __init__(self, directory: Path, *, workers: int = 2, hidden: Path | None = None) -> None:
        self.directory = directory
        self.hidden = hidden
        self._count = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self._port, self._web_port = free_port(), free_port()

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Cluster:
        try:
            deploy = "org.apache.spark.deploy"
            web = ["--host", "127.0.0.1", "--webui-port"]
            self._start(
                "master", f"{deploy}.master.Master", *web, self._web_port, "--port", self._port
            )
            self._wait_for(lambda state: "workers" in state)
            for number in range(1, self._count + 1):
                size = ["--cores", "1", "--memory", "640m"]
                self._start(f"worker-{number}", f"{deploy}.worker.Worker", *web, 0, *size, self.url)
            self._wait_for(lambda state: state["aliveworkers"] == self._count)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """Each process leads a group of its own, in which its executors are."""
        for process in self._processes:
            _kill(process, signal.SIGKILL)
        for process in self._processes:
            process.wait(20)

    def run(self, module: str, *arguments: str, **environment: str) -> str:
        """Run a module of ours as a driver, from a directory of its own; returns what it prints."""
        place = self._place("driver")
        command = self._command([sys.executable, "-W", "error", "-m", module, *arguments])
        paths = {"PYTHONPATH": str(Path(__file__).parents[2])}
        # A group of its own: at the end nothing of it is left, its Java least of all.
        driver = subprocess.Popen(
            command,
            cwd=place,
            env={**self._environment(place), **paths, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, errors = driver.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            _kill(driver, signal.SIGKILL)
            out, errors = driver.communicate()
        finally:
            _kill(driver, signal.SIGKILL)
        assert driver.returncode == 0, f"{out}\n{errors}\n{self.said()}"
        return out

    def said(self) -> str:
        """The ends of all logs, for a failure's sake."""
        logs = sorted(self.directory.glob("*/log"))
        logs += sorted(self.directory.glob("*/app-*/*/stderr"))
        return "\n".join(f"--- {log}\n{log.read_text()[-3000:]}" for log in logs)

    def _start(self, name: str, *arguments: object) -> None:
        place = self._place(name)
        command = [str(_HOME / "bin/spark-class"), *map(str, arguments)]
        if name != "master":
            command = self._command([*command, "--work-dir", str(place)])
        with (place / "log").open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=place,
                env=self._environment(place),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)

    def _command(self, command: list[str]) -> list[str]:
        if self.hidden is None:
            return command
        cover = (
            f"mount -t tmpfs tmpfs {shlex.quote(str(self.hidden))} && exec {shlex.join(command)}"
        )
        return private("sh", "-c", cover)

    def _place(self, name: str) -> Path:
        place = self.directory / name
        place.mkdir(parents=True, exist_ok=True)
        return place

    def _environment(self, place: Path) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return {
            **kept,
            "JAVA_HOME": find_java(),
            "SPARK_HOME": str(_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(place / "scratch"),
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            **dict.fromkeys(VARIABLES, QUICK),
        }

    def _wait_for(self, condition: Callable[[dict[str, Any]], object]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                address = f"http://127.0.0.1:{self._web_port}/json/"
                with urllib.request.urlopen(address, timeout=5) as answer:
                    if condition(json.load(answer)):
                        return
            except (OSError, json.JSONDecodeError):
                # A master that has just begun answers every question with its front page.
                pass
            dead = [process.args for process in self._processes if process.poll() is not None]
            assert not dead, f"{dead}\n{self.said()}"
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.1)


def _kill(leader: subprocess.Popen[Any], number: signal.Signals) -> None:
    """Signal the group that a process of ours leads."""
    try:
        os.killpg(leader.pid, number)
    except ProcessLookupError:
        pass
