"""Shared certificate: the certificate of a service that its replicas share in a Secret.

The Secret is the truth; files in the store are what this replica serves. A replica that has read a
renewed certificate serves it without a restart. A Secret that was deleted or emptied is filled
again with what this replica holds. If a new replica was faster and has filled it with another CA,
this one follows; the registration then has both CAs, so neither is refused.
"""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec
import structlog

from gpuledger.wiring import store_layout
from ledger.kube.api.cluster_errors import ClusterError, ClusterUnavailable
from ledger.kube.client.api_client import ApiClient
from ledger.kube.client.certificate_secret import CertificateSecret, StoredSecret
from ledger.runtime.settings.settings import Settings
from ledger.runtime.tls import server_certificate, shared_bundle
from ledger.runtime.tls.certificate_authority import CLOCK_SKEW, CertificateError
from ledger.runtime.tls.server_certificate import CertificateFiles
from ledger.runtime.tls.shared_bundle import SharedBundle

READ_SECONDS: Final = 5.0
"""Period of reading the Secret."""

FIRST_READ_SECONDS: Final = 2.0
"""Pause of a replica that has no certificate yet, after it could not read the Secret."""

ATTEMPTS_MAX: Final = 5
"""Attempts to store what is due, before the next period."""

_KEYS: Final = {
    "ca.crt": "authorities",
    "ca.key": "authority_key",
    "tls.crt": "certificate",
    "tls.key": "key",
    "ca-next.key": "next_key",
}
"""Keys of the Secret, and the fields of the bundle."""

_log: Final = structlog.get_logger("gpuledger")


class SharedCertificate:
    """One replica's copy of the shared certificate. `problem` is why the last round failed."""

    def __init__(self, settings: Settings, client: ApiClient, *, names: tuple[str, ...]) -> None:
        """`names` are the host names of the certificate besides those of loopback."""
        self.problem = ""
        self._client, self._names = client, names
        self._secret = CertificateSecret(
            client, namespace=settings.namespace, name=settings.tls_secret
        )
        self._server = Path(settings.store_dir) / store_layout.SHARED_CERTIFICATE
        self._authority = store_layout.authority(settings)
        self._held: SharedBundle | None = None

    @property
    def authority_expires_at(self) -> float:
        """End of the CA that signs now, in seconds of Unix time; 0 before the first round."""
        return server_certificate.expires_at(self._authority) if self._authority.exists() else 0.0

    def find(self) -> CertificateFiles:
        """Check the stored files and return them. Raises CertificateError."""
        server = str(self._server)
        return server_certificate.given(server, server, server_certificate.utc_now())

    async def prepare(self) -> None:
        """Return when this replica has a certificate to serve. Raises CertificateError.

        A replica that has a valid one from before needs neither the API server nor a Secret that
        can be used.
        """
        while True:
            try:
                await self._refresh()
            except (ClusterError, CertificateError) as error:
                self.problem = str(error)
                _log.warning("shared_certificate_not_read", reason=str(error))
                if self._is_stored():
                    return
                if isinstance(error, CertificateError):
                    raise
                await asyncio.sleep(FIRST_READ_SECONDS)
            else:
                return

    async def run(self) -> None:
        """Read the Secret and renew what is due, each period until cancelled."""
        while True:
            await asyncio.sleep(READ_SECONDS)
            try:
                await self._refresh()
            except (ClusterError, CertificateError) as error:
                if str(error) != self.problem:
                    _log.warning("shared_certificate_not_read", reason=str(error))
                self.problem = str(error)

    async def _refresh(self) -> None:
        """Read the Secret, store what is due there, and write the files. Raises ClusterError and
        CertificateError.
        """
        for _ in range(ATTEMPTS_MAX):
            stored = await self._secret.read()
            current = _bundle_of(stored, self._secret.place)
            wanted = self._wanted(current)
            if wanted == current or await self._store(stored, wanted):
                await asyncio.to_thread(self._write, wanted)
                self._held, self.problem = wanted, ""
                return
        raise ClusterUnavailable(
            f"{self._secret.place}: was changed {ATTEMPTS_MAX} times while it was renewed"
        )

    def _wanted(self, current: SharedBundle | None) -> SharedBundle:
        now = server_certificate.utc_now()
        known = current or self._held
        if known is None:
            return shared_bundle.made(self._names, now)
        return shared_bundle.renewed(known, self._names, now, self._secret.place)

    async def _store(self, stored: StoredSecret | None, wanted: SharedBundle) -> bool:
        """Return whether the bundle was stored; otherwise the Secret has to be read again. Raises
        ClusterError and CertificateError.
        """
        self._must_be_in_time()
        data = {key: getattr(wanted, field) for key, field in _KEYS.items()}
        if stored is None:
            is_stored = await self._secret.create({key: data[key] for key in data if data[key]})
        else:
            is_stored = await self._secret.update(stored, data)
        if is_stored:
            _log.info("shared_certificate_stored", secret=self._secret.place)
        return is_stored

    def _must_be_in_time(self) -> None:
        """Raise CertificateError if a certificate of this clock is not valid yet for others."""
        ahead = timedelta(seconds=self._client.clock_ahead)
        if ahead > CLOCK_SKEW:
            raise CertificateError(
                f"{self._secret.place}: nothing is written, because this machine's clock is"
                f" {ahead / timedelta(hours=1):.1f} h ahead of the API server's; mend the clock"
            )

    def _write(self, bundle: SharedBundle) -> None:
        """Write the files that have changed, the CA first. Raises CertificateError."""
        files = (
            (self._authority, bundle.authorities, 0o644),
            (self._server, bundle.certificate + bundle.key, 0o600),
        )
        try:
            self._server.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            for path, content, mode in files:
                if not path.exists() or path.read_bytes() != content:
                    server_certificate.write(path, content, mode)
        except OSError as error:
            raise CertificateError(
                f"{error.filename or self._server}: {error.strerror}; make the directory writable"
                " for this user"
            ) from error

    def _is_stored(self) -> bool:
        try:
            self.find()
        except CertificateError:
            return False
        return self._authority.exists()


def _bundle_of(stored: StoredSecret | None, place: str) -> SharedBundle | None:
    """Return the bundle of a Secret, None if it holds none. Raises CertificateError."""
    if stored is None or not any(stored.data.get(key) for key in _KEYS):
        return None
    missing = [key for key in ("ca.crt", "ca.key") if not stored.data.get(key)]
    if missing:
        raise CertificateError(
            f"{place}: lacks {' and '.join(missing)}: restore an edited Secret of this service, or"
            " delete it, and the service fills it again; for a Secret of others, name another in"
            " tls_secret, or serve a certificate of your own with tls_cert"
        )
    fields = {field: stored.data.get(key, b"") for key, field in _KEYS.items()}
    return msgspec.convert(fields, SharedBundle)
