"""A container, as far as the device plugin's answer makes one: its variables and its mounts.

A mount namespace replaces a container runtime: the answer's mounts are at their paths,
read-only where the answer wants it, and nowhere else. Everything else is the machine's own.
"""

import json
import os
import select
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

PROGRAM: Final = Path(__file__).with_name("program.py")
OUT_OF_MEMORY: Final = 2
STOP_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 60.0
TRIED_SECONDS: Final = 10.0

_OVER: Final = """set -eu
mount -t tmpfs none {room}
mkdir {room}/upper {room}/work
mount -t overlay overlay -o lowerdir=/etc,upperdir={room}/upper,workdir={room}/work /etc
mount -t tmpfs none /run
"""


class ProgramAnswer(NamedTuple):
    """The program's answer: the driver's last status, and MiB."""

    status: int
    held: int
    free: int
    total: int


def unshare() -> list[str]:
    """Return the command that enters a mount namespace; skips the test where that is forbidden."""
    path = shutil.which("unshare")
    for options in (["--mount"], ["--user", "--map-root-user", "--mount"]):
        command = [path or "unshare", *options]
        if path and _works([*command, "mount", "-t", "tmpfs", "none", "/run"]):
            return command
    pytest.skip("no mount namespace can be made here: nothing can play a container")


class Container:
    """A process in a container that was answered so; `machine` are variables of the machine."""

    def __init__(self, answer: Any, machine: dict[str, str], folder: Path) -> None:
        """Start it and wait until it has a context."""
        script = folder / "enter.sh"
        room = folder / "room"
        room.mkdir()
        script.write_text(_script(answer, room))
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self._process = subprocess.Popen(
            [*unshare(), "sh", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**kept, **machine, **dict(answer.envs)},
            text=True,
        )
        self.begun = self._answer()

    @property
    def pid(self) -> int:
        """Return the id of the program's process: all that led to it became it."""
        return self._process.pid

    def do(self, *words: object) -> ProgramAnswer:
        """Let the program do something, and return its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def end(self) -> int:
        """Let the program end and return its status."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(STOP_SECONDS)

    def kill(self) -> None:
        """End it, however it is."""
        self._process.kill()
        self._process.wait(STOP_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _answer(self) -> ProgramAnswer:
        assert self._process.stdout is not None
        # Each question has one line for an answer, so that nothing waits in the pipe's buffer.
        ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_SECONDS)
        assert ready, f"the program says nothing for {ANSWER_SECONDS:g} s"
        line = self._process.stdout.readline()
        assert line, f"the program ended with {self._process.wait(STOP_SECONDS)}"
        return ProgramAnswer(**json.loads(line))


def _script(answer: Any, room: Path) -> str:
    """Return the script that mounts the answer's paths and becomes the program."""
    lines = [_OVER.format(room=shlex.quote(str(room)))]
    # The last: from then on every program that starts is under the library.
    mounts = sorted(answer.mounts, key=lambda mount: mount.container_path == "/etc/ld.so.preload")
    for mount in mounts:
        host, place = shlex.quote(mount.host_path), shlex.quote(mount.container_path)
        if Path(mount.host_path).is_dir():
            lines.append(f"mkdir -p {place}")
        else:
            lines.append(f'mkdir -p "$(dirname {place})"; [ -e {place} ] || touch {place}')
        lines.append(f"mount --bind {host} {place}")
        if mount.read_only:
            lines.append(f"mount -o remount,bind,ro {place}")
    lines.append(f"exec {shlex.quote(sys.executable)} -I -S {shlex.quote(str(PROGRAM))}")
    return "\n".join(lines) + "\n"


def _works(command: list[str]) -> bool:
    done = subprocess.run(command, capture_output=True, timeout=TRIED_SECONDS, check=False)
    return done.returncode == 0
