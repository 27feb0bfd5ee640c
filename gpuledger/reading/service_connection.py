"""Service connection: requests to the read API, directly or through an API server.

Both ways differ in the paths, the credentials and the remedies of errors only. Each request has a
deadline and each answer a largest size. No redirect is followed, so a token goes to one address.
"""

import json
import ssl
import urllib.request
from collections.abc import Mapping
from typing import Final, Self
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.reading.request_credentials import Headers, RequestCredentials
from ledger.log.bounded_read import AnswerTooLong, read_whole
from ledger.runtime.addresses import is_loopback

REQUEST_SECONDS: Final = 60.0
"""Deadline of a request, with the whole answer."""

CONNECT_SECONDS: Final = 10.0
"""Deadline of connecting."""

BODY_BYTES_MAX: Final = 64 * 1024 * 1024
"""Largest answer that is read."""

GROUP: Final = "query.gpuledger.io"
VERSION: Final = "v1"


class ServiceAddress(msgspec.Struct, frozen=True):
    """Where to ask: the base URL, and the words for messages.

    `aggregated`: an API server serves the API as a group of its own. `origin` names the address and
    its source, `renewal` is the remedy for refused credentials.
    """

    url: str
    origin: str
    renewal: str
    aggregated: bool = False
    server_name: str | None = None
    proxy: str | None = None

    def path(self, resource: str, namespace: str) -> str:
        """Return the path of a resource, of one namespace or of all."""
        if not self.aggregated:
            return f"/v1/{resource}"
        within = f"namespaces/{quote(namespace, safe='')}/" if namespace else ""
        return f"/apis/{GROUP}/{VERSION}/{within}{resource}"


class ServiceReply(msgspec.Struct, frozen=True):
    """An answer of the service: its status, the header fields by lower-case name, the body."""

    status: int
    headers: dict[str, str]
    body: bytes


class ServiceConnection:
    """A session with one service. Use it as an async context manager."""

    def __init__(
        self,
        address: ServiceAddress,
        *,
        tls: ssl.SSLContext | None,
        credentials: RequestCredentials,
        headers: Headers | None = None,
    ) -> None:
        """`headers` are those beside the credentials; without `tls` the URL is an http one."""
        self.address = address
        self._credentials = credentials
        self._proxy = address.proxy or _proxy_for(address.url)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=tls if tls is not None else True, force_close=credentials.by_certificate
            ),
            headers=[("User-Agent", "gpuledger"), ("Accept", "application/json"), *(headers or ())],
            timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=CONNECT_SECONDS),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def get(self, resource: str, namespace: str, params: Mapping[str, str]) -> ServiceReply:
        """GET a resource. Raises CommandError without an answer."""
        return await self._request("GET", resource, namespace, params, None)

    async def post(
        self, resource: str, namespace: str, params: Mapping[str, str], body: bytes
    ) -> ServiceReply:
        """POST JSON to a resource. Raises CommandError without an answer."""
        return await self._request("POST", resource, namespace, params, body)

    async def _request(
        self,
        method: str,
        resource: str,
        namespace: str,
        params: Mapping[str, str],
        body: bytes | None,
    ) -> ServiceReply:
        """Send a request, and once more if it is refused and the credentials can be renewed."""
        reply = await self._send(method, resource, namespace, params, body)
        if reply.status == 401 and await self._credentials.renew():
            reply = await self._send(method, resource, namespace, params, body)
        return reply

    async def _send(
        self,
        method: str,
        resource: str,
        namespace: str,
        params: Mapping[str, str],
        body: bytes | None,
    ) -> ServiceReply:
        address = self.address
        headers = await self._credentials.headers()
        if body is not None:
            headers = [*headers, ("Content-Type", "application/json")]
        asked = {name: value for name, value in params.items() if value}
        if namespace and not address.aggregated:
            asked["namespace"] = namespace
        try:
            async with self._session.request(
                method,
                address.url + address.path(resource, namespace),
                params=asked,
                data=body,
                headers=headers,
                server_hostname=address.server_name,
                proxy=self._proxy,
                allow_redirects=False,
            ) as response:
                content = await read_whole(response.content, BODY_BYTES_MAX)
        except AnswerTooLong as error:
            raise CommandError(
                Exit.FAILED, f"{address.origin} answered {error}: ask for less with -n or --limit"
            ) from error
        except aiohttp.ConnectionTimeoutError as error:
            raise _unreachable(address, error) from error
        except TimeoutError as error:
            raise CommandError(
                Exit.NOT_READY,
                f"{address.origin} did not answer within {REQUEST_SECONDS:g} s: try again, or ask"
                " for less with -n or --limit",
            ) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _unreachable(address, error) from error
        fields = {name.lower(): value for name, value in response.headers.items()}
        return ServiceReply(response.status, fields, content)


def _unreachable(address: ServiceAddress, error: Exception) -> CommandError:
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    reason = " ".join(str(cause).split()) or type(cause).__name__
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
        remedy = (
            "certificate-authority and tls-server-name of the kubeconfig"
            if address.aggregated
            else "the CA (--ca-file or GPULEDGER_CA_FILE), and the name in the URL"
        )
        return CommandError(
            Exit.UNREACHABLE, f"{address.origin}: TLS does not work: {reason}; check {remedy}"
        )
    return CommandError(
        Exit.UNREACHABLE,
        f"{address.origin} cannot be reached: {reason}; check the address, and whether it runs",
    )


def _proxy_for(url: str) -> str | None:
    """Return the proxy of the environment for a URL, None without one."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(parts.scheme)


def problem_of(reply: ServiceReply) -> tuple[str, str]:
    """Return the message of a refusal and the parameter or field that it names.

    Both are empty if the answer has none. The service answers `{"error": {…}}`, the API server with
    a Status.
    """
    try:
        document = json.loads(reply.body)
    except (ValueError, RecursionError):
        return "", ""
    if not isinstance(document, dict):
        return "", ""
    error = document.get("error", document)
    if not isinstance(error, dict):
        return "", ""
    named = error.get("parameter") or error.get("field") or ""
    message = error.get("message", "")
    return (_shown(message), _shown(named))


def _shown(text: object) -> str:
    """Return a text of another machine on one line, without what controls a terminal."""
    if not isinstance(text, str):
        return ""
    return "".join(mark if mark.isprintable() else " " for mark in text[:4_000])
