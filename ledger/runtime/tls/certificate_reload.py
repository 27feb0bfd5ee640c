"""Certificate reload: how changed certificates and client CAs take effect without a restart.

Changed files make a new context for new connections; older connections stay open. An unusable file,
for example during its replacement, is reported and ignored, and read again at the next check.

An added client CA is trusted at once. A removed client CA is no longer trusted: a new context
cannot resume sessions of its clients, and connections with certificates that `trusts` refuses end.
"""

import asyncio
import contextlib
import hmac
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from cryptography import x509

from ledger.runtime.tls import certificate_authority, server_certificate
from ledger.runtime.tls.certificate_authority import CertificateError, KeyPair
from ledger.runtime.tls.server_certificate import CertificateFiles

LOOK_SECONDS: Final = 5.0

Report = Callable[[str], None]
"""Called with one sentence about an unusable certificate file."""

Authorities = tuple[x509.Certificate, ...]
"""The CAs of clients."""

_Marks = tuple[tuple[int, int, int], ...]


class Tls:
    """A server's TLS context and the files behind it."""

    def __init__(self, find: Callable[[], CertificateFiles], client_ca: str = "") -> None:
        """Load everything. `find` returns the files to serve, renewed if necessary.

        With a client CA, clients *may* present a certificate; one of another CA fails the
        handshake. `client_certificate_access` decides which requests need one. Raises
        CertificateError.
        """
        self._find = find
        self._client_ca = client_ca
        self._authorities: Authorities = ()
        # A thread that still loads by the client CA of before must not finish last.
        self._loading = threading.Lock()
        self._files = find()
        self._marks = self._load()

    @property
    def files(self) -> CertificateFiles:
        """The files of the served certificate."""
        return self._files

    @property
    def context(self) -> ssl.SSLContext:
        """The context for a new connection."""
        return self._context

    @property
    def authorities(self) -> Authorities:
        """The CAs of clients; a new object after a change of the file."""
        return self._authorities

    def trusts(self, certificate: bytes) -> bool:
        """Return whether one of the CAs of clients issued a certificate, given as DER."""
        loaded = x509.load_der_x509_certificate(certificate)
        return any(
            certificate_authority.is_issued_by(authority, loaded) for authority in self._authorities
        )

    @property
    def expires_at(self) -> float:
        """End of the served certificate, in seconds of Unix time."""
        return self._expires_at

    def secret(self, purpose: str) -> bytes:
        """Return 32 secret bytes for a purpose, derived from the served private key.

        Replicas with one certificate have the same ones. They change with the key.
        """
        return hmac.digest(self._pair.key, purpose.encode(), "sha256")

    async def keep_fresh(
        self,
        report: Report,
        every_seconds: float = LOOK_SECONDS,
        is_trusted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Check the files regularly until cancelled, and report each new problem once.

        While the clients do not trust the CA of the files yet, the loaded certificate stays until
        it ends, and only changes of the client CA take effect.
        """
        problem = ""
        while True:
            await asyncio.sleep(every_seconds)
            is_usable = is_trusted() or time.time() >= self._expires_at
            before, problem = problem, ""
            try:
                await asyncio.to_thread(self.refresh if is_usable else self.refresh_client_ca)
            except CertificateError as error:
                problem = str(error)
                if problem != before:
                    report(problem)

    def refresh(self) -> bool:
        """Load changed files. Returns whether a file changed. Raises CertificateError."""
        self._files = self._find()
        with self._loading:
            if self._look() == self._marks:
                return False
            self._marks = self._load()
        return True

    def refresh_client_ca(self) -> bool:
        """Load a changed file of client CAs beside the loaded certificate.

        Returns whether it changed. Raises CertificateError.
        """
        with self._loading:
            if not self._client_ca:
                return False
            mark = _mark(Path(self._client_ca))
            if mark == self._marks[-1]:
                return False
            self._begin(self._pair)
            self._marks = (*self._marks[:-1], mark)
        return True

    def use_client_ca(self, client_ca: str) -> None:
        """Trust the clients of this file of CAs from now on, and of none with "".

        Raises CertificateError; the clients of before stay trusted then.
        """
        with self._loading:
            before, self._client_ca = self._client_ca, client_ca
            try:
                self._marks = self._load()
            except CertificateError:
                self._client_ca = before
                raise

    def _load(self) -> _Marks:
        # The marks are read first, so that the next check finds a change during the loading.
        marks = self._look()
        ends = server_certificate.expires_at(Path(self._files.certificate))
        try:
            pair = KeyPair(
                Path(self._files.certificate).read_bytes(), Path(self._files.key).read_bytes()
            )
        except OSError as error:
            raise self._unusable(error) from error
        self._begin(pair)
        self._pair, self._expires_at = pair, ends
        return marks

    def _begin(self, pair: KeyPair) -> None:
        """Serve a certificate to new connections."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            if self._client_ca:
                context.verify_mode = ssl.CERT_OPTIONAL
                context.load_verify_locations(self._client_ca)
            with _in_memory(pair.certificate) as certificate, _in_memory(pair.key) as key:
                context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            raise self._unusable(error) from error
        self._context = context
        self._remember_authorities()

    def _unusable(self, error: OSError) -> CertificateError:
        return CertificateError(
            f"{self._client_ca or self._files.certificate}: cannot be loaded ({error});"
            " restore or replace the file"
        )

    def _remember_authorities(self) -> None:
        authorities: Authorities = ()
        if self._client_ca:
            pem = Path(self._client_ca).read_bytes()
            authorities = tuple(x509.load_pem_x509_certificates(pem))
        if authorities != self._authorities:
            self._authorities = authorities

    def _look(self) -> _Marks:
        paths = (self._files.certificate, self._files.key, self._client_ca)
        return tuple(_mark(Path(path)) for path in paths if path)


def own(directory: Path, names: tuple[str, ...]) -> Callable[[], CertificateFiles]:
    """Return a function that creates and renews certificates in the directory, and returns their
    files.
    """
    return lambda: server_certificate.ensure(directory, names, server_certificate.utc_now())


def given(certificate: str, key: str) -> Callable[[], CertificateFiles]:
    """Return a function that checks the operator's files and returns them."""
    return lambda: server_certificate.given(certificate, key, server_certificate.utc_now())


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Yield a path to the content, which is on no disk: ssl loads keys from paths only."""
    with os.fdopen(os.memfd_create("certificate"), "wb", buffering=0) as file:
        file.write(content)
        yield f"/proc/self/fd/{file.fileno()}"


def _mark(path: Path) -> tuple[int, int, int]:
    # Follows links: a Secret mount is replaced by swapping a link, which changes the inode.
    try:
        status = path.stat()
    except OSError as error:
        raise CertificateError(
            f"{path}: cannot be read ({error.strerror}); check the path and its permissions"
        ) from error
    return status.st_ino, status.st_mtime_ns, status.st_size
