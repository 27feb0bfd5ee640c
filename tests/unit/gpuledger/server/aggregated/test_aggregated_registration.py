"""Aggregated registration: the CA in the APIService, of one replica and of several."""

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs
from support.fakes.apiserver import client_on_loopback
from support.harness.waiting import until
from support.servers.tls_server import ClientAuthority

from gpuledger.server.aggregated import aggregated_registration
from gpuledger.server.aggregated.aggregated_registration import PATH, AggregatedRegistration
from ledger.kube.api.cluster_errors import VersionConflict
from ledger.kube.client.api_client import ApiClient
from ledger.runtime.tls.certificate_authority import CertificateError
from webhook.configurations.trusted_authorities import KEPT_SECONDS


class ApiServer:
    """Stores one APIService, and refuses a patch that follows another version."""

    def __init__(self) -> None:
        self.stored: dict[str, Any] | None = None
        self.patches: list[dict[str, Any]] = []
        self.is_raced = False
        self.conflicts = 0

    def store(self, *authorities: bytes) -> None:
        bundle = base64.b64encode(b"".join(authorities)).decode()
        spec = {"group": "g", **({"caBundle": bundle} if bundle else {})}
        self.stored = {"metadata": {"resourceVersion": "1", "annotations": {}}, "spec": spec}

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get(PATH, self._get)
        app.router.add_patch(PATH, self._patch)
        return app

    async def _get(self, request: web.Request) -> web.Response:
        if self.stored is None:
            return web.json_response({"kind": "Status", "reason": "NotFound"}, status=404)
        return web.json_response(self.stored)

    async def _patch(self, request: web.Request) -> web.Response:
        patch = await request.json()
        assert self.stored is not None
        version = self.stored["metadata"]["resourceVersion"]
        if self.is_raced or patch["metadata"]["resourceVersion"] != version:
            self.conflicts += 1
            return web.json_response({"kind": "Status", "reason": "Conflict"}, status=409)
        self.patches.append(patch)
        notes = self.stored["metadata"]["annotations"]
        notes.update(patch["metadata"].get("annotations", {}))
        self.stored["metadata"]["annotations"] = {key: notes[key] for key in notes if notes[key]}
        self.stored["spec"].update(patch.get("spec", {}))
        self.stored["metadata"]["resourceVersion"] = str(int(version) + 1)
        return web.json_response(self.stored)

    def bundle(self) -> set[bytes]:
        """Return the CAs of the stored bundle."""
        assert self.stored is not None
        text = base64.b64decode(self.stored["spec"]["caBundle"]).decode()
        end = "-----END CERTIFICATE-----"
        return {(part.strip() + f"\n{end}\n").encode() for part in text.split(end) if part.strip()}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


@pytest.fixture
async def client(server: ApiServer, tmp_path: Path) -> AsyncIterator[ApiClient]:
    async with client_on_loopback(server.app(), tmp_path) as connected:
        yield connected


def authority(tmp_path: Path, name: str) -> bytes:
    return Path(ClientAuthority(tmp_path / name).file).read_bytes()


async def test_missing_ca_is_written_once(
    server: ApiServer, client: ApiClient, tmp_path: Path
) -> None:
    own = authority(tmp_path, "own")
    registration = AggregatedRegistration(client, lambda: False)
    assert not await registration.repair(own), "without an APIService nothing is written"
    server.store()
    assert await registration.repair(own)
    assert server.bundle() == {own}
    assert set(server.patches[0]) == {"metadata", "spec"}
    assert set(server.patches[0]["spec"]) == {"caBundle"}
    assert not await registration.repair(own)
    assert len(server.patches) == 1


async def test_service_without_a_ca_writes_nothing(server: ApiServer, client: ApiClient) -> None:
    server.store()
    assert not await AggregatedRegistration(client, lambda: True).repair(b"")
    assert not server.patches


async def test_rotated_ca_joins_and_the_old_one_leaves_later(
    server: ApiServer, client: ApiClient, tmp_path: Path
) -> None:
    old, new, clock = authority(tmp_path, "old"), authority(tmp_path, "new"), Clock()
    active = AggregatedRegistration(client, lambda: True, clock=clock)
    server.store(old)
    assert await active.repair(new)
    assert server.bundle() == {old, new}, "a replica may still serve a certificate of the old CA"
    clock.now += KEPT_SECONDS - 1
    await active.repair(new)
    assert server.bundle() == {old, new}
    clock.now += 2
    await active.repair(new)
    assert server.bundle() == {new}


async def test_ca_is_trusted_once_it_is_registered(
    server: ApiServer, client: ApiClient, tmp_path: Path
) -> None:
    old, new = authority(tmp_path, "old"), authority(tmp_path, "new")
    registration = AggregatedRegistration(client, lambda: False)
    assert registration.is_trusted(new), "nothing is compared yet"
    await registration.repair(old)
    assert registration.is_trusted(new), "without an APIService no API server meets it"
    server.store(old)
    await registration.repair(old)
    assert registration.is_trusted(old)
    assert not registration.is_trusted(new)
    server.is_raced = True
    with pytest.raises(VersionConflict):
        await registration.repair(new)
    assert not registration.is_trusted(new), "it is not written"
    server.is_raced = False
    await registration.repair(new)
    assert registration.is_trusted(new)


async def test_conflict_of_a_write_is_not_hidden(
    server: ApiServer, client: ApiClient, tmp_path: Path
) -> None:
    server.store()
    server.is_raced = True
    with pytest.raises(VersionConflict):
        await AggregatedRegistration(client, lambda: True).repair(authority(tmp_path, "own"))


async def test_passive_replica_removes_no_ca(
    server: ApiServer, client: ApiClient, tmp_path: Path
) -> None:
    old, new, clock = authority(tmp_path, "old"), authority(tmp_path, "new"), Clock()
    passive = AggregatedRegistration(client, lambda: False, clock=clock)
    server.store(old)
    assert await passive.repair(new)
    clock.now += KEPT_SECONDS + 1
    await passive.repair(new)
    assert server.bundle() == {old, new}


async def test_failures_are_reported_once_and_end_nothing(
    server: ApiServer, client: ApiClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aggregated_registration, "REPAIR_SECONDS", 0.001)
    own, failures = authority(tmp_path, "own"), ["lost", "lost"]
    server.store()
    server.is_raced = True

    def read() -> bytes:
        if failures:
            raise CertificateError(failures.pop())
        return own

    with capture_logs() as logged:
        running = asyncio.create_task(AggregatedRegistration(client, lambda: True).run(read))
        await until(lambda: server.conflicts >= 2, seconds=5.0)
        server.is_raced = False
        await until(lambda: bool(server.patches), seconds=5.0)
        running.cancel()
    assert server.bundle() == {own}
    reported = [entry["reason"] for entry in logged if entry["log_level"] == "warning"]
    assert reported == ["lost"]
