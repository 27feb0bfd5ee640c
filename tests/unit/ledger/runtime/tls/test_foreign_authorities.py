"""Certificates and keys of others in our places: each is replaced or refused with a remedy.

An error of another class would end the process that reads them, in every replica at once.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID, ObjectIdentifier

from ledger.runtime.tls import certificate_authority, server_certificate, shared_bundle
from ledger.runtime.tls.certificate_authority import CertificateError, KeyPair

NOW: Final = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NAMES: Final = ("gpuledger.own.svc",)
PLACE: Final = "Secret own/tls"
ELLIPTIC: Final = ec.generate_private_key(ec.SECP256R1())
RSA: Final = rsa.generate_private_key(65537, 2048)

AUTHORITY: Final = x509.BasicConstraints(ca=True, path_length=0)
LEAF: Final = x509.BasicConstraints(ca=False, path_length=None)
SUBJECT_KEY: Final = x509.SubjectKeyIdentifier.from_public_key(ELLIPTIC.public_key())
BROKEN: Final = x509.UnrecognizedExtension(ObjectIdentifier("2.5.29.17"), b"no DER")
"""A list of names that cannot be decoded."""


def usage(*, signs: bool) -> x509.KeyUsage:
    others = dict.fromkeys(
        (
            "digital_signature",
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    return x509.KeyUsage(key_cert_sign=signs, crl_sign=False, **others)


def pair(
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, *extensions: x509.ExtensionType
) -> KeyPair:
    """Return a certificate that signs itself."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "foreign")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - timedelta(hours=1))
        .not_valid_after(NOW + timedelta(days=3650))
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    signed = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    return KeyPair(signed, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


UNFIT: Final[list[tuple[KeyPair, str]]] = [
    (pair(RSA, AUTHORITY), "none of an elliptic curve"),
    (pair(ELLIPTIC, AUTHORITY), "not those of a CA.*[sS]ubjectKeyIdentifier"),
    (pair(ELLIPTIC, SUBJECT_KEY), "not those of a CA.*BasicConstraints"),
    (pair(ELLIPTIC, LEAF, SUBJECT_KEY), "not the certificate of a CA"),
    (pair(ELLIPTIC, AUTHORITY, SUBJECT_KEY, usage(signs=False)), "may not sign certificates"),
    (pair(ELLIPTIC, AUTHORITY, SUBJECT_KEY, BROKEN), "not those of a CA"),
]


@pytest.mark.parametrize(("authority", "problem"), UNFIT)
def test_a_ca_that_cannot_sign_is_refused_with_a_remedy(authority: KeyPair, problem: str) -> None:
    bundle = msgspec.structs.replace(
        shared_bundle.made(NAMES, NOW),
        authorities=authority.certificate,
        authority_key=authority.key,
    )
    with pytest.raises(CertificateError, match=f"{PLACE}, ca.crt: .*{problem}.*delete"):
        shared_bundle.renewed(bundle, NAMES, NOW, PLACE)


@pytest.mark.parametrize(("authority", "problem"), UNFIT)
def test_such_a_ca_as_the_next_one_is_refused(authority: KeyPair, problem: str) -> None:
    own = shared_bundle.made(NAMES, NOW)
    bundle = msgspec.structs.replace(
        own, authorities=own.authorities + authority.certificate, next_key=authority.key
    )
    with pytest.raises(CertificateError, match=f"{PLACE}, ca.crt: .*{problem}"):
        shared_bundle.renewed(bundle, NAMES, NOW, PLACE)


@pytest.mark.parametrize(("authority", "problem"), UNFIT)
def test_such_a_ca_of_a_store_is_refused(tmp_path: Path, authority: KeyPair, problem: str) -> None:
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    (tmp_path / "ca.key").write_bytes(authority.key)
    with pytest.raises(CertificateError, match=f"ca.crt: .*{problem}"):
        server_certificate.ensure(tmp_path, NAMES, NOW)


def test_a_ca_of_openssl_without_key_usage_signs() -> None:
    authority = pair(ELLIPTIC, AUTHORITY, SUBJECT_KEY)
    bundle = msgspec.structs.replace(
        shared_bundle.made(NAMES, NOW),
        authorities=authority.certificate,
        authority_key=authority.key,
    )
    served = shared_bundle.renewed(bundle, NAMES, NOW, PLACE).certificate
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    assert certificate_authority.is_issued_by(issuer, x509.load_pem_x509_certificate(served))


@pytest.mark.parametrize("extensions", [(), (BROKEN,)], ids=["no-names", "unreadable-names"])
def test_a_server_certificate_without_readable_names_is_replaced(
    tmp_path: Path, extensions: Sequence[x509.ExtensionType]
) -> None:
    foreign = pair(ELLIPTIC, *extensions)
    bundle = msgspec.structs.replace(
        shared_bundle.made(NAMES, NOW), certificate=foreign.certificate, key=foreign.key
    )
    renewed = shared_bundle.renewed(bundle, NAMES, NOW, PLACE)
    served = x509.load_pem_x509_certificate(renewed.certificate)
    assert certificate_authority.names_of(served) >= set(NAMES)
    files = server_certificate.ensure(tmp_path, NAMES, NOW)
    Path(files.certificate).write_bytes(foreign.certificate + foreign.key)
    again = Path(server_certificate.ensure(tmp_path, NAMES, NOW).certificate).read_bytes()
    assert certificate_authority.names_of(x509.load_pem_x509_certificate(again)) >= set(NAMES)
