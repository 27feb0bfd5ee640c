"""Ctrl-C ends every command at once, without a word and with the status that shells expect."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.harness.command_line import environment

SECONDS = 120.0
INTERRUPTED = 130


def interrupted(*arguments: str, said: str) -> tuple[int, str]:
    """Run a command as a terminal does, with a process group of its own, and press Ctrl-C.

    Not before it has printed a text. Returns its status and stderr.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "gpuledger", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**environment(), "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as running:
        assert running.stdout is not None
        while said not in running.stdout.readline():
            assert running.poll() is None, running.stderr
        os.killpg(running.pid, signal.SIGINT)
        _, printed = running.communicate(timeout=SECONDS)
    return running.returncode, printed


def test_the_demo_ends_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    status, printed = interrupted("demo", said="Start the service")
    assert (status, printed) == (INTERRUPTED, "")
    assert list(tmp_path.iterdir()) == []
