"""Command line: the installed command as a process, with its two outputs and its status."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

COMMAND: Final = Path(sys.executable).with_name("gpuledger")
SECONDS: Final = 120.0


class Ended(NamedTuple):
    """The status and the outputs of a command that has ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The standard output, read as JSON."""
        assert self.status in (0, 1), self
        return json.loads(self.out)


def environment(**variables: str) -> dict[str, str]:
    """Return this process's environment with no other settings of the ledger than these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GPULEDGER_")}
    return kept | variables


def gpuledger(*arguments: str, store: Path | None = None, stdin: str = "", **env: str) -> Ended:
    """Run a command to its end, with its outputs in pipes."""
    places = [] if store is None else [f"--store-dir={store}"]
    done = subprocess.run(
        [COMMAND, *arguments, *places],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=environment(**env),
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)
