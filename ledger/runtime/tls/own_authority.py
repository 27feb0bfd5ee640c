"""Certificates: creates a CA and a server certificate at the first start, or checks given ones.

`ensure` keeps two things in a directory: `ca.crt` with its key `ca.key`, ten years, made once; and
`server.pem`, certificate, chain and key in one file so that it is replaced atomically, ninety days,
renewed thirty days before it ends or when a name is missing. Unusable files are refused with a
remedy and never overwritten.

The CA is long-lived, because webhook configurations contain it as their `caBundle`. Its key stays
in the store, and its certificate allows no further CA below it.
"""

import ipaddress
import os
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFE: Final = timedelta(days=3650)
SERVER_LIFE: Final = timedelta(days=90)
SERVER_RENEWAL: Final = timedelta(days=30)
"""Time before the end of a server certificate at which it is renewed."""

CLOCK_SKEW: Final = timedelta(hours=1)
"""Certificates begin this long before their creation, for clients with slow clocks."""

LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")


class CertificateError(Exception):
    """A certificate file cannot be used; the message names the file, the problem and the remedy."""


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
    wanted = tuple(dict.fromkeys((*LOOPBACK_NAMES, *names)))
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = _authority(directory, now)
        server = directory / "server.pem"
        if not _serves(server, authority, wanted, now):
            _write(server, _issue(directory, authority, wanted, now), 0o600)
    except OSError as error:
        raise CertificateError(
            f"{error.filename or directory}: {error.strerror}; make the directory writable for"
            " this user"
        ) from error
    return CertificateFiles(str(server), str(server), str(directory / "ca.crt"))


def check(certificate: Path, key: Path, now: datetime) -> None:
    """Raise CertificateError unless the two belong together and the certificate is valid now."""
    _within_life(certificate, _pair(certificate, key), now)


def expires_at(certificate: Path) -> float:
    """Return when the certificate ends, seconds of Unix time. Raises CertificateError."""
    return _certificate(certificate).not_valid_after_utc.timestamp()


def _authority(directory: Path, now: datetime) -> x509.Certificate:
    path, key_path = directory / "ca.crt", directory / "ca.key"
    # The certificate is written last, so a key without one is left over from an interrupted start.
    if not path.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        _write(key_path, _key_pem(key), 0o600)
        _write(path, _self_signed(key, now).public_bytes(Encoding.PEM), 0o644)
    found = _certificate(path)
    _within_life(path, found, now)
    return found


def _serves(
    server: Path, authority: x509.Certificate, wanted: tuple[str, ...], now: datetime
) -> bool:
    if not server.exists():
        return False
    found = _pair(server, server)
    try:
        found.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    lasting = found.not_valid_after_utc - now > SERVER_RENEWAL
    # Near the end of the CA a new certificate would not last longer.
    return set(wanted) <= _names(found) and (
        lasting or found.not_valid_after_utc >= authority.not_valid_after_utc
    )


def _issue(
    directory: Path, authority: x509.Certificate, names: tuple[str, ...], now: datetime
) -> bytes:
    _pair(directory / "ca.crt", directory / "ca.key")
    authority_key = _key(directory / "ca.key")
    assert isinstance(authority_key, ec.EllipticCurvePrivateKey), "our own CA is elliptic"
    key = ec.generate_private_key(ec.SECP256R1())
    end = min(now + SERVER_LIFE, authority.not_valid_after_utc)
    issued = (
        _builder("gpuledger", authority.subject, key, now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(_authority_identifier(authority), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return issued.public_bytes(Encoding.PEM) + authority.public_bytes(Encoding.PEM) + _key_pem(key)


def _self_signed(key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    # A random part in the name keeps two CAs of two stores apart in one trust bundle.
    name = f"gpuledger CA {secrets.token_hex(4)}"
    return (
        _builder(name, _subject(name), key, now, now + AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .sign(key, hashes.SHA256())
    )


def _builder(
    name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(end)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _authority_identifier(authority: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    identifier = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _names(found: x509.Certificate) -> set[str]:
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = names.get_values_for_type(x509.IPAddress)
    return {*names.get_values_for_type(x509.DNSName), *(str(address) for address in addresses)}


def _pair(certificate: Path, key: Path) -> x509.Certificate:
    found = _certificate(certificate)
    if _public(found.public_key()) != _public(_key(key).public_key()):
        raise CertificateError(
            f"{key}: is not the key of the certificate {certificate}; restore the pair"
        )
    return found


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(_read(path))
    except ValueError as error:
        raise CertificateError(
            f"{path}: holds no PEM certificate; restore or replace the file"
        ) from error


def _key(path: Path) -> PrivateKeyTypes:
    try:
        return load_pem_private_key(_read(path), password=None)
    except TypeError as error:
        raise CertificateError(f"{path}: the key is encrypted; give it without password") from error
    except ValueError as error:
        raise CertificateError(
            f"{path}: holds no PEM private key; restore or replace the file"
        ) from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(
            f"{path}: cannot be read ({error.strerror}); check the path and its permissions"
        ) from error


def _within_life(path: Path, found: x509.Certificate, now: datetime) -> None:
    if now > found.not_valid_after_utc:
        raise CertificateError(
            f"{path}: expired at {found.not_valid_after_utc:%Y-%m-%d %H:%M}Z; replace it"
        )
    if now < found.not_valid_before_utc:
        raise CertificateError(
            f"{path}: is valid only from {found.not_valid_before_utc:%Y-%m-%d %H:%M}Z; replace it"
            " or mend this machine's clock"
        )


def _public(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, content: bytes, mode: int) -> None:
    """Replace a file atomically: a reader, or a start after a power cut, gets the old or the new
    one.
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
