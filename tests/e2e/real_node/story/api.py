"""The API server for tests without an event loop, as its administrator sees it."""

import http.client
import json
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

from tests.e2e.harness.cluster import Manifest

ANSWER_SECONDS: Final = 30.0
PAUSE_SECONDS: Final = 0.05

Seen = TypeVar("Seen")


class ApiAnswer(NamedTuple):
    """An HTTP status and the decoded body."""

    status: int
    body: Manifest


class Api:
    """Requests to the API server, each on a connection of its own."""

    def __init__(self, url: str, token: str, ca: Path) -> None:
        """Take the address of the API server, and the administrator's token."""
        self._host = urlsplit(url).netloc
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._context = ssl.create_default_context(cafile=str(ca))

    def ask(
        self, method: str, path: str, body: Manifest | None = None, kind: str = ""
    ) -> ApiAnswer:
        """Send one request; `kind` is the type of a patch."""
        headers = self._headers | ({"Content-Type": kind} if kind else {})
        connection = http.client.HTTPSConnection(
            self._host, timeout=ANSWER_SECONDS, context=self._context
        )
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, headers)
            answer = connection.getresponse()
            return ApiAnswer(answer.status, json.loads(answer.read()))
        finally:
            connection.close()

    def must(
        self, method: str, path: str, body: Manifest | None = None, kind: str = ""
    ) -> Manifest:
        """Send one request that has to succeed; return the body."""
        answer = self.ask(method, path, body, kind)
        assert answer.status < 300, f"{method} {path}: {answer.status} {answer.body}"
        return answer.body

    def items(self, path: str) -> list[Manifest]:
        """Return the objects of a list."""
        return list(self.must("GET", path)["items"])


def wait_for(
    look: Callable[[], Seen],
    wanted: Callable[[Seen], Any],
    *,
    within: float,
    what: str,
    pause: float = PAUSE_SECONDS,
) -> Seen:
    """Return a value as soon as it is as wanted. Fails with the last value after a time."""
    deadline = time.monotonic() + within
    while True:
        seen = look()
        if wanted(seen):
            return seen
        assert time.monotonic() < deadline, f"after {within:g} s still not: {what}; last: {seen!r}"
        time.sleep(pause)
