"""Namespaces of a rig: entering them, and removing what a rig leaves outside them.

`enter.py` starts the tests as a child of `unshare` with mount, network and PID namespaces. A
janitor outside waits for the end of a pipe that only the entering process holds. It therefore
cleans up after a normal end, after SIGTERM and after SIGKILL alike.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.e2e.harness.processes import tethered
from tests.e2e.install.rig import cgroups
from tests.e2e.install.rig.assets import RIG_VARIABLE

FOLDERS: Final = Path("/tmp")
CLEAN_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.1
_ENTRY: Final = "tests.e2e.install.enter"
_TMPFS: Final = ("/run", "/var/log")
"""Folders that programs of a rig write to without an option to change that."""


def run_inside(command: Sequence[str]) -> int:
    """Run a command in new namespaces, remove everything afterwards, and return its exit status."""
    rig = f"gpuledger-rig-{os.getpid()}"
    folder = FOLDERS / rig
    folder.mkdir(mode=0o755)
    alive, held = os.pipe()
    janitor = _fork_janitor(rig, alive, held)
    os.close(alive)
    entered = [sys.executable, "-m", _ENTRY, "--inside", *command]
    options = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    unshare = [shutil.which("unshare") or "unshare", *options, "--", *entered]
    child = subprocess.Popen(tethered(unshare), env=os.environ | {RIG_VARIABLE: rig})
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # because the tests handle it themselves
    signal.signal(signal.SIGTERM, lambda *_: child.kill())
    status = child.wait()
    os.close(held)
    _, left = os.waitpid(janitor, 0)
    return status or os.waitstatus_to_exitcode(left)


def run_as_init(command: Sequence[str]) -> int:
    """Be PID 1 of the namespaces: prepare them, run the command, and return its exit status."""
    _sh("mount --make-rprivate /")
    for folder in (*_TMPFS, str(FOLDERS / os.environ[RIG_VARIABLE])):
        _sh(f"mount -t tmpfs -o mode=755 tmpfs {folder}")
    Path("/run/netns").mkdir()
    _sh("ip link set lo up")
    child = subprocess.Popen(command)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        ended, status = os.wait()  # also the orphans, which come to PID 1
        if ended == child.pid:
            return os.waitstatus_to_exitcode(status)


def _fork_janitor(rig: str, alive: int, held: int) -> int:
    """Fork the process that cleans up once the pipe ends; return its id."""
    janitor = os.fork()
    if not janitor:
        os.setsid()
        os.close(held)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.read(alive, 1)
        os._exit(_clean_up(rig))
    return janitor


def _clean_up(rig: str) -> int:
    """Remove what remains of a rig; return 1 if processes remain."""
    deadline = time.monotonic() + CLEAN_SECONDS
    while (left := cgroups.remove(rig)) and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
    for path in left:
        print(f"cgroup {path} still has processes: end them and remove it", file=sys.stderr)
    shutil.rmtree(FOLDERS / rig, ignore_errors=True)
    return 1 if left else 0


def _sh(command: str) -> None:
    subprocess.run(command.split(), check=True, timeout=CLEAN_SECONDS)
