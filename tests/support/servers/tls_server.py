"""TLS server: a real server on loopback, and certificates of its clients."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ledger.runtime.http import http_server
from ledger.runtime.tls import certificate_reload, server_certificate

DEADLINE_SECONDS = 30


class ClientAuthority:
    """A CA for clients, with the files a client and a server need."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir()
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, str(directory.name))])
        authority = self._sign(self._name, self._key.public_key(), ca=True)
        self.file = str(directory / "ca.pem")
        Path(self.file).write_bytes(authority.public_bytes(serialization.Encoding.PEM))

    def issue(self, *subject: tuple[x509.ObjectIdentifier, str]) -> str:
        """Make a client certificate; returns the file with it and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(kind, value) for kind, value in subject])
        certificate = self._sign(name, key.public_key(), ca=False)
        path = self._directory / "client.pem"
        path.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return str(path)

    def _sign(
        self, name: x509.Name, key: ec.EllipticCurvePublicKey, *, ca: bool
    ) -> x509.Certificate:
        now = server_certificate.utc_now()
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(usage, critical=False)
            .sign(self._key, hashes.SHA256())
        )


def visitor(directory: Path, client: str = "") -> ssl.SSLContext:
    """A client's trusted authority and certificate."""
    context = ssl.create_default_context(cafile=str(directory / "tls" / "ca.crt"))
    if client:
        context.load_cert_chain(client)
    return context


@contextlib.asynccontextmanager
async def serving_at(
    app: Any, secured: certificate_reload.Tls | None = None, **how: Any
) -> AsyncIterator[str]:
    """Serve until the context ends; yields HOST:PORT."""
    listener = http_server.bind("127.0.0.1:0")
    stop, started = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(
        http_server.serve(
            app,
            listener,
            stop,
            tls=secured,
            started=started.set,
            **how,
        )
    )
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await started.wait()
        yield listener.address
    finally:
        stop.set()
        async with asyncio.timeout(DEADLINE_SECONDS):
            await task


async def get(url: str, context: ssl.SSLContext | None = None, **headers: str) -> tuple[int, Any]:
    """GET on a connection of its own; returns status and decoded JSON."""
    connector = aiohttp.TCPConnector(ssl=context or True, force_close=True)
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        aiohttp.ClientSession(connector=connector, headers=headers) as session,
        session.get(url) as response,
    ):
        return response.status, await response.json()


async def answer_scope(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers with its connection's scope."""
    told = {name: scope.get(name) for name in ("path", "client", "scheme", "extensions")}
    body = msgspec.json.encode(told)
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
