"""Replicas with different CAs and one registration: which CAs the API server trusts, and for how
long.

After every write the model of the API server compares the bundles with the CAs that running
replicas serve. The replicas' clocks are moved, nothing sleeps.
"""

import asyncio
import base64
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from support.fakes.registrations import KINDS, Registrations

from ledger.runtime.tls import certificate_authority, server_certificate
from webhook.configurations import trusted_authorities, webhook_configurations
from webhook.configurations.registered_address import RegisteredAddress
from webhook.configurations.trusted_authorities import KEPT_SECONDS, AuthorityClaims
from webhook.configurations.webhook_configurations import (
    ReviewScope,
    ServiceReference,
    WebhookAddress,
)
from webhook.kinds.kind_catalog import KindCatalog

SCOPE: Final = ReviewScope(("nvidia.com/gpu",), KindCatalog(()), ("own",))
ROUND_SECONDS: Final = 5.0


def new_ca(days_old: float = 0) -> bytes:
    now = server_certificate.utc_now()
    made = certificate_authority.AUTHORITY_LIFE * days_old / 3650
    return certificate_authority.new_authority(now - made).certificate


def trusted_by(entry: dict[str, Any]) -> set[x509.Certificate]:
    pem = base64.b64decode(entry["clientConfig"]["caBundle"])
    return set(x509.load_pem_x509_certificates(pem))


class Watched(Registrations):
    """Asserts after each write that every served CA is in every bundle."""

    def __init__(self, *, is_careless: bool = False) -> None:
        super().__init__(is_careless=is_careless)
        self.served: set[bytes] = set()

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        answer = await super().request(method, path, **options)
        if path in self.stored:
            assert self.served <= self.trusted(path), f"after {method} {path}"
        return answer

    def trusted(self, path: str) -> set[bytes]:
        """Return the CAs, PEM, that every bundle has."""
        loaded = [trusted_by(entry) for entry in self.stored[path]["webhooks"]]
        return {each.public_bytes(Encoding.PEM) for each in set.intersection(*loaded)}

    def everywhere(self) -> set[bytes]:
        return set.intersection(*(self.trusted(path) for path in self.stored))

    def claims(self) -> set[str]:
        return {
            name
            for stored in self.stored.values()
            for name in stored["metadata"].get("annotations", {})
        }


class Replica:
    """One replica, its CA and its clock."""

    def __init__(self, server: Watched, authority: bytes, *, is_active: bool = False) -> None:
        self.server, self.authority, self.is_active = server, authority, is_active
        self.clock = 0.0
        self._address = RegisteredAddress(server, lambda: AuthorityClaims(lambda: self.clock))

    def _wanted(self) -> tuple[dict[str, Any], dict[str, Any]]:
        address = WebhookAddress(ServiceReference("own", "gpuledger"), self.authority)
        return webhook_configurations.configurations(address, SCOPE)

    async def start(self) -> None:
        """Register in full, and serve."""
        await self._address.register(self._wanted())
        self.server.served.add(self.authority)

    async def follow(self, authority: bytes) -> None:
        """Take another CA, and serve a certificate of it once it is registered."""
        before, self.authority = self.authority, authority
        await self.round()
        self.server.served.add(authority)
        self.server.served.discard(before)

    def stop(self) -> None:
        self.server.served.discard(self.authority)

    async def round(self) -> list[str]:
        self.clock += ROUND_SECONDS
        return await self._address.repair(self._wanted(), is_active=self.is_active)


async def rounds(seconds: float, *replicas: Replica) -> None:
    for _ in range(int(seconds / ROUND_SECONDS)):
        for replica in replicas:
            await replica.round()


async def test_a_switch_of_the_ca_by_a_rolling_update_leaves_neither_untrusted() -> None:
    server = Watched()
    old = Replica(server, new_ca(), is_active=True)
    await old.start()
    new = Replica(server, new_ca())
    await new.start()
    # An update that stops half way takes longer than an unclaimed CA is kept.
    await rounds(KEPT_SECONDS * 3, old, new)
    assert server.everywhere() == {old.authority, new.authority}
    old.stop()
    new.is_active = True
    await rounds(KEPT_SECONDS - trusted_authorities.CLAIM_SECONDS - ROUND_SECONDS, new)
    assert server.everywhere() == {old.authority, new.authority}
    await rounds(trusted_authorities.CLAIM_SECONDS + ROUND_SECONDS * 2, new)
    assert server.everywhere() == {new.authority}
    assert server.claims() == set()
    before = len(server.writes)
    await rounds(KEPT_SECONDS, new)
    assert len(server.writes) == before, "with one CA nothing is claimed"


async def test_a_mounted_ca_is_added_by_the_replica_that_it_reaches_first() -> None:
    for first, last in ((0, 1), (1, 0)):
        server = Watched()
        old, new = new_ca(), new_ca()
        both = [Replica(server, old, is_active=True), Replica(server, old)]
        for replica in both:
            await replica.start()
        await both[first].follow(new)
        server.served.add(old)  # the other replica serves it still
        await rounds(KEPT_SECONDS * 2, *both)
        await both[last].follow(new)
        await rounds(KEPT_SECONDS + trusted_authorities.CLAIM_SECONDS + ROUND_SECONDS * 2, *both)
        assert server.everywhere() == {new}


async def test_the_active_replica_that_switches_first_leaves_the_others_time() -> None:
    """With one CA nothing is claimed, so the old one is first claimed after the switch."""
    server = Watched()
    active = Replica(server, new_ca(), is_active=True)
    other = Replica(server, active.authority)
    for replica in (active, other):
        await replica.start()
    await rounds(KEPT_SECONDS * 2, active, other)
    await active.follow(new_ca())
    server.served.add(other.authority)
    await rounds(KEPT_SECONDS * 2, active, other)
    assert server.everywhere() == {active.authority, other.authority}


async def test_two_that_add_their_cas_at_once_keep_both() -> None:
    server = Watched()
    both = [Replica(server, new_ca(), is_active=True), Replica(server, new_ca())]
    old = Replica(server, new_ca())
    await old.start()
    await asyncio.gather(*(replica.start() for replica in both))
    assert server.everywhere() == {old.authority, *(replica.authority for replica in both)}
    await asyncio.gather(*(replica.follow(new_ca()) for replica in both))
    assert {replica.authority for replica in both} <= server.everywhere()


async def test_without_preconditions_one_of_two_would_be_untrusted() -> None:
    server = Watched(is_careless=True)
    await Replica(server, new_ca()).start()
    both = [Replica(server, new_ca()), Replica(server, new_ca())]
    with pytest.raises(AssertionError, match="after PATCH"):
        await asyncio.gather(*(replica.start() for replica in both))


async def test_a_ca_that_an_operator_adds_by_hand_is_kept_for_a_time() -> None:
    server = Watched()
    replica = Replica(server, new_ca(), is_active=True)
    await replica.start()
    coming = new_ca()
    bundle = base64.b64encode(replica.authority + coming).decode()
    for kind in KINDS:
        for entry in server.entries(kind):
            entry["clientConfig"]["caBundle"] = bundle
    await rounds(KEPT_SECONDS - ROUND_SECONDS, replica)
    assert server.everywhere() == {replica.authority, coming}
    await rounds(ROUND_SECONDS * 2, replica)
    assert server.everywhere() == {replica.authority}


async def test_an_ended_ca_is_dropped_at_once() -> None:
    server = Watched()
    await Replica(server, new_ca(days_old=3651)).start()
    server.served.clear()
    replica = Replica(server, new_ca(), is_active=True)
    await replica.start()
    assert server.everywhere() == {replica.authority}


async def test_the_bundle_is_bounded_when_each_start_makes_another_ca() -> None:
    server = Watched()
    for _ in range(trusted_authorities.OTHERS_MAX * 2):
        passing = Replica(server, new_ca())
        await passing.start()
        passing.stop()
        lasting = Replica(server, new_ca(), is_active=True)
        await lasting.start()
        await lasting.round()
        lasting.stop()
        assert len(server.everywhere()) <= trusted_authorities.OTHERS_MAX + 1
