"""Canned API server: it gives prepared answers over real HTTP and records the requests."""

import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RecordedRequest(NamedTuple):
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class CannedApiServer:
    """Answers by path: JSON for 200, a pair of status and JSON, or a handler; 404 for the rest."""

    def __init__(self) -> None:
        self.by_path: dict[str, Any] = {}
        self.asked: list[RecordedRequest] = []

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        return app

    def times_asked(self, path: str) -> int:
        return sum(request.path == path for request in self.asked)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        body = json.loads(text) if text else None
        query, headers = dict(request.query), dict(request.headers)
        self.asked.append(RecordedRequest(request.method, request.path, query, headers, body))
        answer = self.by_path.get(request.path)
        if answer is None:
            return web.Response(status=404, text="404 page not found\n")
        if callable(answer):
            return await answer(request)
        status, value = answer if isinstance(answer, tuple) else (200, answer)
        return web.json_response(value, status=status)


def failure(code: int, reason: str, message: str = "no", name: str = "") -> tuple[int, Any]:
    """Return a `Status` as the API server sends it; `name` is the object that it is about."""
    status = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return code, status | {"details": {"name": name} if name else {}}
