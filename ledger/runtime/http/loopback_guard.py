"""Loopback: which paths only processes of this machine may use, as a pure ASGI middleware.

For what needs a client certificate elsewhere, where no CA says whose certificates are good.
"""

from typing import Final

import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ledger.runtime.http.authorization import is_local

PREFIX: Final = "/extender/"


class LoopbackRequired:
    """Answers 403 to whoever is not on this machine."""

    def __init__(self, app: ASGIApp, prefix: str = PREFIX) -> None:
        """Guard what is below the prefix."""
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it without reading its body."""
        guarded = scope["type"] == "http" and scope["path"].startswith(self._prefix)
        if not guarded or is_local(scope, Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        message = (
            f"{scope['path']} answers this machine only: run the scheduler beside it, or set"
            " client_ca and give the scheduler a client certificate"
        )
        body = msgspec.json.encode({"error": {"message": message}})
        await Response(body, 403, media_type="application/json")(scope, receive, send)
