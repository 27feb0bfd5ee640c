"""Client certificate access: which certificates a client needs for `/admission` and `/extender`.

The TLS handshake requests a certificate and does not require one, because probes and scrapers share
the port and have none. The handshake verifies a given certificate, so a name in the scope is that
of a client of the configured CA. The scope has the certificate as the ASGI extension `tls`
describes (https://asgi.readthedocs.io/en/latest/specs/tls.html).
"""

import ssl
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ledger.runtime.http.loopback_access import ConnectionAccess

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
        problem = self._problem(scope["path"], name_of(scope)) if scope["type"] == "http" else ""
        if problem:
            body = msgspec.json.encode({"error": {"message": problem}})
            refusal = Response(body, status_code=403, media_type="application/json")
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def access(self, path: str, name: str | None, peer: str) -> ConnectionAccess:
        """Return the access of the connections of a client with this certificate's subject."""
        return ConnectionAccess.REFUSED if self._problem(path, name) else ConnectionAccess.GRANTED

    def _problem(self, path: str, name: str | None) -> str:
        """Return why a client may not use a path, "" where it may."""
        if not any(path == prefix or path.startswith(f"{prefix}/") for prefix in self._prefixes):
            return ""
        if name is None:
            return (
                f"{path} needs a client certificate of the CA in client_ca; give the API"
                " server one in its admission configuration"
            )
        if self._subjects and name not in self._subjects:
            return f"{path} is not for {name}; add it to client_subjects if it should be"
        return ""


def name_of(scope: Scope) -> str | None:
    """Return the subject (RFC 4514) of the client's certificate, None without one."""
    name: str | None = scope.get("extensions", {}).get("tls", {}).get("client_cert_name")
    return name


def tls_extension(tls: ssl.SSLObject) -> dict[object, object]:
    """Describe a connection whose handshake verified the peer's certificate, if it gave one."""
    binary = tls.getpeercert(binary_form=True)
    return {
        "server_cert": None,
        "client_cert_chain": [ssl.DER_cert_to_PEM_cert(binary)] if binary else [],
        "client_cert_name": subject_of(tls.getpeercert()),
        "client_cert_error": None,
        "tls_version": None,
        "cipher_suite": None,
    }


def subject_of(certificate: Mapping[str, Any] | None) -> str | None:
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
