"""Child processes of the tests: they log to a file, can be paused, and never outlive the tests."""

import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

STOP_SECONDS: Final = 15.0
POLL_SECONDS: Final = 0.05
LOG_TAIL_BYTES: Final = 4_000

_TETHERED: Final = (
    "import ctypes, os, signal, sys;"
    "ctypes.CDLL(None).prctl(1, signal.SIGKILL);"
    "os.execv(sys.argv[1], sys.argv[1:])"
)
"""Asks the kernel (PR_SET_PDEATHSIG) to end the process with the tests, then becomes it."""


def tethered(command: Sequence[str]) -> list[str]:
    """Return a command that becomes the given one, and ends with the thread that starts it."""
    return [sys.executable, "-I", "-S", "-c", _TETHERED, *command]


class Child:
    """One process with its log file. `name` is how failures speak of it.

    To be started by the main thread: the process ends when the thread that started it does.
    """

    def __init__(
        self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                tethered(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=env,
            )

    @property
    def runs(self) -> bool:
        """Return whether the process has not ended yet."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Return the id of the process."""
        return self._process.pid

    def wait_healthy(self, url: str, ca: Path, within: float) -> None:
        """Return when the URL answers 200. Fails when the process ends or the time is over."""
        deadline = time.monotonic() + within
        answer = "nothing was tried"
        while time.monotonic() < deadline:
            if not self.runs:
                raise AssertionError(f"{self.name} ended by itself: {self.state()}")
            answer = _get(url, ca)
            if answer == "200":
                return
            time.sleep(POLL_SECONDS)
        raise AssertionError(
            f"{self.name} not healthy at {url} after {within:g} s: {answer}; {self.state()}"
        )

    def state(self) -> str:
        """Describe the process and the end of its log, for failure reports."""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - LOG_TAIL_BYTES))
            tail = log.read().decode(errors="replace")
        return f"exit status {self._process.poll()}, end of {self.log}:\n{tail}"

    def pause(self) -> None:
        """Stop the process from running; connections stay open and nothing is answered."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process run on."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the process with SIGKILL, as a crash would."""
        self._process.kill()
        self._process.wait(STOP_SECONDS)

    def stop(self) -> int:
        """End the process with SIGTERM and return its exit status; kills it if it does not go."""
        self.resume()
        self._process.terminate()
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"{self.name} ignored SIGTERM for {STOP_SECONDS:g} s: {self.state()}"
            ) from None


def _get(url: str, ca: Path) -> str:
    try:
        context = ssl.create_default_context(cafile=str(ca))
        with urllib.request.urlopen(url, context=context, timeout=2) as response:
            return str(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return f"{error.code} {error.read(500).decode(errors='replace')}"
    except (OSError, ssl.SSLError) as error:
        return f"{type(error).__name__}: {error}"
