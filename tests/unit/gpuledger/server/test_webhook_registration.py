"""Registration by a Service: the address and the CA follow, and every replica adds its CA."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from gpuledger.server import webhook_registration
from gpuledger.server.webhook_registration import WebhookRegistration
from ledger.kube.api.cluster_errors import ClusterUnavailable, Forbidden
from ledger.runtime.settings.settings import Settings
from webhook.configurations.webhook_configurations import Configuration

SETTINGS = Settings(
    namespace="own",
    register_service="gpuledger",
    tls_secret="tls",
    webhook_name="blue",
    webhook_failure_policy="Ignore",
)


class Writes:
    """Replaces both writes of registrations, and records the wanted configurations."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.registered: list[Sequence[Configuration]] = []
        self.repaired: list[Sequence[Configuration]] = []
        self.active: list[bool] = []
        self.refusal: Exception | None = None
        monkeypatch.setattr(webhook_registration, "REPAIR_SECONDS", 0.005)
        monkeypatch.setattr(webhook_registration, "RegisteredAddress", lambda _: self)

    async def register(self, wanted: Sequence[Configuration]) -> None:
        self.registered.append(wanted)

    async def repair(self, wanted: Sequence[Configuration], *, is_active: bool) -> list[str]:
        self.repaired.append(wanted)
        self.active.append(is_active)
        if self.refusal is not None:
            raise self.refusal
        return []


@contextlib.asynccontextmanager
async def running(
    *, is_active: bool, authority: list[bytes], clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[WebhookRegistration]:
    """Run a registration; the last of `authority` is the CA now."""
    context: Any = SimpleNamespace(
        identity="own",
        policies=SimpleNamespace(listed=asyncio.Event()),
        rules=SimpleNamespace(labels=SimpleNamespace(keys=()), vendors=()),
    )
    client: Any = SimpleNamespace(request=lambda *_, **__: asyncio.sleep(0, b"{}"))
    registration = WebhookRegistration(
        SETTINGS, client=client, context=context, is_active=lambda: is_active, clock=clock
    )
    identified = asyncio.Event()
    identified.set()
    task = asyncio.create_task(registration.run(lambda: authority[-1], identified))
    try:
        yield registration
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - another task writes
            await asyncio.sleep(0.005)


async def test_the_service_is_registered_as_the_settings_describe_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writes = Writes(monkeypatch)
    async with running(is_active=False, authority=[b"CA"]) as registration:
        await until(lambda: writes.registered)
        assert registration.problem is None
    for configuration in writes.registered[0]:
        assert configuration["metadata"]["name"] == "blue"
        for webhook in configuration["webhooks"]:
            assert webhook["failurePolicy"] == "Ignore"
            service = webhook["clientConfig"]["service"]
            assert (service["namespace"], service["name"]) == ("own", "gpuledger")


@pytest.mark.parametrize("is_active", [True, False])
async def test_every_replica_registers_a_new_ca_and_is_trusted_afterwards(
    monkeypatch: pytest.MonkeyPatch, is_active: bool
) -> None:
    writes, authority = Writes(monkeypatch), [b"old"]
    async with running(is_active=is_active, authority=authority) as registration:
        assert registration.is_trusted(b"old"), "nothing calls a replica that is not registered"
        await until(lambda: writes.repaired)
        writes.refusal = ClusterUnavailable("no answer")
        authority.append(b"new")
        await until(lambda: registration.warning)
        assert registration.is_trusted(b"old")
        assert not registration.is_trusted(b"new")
        writes.refusal = None
        await until(lambda: registration.is_trusted(b"new"))
    assert writes.repaired[-1][0]["webhooks"][0]["clientConfig"]["caBundle"] == "bmV3"
    assert set(writes.active) == {is_active}


async def test_a_failed_repair_warns_and_leaves_the_replica_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writes = Writes(monkeypatch)
    writes.refusal = Forbidden("no right to get")
    async with running(is_active=True, authority=[b"CA"]) as registration:
        await until(lambda: registration.warning == "no right to get")
        assert registration.problem is None
        writes.refusal = None
        await until(lambda: registration.warning == "")


@pytest.mark.parametrize(
    ("is_active", "authority", "is_lapsed"),
    [(False, b"CA", True), (True, b"CA", False), (False, b"", False)],
)
async def test_a_standby_that_cannot_claim_its_ca_is_not_ready(
    monkeypatch: pytest.MonkeyPatch, is_active: bool, authority: bytes, is_lapsed: bool
) -> None:
    """The active replica alone removes CAs, and a certificate of the system's trust has none."""
    writes, now = Writes(monkeypatch), [0.0]
    async with running(
        is_active=is_active, authority=[authority], clock=lambda: now[-1]
    ) as registration:
        await until(lambda: writes.repaired)
        writes.refusal = ClusterUnavailable("no answer")
        await until(lambda: registration.warning)
        now.append(webhook_registration.LAPSE_SECONDS - 1)
        assert registration.problem is None
        now.append(webhook_registration.LAPSE_SECONDS)
        assert registration.problem == (webhook_registration.LAPSED if is_lapsed else None)
        assert registration.is_trusted(authority), "the certificate of this CA stays"
        writes.refusal = None
        await until(lambda: not registration.warning)
        assert registration.problem is None
