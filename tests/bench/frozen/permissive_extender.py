"""Permissive extender: the baseline, which accepts every node and binds, on the frozen stack.

It binds with one request to the API server, as gpuledger does. So the difference is the cost of
choosing and recording cards.
"""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from support.servers.ports import free_port

from tests.bench.frozen.http_stack import HOST, FrozenServer
from tests.bench.harness.fresh_process import start, wait_for_go
from tests.e2e.harness.cluster import Cluster
from tests.e2e.scheduling.support.scheduler import Extender

CONNECTIONS_MAX: Final = 32
BOUND: Final = 201
VERBS: Final = {"filterVerb": "filter", "prioritizeVerb": "prioritize"}
"""The verbs by which the scheduler is configured for the baseline, as at 75bd653."""


class PermissiveExtender:
    """Answers the verbs of an extender without looking at the nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def filter(self, request: Request) -> Response:
        """Let every node pass."""
        asked = msgspec.json.decode(await request.body())
        passed = {"Nodes": asked.get("Nodes"), "NodeNames": asked.get("NodeNames")}
        return _answer(passed | {"FailedNodes": {}, "Error": ""})

    async def prioritize(self, request: Request) -> Response:
        """Prefer none."""
        asked = msgspec.json.decode(await request.body())
        return _answer([{"Host": name, "Score": 0} for name in asked["NodeNames"]])

    async def bind(self, request: Request) -> Response:
        """Bind the pod to the node that was chosen."""
        asked = msgspec.json.decode(await request.body())
        path = f"/api/v1/namespaces/{asked['PodNamespace']}/pods/{asked['PodName']}/binding"
        answer = await self._cluster.ask("POST", path, _binding(asked))
        return _answer({"Error": "" if answer.status == BOUND else answer.message})


async def let_everything_pass(
    store: str, port: int, url: str, ca: str, token: str
) -> dict[str, float]:
    """Serve with the certificates of a store until `wait_for_go` returns."""
    connector = aiohttp.TCPConnector(
        ssl=ssl.create_default_context(cafile=ca), limit=CONNECTIONS_MAX
    )
    async with aiohttp.ClientSession(connector=connector) as session:
        handler = PermissiveExtender(Cluster(session, url, token))
        verbs = {verb: getattr(handler, verb) for verb in ("filter", "prioritize", "bind")}
        app = Starlette(
            routes=[Route(f"/extender/{verb}", verbs[verb], methods=["POST"]) for verb in verbs]
        )
        await FrozenServer(app, Path(store), port).serve_until(wait_for_go())
    return {}


@contextmanager
def permissive_extender(store: Path, url: str, ca: str, token: str) -> Iterator[Extender]:
    """Serve for the block in a process of its own, and bind at an API server."""
    port = free_port()
    asked = {"store": str(store), "port": port, "url": url, "ca": ca, "token": token}
    running = start(let_everything_pass, **asked)
    running.wait_ready()
    try:
        yield Extender(f"{HOST}:{port}", store / "tls" / "ca.crt", verbs=VERBS)
    finally:
        running.go()
        running.result()


def _binding(asked: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": asked["PodName"], "uid": asked["PodUID"]},
        "target": {"apiVersion": "v1", "kind": "Node", "name": asked["Node"]},
    }


def _answer(body: Any) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")
