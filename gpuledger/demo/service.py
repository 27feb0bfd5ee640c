"""Service of the demo: `gpuledger serve` and all other commands, each a process.

The processes get no settings from the environment, so a demo never uses a real ledger.
"""

import asyncio
import contextlib
import os
import signal
import ssl
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from gpuledger.demo.command_terminal import CommandTerminal, command_terminal
from gpuledger.demo.failed_claim import FailedClaim
from gpuledger.wiring import store_layout

READY_SECONDS: Final = 60.0
"""Deadline of readiness, also on a busy machine."""

STOP_SECONDS: Final = 15.0
COMMAND_SECONDS: Final = 90.0
ANSWER_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.05
TAIL_LINES: Final = 15

_SERVING: Final = b'"event":"serving"'


class FinishedCommand(msgspec.Struct, frozen=True):
    """How a command ended: exit status and standard output."""

    status: int
    out: str

    @property
    def json(self) -> Any:
        """The output, decoded."""
        return msgspec.json.decode(self.out)


class DemoService:
    """One ledger in a store directory, with or without a running `gpuledger serve`."""

    def __init__(self, folder: Path) -> None:
        """Keep the store, and what the service logs, in a folder."""
        self.store = folder / "store"
        self.log = folder / "service.log"
        self.address = "127.0.0.1:0"
        self._process: asyncio.subprocess.Process | None = None

    @property
    def runs(self) -> bool:
        """Whether the process was started and has not ended since."""
        return self._process is not None and self._process.returncode is None

    @property
    def url(self) -> str:
        """The base URL that it serves."""
        return f"https://{self.address}"

    def tls(self) -> ssl.SSLContext:
        """Return a context that trusts the service's own CA only."""
        return ssl.create_default_context(cafile=str(self.store / store_layout.AUTHORITY))

    async def start(self) -> None:
        """Start the service and wait until it is ready. Raises FailedClaim with the end of its log.

        The first start takes a free port, every later one the same again.
        """
        begun = self.log.stat().st_size if self.log.exists() else 0
        arguments = ("--no-kubernetes", f"--store-dir={self.store}", f"--listen={self.address}")
        spawning = asyncio.create_task(self._spawn(arguments))
        try:
            await asyncio.shield(spawning)
        finally:
            # Ctrl-C may end the child while it is made. asyncio logs a warning about a child whose
            # creation was cancelled, so it is always created, and `close` ends it.
            self._process = await spawning
        try:
            async with asyncio.timeout(READY_SECONDS):
                self.address = await self._announced(begun)
                await self._ready()
        except TimeoutError:
            raise FailedClaim("the service gets ready", f"not within {READY_SECONDS:g} s") from None

    async def _spawn(self, arguments: Sequence[str]) -> asyncio.subprocess.Process:
        with self.log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *_command("serve", *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(),
                # A group of its own, so that it is killed together with its helpers.
                process_group=0,
            )

    def kill(self) -> None:
        """End the service and its helpers with SIGKILL."""
        assert self._process is not None, "the service was not started"
        os.killpg(self._process.pid, signal.SIGKILL)

    async def wait(self) -> int:
        """Wait until the process has ended and return its status. Raises TimeoutError."""
        assert self._process is not None, "the service was not started"
        return await asyncio.wait_for(self._process.wait(), STOP_SECONDS)

    async def stop(self) -> int:
        """End the service with SIGTERM and return its status. Raises TimeoutError."""
        assert self._process is not None, "the service was not started"
        # Not `terminate`, which takes the status of a child that has just ended from asyncio.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGTERM)
        return await self.wait()

    async def close(self) -> None:
        """End the service in any state; by force when it does not end by itself."""
        if not self.runs:
            return
        try:
            await self.stop()
        except TimeoutError:
            self.kill()
            await self.wait()

    def tail(self) -> list[str]:
        """Return the last lines that the service logged."""
        if not self.log.exists():
            return []
        return self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:]

    async def command(
        self, *arguments: str, statuses: tuple[int, ...] = (0,), columns: int = 0
    ) -> FinishedCommand:
        """Run a command on this ledger to its end. Raises FailedClaim for any other exit status.

        It prints on a terminal of so many columns, or without columns into a pipe.
        """
        with ExitStack() as opened:
            terminal = opened.enter_context(command_terminal()) if columns else None
            process = await asyncio.create_subprocess_exec(
                *_command(*arguments, f"--store-dir={self.store}"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=terminal.theirs if terminal else asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=_environment() | ({"TERM": "dumb", "COLUMNS": str(columns)} if columns else {}),
            )
            status, out, err = await _finished(process, terminal)
        if status not in statuses:
            raise FailedClaim(
                f"`gpuledger {' '.join(arguments)}` works", f"exit status {status}: {err.strip()}"
            )
        return FinishedCommand(status, out)

    async def _announced(self, begun: int) -> str:
        """Wait for the log line with the address."""
        while True:
            for line in self.log.read_bytes()[begun:].splitlines():
                if _SERVING in line:
                    return str(msgspec.json.decode(line)["url"]).removeprefix("https://")
            await self._still_running()

    async def _ready(self) -> None:
        connector = aiohttp.TCPConnector(ssl=self.tls())
        async with aiohttp.ClientSession(connector=connector) as session:
            while not await _is_ready(session, f"{self.url}/readyz"):
                await self._still_running()

    async def _still_running(self) -> None:
        """Wait for a moment. Raises FailedClaim when the service has ended."""
        await asyncio.sleep(POLL_SECONDS)
        if not self.runs:
            raise FailedClaim("the service starts", "it ended by itself")


async def _finished(
    process: asyncio.subprocess.Process, terminal: CommandTerminal | None
) -> tuple[int, str, str]:
    """Return the status of a command that has ended, its output and its errors."""
    reading = asyncio.ensure_future(terminal.read(COMMAND_SECONDS)) if terminal else None
    try:
        out, err = await asyncio.wait_for(process.communicate(), COMMAND_SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        # The end of the process ends the reading.
        shown = await reading if reading is not None else ""
    assert process.returncode is not None, "a process that was waited for has a status"
    printed = shown if terminal else out.decode()
    return process.returncode, printed, err.decode(errors="replace")


async def _is_ready(session: aiohttp.ClientSession, url: str) -> bool:
    deadline = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    try:
        async with session.get(url, timeout=deadline) as answer:
            return answer.status == 200
    except aiohttp.ClientConnectionError:
        return False


def _command(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "gpuledger", *arguments)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("GPULEDGER_")}
