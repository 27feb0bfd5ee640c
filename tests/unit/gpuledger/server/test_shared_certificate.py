"""Replicas that share one certificate in a Secret: races, renewals, losses and broken content.

The API server is a model of one Secret that yields before each answer, so requests of two replicas
interleave. Without its preconditions (`is_careless`) the same tests fail.
"""

import asyncio
import base64
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuledger.server import shared_certificate
from gpuledger.server.shared_certificate import SharedCertificate
from ledger.kube.api.cluster_errors import (
    AlreadyExists,
    ClusterUnavailable,
    NotFound,
    VersionConflict,
)
from ledger.kube.client.api_client import ApiClient
from ledger.runtime.settings.settings import Settings
from ledger.runtime.tls import certificate_authority, server_certificate
from ledger.runtime.tls.certificate_authority import CertificateError, KeyPair

NAMES = ("gpuledger.own.svc",)
OLD = timedelta(days=61)


class SecretServer(ApiClient):
    """One Secret with resource versions; `is_careless` ignores every precondition."""

    def __init__(self, *, is_careless: bool = False) -> None:
        self.is_careless = is_careless
        self.manifest: dict[str, Any] | None = None
        self.writes = 0
        self.is_down = False

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        await asyncio.sleep(0)
        if self.is_down:
            raise ClusterUnavailable("no answer")
        if method != "GET":
            self._write(method, msgspec.json.decode(options["body"]))
        elif self.manifest is None:
            raise NotFound(path)
        return msgspec.json.encode(self.manifest)

    def _write(self, method: str, manifest: dict[str, Any]) -> None:
        if not self.is_careless:
            self._check(method, manifest)
        self.writes += 1
        manifest["metadata"]["resourceVersion"] = str(self.writes)
        self.manifest = manifest

    def _check(self, method: str, manifest: dict[str, Any]) -> None:
        if method == "POST" and self.manifest is not None:
            raise AlreadyExists("it exists")
        if method == "PUT" and self.manifest is None:
            raise NotFound("it does not exist")
        if method == "PUT" and self.manifest is not None:
            versions = [each["metadata"]["resourceVersion"] for each in (manifest, self.manifest)]
            if versions[0] != versions[1]:
                raise VersionConflict("it has changed")

    def data(self) -> dict[str, bytes]:
        assert self.manifest is not None
        return {key: base64.b64decode(text) for key, text in self.manifest["data"].items()}

    def put(self, **data: bytes) -> None:
        """Replace data by hand; the keys' dots are written as underscores."""
        changed = {**self.data(), **{key.replace("_", "."): data[key] for key in data}}
        encoded = {key: base64.b64encode(value).decode() for key, value in changed.items()}
        self.writes += 1
        version = {"metadata": {"name": "tls", "resourceVersion": str(self.writes)}}
        self.manifest = {**version, "data": encoded}

    def age(self) -> None:
        """Replace the certificate by one of the same CA that is due."""
        held = self.data()
        authority = KeyPair(held["ca.crt"], held["ca.key"])
        then = server_certificate.utc_now() - OLD
        issued = certificate_authority.issue(authority, NAMES, then)
        self.put(tls_crt=issued.certificate, tls_key=issued.key)


def replica(folder: Path, server: ApiClient) -> SharedCertificate:
    settings = Settings(store_dir=str(folder), tls_secret="tls", namespace="own")
    return SharedCertificate(settings, server, names=NAMES)


def served(part: SharedCertificate) -> bytes:
    return part._server.read_bytes()


def served_by(server: SecretServer) -> bytes:
    """Return the file of a replica that has read the Secret."""
    return server.data()["tls.crt"] + server.data()["tls.key"]


async def both(tmp_path: Path, server: SecretServer) -> tuple[SharedCertificate, SharedCertificate]:
    first, other = (replica(tmp_path / name, server) for name in ("one", "other"))
    await asyncio.gather(first.prepare(), other.prepare())
    return first, other


async def test_two_that_start_at_once_serve_one_certificate(tmp_path: Path) -> None:
    server = SecretServer()
    first, other = await both(tmp_path, server)
    assert server.writes == 1
    assert served(first) == served(other) == served_by(server)


async def test_without_preconditions_two_would_serve_two_certificates(tmp_path: Path) -> None:
    first, other = await both(tmp_path, SecretServer(is_careless=True))
    assert served(first) != served(other)


async def test_a_renewal_happens_once_and_reaches_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_certificate, "READ_SECONDS", 0.005)
    server = SecretServer()
    first, other = await both(tmp_path, server)
    server.age()
    due = served_by(server)
    before = server.writes

    def is_renewed() -> bool:
        now = served_by(server)
        return due != now and served(first) == served(other) == now

    tasks = [asyncio.create_task(part.run()) for part in (first, other)]
    async with asyncio.timeout(30):
        while not is_renewed():  # noqa: ASYNC110 - another task writes
            await asyncio.sleep(0.005)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert server.writes == before + 1


@pytest.mark.parametrize("lost", ["deleted", "emptied"])
async def test_a_lost_secret_is_filled_again_with_the_same_ca(tmp_path: Path, lost: str) -> None:
    server = SecretServer()
    first, _ = await both(tmp_path, server)
    before = server.data()
    if lost == "deleted":
        server.manifest = None
    else:
        server.manifest = {"metadata": {"name": "tls", "resourceVersion": "1"}}
    await first._refresh()
    assert server.data() == before


async def test_labels_of_a_secret_that_was_made_empty_are_kept(tmp_path: Path) -> None:
    server = SecretServer()
    labelled = {"name": "tls", "resourceVersion": "0", "labels": {"a": "b"}}
    server.manifest = {"metadata": labelled, "type": "Opaque"}
    await replica(tmp_path, server).prepare()
    assert server.manifest["metadata"]["labels"] == {"a": "b"}
    assert set(server.data()) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}


async def test_a_secret_of_another_kind_is_refused_and_kept(tmp_path: Path) -> None:
    server = SecretServer()
    server.manifest = {"metadata": {"name": "tls", "resourceVersion": "1"}, "data": {}}
    server.put(tls_crt=b"theirs", tls_key=b"theirs")
    with pytest.raises(CertificateError, match=r"Secret own/tls: lacks ca.crt and ca.key"):
        await replica(tmp_path, server).prepare()
    assert server.data() == {"tls.crt": b"theirs", "tls.key": b"theirs"}


async def test_a_replica_with_a_certificate_starts_without_the_api_server(tmp_path: Path) -> None:
    server = SecretServer()
    await replica(tmp_path, server).prepare()
    server.is_down = True
    again = replica(tmp_path, server)
    await asyncio.wait_for(again.prepare(), 5)
    assert again.problem == "no answer"
    assert again.find()


@pytest.mark.parametrize(
    ("broken", "named"),
    [({"ca_crt": b"junk"}, "ca.crt: holds no PEM"), ({"ca_key": b""}, "lacks ca.key.*or delete")],
)
async def test_a_replica_with_a_certificate_starts_beside_a_broken_secret(
    tmp_path: Path, broken: dict[str, bytes], named: str
) -> None:
    server = SecretServer()
    await replica(tmp_path / "one", server).prepare()
    server.put(**broken)
    held = server.data()
    again = replica(tmp_path / "one", server)
    await again.prepare()
    assert re.search(named, again.problem)
    assert again.find()
    with pytest.raises(CertificateError, match=named):
        await replica(tmp_path / "other", server).prepare()
    assert server.data() == held


async def test_a_replica_whose_clock_is_ahead_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = SecretServer()
    first, other = await both(tmp_path, server)
    before, writes = served(other), server.writes
    ahead = server_certificate.utc_now() + OLD
    monkeypatch.setattr(server_certificate, "utc_now", lambda: ahead)
    server.clock_ahead = OLD.total_seconds()
    for part in (first, other):
        with pytest.raises(CertificateError, match=r"1464.0 h ahead of the API server's; mend"):
            await part._refresh()
    assert served(other) == before
    assert server.writes == writes
    server.clock_ahead = 0.0
    await other._refresh()
    assert server.writes == writes + 1


async def test_a_replica_without_a_certificate_waits_for_the_api_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_certificate, "FIRST_READ_SECONDS", 0.005)
    server = SecretServer()
    server.is_down = True
    waiting = replica(tmp_path, server)
    task = asyncio.create_task(waiting.prepare())
    async with asyncio.timeout(30):
        while not waiting.problem:  # noqa: ASYNC110 - another task writes
            await asyncio.sleep(0.005)
    assert not task.done()
    server.is_down = False
    await asyncio.wait_for(task, 30)
    assert waiting.find()
    assert waiting.problem == ""


async def test_only_the_owner_reads_the_key_and_that_of_the_ca_is_not_stored(
    tmp_path: Path,
) -> None:
    server = SecretServer()
    await replica(tmp_path, server).prepare()
    files = {path.name: path for path in (tmp_path / "shared-tls").iterdir()}
    assert set(files) == {"ca.crt", "server.pem"}
    assert files["server.pem"].stat().st_mode & 0o077 == 0
    assert all(b"PRIVATE" not in path.read_bytes() for path in (files["ca.crt"],))
