"""Server certificate: its creation at the first start, its renewal, and the check of a given one.

`ensure` keeps two things in a directory: `ca.crt` with its key `ca.key`, ten years, made once; and
`server.pem`, certificate, chain and key in one file so that it is replaced atomically, ninety days,
renewed thirty days before it ends or when a name is missing. Unusable files are refused with a
remedy and never overwritten. The CA's key stays in the store.
"""

import os
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from cryptography import x509

from ledger.runtime.tls import certificate_authority
from ledger.runtime.tls.certificate_authority import CertificateError, KeyPair


class CertificateFiles(msgspec.Struct, frozen=True):
    """The files of a usable certificate, its key, and the CA that signed it ("" if unknown)."""

    certificate: str
    key: str
    authority: str


def given(certificate: str, key: str, now: datetime) -> CertificateFiles:
    """Check a certificate and key that the operator provides. Raises CertificateError."""
    check(Path(certificate), Path(key), now)
    return CertificateFiles(certificate, key, "")


def ensure(directory: Path, names: Iterable[str], now: datetime) -> CertificateFiles:
    """Create missing or expiring certificates in the directory, for loopback and the names.

    It is cheap without changes, so it may be called every few seconds. Raises CertificateError when
    the directory holds files that cannot be used or cannot be written.
    """
    wanted = certificate_authority.with_loopback(names)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = _authority(directory, now)
        server = directory / "server.pem"
        if not _serves(server, authority, wanted, now):
            write(server, _issue(directory, wanted, now), 0o600)
    except OSError as error:
        raise CertificateError(
            f"{error.filename or directory}: {error.strerror}; make the directory writable for"
            " this user"
        ) from error
    return CertificateFiles(str(server), str(server), str(directory / "ca.crt"))


def check(certificate: Path, key: Path, now: datetime) -> None:
    """Raise CertificateError unless the two belong together and the certificate is valid now."""
    certificate_authority.must_be_valid(_pair(certificate, key), now, certificate)


def expires_at(certificate: Path) -> float:
    """Return when the certificate ends, seconds of Unix time. Raises CertificateError."""
    return _certificate(certificate).not_valid_after_utc.timestamp()


def authorities(file: Path) -> bytes:
    """Return the PEM text of a file with CAs, one at least. Raises CertificateError."""
    pem = _read(file)
    certificate_authority.load_certificates(pem, file)
    return pem


def write(path: Path, content: bytes, mode: int) -> None:
    """Replace a file atomically: a reader, or a start after a power cut, gets the old or the new
    one. Raises OSError.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def utc_now() -> datetime:
    """Return the wall clock's time for `ensure` and `check`."""
    return datetime.now(UTC)


def _authority(directory: Path, now: datetime) -> x509.Certificate:
    path = directory / "ca.crt"
    # The certificate is written last, so a key without one is left over from an interrupted start.
    if not path.exists():
        made = certificate_authority.new_authority(now)
        write(directory / "ca.key", made.key, 0o600)
        write(path, made.certificate, 0o644)
    loaded = _certificate(path)
    certificate_authority.must_be_valid(loaded, now, path)
    return loaded


def _serves(
    server: Path, authority: x509.Certificate, wanted: tuple[str, ...], now: datetime
) -> bool:
    if not server.exists():
        return False
    return certificate_authority.serves(_pair(server, server), authority, wanted, now)


def _issue(directory: Path, names: tuple[str, ...], now: datetime) -> bytes:
    certificate, key = directory / "ca.crt", directory / "ca.key"
    loaded_key = certificate_authority.load_key(_read(key), key)
    certificate_authority.must_sign(_certificate(certificate), loaded_key, (certificate, key))
    issued = certificate_authority.issue(KeyPair(_read(certificate), _read(key)), names, now)
    return issued.certificate + issued.key


def _pair(certificate: Path, key: Path) -> x509.Certificate:
    loaded = _certificate(certificate)
    loaded_key = certificate_authority.load_key(_read(key), key)
    certificate_authority.must_belong(loaded, loaded_key, (certificate, key))
    return loaded


def _certificate(path: Path) -> x509.Certificate:
    return certificate_authority.load_certificates(_read(path), path)[0]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(
            f"{path}: cannot be read ({error.strerror}); check the path and its permissions"
        ) from error
