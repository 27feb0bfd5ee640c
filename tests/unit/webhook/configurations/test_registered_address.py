"""The registered address and CA: what is repaired, and what is left as it is."""

import base64
import copy
from typing import Any, Final

import pytest
from support.fakes.registrations import KINDS, Registrations

from ledger.runtime.tls import certificate_authority, server_certificate
from webhook.configurations import webhook_configurations
from webhook.configurations.registered_address import RegisteredAddress
from webhook.configurations.webhook_configurations import (
    ReviewScope,
    ServiceReference,
    WebhookAddress,
)
from webhook.kinds.kind_catalog import KindCatalog

SCOPE = ReviewScope(("nvidia.com/gpu",), KindCatalog(()), ("own",))
CA: Final = certificate_authority.new_authority(server_certificate.utc_now()).certificate


def wanted(authority: bytes = CA) -> tuple[dict[str, Any], dict[str, Any]]:
    address = WebhookAddress(ServiceReference("own", "gpuledger"), authority)
    return webhook_configurations.configurations(address, SCOPE)


async def repair(
    server: Registrations, *wishes: dict[str, Any], is_active: bool = True
) -> list[str]:
    return await RegisteredAddress(server).repair(wishes or wanted(), is_active=is_active)


async def test_a_registration_that_is_right_is_only_read() -> None:
    server = Registrations(*wanted())
    assert await repair(server) == []
    assert server.writes == []


async def test_without_a_ca_nothing_is_written_again_and_again() -> None:
    server = Registrations(*wanted(b""))
    for kind in KINDS:
        for entry in server.entries(kind):
            entry["clientConfig"].pop("caBundle", "")  # the API server leaves it out
    assert await repair(server, *wanted(b"")) == []


async def test_an_edited_bundle_is_repaired_and_nothing_else() -> None:
    server = Registrations(*wanted())
    edited = server.entries(KINDS[1])[1]
    forged = certificate_authority.new_authority(server_certificate.utc_now()).certificate
    bundle = base64.b64encode(forged).decode()
    edited["clientConfig"] = {"url": "https://elsewhere.example", "caBundle": bundle}
    edited["timeoutSeconds"] = 3
    assert await repair(server) == KINDS[1:]
    assert edited["clientConfig"] == wanted()[1]["webhooks"][1]["clientConfig"]
    assert edited["timeoutSeconds"] == 3
    assert await repair(server) == []


async def test_a_bundle_without_certificates_is_replaced() -> None:
    server = Registrations(*wanted(b"no PEM"))
    assert await repair(server) == KINDS
    for kind, wish in zip(KINDS, wanted(), strict=True):
        assert server.entries(kind) == wish["webhooks"]


FOREIGN: Final[list[dict[str, Any]]] = [
    {"url": "https://elsewhere.example"},
    {"service": {"namespace": "own", "name": "other"}},
    {"service": {"namespace": "other", "name": "gpuledger"}},
]


@pytest.mark.parametrize("foreign", FOREIGN)
async def test_a_standby_adds_its_ca_to_the_webhooks_that_call_its_service(
    foreign: dict[str, Any],
) -> None:
    """A policy denies the whole write if it changes another webhook without its address."""
    server = Registrations(*wanted(b""))
    edited, *others = server.entries(KINDS[1])
    edited["clientConfig"] = foreign
    for entry in others:
        entry["clientConfig"]["service"] |= {"port": 8443, "path": "/admission/of-another-version"}
    assert await repair(server, is_active=False) == KINDS
    bundle = base64.b64encode(CA).decode()
    assert edited["clientConfig"] == foreign
    for entry in others:
        assert entry["clientConfig"]["caBundle"] == bundle
        assert entry["clientConfig"]["service"]["port"] == 8443
    assert await repair(server) == KINDS[1:], "the active replica repairs all of it"
    assert edited["clientConfig"] == wanted()[1]["webhooks"][0]["clientConfig"]


@pytest.mark.parametrize("is_active", [True, False])
async def test_a_certificate_of_the_systems_trust_replaces_the_bundle(is_active: bool) -> None:
    """A bundle beside it would replace the system's CAs, so nothing is added to it."""
    server = Registrations(*wanted())
    before = copy.deepcopy(server.entries(KINDS[1]))
    assert await repair(server, *wanted(b""), is_active=is_active) == (KINDS if is_active else [])
    after = [] if is_active else before
    expected = after or wanted(b"")[1]["webhooks"]
    assert server.entries(KINDS[1]) == expected


async def test_a_missing_configuration_is_registered_by_the_active_replica_alone() -> None:
    server = Registrations(wanted()[1])
    assert await repair(server, is_active=False) == []
    assert server.writes == []
    assert await repair(server) == KINDS[:1]
    assert server.entries(KINDS[0]) == wanted()[0]["webhooks"]


async def test_webhooks_that_another_version_has_removed_stay_removed() -> None:
    """The active replica has the old version, and the new one has registered in full."""
    old, new = wanted(), copy.deepcopy(wanted())
    new[1]["webhooks"].pop()
    new[1]["webhooks"][0]["rules"] = []
    server = Registrations(*old)
    await RegisteredAddress(server).register(new)
    assert await repair(server, *old) == []
    assert server.entries(KINDS[1]) == new[1]["webhooks"]
