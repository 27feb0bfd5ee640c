"""The product as a black box: the command `gpuledger`, its processes, its answers."""

import asyncio
import json
import os
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
from support.servers.ports import free_port

from tests.e2e.harness.processes import Child

COMMAND: Final = Path(sys.executable).with_name("gpuledger")
CLUSTER: Final = "e2e"
SETTLE_SECONDS: Final = 3
"""Far below what is safe with a real etcd; only tests may be so impatient."""

READY_SECONDS: Final = 60.0
COMMAND_SECONDS: Final = 60.0
REQUEST_SECONDS: Final = 20.0

Row = dict[str, Any]


class Service:
    """One ledger in a store directory, with or without a running `gpuledger serve`."""

    def __init__(self, folder: Path, kubeconfig: Path, **settings: str) -> None:
        """Take settings besides those that every test needs, as environment variables have them.

        A service without `tls_secret` registers itself by its address.
        """
        self._store = folder / "store"
        self._log = folder / "gpuledger.log"
        self._kubeconfig = kubeconfig
        settings = {"cluster": CLUSTER, "settle_seconds": str(SETTLE_SECONDS), **settings}
        self._env = os.environ | {f"GPULEDGER_{name.upper()}": settings[name] for name in settings}
        self._listen = f"127.0.0.1:{free_port()}"
        self._child: Child | None = None
        self._has_secret = "tls_secret" in settings

    @property
    def runs(self) -> bool:
        """Return whether the service was started and not stopped or killed since."""
        return self._child is not None

    @property
    def address(self) -> str:
        """Return HOST:PORT of the service."""
        return self._listen

    @property
    def authority(self) -> Path:
        """Return the file of the CA that the service's certificate is checked against."""
        return self._store / ("shared-tls" if self._has_secret else "tls") / "ca.crt"

    def configure(self, **settings: str) -> None:
        """Change settings for the next start."""
        self._env |= {f"GPULEDGER_{name.upper()}": settings[name] for name in settings}

    def start(self) -> None:
        """Start `gpuledger serve` and return at once."""
        assert self._child is None, "the service runs already"
        arguments = [
            f"--store-dir={self._store}",
            f"--listen={self._listen}",
            f"--kubeconfig={self._kubeconfig}",
        ]
        if not self._has_secret:
            arguments.append(f"--register-webhook=https://{self._listen}")
        self._child = Child("gpuledger", [str(COMMAND), "serve", *arguments], self._log, self._env)

    def wait_ready(self) -> None:
        """Return when the service reports that it is ready, and when it can be read.

        It admits before that: what is read is built beside it, from the log. The connection is
        checked against the service's own CA.
        """
        assert self._child is not None, "the service does not run"
        for path in ("/readyz", "/v1/usage"):
            self._child.wait_healthy(f"https://{self._listen}{path}", self.authority, READY_SECONDS)

    async def run_again(self) -> None:
        """Start the service and return when it is ready, while other tasks go on."""
        self.start()
        await asyncio.to_thread(self.wait_ready)

    def kill(self) -> None:
        """End the service with SIGKILL."""
        assert self._child is not None, "the service does not run"
        self._child.kill()
        self._child = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the process from running for the block; its connections stay open."""
        assert self._child is not None, "the service does not run"
        self._child.pause()
        try:
            yield
        finally:
            self._child.resume()

    def stop(self) -> int:
        """End the service with SIGTERM and return its exit status."""
        assert self._child is not None, "the service does not run"
        child, self._child = self._child, None
        return child.stop()

    def fall(self) -> str:
        """Return how the service ended by itself, once, or nothing."""
        if self._child is None or self._child.runs:
            return ""
        child, self._child = self._child, None
        return f"gpuledger ended by itself: {child.state()}"

    async def get(self, path: str, **query: str) -> Any:
        """Read from the running service's HTTP API."""
        return json.loads(await self._read(path, query))

    async def metric(self, sample: str) -> float:
        """Return the value of a metric, 0 while it is not there: `name{label="value"}`."""
        for line in (await self._read("/metrics", {})).splitlines():
            name, _, value = line.rpartition(" ")
            if name == sample:
                return float(value)
        return 0.0

    async def check(self, name: str) -> tuple[bool, str]:
        """Return whether a check of readiness passes, and its reason."""
        _, report = await self._ask("/readyz", {})
        [verdict] = [
            candidate for candidate in json.loads(report)["checks"] if candidate["name"] == name
        ]
        return verdict["ok"], verdict["reason"]

    async def _read(self, path: str, query: dict[str, str]) -> str:
        status, text = await self._ask(path, query)
        assert status == 200, f"GET {path}: {status} {text}"
        return text

    async def _ask(self, path: str, query: dict[str, str]) -> tuple[int, str]:
        async with (
            aiohttp.ClientSession() as session,
            session.get(
                f"https://{self._listen}{path}",
                params=query,
                ssl=ssl.create_default_context(cafile=str(self.authority)),
                timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS),
            ) as response,
        ):
            return response.status, await response.text()

    async def run(self, *arguments: str) -> tuple[int, str]:
        """Run another `gpuledger` command on the same ledger; return exit status and output."""
        status, output, complaint = await self.outcome(*arguments)
        if status not in (0, 1) or not output:
            raise AssertionError(f"gpuledger {' '.join(arguments)}: {status} {complaint}")
        return status, output

    async def outcome(self, *arguments: str) -> tuple[int, str, str]:
        """Run another `gpuledger` command; return exit status, output and standard error."""
        process = await asyncio.create_subprocess_exec(
            COMMAND,
            *arguments,
            f"--store-dir={self._store}",
            "--output=json",
            env=self._env,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                output, complaint = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise AssertionError(
                f"gpuledger {' '.join(arguments)} did not end within {COMMAND_SECONDS:g} s"
            ) from None
        status = process.returncode
        assert status is not None, "a process that was waited for has a status"
        return status, output.decode(), complaint.decode()

    async def answer(self, *arguments: str) -> Any:
        """Run a command that has to succeed and decode the JSON that it prints."""
        status, output = await self.run(*arguments)
        assert status == 0, f"gpuledger {' '.join(arguments)}: {status} {output}"
        return json.loads(output)

    async def events(self, namespace: str) -> list[Row]:
        """Replay what happened to a namespace, oldest first."""
        return await self.replay(f"--namespace={namespace}")

    async def replay(self, *options: str) -> list[Row]:
        """Replay what happened, oldest first."""
        _, output = await self.run("audit", "replay", *options)
        return [json.loads(line) for line in output.splitlines()]
