"""Install locked packages into a virtual environment, and print the progress every few seconds.

`python tools/install.py VENV LOCK` makes the environment when there is none. It needs only Python's
own library. It ends with pip's exit status, after pip's output when that is not 0.
"""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

PYTHON_MIN: Final = (3, 11)
LINE_SECONDS: Final = 5.0
"""A line is printed so often."""

_LOCKED: Final = re.compile(r"^[a-zA-Z0-9][^ =]*==", re.MULTILINE)
_GOT: Final = re.compile(r"^(Collecting|Requirement already satisfied:) ")
_FETCHED: Final = "Installing collected packages"


class Progress:
    """Progress of pip: packages fetched, counted in its output, and installed, counted as files."""

    def __init__(self, lock: Path, environment: Path) -> None:
        self.wanted = len(_LOCKED.findall(lock.read_text()))
        self.fetched = 0
        self.output: list[str] = []
        self._all_fetched = False
        self._environment = environment
        self._begun = time.monotonic()
        self._before = self._present()

    def follow(self, printed: IO[str]) -> None:
        """Read pip's output to its end."""
        for line in printed:
            self.output.append(line)
            self.fetched += bool(_GOT.match(line))
            self._all_fetched = self._all_fetched or line.startswith(_FETCHED)

    def line(self) -> str:
        """Return how far it is."""
        seconds = time.monotonic() - self._begun
        if not self._all_fetched:
            return f"{seconds:4.0f} s: {self.fetched} of {self.wanted} packages fetched"
        new = self._present() - self._before
        return f"{seconds:4.0f} s: all packages fetched, {new} of {self.wanted} installed"

    def _present(self) -> int:
        return sum(1 for _ in _installed(self._environment))


def _installed(environment: Path) -> Iterator[Path]:
    return environment.glob("lib/python*/site-packages/*.dist-info")


def install(environment: Path, lock: Path) -> int:
    """Install the packages of a lock file; return pip's exit status."""
    python = environment / "bin" / "python"
    if not python.exists():
        _tell(f"Making {environment} with Python {sys.version.split()[0]}")
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    progress = Progress(lock, environment)
    _tell(f"Installing the {progress.wanted} packages of {lock} into {environment}")
    pip = [
        str(python),
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--progress-bar",
        "off",
    ]
    command = [*pip, "--require-hashes", "-r", str(lock)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        assert running.stdout is not None
        reading = threading.Thread(target=progress.follow, args=(running.stdout,))
        reading.start()
        while reading.is_alive():
            reading.join(LINE_SECONDS)
            if reading.is_alive():
                _tell(progress.line())
    if running.returncode:
        sys.stderr.writelines(progress.output)
    else:
        _tell(f"{progress.line().partition(':')[0]}: installed")
    return running.returncode


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Install the packages that the arguments name."""
    if sys.version_info[:2] < PYTHON_MIN:
        sys.stderr.write(
            "gpuledger needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11\n"
        )
        return 1
    environment, lock = map(Path, sys.argv[1:])
    return install(environment, lock)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
