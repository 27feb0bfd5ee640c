"""TLS context of the server, which reloads changed certificates without a restart.

Changed files make a new context for new connections; older connections stay open. An unusable file,
for example during its replacement, is reported and ignored, and read again at the next check.

An added client CA is trusted at once. A removed client CA is no longer trusted: a new context
cannot resume sessions of its clients, and connections with certificates that `trusts` refuses end.
"""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from ledger.runtime.tls import own_authority
from ledger.runtime.tls.own_authority import CertificateError, CertificateFiles

LOOK_SECONDS: Final = 5.0

Report = Callable[[str], None]
"""Called with one sentence about an unusable certificate file."""

_Marks = tuple[tuple[int, int, int], ...]


class Tls:
    """A server's TLS context and the files behind it."""

    def __init__(self, find: Callable[[], CertificateFiles], client_ca: str = "") -> None:
        """Load everything. `find` returns the files to serve, renewed if necessary.

        With a client CA, clients *may* present a certificate; one of another CA fails the
        handshake. `request_guards` decides which requests need one. Raises
        CertificateError.
        """
        self._find = find
        self._client_ca = client_ca
        self._authorities: tuple[x509.Certificate, ...] = ()
        self._files = find()
        self._marks = self._load()

    @property
    def context(self) -> ssl.SSLContext:
        """The context for a new connection."""
        return self._context

    @property
    def authorities(self) -> tuple[x509.Certificate, ...]:
        """The CAs of clients; a new object after a change of the file."""
        return self._authorities

    def trusts(self, certificate: bytes) -> bool:
        """Return whether one of the CAs of clients issued a certificate, given as DER."""
        found = x509.load_der_x509_certificate(certificate)
        return any(_issued(one, found) for one in self._authorities)

    @property
    def expires_at(self) -> float:
        """End of the served certificate, in seconds of Unix time."""
        return self._expires_at

    async def keep_fresh(self, report: Report, every_seconds: float = LOOK_SECONDS) -> None:
        """Check the files regularly until cancelled."""
        while True:
            await asyncio.sleep(every_seconds)
            try:
                await asyncio.to_thread(self.refresh)
            except CertificateError as error:
                report(str(error))

    def refresh(self) -> bool:
        """Load changed files. Returns whether a file changed. Raises CertificateError."""
        self._files = self._find()
        if self._look() == self._marks:
            return False
        self._marks = self._load()
        return True

    def _load(self) -> _Marks:
        # The marks are read first, so that the next check finds a change during the loading.
        marks = self._look()
        self._expires_at = own_authority.expires_at(Path(self._files.certificate))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            if self._client_ca:
                context.verify_mode = ssl.CERT_OPTIONAL
                context.load_verify_locations(self._client_ca)
            context.load_cert_chain(self._files.certificate, self._files.key)
        except (OSError, ssl.SSLError) as error:
            raise CertificateError(
                f"{self._client_ca or self._files.certificate}: cannot be loaded ({error});"
                " restore or replace the file"
            ) from error
        self._context = context
        self._remember_authorities()
        return marks

    def _remember_authorities(self) -> None:
        if self._client_ca:
            found = x509.load_pem_x509_certificates(Path(self._client_ca).read_bytes())
            if tuple(found) != self._authorities:
                self._authorities = tuple(found)

    def _look(self) -> _Marks:
        paths = (self._files.certificate, self._files.key, self._client_ca)
        return tuple(_mark(Path(path)) for path in paths if path)


def own(directory: Path, names: tuple[str, ...]) -> Callable[[], CertificateFiles]:
    """Return a function that creates and renews certificates in the directory, and returns their
    files.
    """
    return lambda: own_authority.ensure(directory, names, own_authority.utc_now())


def given(certificate: str, key: str) -> Callable[[], CertificateFiles]:
    """Return a function that checks the operator's files and returns them."""
    return lambda: own_authority.given(certificate, key, own_authority.utc_now())


def _issued(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _mark(path: Path) -> tuple[int, int, int]:
    # Follows links: a Secret mount is replaced by swapping a link, which changes the inode.
    try:
        found = path.stat()
    except OSError as error:
        raise CertificateError(
            f"{path}: cannot be read ({error.strerror}); check the path and its permissions"
        ) from error
    return found.st_ino, found.st_mtime_ns, found.st_size
