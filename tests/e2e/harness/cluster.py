"""A small Kubernetes client for tests: what is asked goes over the wire as written here."""

import copy
from typing import Any, Final, NamedTuple

import aiohttp

REQUEST_SECONDS: Final = 60.0

Manifest = dict[str, Any]


class Answer(NamedTuple):
    """An HTTP status, the decoded body (an object, a list or a `Status`), warnings for people."""

    status: int
    body: Manifest
    warnings: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """Return the API server's message about a refusal."""
        return str(self.body.get("message", ""))


class Refused(AssertionError):
    """The API server refused what the test needs."""


class Cluster:
    """The API server as one user sees it. Every request has a deadline."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str) -> None:
        self._session = session
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"}

    def as_user(self, user: str) -> "Cluster":
        """Return the API server as another user sees it; only an administrator may ask so."""
        view = copy.copy(self)
        view._headers = self._headers | {"Impersonate-User": user}
        return view

    def with_token(self, token: str) -> "Cluster":
        """Return the API server as the holder of a token sees it."""
        view = copy.copy(self)
        view._headers = {"Authorization": f"Bearer {token}"}
        return view

    async def ask(
        self, method: str, path: str, body: Manifest | None = None, **options: Any
    ) -> Answer:
        """Send one request; options are those of aiohttp. Never raises for an HTTP status."""
        headers = self._headers | options.pop("headers", {})
        timeout = aiohttp.ClientTimeout(total=options.pop("within", REQUEST_SECONDS))
        async with self._session.request(
            method, self._url + path, json=body, headers=headers, timeout=timeout, **options
        ) as response:
            warnings = tuple(response.headers.getall("Warning", ()))
            return Answer(response.status, await response.json(content_type=None), warnings)

    async def must(
        self, method: str, path: str, body: Manifest | None = None, **options: Any
    ) -> Manifest:
        """Send one request that has to succeed, and return its body."""
        answer = await self.ask(method, path, body, **options)
        if answer.status >= 300:
            raise Refused(f"{method} {path}: {answer.status} {answer.body}")
        return answer.body

    async def patch(self, path: str, change: Manifest) -> Answer:
        """Send a JSON merge patch."""
        kind = {"Content-Type": "application/merge-patch+json"}
        return await self.ask("PATCH", path, change, headers=kind)

    async def items(self, path: str) -> list[Manifest]:
        """List everything at a path by a linearizable read."""
        listed = await self.must("GET", path)
        return list(listed["items"])
