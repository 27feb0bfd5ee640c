"""The real `gpuledger agent` of one node, on the stub's cards."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any, Final

import aiohttp
from support.servers.ports import free_port

from tests.e2e.harness.processes import Child
from tests.e2e.harness.service import CLUSTER, COMMAND

READY_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.2
REQUEST_SECONDS: Final = 5.0


class Agent:
    """One agent; `state` and `kubelet` are directories of its node."""

    def __init__(self, node: str, folder: Path, built: Path, kubeconfig: Path, nats: str) -> None:
        """Prepare it; `built` is where libvgpu.so and the stub are."""
        self.state = folder / "state"
        self.kubelet = folder / "kubelet"
        self.url = f"http://127.0.0.1:{free_port()}"
        self._log = folder / "agent.log"
        self._command = [
            str(COMMAND),
            "agent",
            f"--node={node}",
            f"--listen={self.url.removeprefix('http://')}",
            f"--state-dir={self.state}",
            f"--kubelet-dir={self.kubelet}",
            f"--library={built / 'libvgpu.so'}",
            f"--cdi-dir={folder / 'cdi'}",
            "--look=1",
            f"--cluster={CLUSTER}",
            f"--nats={nats}",
            f"--kubeconfig={kubeconfig}",
        ]
        self.machine = {
            "LD_LIBRARY_PATH": str(built / "stub"),
            "VGPU_STUB_STATE": str(folder / "machine"),
            "VGPU_STUB_DEVICES": "2",
        }
        self._child: Child | None = None

    def start(self) -> None:
        """Start it and return at once."""
        env = os.environ | self.machine
        self._child = Child("gpuledger agent", self._command, self._log, env)

    async def wait_ready(self) -> None:
        """Return when the agent reports that it is ready. Fails when it ends, or takes too long."""
        answer = "nothing was asked"
        try:
            async with asyncio.timeout(READY_SECONDS):
                while True:
                    status, answer = await self._ask("/readyz")
                    if status == 200:
                        return
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            raise AssertionError(f"the agent is not ready: {answer}; {self._state()}") from None

    async def containers(self) -> Any:
        """Return the agent's report of the containers on its node."""
        status, text = await self._ask("/v1/containers")
        assert status == 200, text
        return json.loads(text)["containers"]

    def kill(self) -> None:
        """End it as a crash would."""
        assert self._child is not None, "the agent does not run"
        self._child.kill()

    def stop(self) -> int:
        """End it with SIGTERM and return its status."""
        assert self._child is not None, "the agent does not run"
        return self._child.stop()

    def _state(self) -> str:
        return self._child.state() if self._child else "it does not run"

    async def _ask(self, path: str) -> tuple[int, str]:
        assert self._child is not None, "the agent does not run"
        assert self._child.runs, f"the agent ended by itself: {self._state()}"
        timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(self.url + path) as response,
            ):
                return response.status, await response.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            return 0, repr(error)
