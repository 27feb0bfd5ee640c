"""Agent harness: a node's agent as a process, and a model of the API server that it uses."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from support.servers.ports import free_port

START_SECONDS = 30.0
END_SECONDS = 15.0


class NodeApi:
    """One Node and its pods, as far as an agent reads and writes them."""

    def __init__(self, name: str) -> None:
        self.name, self.version = name, 1
        self.annotations: dict[str, str] = {}
        self.events: list[dict[str, Any]] = []
        self.evictions: list[str] = []

    def app(self) -> web.Application:
        """Return the API server."""
        app = web.Application()
        app.router.add_get("/api/v1/nodes/{name}", self._get)
        app.router.add_patch("/api/v1/nodes/{name}", self._patch)
        app.router.add_post("/apis/events.k8s.io/v1/namespaces/{space}/events", self._event)
        app.router.add_post("/api/v1/namespaces/{space}/pods/{name}/eviction", self._evict)
        return app

    def _node(self) -> dict[str, Any]:
        meta = {"name": self.name, "uid": "uid-n", "resourceVersion": str(self.version)}
        return {"metadata": {**meta, "annotations": dict(self.annotations)}}

    async def _get(self, request: web.Request) -> web.Response:
        if request.match_info["name"] != self.name:
            status = {"kind": "Status", "code": 404, "reason": "NotFound"}
            return web.json_response(status, status=404)
        return web.json_response(self._node())

    async def _patch(self, request: web.Request) -> web.Response:
        changes = (await request.json())["metadata"]["annotations"]
        self.version += 1
        for key, value in changes.items():
            self.annotations.pop(key, None)
            if value is not None:
                self.annotations[key] = value
        return web.json_response(self._node())

    async def _event(self, request: web.Request) -> web.Response:
        self.events.append(await request.json())
        return web.json_response({}, status=201)

    async def _evict(self, request: web.Request) -> web.Response:
        self.evictions.append(request.match_info["name"])
        return web.json_response({}, status=201)


class Agent:
    """A running agent."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, log: Path) -> None:
        self.process, self.url, self._log = process, url, log

    async def get(self, path: str) -> tuple[int, str]:
        """Ask it something."""
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as response:
            return response.status, await response.text()

    def logged(self) -> str:
        """Return the log lines so far."""
        return self._log.read_text()

    async def stop(self) -> int:
        """End it with SIGTERM, and return its exit code."""
        self.process.terminate()
        return await asyncio.wait_for(self.process.wait(), END_SECONDS)


@contextlib.asynccontextmanager
async def agent(
    directory: Path, arguments: Sequence[str], environment: dict[str, str]
) -> AsyncIterator[Agent]:
    """Run an agent for a block, from when it answers."""
    port, log = free_port(), directory / "agent.log"
    with log.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "gpuledger",
            "agent",
            "--listen",
            f"127.0.0.1:{port}",
            *arguments,
            stdout=file,
            stderr=file,
            env=os.environ | environment,
        )
    running = Agent(process, f"http://127.0.0.1:{port}", log)
    try:
        async with asyncio.timeout(START_SECONDS):
            while True:
                assert process.returncode is None, log.read_text()[-4000:]
                with contextlib.suppress(aiohttp.ClientError):
                    await running.get("/livez")
                    break
                await asyncio.sleep(0.05)
        yield running
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
