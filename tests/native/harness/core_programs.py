"""Programs that test core without a driver: building them, and reading their output."""

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

MIB = 2**20
GIB = 2**30
NO_LIMIT = 2**64 - 1
UUID = "GPU-00000000-0000-0000-0000-0000000000{:02x}"
"""The uuid of the n-th device, as the programs' `device(n)` has it."""

_RUNNING_S = 120.0


@dataclass
class Ledger:
    """A region of its own in a directory, and the programs that use it."""

    directory: Path
    built: Callable[[str], Path]
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def region(self) -> Path:
        """Return where the region is or will be."""
        return self.directory / "region"

    def run(
        self, program: str, *words: object, kind: str = "plain", **settings: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end. Raises AssertionError with its output if it fails."""
        command = [str(self.built(f"{kind}/{program}")), *map(str, words)]
        done = subprocess.run(
            command,
            env=self.settings(**settings),
            capture_output=True,
            text=True,
            timeout=_RUNNING_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def settings(self, **settings: str) -> dict[str, str]:
        """Return an environment with this region; an empty text takes a variable away."""
        base = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        mine = {"CUDA_DEVICE_MEMORY_SHARED_CACHE": str(self.region), **self.environment, **settings}
        return base | {name: text for name, text in mine.items() if text != ""}

    def ask(self, *words: object, **settings: str) -> list[int]:
        """Return the numbers that the ledger answers."""
        return [int(line) for line in self.run("ask", *words, **settings).stdout.split()]

    def measured(self, program: str, *words: object, kind: str = "plain") -> dict[str, int]:
        """Return the JSON that a program prints, with a new region."""
        self.region.unlink(missing_ok=True)
        figures: dict[str, int] = json.loads(self.run(program, *words, kind=kind).stdout)
        return figures

    @contextlib.contextmanager
    def talking(self, *words: object, **settings: str) -> Iterator["Talk"]:
        """Start a program that answers, and waits for a line at each word `wait`."""
        command = [str(self.built("plain/ask")), *map(str, words)]
        with subprocess.Popen(
            command,
            env=self.settings(**settings),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield Talk(process)
            finally:
                process.kill()


class Talk:
    """A process that answers questions one after the other."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        """Talk to a process whose input and output are pipes."""
        assert process.stdin is not None
        assert process.stdout is not None
        self.pid, self._questions, self._answers = process.pid, process.stdin, process.stdout

    def answers(self, count: int) -> list[int]:
        """Return the next answers."""
        return [int(self._answers.readline()) for _ in range(count)]

    def go_on(self) -> None:
        """End a wait."""
        self._questions.write("\n")
        self._questions.flush()
