"""Guards of paths, as pure ASGI middleware: by client certificate, or by loopback.

The TLS handshake requests a certificate and does not require one, because probes and scrapers share
the port and have none. It verifies a given certificate, so a name in the scope is that of a client
of the configured CA.

Without a client CA no certificate can be verified, so the extender answers only loopback clients.
"""

from collections.abc import Collection
from typing import Final

import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ledger.runtime.http.authorization import is_local

CERTIFIED_PREFIXES: Final = ("/admission", "/extender")


class ClientCertificateRequired:
    """Answers 403 to clients without a verified certificate."""

    def __init__(
        self,
        app: ASGIApp,
        subjects: Collection[str] = (),
        *,
        prefixes: tuple[str, ...] = CERTIFIED_PREFIXES,
    ) -> None:
        """Guard the prefixes. With subjects (RFC 4514), only clients of these names pass."""
        self._app = app
        self._subjects = frozenset(subjects)
        self._prefixes = prefixes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it without reading its body."""
        problem = self._problem(scope) if self._is_guarded(scope) else ""
        if problem:
            body = msgspec.json.encode({"error": {"message": problem}})
            refusal = Response(body, status_code=403, media_type="application/json")
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _is_guarded(self, scope: Scope) -> bool:
        return scope["type"] == "http" and any(
            scope["path"] == prefix or scope["path"].startswith(f"{prefix}/")
            for prefix in self._prefixes
        )

    def _problem(self, scope: Scope) -> str:
        name = name_of(scope)
        if name is None:
            return (
                f"{scope['path']} needs a client certificate of the CA in client_ca; give the API"
                " server one in its admission configuration"
            )
        if self._subjects and name not in self._subjects:
            return f"{scope['path']} is not for {name}; add it to client_subjects if it should be"
        return ""


def name_of(scope: Scope) -> str | None:
    """Return the subject (RFC 4514) of the client's certificate, None without one."""
    name: str | None = scope.get("extensions", {}).get("tls", {}).get("client_cert_name")
    return name


LOOPBACK_PREFIX: Final = "/extender/"


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
