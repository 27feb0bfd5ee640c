"""Ctrl-C ends every command at once, without a word and with the status that shells expect."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.harness.command_line import environment

SECONDS = 120.0
INTERRUPTED = 130


def interrupted(*arguments: str, said: str = "", runs: int = 1) -> tuple[int, str]:
    """Run a command as a terminal does, with a process group of its own, and press Ctrl-C.

    Not before it has this many processes, and has printed a text. Returns its status and stderr.
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
        while said and said not in running.stdout.readline():
            assert running.poll() is None, running.stderr
        until = time.monotonic() + SECONDS
        while _processes(running.pid) < runs and time.monotonic() < until:
            time.sleep(0.05)
        os.killpg(running.pid, signal.SIGINT)
        _, printed = running.communicate(timeout=SECONDS)
    return running.returncode, printed


def _processes(group: int) -> int:
    """Return how many processes of a group run this program's own code."""
    found = 0
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found += int(fields[2]) == group
    return found


def test_a_campaign_ends_without_a_traceback_of_any_worker() -> None:
    # Beside the two workers there are multiprocessing's own helper and the campaign itself.
    status, printed = interrupted("simulate", "--seeds", "100000", "--workers", "2", runs=4)
    assert (status, printed) == (INTERRUPTED, "")


def test_the_demo_ends_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    status, printed = interrupted("demo", said="Start the service")
    assert (status, printed) == (INTERRUPTED, "")
    assert list(tmp_path.iterdir()) == []
