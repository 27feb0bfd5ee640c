"""Loopback access: which clients count as local, and which paths answer only local clients.

Without a client CA no certificate can be verified, so the extender answers only loopback clients.
"""

from enum import Enum
from typing import Final

import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ledger.runtime import addresses

LOOPBACK_PREFIX: Final = "/extender/"

FORWARDED: Final = (
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
)
"""Headers of a proxy. A request with one is not of this machine, also if the proxy is."""


class ConnectionAccess(Enum):
    """The access of a connection's client to a path.

    `BY_LOOPBACK_HOST`: a request is accepted if its Host header addresses this machine as loopback,
    and no proxy forwards it.
    """

    REFUSED = "refused"
    BY_LOOPBACK_HOST = "by loopback host"
    GRANTED = "granted"


class LoopbackRequired:
    """Answers 403 to clients on other machines."""

    def __init__(self, app: ASGIApp, prefix: str = LOOPBACK_PREFIX) -> None:
        """Guard the paths below the prefix."""
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it without reading its body."""
        guarded = scope["type"] == "http" and scope["path"].startswith(self._prefix)
        if not guarded or is_local(scope, Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        message = (
            f"{scope['path']} answers only this machine: run the scheduler on it, or set client_ca"
            " and give the scheduler a client certificate"
        )
        body = msgspec.json.encode({"error": {"message": message}})
        await Response(body, 403, media_type="application/json")(scope, receive, send)

    def access(self, path: str, name: str | None, peer: str) -> ConnectionAccess:
        """Return the access of the connections of a client at this address."""
        if not path.startswith(self._prefix):
            return ConnectionAccess.GRANTED
        local = addresses.is_loopback(peer)
        return ConnectionAccess.BY_LOOPBACK_HOST if local else ConnectionAccess.REFUSED


def is_local(scope: Scope, headers: Headers) -> bool:
    """Return whether the client is on this machine, and addresses it as loopback.

    A web page in a browser on this machine can reach loopback by a DNS name of its own. Its
    requests have that name in the Host header and do not count as local. Nor do those that a proxy
    on this machine forwards for others, if it sends one of `FORWARDED`.
    """
    if any(name in headers for name in FORWARDED):
        return False
    return addresses.is_loopback(peer_of(scope)) and names_loopback(headers.get("host", ""))


def names_loopback(host: str) -> bool:
    """Return whether a Host header addresses this machine as loopback."""
    name = host if host.endswith("]") or ":" not in host else host.rpartition(":")[0]
    return addresses.is_loopback(name.strip("[]"))


def peer_of(scope: Scope) -> str:
    """Return the address of the client."""
    return str((scope.get("client") or ("", 0))[0])
