"""API client: requests to one API server, as bytes, each with a deadline.

kubernetes-asyncio provides configuration and authentication. The requests go through aiohttp
sessions, because the client of kubernetes-asyncio decodes every object in full.
"""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final

import aiohttp

from ledger.kube.api import http_status_errors
from ledger.kube.api.cluster_errors import ClusterUnavailable
from ledger.kube.client.cluster_credentials import Credentials
from ledger.log.bounded_read import AnswerTooLong, read_whole

REQUEST_SECONDS: Final = 30.0
"""Deadline of a request that is not a watch."""

CONNECT_SECONDS: Final = 10.0
"""Deadline of connecting, and of a watch's first answer."""

CLOSING_TURNS: Final = 3
"""Iterations of the event loop in which the layers of aborted connections close."""

SILENCE_SECONDS: Final = 150.0
"""A watch without data for longer is a dead connection, because bookmarks come every minute."""

BODY_BYTES_MAX: Final = 64 * 1024 * 1024
"""Largest answer that is read."""

CONNECTIONS_MAX: Final = 32
"""Maximum number of simultaneous requests other than watches."""

WATCHES_MAX: Final = 256
"""Maximum number of simultaneous watches, one per kind. Watches have their own connections, so
that a read or a write never waits for the end of a watch."""

READ_BYTES: Final = 256 * 1024
"""Read buffer of a connection, and the largest chunk of a watch."""

JSON: Final = "application/json"

_HEADERS: Final = {"Accept": JSON, "User-Agent": "gpuledger"}


class ApiClient:
    """Requests to one API server. Close it, or use it as an async context manager."""

    clock_ahead: float = 0.0
    """Seconds by which this machine's clock was ahead of the API server's at the last answer; 0
    before the first. An answer has its time in whole seconds."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        tls = credentials.tls()
        self._requests = _session(CONNECTIONS_MAX, tls)
        self._watches = _session(WATCHES_MAX, tls)

    @classmethod
    async def connect(cls, kubeconfig: Path | None) -> "ApiClient":
        """Make a client from a kubeconfig file, or with None from the pod's service account.

        This sends no request. Raises Forbidden if there are no usable credentials.
        """
        return cls(await Credentials.load(kubeconfig))

    async def __aenter__(self) -> "ApiClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def address(self) -> str:
        """The base URL of the API server."""
        return self._credentials.address

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> bytes:
        """GET a path and return the body. Raises ClusterError."""
        return await self.request("GET", path, params=params)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        seconds: float = REQUEST_SECONDS,
    ) -> bytes:
        """Send a request, wait at most `seconds` for the whole answer, and return its body.

        Raises one of the ClusterErrors of `ledger.kube.api.cluster_errors`.
        """
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        try:
            async with (
                asyncio.timeout(seconds),
                await self._send(self._requests, method, path, params, headers, body) as response,
            ):
                self._compare_clocks(response)
                await self._raise_for_status(response)
                return await self._read(response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ClusterUnavailable(self._broken(method, path, error)) from error

    async def watch(
        self, path: str, params: Mapping[str, str], accept: str = JSON
    ) -> "WatchAnswer":
        """Begin a watch, and return its answer, which the caller closes. Raises like `request`."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS + REQUEST_SECONDS):
                headers = {"Accept": accept}
                response = await self._send(self._watches, "GET", path, params, headers, None)
                async with asyncio.timeout(REQUEST_SECONDS):
                    await self._raise_for_status(response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ClusterUnavailable(self._broken("watch", path, error)) from error
        return WatchAnswer(response, lambda error: self._broken("watch", path, error))

    async def close(self) -> None:
        """Close every connection."""
        await self._requests.close()
        await self._watches.close()
        for _ in range(CLOSING_TURNS):
            await asyncio.sleep(0)

    async def _send(
        self,
        session: aiohttp.ClientSession,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        headers: dict[str, str],
        body: bytes | None,
    ) -> aiohttp.ClientResponse:
        silence = SILENCE_SECONDS if session is self._watches else None
        return await session.request(
            method,
            self.address + path,
            params=params,
            data=body,
            headers={**headers, **await self._credentials.headers()},
            server_hostname=self._credentials.server_name,
            proxy=self._credentials.proxy,
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=CONNECT_SECONDS, sock_read=silence
            ),
        )

    def _compare_clocks(self, response: aiohttp.ClientResponse) -> None:
        with contextlib.suppress(ValueError):
            theirs = parsedate_to_datetime(response.headers.get("Date", ""))
            self.clock_ahead = time.time() - theirs.timestamp()

    async def _raise_for_status(self, response: aiohttp.ClientResponse) -> None:
        status = response.status
        if 200 <= status < 300:
            return
        async with response:
            body = await self._read(response)
        if status == 401:
            self._credentials.distrust()
        what = f"{response.method} {response.url}"
        raise http_status_errors.error_of(what, status, response.reason, body)

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        try:
            return await read_whole(response.content, BODY_BYTES_MAX)
        except AnswerTooLong as error:
            raise ClusterUnavailable(f"{response.url} answered {error}") from error

    def _broken(self, method: str, path: str, error: Exception) -> str:
        reason = str(error) or type(error).__name__
        return f"{method} {self.address}{path}: {reason}; is the API server reachable?"


class WatchAnswer:
    """The answer to a watch, until the server or the caller ends it."""

    def __init__(
        self, response: aiohttp.ClientResponse, broken: Callable[[Exception], str]
    ) -> None:
        """`broken` returns the message for an error of the connection."""
        self._response, self._broken = response, broken
        self.content_type = response.content_type
        """The media type without parameters."""

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the watch in chunks as they arrive.

        Raises ClusterUnavailable for a broken or silent connection.
        """
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ClusterUnavailable(self._broken(error)) from error

    async def aclose(self) -> None:
        """End the watch."""
        self._response.release()


def _session(connections: int, tls: ssl.SSLContext) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections, ssl=tls),
        read_bufsize=READ_BYTES,
        headers=_HEADERS,
    )
