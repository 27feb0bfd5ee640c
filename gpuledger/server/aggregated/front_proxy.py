"""Front proxy: follows the CA by which the API server's proxy is authenticated.

The ConfigMap is read each period. Its CA is that of a TLS context of its own, so this certificate
sends no reviews, and a client of the reviews' CA names no user. If the ConfigMap is gone or
unusable, no client is trusted. After a CA was removed, none is until the connections of its clients
have ended. While the ConfigMap cannot be read, the last content stays: the API server that does not
answer grants no right either.
"""

import asyncio
from pathlib import Path
from typing import Final

import structlog

from gpuledger.server.aggregated.front_proxy_trust import (
    CONFIG_MAP,
    FrontProxyTrust,
    UntrustedProxy,
    trust_of,
)
from ledger.kube.api.cluster_errors import ClusterError, ClusterUnavailable, Forbidden
from ledger.kube.client.api_client import ApiClient
from ledger.runtime.http.acceptor import TURN_SECONDS
from ledger.runtime.tls import server_certificate
from ledger.runtime.tls.certificate_authority import CertificateError
from ledger.runtime.tls.certificate_reload import Tls

FOLLOW_SECONDS: Final = 5.0
"""Period of reading the ConfigMap."""

READ_SECONDS: Final = 5.0
"""Deadline of reading it."""

ENDED_SECONDS: Final = 2 * TURN_SECONDS
"""Wait after a CA was removed: by then the server has ended the connections of its clients."""

_log: Final = structlog.get_logger("gpuledger")


class FrontProxy:
    """The trusted proxy as published now."""

    def __init__(self, client: ApiClient, tls: Tls, *, file: Path) -> None:
        """Keep the CA of clients of `tls`, which is written to `file`, equal to the published."""
        self._client, self._tls, self._file = client, tls, file
        self._trust: FrontProxyTrust | None = None
        self._problem = f"{CONFIG_MAP} is not read yet"

    def trust(self) -> FrontProxyTrust:
        """Return the proxy that is trusted now. Raises UntrustedProxy without one."""
        if self._trust is None:
            raise UntrustedProxy(self._problem)
        return self._trust

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(FOLLOW_SECONDS)

    async def refresh(self) -> None:
        """Read the ConfigMap and take its content over."""
        try:
            body = await self._client.request("GET", CONFIG_MAP, seconds=READ_SECONDS)
            await self._use(trust_of(body))
        except ClusterUnavailable as error:
            if self._trust is None:
                self._report(str(error))
        except Forbidden as error:
            await self._distrust(
                f"{error}; bind the Role extension-apiserver-authentication-reader of kube-system"
            )
        except (ClusterError, UntrustedProxy, CertificateError) as error:
            await self._distrust(str(error))

    async def _use(self, wanted: FrontProxyTrust) -> None:
        if wanted == self._trust:
            return
        if self._trust is None or wanted.authority != self._trust.authority:
            # Until the handshake verifies by the new CA, no certificate is the proxy's.
            self._trust, self._problem = None, "its CA is being replaced"
            before = set(self._tls.authorities)
            await asyncio.to_thread(self._write, wanted.authority)
            self._tls.use_client_ca(str(self._file))
            if not before <= set(self._tls.authorities):
                await asyncio.sleep(ENDED_SECONDS)
        self._trust, self._problem = wanted, ""
        _log.info("front_proxy_trusted", names=sorted(wanted.names))

    async def _distrust(self, problem: str) -> None:
        self._trust = None
        self._report(problem)
        try:
            if self._tls.authorities:
                self._tls.use_client_ca("")
        except CertificateError as error:
            _log.error("certificate_unusable", reason=str(error))

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            _log.warning("front_proxy_not_trusted", reason=problem)
        self._problem = problem

    def _write(self, authority: bytes) -> None:
        """Write the file. Raises CertificateError."""
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            server_certificate.write(self._file, authority, 0o644)
        except OSError as error:
            raise CertificateError(
                f"{error.filename or self._file}: {error.strerror}; make the directory writable"
                " for this user"
            ) from error
