"""API server: a model in memory, called directly as a port or over real HTTP on loopback."""

import asyncio
import contextlib
import copy
import itertools
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import yaml
from aiohttp import web

from ledger.kube.api.cluster_errors import ClusterError
from ledger.kube.api.cluster_ports import Change, Changed, Listed
from ledger.kube.api.objects import ApiNode, Pod, ResourceQuota
from ledger.kube.client.api_client import ApiClient

Object = dict[str, Any]
KINDS = {"pods": Pod, "resourcequotas": ResourceQuota, "nodes": ApiNode}


def pod_body(name: str, *, gpu: int = 1, gpumem: int = 1000, gpucores: int = 10) -> Object:
    """Return a pod as a client posts it; the amounts are per container."""
    asks = {"nvidia.com/gpu": gpu, "nvidia.com/gpumem": gpumem, "nvidia.com/gpucores": gpucores}
    limits = {resource: str(amount) for resource, amount in asks.items() if amount}
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {"phase": "Pending"},
    }


def quota_body(name: str, **hard: Any) -> Object:
    return {"metadata": {"name": name}, "spec": {"hard": dict(hard)}}


class FakeApiServer:
    """Objects by kind, namespace and name, with one version for every write."""

    def __init__(self) -> None:
        self.version = 100
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.history: list[tuple[int, str, str, Object]] = []
        self.lists = 0
        self.failing: ClusterError | None = None
        self.uid = "uid-of-kube-system"
        self._uids = itertools.count(1)
        self._written = asyncio.Event()

    def reserve_uid(self) -> str:
        """Return a fresh uid, as admission sees it before anything is written."""
        return f"uid-{next(self._uids)}"

    def create(self, kind: str, namespace: str, body: Object, uid: str = "") -> Object:
        body = copy.deepcopy(body)
        body["metadata"] |= {"namespace": namespace, "uid": uid or self.reserve_uid()}
        key = (kind, namespace, body["metadata"]["name"])
        assert key not in self.objects, "AlreadyExists"
        return self._write("ADDED", key, body)

    def update(self, kind: str, namespace: str, name: str, **parts: Object) -> Object:
        """Merge `parts` into the top-level fields of an object."""
        key = (kind, namespace, name)
        body = copy.deepcopy(self.objects[key])
        for field, values in parts.items():
            body[field] = {**body.get(field, {}), **values}
        return self._write("MODIFIED", key, body)

    def delete(self, kind: str, namespace: str, name: str) -> Object:
        key = (kind, namespace, name)
        body = copy.deepcopy(self.objects[key])
        self._write("DELETED", key, body)
        del self.objects[key]
        return body

    def list(self, kind: str, namespace: str = "") -> list[Object]:
        self.lists += 1
        if self.failing is not None:
            raise self.failing
        return [
            body
            for (its_kind, its_namespace, _), body in self.objects.items()
            if its_kind == kind and namespace in ("", its_namespace)
        ]

    async def changes(self, kind: str, after: int) -> AsyncGenerator[tuple[int, str, Object], None]:
        """Yield the writes of a kind after a version, without end."""
        while True:
            written = self._written  # before looking, or a change meanwhile wakes no watch
            for version, its_kind, change, body in list(self.history):
                if its_kind == kind and version > after:
                    after = version
                    yield version, change, body
            await written.wait()

    def _write(self, change: str, key: tuple[str, str, str], body: Object) -> Object:
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = body
        self.history.append((self.version, key[0], change, body))
        written, self._written = self._written, asyncio.Event()
        written.set()
        return body


class FakeCluster:
    """The model behind the port that settlement uses."""

    def __init__(self, server: FakeApiServer) -> None:
        self.server = server

    async def kube_system_uid(self) -> str:
        return self.server.uid

    async def list_pods(self, namespace: str) -> Listed[Pod]:
        bodies = self.server.list("pods", namespace)
        return Listed(self.server.version, [msgspec.convert(body, Pod) for body in bodies])

    def watch_pods(self) -> AsyncGenerator[Change[Pod], None]:
        return self._watch("pods")

    def watch_quotas(self) -> AsyncGenerator[Change[ResourceQuota], None]:
        return self._watch("resourcequotas")

    async def _watch(self, kind: str) -> AsyncGenerator[Any, None]:
        listed, after = self.server.list(kind), self.server.version
        yield Listed(after, [msgspec.convert(body, KINDS[kind]) for body in listed])
        async with contextlib.aclosing(self.server.changes(kind, after)) as changes:
            async for version, change, body in changes:
                seen = msgspec.convert(body, KINDS[kind])
                yield Changed(version, seen, deleted=change == "DELETED")


@contextlib.asynccontextmanager
async def on_loopback(
    app: web.Application, directory: Path, token: str = "secret"
) -> AsyncIterator[Path]:
    """Serve an application over HTTP; yield the kubeconfig file that leads to it."""
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(kubeconfig_text(f"http://127.0.0.1:{port}", token))
    try:
        yield kubeconfig
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def client_on_loopback(app: web.Application, directory: Path) -> AsyncIterator[ApiClient]:
    """Serve an application over HTTP; yield a client of it."""
    async with (
        on_loopback(app, directory) as kubeconfig,
        await ApiClient.connect(kubeconfig) as client,
    ):
        yield client


def kubeconfig_text(server: str, token: str) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            "clusters": [{"name": "here", "cluster": {"server": server}}],
            "users": [{"name": "me", "user": {"token": token}}],
        }
    )


def http_api(server: FakeApiServer) -> web.Application:
    """Return the model as an HTTP application that lists and watches like an API server."""

    async def collection(request: web.Request) -> web.StreamResponse:
        kind, namespace = request.match_info["kind"], request.match_info.get("namespace", "")
        if "watch" in request.query:
            return await _stream(request, server, kind, int(request.query["resourceVersion"]))
        metadata = {"resourceVersion": str(server.version)}
        return web.json_response({"metadata": metadata, "items": server.list(kind, namespace)})

    async def kube_system(_: web.Request) -> web.Response:
        return web.json_response({"metadata": {"name": "kube-system", "uid": server.uid}})

    app = web.Application()
    app.router.add_get("/api/v1/namespaces/kube-system", kube_system)
    app.router.add_get("/api/v1/namespaces/{namespace}/{kind}", collection)
    app.router.add_get("/api/v1/{kind}", collection)
    return app


async def _stream(
    request: web.Request, server: FakeApiServer, kind: str, after: int
) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    async with contextlib.aclosing(server.changes(kind, after)) as changes:
        async for _, change, body in changes:
            await response.write(msgspec.json.encode({"type": change, "object": body}) + b"\n")
    return response
