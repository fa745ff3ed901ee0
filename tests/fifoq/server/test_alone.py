"""`python -m fifoq.server`: a server in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fifoq.sync
from fifoq.server.client import FrameClient
from fifoq.server.link import ServerError
from tests.fifoq.server.support import TOKEN, fill, payloads_of, until

ROOT = Path(__file__).parents[3]


def command(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "FIFOQ_TOKEN"}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "fifoq.server", *map(str, arguments)],
        env={**inherited, "PYTHONPATH": str(ROOT), **environment},
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_of_its_own_reads_beside_the_owner_until_it_is_told_to_stop(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "token").write_text(TOKEN + "\n")
    store = tmp_path / "store"
    with fifoq.sync.open(store) as q:
        q.put(b"before")
        process = command(store, "--token-file", tmp_path / "token")
        assert process.stdout is not None
        said = process.stdout.readline()
        match = re.fullmatch(rf"serving {store} at fifoq://127\.0\.0\.1:(\d+)\n", said)
        assert match is not None, said
        with FrameClient("127.0.0.1", int(match[1]), TOKEN) as client:
            q.put(b"after")
            until(lambda: client.describe("main").next == 3)
            assert payloads_of(client.blocks("main", 1, 9)) == [b"before", b"after"]
            process.send_signal(number)
            output, errors = process.communicate(timeout=30)
            assert (process.returncode, output, errors) == (0, "", "")
            with pytest.raises(ServerError):
                client.describe("main")


def test_what_it_needs_is_said_in_one_line(tmp_path: Path) -> None:
    fill(tmp_path / "store")
    for arguments, environment, said in (
        ([tmp_path / "store"], {}, "there is no token: give --token-file, or set FIFOQ_TOKEN"),
        ([tmp_path / "store"], {"FIFOQ_TOKEN": "tiny"}, "the token has 4 bytes"),
        ([tmp_path / "none"], {"FIFOQ_TOKEN": TOKEN}, "No such file or directory"),
        ([tmp_path], {"FIFOQ_TOKEN": TOKEN}, "there is no store here"),
        ([tmp_path / "store", "--token-file", tmp_path / "none"], {}, "No such file"),
    ):
        process = command(*arguments, **environment)
        output, errors = process.communicate(timeout=30)
        assert (process.returncode, output, errors.count("\n")) == (1, "", 1), errors
        assert errors.startswith("fifoq.server: ")
        assert said in errors
        assert "tiny" not in errors


def test_a_server_brings_nothing_of_spark_along() -> None:
    code = (
        "import sys, fifoq.server, fifoq.server.client\n"
        "print([m for m in ('pyspark', 'pyarrow', 'pandas', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
