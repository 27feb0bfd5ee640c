"""A stand-in for the client of an API server: lists, watches and writes by path, without HTTP."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

import msgspec

from tests.bench.trips.sample_objects import Object

VERSION: Final = 100
"""The resourceVersion of every list."""

_KINDS: Final = {"deployments": "Deployment", "replicasets": "ReplicaSet"}
_LISTED: Final = ("list", "watch")


class ApiServerStub:
    """Objects by the path of their collection. `written` are the requests that changed something.

    It has the methods of the product's client which the product calls.
    """

    address = "http://api.invalid"

    def __init__(self) -> None:
        self.written: list[tuple[str, str]] = []
        self._objects: dict[str, list[Object]] = {}
        self._lines: dict[str, asyncio.Queue[bytes]] = {}

    def store(self, collection: str, thing: Object) -> None:
        """Put an object into a collection, before it is listed."""
        self._objects.setdefault(collection, []).append(thing)

    def tell(self, collection: str, change: str, thing: Object) -> None:
        """Send a watch event, such as `DELETED`, to the watch of a collection."""
        line = msgspec.json.encode({"type": change, "object": thing}) + b"\n"
        self._queue(collection).put_nowait(line)

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> bytes:
        """Return a list, or an object."""
        return await self.request("GET", path, params=params)

    async def request(self, method: str, path: str, **_options: Any) -> bytes:
        """Answer one request."""
        if method != "GET":
            self.written.append((method, path))
            return b"{}"
        if path in ("/api", "/apis"):
            return msgspec.json.encode({"kind": "APIGroupDiscoveryList", "items": _groups(path)})
        collection, _, name = path.rpartition("/")
        if name == "kube-system":
            return msgspec.json.encode({"metadata": {"name": name, "uid": "uid-of-the-cluster"}})
        for thing in self._objects.get(collection, ()):
            if thing["metadata"]["name"] == name:
                return msgspec.json.encode(thing)
        listed = {"metadata": {"resourceVersion": str(VERSION)}}
        return msgspec.json.encode({**listed, "items": self._objects.get(path, [])})

    async def watch(self, path: str, params: Mapping[str, str], accept: str) -> "WatchStub":
        """Begin a watch of a collection."""
        return WatchStub(self._queue(path))

    def _queue(self, collection: str) -> asyncio.Queue[bytes]:
        return self._lines.setdefault(collection, asyncio.Queue())


class WatchStub:
    """The answer to a watch, without end."""

    content_type = "application/json"

    def __init__(self, lines: asyncio.Queue[bytes]) -> None:
        self._lines = lines

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the events."""
        while True:
            yield await self._lines.get()

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""


def _groups(path: str) -> list[Object]:
    """Return the part of the discovery document below a path: Deployments and ReplicaSets."""
    if path == "/api":
        return []
    served = [
        {
            "resource": plural,
            "scope": "Namespaced",
            "responseKind": {"kind": kind},
            "verbs": list(_LISTED),
        }
        for plural, kind in _KINDS.items()
    ]
    return [{"metadata": {"name": "apps"}, "versions": [{"version": "v1", "resources": served}]}]
