"""Shared bundle: the CA and the server certificate that all replicas of a service share.

`renewed` is pure: it returns the bundle that should be stored now, and the same object if nothing
is due. The caller stores it where all replicas read it, with a precondition, so that of two
replicas that renew at once one succeeds and the other reads again.

The life of a CA: half a year before its end, the next CA is made and added to the CAs that clients
are given. A day later it signs. The old CA stays among them until it ends. So no client gets a
certificate of a CA that it has not received yet.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from ledger.runtime.tls import certificate_authority
from ledger.runtime.tls.certificate_authority import CLOCK_SKEW, CertificateError, KeyPair

AUTHORITY_RENEWAL: Final = timedelta(days=180)
"""Time before the end of a CA at which the next one is made; longer than a server certificate's."""

AUTHORITY_ANNOUNCED: Final = timedelta(days=1)
"""Time for which clients are given the next CA before it signs."""


class SharedBundle(msgspec.Struct, frozen=True):
    """PEM texts. `authorities` begins with the CA that signs, whose key is `authority_key`.

    With a `next_key`, the last of the authorities is the next CA.
    """

    authorities: bytes
    authority_key: bytes
    certificate: bytes
    key: bytes
    next_key: bytes = b""


def made(names: Iterable[str], now: datetime) -> SharedBundle:
    """Make a CA and a certificate for loopback and the names."""
    authority = certificate_authority.new_authority(now)
    issued = certificate_authority.issue(authority, certificate_authority.with_loopback(names), now)
    return SharedBundle(authority.certificate, authority.key, issued.certificate, issued.key)


def renewed(bundle: SharedBundle, names: Iterable[str], now: datetime, place: str) -> SharedBundle:
    """Return the bundle with all that is due at this time; the same object if nothing is.

    A certificate lacks no name that it had before, because replicas of two versions may want
    different names. Raises CertificateError, naming the place, if the CA cannot be used: without
    its key, as no EC key or no CA, or because it is not valid yet by this clock.
    """
    authorities = _usable_authorities(bundle, now, place)
    if not authorities:
        return made(names, now)
    due = _with_authorities(bundle, authorities, now, place)
    signer = certificate_authority.load_certificates(due.authorities, place)[0]
    wanted = certificate_authority.with_loopback(names)
    served = _certificate(due)
    if (
        served is not None
        and served.not_valid_before_utc <= now
        and certificate_authority.serves(served, signer, wanted, now)
    ):
        return due
    before = certificate_authority.names_of(served) if served is not None else set()
    all_names = (*wanted, *sorted(before - set(wanted)))
    issued = certificate_authority.issue(_pair(signer, due.authority_key), all_names, now)
    return msgspec.structs.replace(due, certificate=issued.certificate, key=issued.key)


def _usable_authorities(bundle: SharedBundle, now: datetime, place: str) -> list[x509.Certificate]:
    """Return the CAs that have not ended; none if neither the first nor the next one can sign."""
    listed = certificate_authority.load_certificates(bundle.authorities, f"{place}, ca.crt")
    certificate_authority.must_sign(
        listed[0],
        certificate_authority.load_key(bundle.authority_key, f"{place}, ca.key"),
        (f"{place}, ca.crt", f"{place}, ca.key"),
    )
    if now < listed[0].not_valid_before_utc:
        certificate_authority.must_be_valid(listed[0], now, f"{place}, ca.crt")
    alive = [authority for authority in listed if now < authority.not_valid_after_utc]
    if listed[0] in alive or (bundle.next_key and listed[-1] in alive):
        return alive
    return []


def _with_authorities(
    bundle: SharedBundle, authorities: list[x509.Certificate], now: datetime, place: str
) -> SharedBundle:
    """Return the bundle after the step of its CAs that is due."""
    signer, following = authorities[0], authorities[-1]
    first = certificate_authority.load_certificates(bundle.authorities, place)[0]
    authority_key, next_key = bundle.authority_key, bundle.next_key
    if next_key:
        following_key = certificate_authority.load_key(next_key, f"{place}, ca-next.key")
        places = (f"{place}, ca.crt", f"{place}, ca-next.key")
        certificate_authority.must_sign(following, following_key, places)
        known_for = now - following.not_valid_before_utc - CLOCK_SKEW
        if first not in authorities or known_for >= AUTHORITY_ANNOUNCED:
            authorities = [following, *authorities[:-1]]
            authority_key, next_key = next_key, b""
    elif signer.not_valid_after_utc - now < AUTHORITY_RENEWAL:
        added = certificate_authority.new_authority(now)
        authorities = [
            *authorities,
            *certificate_authority.load_certificates(added.certificate, place),
        ]
        next_key = added.key
    pem = b"".join(authority.public_bytes(Encoding.PEM) for authority in authorities)
    if len(authorities) == _count(bundle) and next_key == bundle.next_key:
        return bundle
    return msgspec.structs.replace(
        bundle, authorities=pem, authority_key=authority_key, next_key=next_key
    )


def _count(bundle: SharedBundle) -> int:
    return bundle.authorities.count(b"-----BEGIN CERTIFICATE-----")


def _certificate(bundle: SharedBundle) -> x509.Certificate | None:
    """Return the server certificate, None without a usable one: the CA can issue another."""
    place = "tls.crt"
    try:
        loaded = certificate_authority.load_certificates(bundle.certificate, place)[0]
        key = certificate_authority.load_key(bundle.key, "tls.key")
        certificate_authority.must_belong(loaded, key, (place, "tls.key"))
    except CertificateError:
        return None
    return loaded


def _pair(authority: x509.Certificate, key: bytes) -> KeyPair:
    return KeyPair(authority.public_bytes(Encoding.PEM), key)
