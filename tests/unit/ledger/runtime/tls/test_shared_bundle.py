"""The shared bundle over its life: renewal, the change of the CA, and what is refused."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from cryptography import x509

from ledger.runtime.tls import certificate_authority, shared_bundle
from ledger.runtime.tls.certificate_authority import (
    AUTHORITY_LIFE,
    SERVER_LIFE,
    CertificateError,
)
from ledger.runtime.tls.shared_bundle import SharedBundle

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NAMES = ("gpuledger.gpuledger-system.svc",)
PLACE = "Secret own/tls"
DAY = timedelta(days=1)


def served(bundle: SharedBundle) -> x509.Certificate:
    return x509.load_pem_x509_certificate(bundle.certificate)


def authorities(bundle: SharedBundle) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(bundle.authorities)


def renewed(bundle: SharedBundle, now: datetime, names: tuple[str, ...] = NAMES) -> SharedBundle:
    return shared_bundle.renewed(bundle, names, now, PLACE)


def is_trusted(bundle: SharedBundle, known: SharedBundle) -> bool:
    """Return whether a client with the CAs of `known` accepts the certificate of `bundle`."""
    return any(
        certificate_authority.is_issued_by(authority, served(bundle))
        for authority in authorities(known)
    )


def test_a_new_bundle_serves_the_names_and_loopback() -> None:
    bundle = shared_bundle.made(NAMES, NOW)
    assert is_trusted(bundle, bundle)
    assert certificate_authority.names_of(served(bundle)) == {
        *NAMES,
        "localhost",
        "127.0.0.1",
        "::1",
    }


@pytest.mark.parametrize(("age", "is_due"), [(DAY * 59, False), (DAY * 61, True)])
def test_only_the_server_certificate_is_renewed_when_it_is_due(
    age: timedelta, is_due: bool
) -> None:
    bundle = shared_bundle.made(NAMES, NOW)
    later = renewed(bundle, NOW + age)
    assert (later is not bundle) is is_due
    assert (served(later) != served(bundle)) is is_due
    assert later.authorities == bundle.authorities
    assert is_trusted(later, bundle)
    assert renewed(later, NOW + age) is later


def test_an_expired_certificate_is_renewed() -> None:
    bundle = shared_bundle.made(NAMES, NOW)
    later = NOW + SERVER_LIFE * 2
    assert served(renewed(bundle, later)).not_valid_after_utc > later


def test_replicas_that_want_different_names_agree() -> None:
    bundle = renewed(shared_bundle.made(NAMES, NOW), NOW, ("new.example",))
    assert {*NAMES, "new.example"} <= certificate_authority.names_of(served(bundle))
    assert renewed(bundle, NOW, NAMES) is bundle
    assert renewed(bundle, NOW, ("new.example",)) is bundle


def test_clients_know_the_next_ca_for_a_day_before_it_signs() -> None:
    old = shared_bundle.made(NAMES, NOW)
    near = NOW + AUTHORITY_LIFE - DAY * 100
    announced = renewed(old, near)
    assert len(authorities(announced)) == 2
    assert authorities(announced)[0] == authorities(old)[0]
    assert is_trusted(announced, old), "clients that know only the old CA still accept it"
    assert renewed(announced, near + DAY / 2) is announced
    signing = renewed(announced, near + DAY)
    assert is_trusted(signing, announced)
    assert not is_trusted(signing, old)
    assert len(authorities(signing)) == 2, "the old CA stays known until it ends"
    assert signing.next_key == b""
    ended = renewed(signing, near + DAY * 101)
    assert authorities(ended) == authorities(signing)[:1]


def test_after_a_long_pause_the_next_ca_takes_over_at_once() -> None:
    announced = renewed(shared_bundle.made(NAMES, NOW), NOW + AUTHORITY_LIFE - DAY * 100)
    later = NOW + AUTHORITY_LIFE + DAY
    assert authorities(renewed(announced, later)) == authorities(announced)[1:]
    assert is_trusted(renewed(announced, later), announced)


def test_an_expired_ca_without_a_next_one_is_replaced() -> None:
    old = shared_bundle.made(NAMES, NOW)
    later = NOW + AUTHORITY_LIFE + DAY
    bundle = renewed(old, later)
    assert not is_trusted(bundle, old)
    assert is_trusted(bundle, bundle)


def test_a_certificate_that_is_not_of_this_ca_is_replaced() -> None:
    bundle, other = shared_bundle.made(NAMES, NOW), shared_bundle.made(NAMES, NOW)
    for broken in (
        msgspec.structs.replace(bundle, certificate=other.certificate, key=other.key),
        msgspec.structs.replace(bundle, key=other.key),
        msgspec.structs.replace(bundle, certificate=b"no PEM"),
        msgspec.structs.replace(bundle, certificate=b""),
    ):
        assert not is_trusted(other, bundle)
        assert is_trusted(renewed(broken, NOW), bundle)


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [("authorities", b"no PEM", "ca.crt"), ("authority_key", b"no PEM", "ca.key")],
)
def test_a_ca_that_cannot_be_used_is_refused_by_name(field: str, value: bytes, named: str) -> None:
    bundle = msgspec.structs.replace(shared_bundle.made(NAMES, NOW), **{field: value})
    with pytest.raises(CertificateError, match=f"{PLACE}, {named}: holds no PEM"):
        renewed(bundle, NOW)


def test_a_key_of_another_ca_is_refused() -> None:
    bundle, other = shared_bundle.made(NAMES, NOW), shared_bundle.made(NAMES, NOW)
    mixed = msgspec.structs.replace(bundle, authority_key=other.authority_key)
    with pytest.raises(CertificateError, match=r"ca.key: is not the key of"):
        renewed(mixed, NOW)


def test_a_replica_whose_clock_is_slow_replaces_no_ca() -> None:
    bundle = shared_bundle.made(NAMES, NOW)
    with pytest.raises(CertificateError, match="mend this machine's clock"):
        renewed(bundle, NOW - DAY)
