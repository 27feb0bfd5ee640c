"""Certificate authority: issues certificates in memory, as PEM; it reads and writes no file.

The CA is long-lived, because webhook configurations contain it as their `caBundle`. Its certificate
allows no further CA below it.
"""

import ipaddress
import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeVar

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
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

Extension = TypeVar("Extension", bound=x509.ExtensionType)

AUTHORITY_LIFE: Final = timedelta(days=3650)
SERVER_LIFE: Final = timedelta(days=90)
SERVER_RENEWAL: Final = timedelta(days=30)
"""Time before the end of a server certificate at which it is renewed."""

CLOCK_SKEW: Final = timedelta(hours=1)
"""Certificates begin this long before their creation, for clients with slow clocks."""

LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")

_MALFORMED: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""Errors of cryptography for certificates and keys of others; it decodes extensions lazily."""


class CertificateError(Exception):
    """A certificate cannot be used; the message names its place, the problem and the remedy."""


class KeyPair(msgspec.Struct, frozen=True):
    """A certificate, perhaps with its chain, and its private key; both PEM."""

    certificate: bytes
    key: bytes


def new_authority(now: datetime) -> KeyPair:
    """Make a CA with a name of its own."""
    key = ec.generate_private_key(ec.SECP256R1())
    return KeyPair(_self_signed(key, now).public_bytes(Encoding.PEM), _key_pem(key))


def issue(authority: KeyPair, names: Iterable[str], now: datetime) -> KeyPair:
    """Issue a server certificate for host names and addresses; its chain ends with the CA.

    The CA must be a pair that `must_sign` accepts.
    """
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    authority_key = load_pem_private_key(authority.key, password=None)
    assert isinstance(authority_key, ec.EllipticCurvePrivateKey), "must_sign has checked it"
    key = ec.generate_private_key(ec.SECP256R1())
    end = min(now + SERVER_LIFE, issuer.not_valid_after_utc)
    issued = (
        _builder("gpuledger", issuer.subject, key, now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(_authority_identifier(issuer), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    chain = issued.public_bytes(Encoding.PEM) + issuer.public_bytes(Encoding.PEM)
    return KeyPair(chain, _key_pem(key))


def serves(
    certificate: x509.Certificate,
    authority: x509.Certificate,
    names: Iterable[str],
    now: datetime,
) -> bool:
    """Return whether a certificate of this CA has all names and need not be renewed yet."""
    if not is_issued_by(authority, certificate):
        return False
    lasting = certificate.not_valid_after_utc - now > SERVER_RENEWAL
    # Near the end of the CA a new certificate would not last longer.
    return set(names) <= names_of(certificate) and (
        lasting or certificate.not_valid_after_utc >= authority.not_valid_after_utc
    )


def is_issued_by(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    """Return whether the CA signed the certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (*_MALFORMED, InvalidSignature):
        return False
    return True


def with_loopback(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of loopback and these, each once."""
    return tuple(dict.fromkeys((*LOOPBACK_NAMES, *names)))


def names_of(certificate: x509.Certificate) -> set[str]:
    """Return the host names and addresses of a certificate; none if they are not readable."""
    try:
        names = _extension(certificate, x509.SubjectAlternativeName)
    except _MALFORMED:
        return set()
    addresses = names.get_values_for_type(x509.IPAddress)
    return {*names.get_values_for_type(x509.DNSName), *(str(address) for address in addresses)}


def load_certificates(pem: bytes, place: object) -> Sequence[x509.Certificate]:
    """Return the certificates of a PEM text, one at least. Raises CertificateError."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except _MALFORMED as error:
        raise CertificateError(
            f"{place}: holds no PEM certificate; restore or replace it"
        ) from error


def load_key(pem: bytes, place: object) -> PrivateKeyTypes:
    """Return the private key of a PEM text. Raises CertificateError."""
    try:
        return load_pem_private_key(pem, password=None)
    except TypeError as error:
        raise CertificateError(
            f"{place}: the key is encrypted; give it without password"
        ) from error
    except _MALFORMED as error:
        raise CertificateError(
            f"{place}: holds no PEM private key; restore or replace it"
        ) from error


def must_belong(
    certificate: x509.Certificate, key: PrivateKeyTypes, places: tuple[object, object]
) -> None:
    """Raise CertificateError unless the key belongs to the certificate, from these places."""
    try:
        belongs = _public(certificate.public_key()) == _public(key.public_key())
    except _MALFORMED as error:
        raise CertificateError(
            f"{places[0]}: its public key cannot be read ({error}); replace the pair"
        ) from error
    if not belongs:
        raise CertificateError(
            f"{places[1]}: is not the key of the certificate {places[0]}; restore the pair"
        )


def must_sign(
    certificate: x509.Certificate, key: PrivateKeyTypes, places: tuple[object, object]
) -> None:
    """Raise CertificateError unless `issue` can sign with this pair, from these places."""
    must_belong(certificate, key, places)
    is_elliptic = isinstance(key, ec.EllipticCurvePrivateKey)
    if problem := _unfit(certificate) if is_elliptic else "its key is none of an elliptic curve":
        raise CertificateError(
            f"{places[0]}: cannot sign certificates, because {problem}; replace the pair, or delete"
            " all certificates and keys there: the service makes new ones"
        )


def _unfit(certificate: x509.Certificate) -> str:
    """Return why `issue` or clients do not accept this certificate as a CA; empty if they do."""
    try:
        is_authority = _extension(certificate, x509.BasicConstraints).ca
        _extension(certificate, x509.SubjectKeyIdentifier)
    except _MALFORMED as error:
        return f"its extensions are not those of a CA ({error})"
    if not is_authority:
        return "it is not the certificate of a CA (basicConstraints)"
    try:
        signs = _extension(certificate, x509.KeyUsage).key_cert_sign
    except x509.ExtensionNotFound:
        return ""
    except _MALFORMED as error:
        return f"its keyUsage cannot be read ({error})"
    return "" if signs else "its key may not sign certificates (keyUsage)"


def must_be_valid(certificate: x509.Certificate, now: datetime, place: object) -> None:
    """Raise CertificateError unless the certificate is valid now."""
    if now > certificate.not_valid_after_utc:
        raise CertificateError(
            f"{place}: expired at {certificate.not_valid_after_utc:%Y-%m-%d %H:%M}Z; replace it"
        )
    if now < certificate.not_valid_before_utc:
        raise CertificateError(
            f"{place}: is valid only from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M}Z;"
            " replace it or mend this machine's clock"
        )


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
    identifier = _extension(authority, x509.SubjectKeyIdentifier)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _extension(certificate: x509.Certificate, kind: type[Extension]) -> Extension:
    return certificate.extensions.get_extension_for_class(kind).value


def _public(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
