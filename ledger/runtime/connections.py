"""Connections: uvicorn's HTTP protocol, bounded, and telling the application who the peer is.

What uvicorn leaves open is closed here: a request's head has a size and a time, so a client that
never ends it holds nothing. The peer's certificate is put into the scope as the ASGI extension
`tls` describes (https://asgi.readthedocs.io/en/latest/specs/tls.html).
"""

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MAX: Final = 65_536
"""Request line and headers together; the API server's are below 4 KiB."""

HEAD_SECONDS: Final = 10.0
"""From the connection, or from a request's first byte, to the end of its head."""

# Attribute names of RFC 4514 section 3; other attributes keep the name that OpenSSL gives them.
_SHORT_NAMES: Final = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}

_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


class Connection(HttpToolsProtocol):
    """One connection; a subclass because uvicorn hands the transport to nobody else."""

    _head_bytes = 0
    _reading_head = False
    _head_timer: asyncio.TimerHandle | None = None
    _tls: dict[object, object] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        """Look at the peer's certificate once, and start to wait for the first request."""
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self._tls = _tls_extension(tls)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer with the connection."""
        self._head_ended()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse, and give up on a head that grows or lasts without end."""
        super().data_received(data)
        if not self._reading_head:
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES_MAX:
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        elif self._head_timer is None:
            self._wait_for_head()

    def on_message_begin(self) -> None:
        """Start a request with the peer's certificate in its scope."""
        super().on_message_begin()
        self._reading_head = True
        self._head_bytes = 0
        if self._tls is not None:
            self.scope["extensions"] = {"tls": self._tls}

    def on_headers_complete(self) -> None:
        """Hand the request over; from here the application's own deadlines hold."""
        self._reading_head = False
        self._head_ended()
        super().on_headers_complete()

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _head_ended(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def _tls_extension(tls: ssl.SSLObject) -> dict[object, object]:
    """Describe a connection whose handshake verified the peer's certificate, if it gave one."""
    binary = tls.getpeercert(binary_form=True)
    return {
        "server_cert": None,
        "client_cert_chain": [ssl.DER_cert_to_PEM_cert(binary)] if binary else [],
        "client_cert_name": _subject(tls.getpeercert()),
        "client_cert_error": None,
        "tls_version": None,
        "cipher_suite": None,
    }


def _subject(certificate: Mapping[str, Any] | None) -> str | None:
    """Render the subject as RFC 4514 does: last attribute first, separators escaped."""
    if not certificate:
        return None
    return ",".join(
        "+".join(f"{_SHORT_NAMES.get(name, name)}={_escaped(value)}" for name, value in attributes)
        for attributes in reversed(certificate.get("subject", ()))
    )


def _escaped(value: str) -> str:
    escaped = "".join(f"\\{letter}" if letter in '",+;<>\\' else letter for letter in value)
    if escaped[:1] in ("#", " "):
        escaped = f"\\{escaped}"
    return f"{escaped[:-1]}\\ " if escaped.endswith(" ") and escaped != "\\ " else escaped
