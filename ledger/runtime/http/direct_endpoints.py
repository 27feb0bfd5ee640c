"""Direct endpoints: one table of JSON endpoints, for the direct path and for the application.

Each endpoint is a route of the application. A connection also gets, once, the endpoints that its
client may use (`of_connection`), and `direct_connection` serves their plain requests without ASGI.
The guard in front of the application decides for both, so no request is accepted by one way alone.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from starlette.routing import Route

from ledger.runtime.http.json_endpoint import JsonEndpoint
from ledger.runtime.http.loopback_access import ConnectionAccess

Endpoints = Mapping[str, JsonEndpoint[Any, Any]]
"""Endpoints by their path."""


class PathGuard(Protocol):
    """The middleware in front of the application."""

    def access(self, path: str, name: str | None, peer: str) -> ConnectionAccess:
        """Return the access of a client to a path.

        `name` is the subject of its certificate, None without one; `peer` is its address.
        """
        ...


class DirectEndpoint(NamedTuple):
    """An endpoint that a connection may use, perhaps only by a Host header of loopback."""

    endpoint: JsonEndpoint[Any, Any]
    by_loopback_host: bool


class DirectEndpoints:
    """The endpoints of a server that are served on the direct path."""

    def __init__(self, endpoints: Endpoints, guard: PathGuard) -> None:
        """`guard` is in front of the application that has the routes of these endpoints."""
        self._endpoints, self._guard = endpoints, guard

    def of_connection(self, name: str | None, peer: str) -> dict[bytes, DirectEndpoint]:
        """Return the endpoints that a client may use, by the bytes of their path."""
        usable: dict[bytes, DirectEndpoint] = {}
        for path, endpoint in self._endpoints.items():
            access = self._guard.access(path, name, peer)
            if access is not ConnectionAccess.REFUSED:
                by_host = access is ConnectionAccess.BY_LOOPBACK_HOST
                usable[path.encode()] = DirectEndpoint(endpoint, by_host)
        return usable


def routes(endpoints: Endpoints) -> list[Route]:
    """Return the routes of endpoints, for the application."""
    return [Route(path, endpoint) for path, endpoint in endpoints.items()]
