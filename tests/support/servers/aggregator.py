"""Aggregator: an API server's aggregation layer in few lines, in front of a real service.

It accepts one token, or any client certificate of its authority, and forwards requests below the
group of the read API to `/v1`. Rights are the service's own matter.
"""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
from aiohttp import web

from ledger.runtime.tls import server_certificate
from ledger.runtime.tls.certificate_authority import issue, new_authority

Handler = Callable[[web.Request], Awaitable[web.Response]]
PREFIX: Final = "/apis/query.gpuledger.io/v1/"
TOKEN: Final = "good-token"

_HEADERS: Final = ("Gpuledger-Api", "Gpuledger-Position", "Gpuledger-Head", "Gpuledger-Next")


class Aggregator:
    """A running aggregation layer; `requests` are those that it got, with their headers."""

    def __init__(self, folder: Path, service: str, trusts: ssl.SSLContext) -> None:
        """Forward to the service at a URL, with a context that trusts its certificate."""
        self.url, self.authority = "", folder / "authority.crt"
        self.requests: list[web.Request] = []
        self.handle: Handler = self._forward
        self._folder, self._service, self._trusts = folder, service, trusts

    @asynccontextmanager
    async def running(self, clients: str = "") -> AsyncIterator["Aggregator"]:
        """Serve for the block; `clients` is the file of the CA of client certificates."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._authenticated)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._tls(clients))
        await site.start()
        server: Any = site._server
        self.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    def reply(self, status: int = 200, text: str = "", **more: Any) -> None:
        """Give this answer to every request instead of the service's."""

        async def canned(_: web.Request) -> web.Response:
            return web.Response(status=status, text=text, **more)

        self.handle = canned

    def _tls(self, clients: str) -> ssl.SSLContext:
        now = server_certificate.utc_now()
        authority = new_authority(now)
        own = issue(authority, ["127.0.0.1"], now)
        self.authority.write_bytes(authority.certificate)
        files = (self._folder / "server.crt", self._folder / "server.key")
        for file, content in zip(files, (own.certificate, own.key), strict=True):
            file.write_bytes(content)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*files)
        if clients:
            context.load_verify_locations(clients)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    async def _authenticated(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        certified = request.transport is not None and request.transport.get_extra_info("peercert")
        if not certified and request.headers.get("Authorization") != f"Bearer {TOKEN}":
            status = {"kind": "Status", "status": "Failure", "message": "Unauthorized", "code": 401}
            return web.json_response(status, status=401)
        return await self.handle(request)

    async def _forward(self, request: web.Request) -> web.Response:
        if not request.path.startswith(PREFIX):
            return web.Response(status=404, text="404 page not found\n")
        path, query = request.path.removeprefix(PREFIX), dict(request.query)
        if path.startswith("namespaces/"):
            _, query["namespace"], path = path.split("/")
        body = await request.read() or None
        connector = aiohttp.TCPConnector(ssl=self._trusts)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(
                request.method, f"{self._service}/v1/{path}", params=query, data=body
            ) as response,
        ):
            kept = {name: response.headers[name] for name in _HEADERS if name in response.headers}
            return web.Response(
                body=await response.read(),
                status=response.status,
                headers=kept,
                content_type=response.content_type,
            )
