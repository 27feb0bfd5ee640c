"""`gpuledger check` on a real API server: each broken part is the one finding that fails."""

import base64
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from support.servers.nats_servers import NatsServer

from ledger.log.jetstream.nats_connection import Access, NatsConnection
from ledger.log.jetstream.stream_configuration import StreamNames
from ledger.log.peers.lease import Lease, LeaseSettings
from ledger.runtime.tls import certificate_authority, server_certificate
from tests.e2e.conftest import _connected
from tests.e2e.harness import own_control_plane
from tests.e2e.harness.authorization import are_applied, grant
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.controlplane import ADMIN, SERVICE, TENANT, ControlPlane
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.service import CLUSTER, Service
from tests.e2e.objects.pods import CARDS
from tests.e2e.objects.workloads import TeamWorkloads, replicated
from tests.e2e.operation.support.install_check import FAILED, NOT_ASKED, CheckedInstall, check
from tests.e2e.operation.support.shifted_clock import shifted

pytestmark = pytest.mark.e2e

CONTROLLERS: Final = "platform:controllers"
"""The user name of the controller manager here, which is not an expected one."""

WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/gpuledger"
LISTS_PODS: Final = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
BINDINGS: Final = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
WITHIN: Final = 60.0
JSON_PATCH: Final = {"Content-Type": "application/json-patch+json"}
PAUSE_SECONDS: Final = 1.0
"""Each check is a process, which would take the time that the service needs."""

AHEAD_SECONDS: Final = 90.0


@pytest.fixture(scope="module")
def plane(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with own_control_plane.control_plane(
        assets, tmp_path_factory.mktemp("checked"), CONTROLLERS
    ) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def prepared(plane: ControlPlane) -> AsyncIterator[None]:
    async with _connected(plane) as admin:
        await own_control_plane.prepare(admin)
        yield


@pytest.fixture
async def cluster(plane: ControlPlane, prepared: None) -> AsyncIterator[Cluster]:
    async with _connected(plane) as admin:
        yield admin


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[NatsServer]:
    server = NatsServer(tmp_path / "nats")
    await server.start()
    yield server
    server.stop()


@pytest.fixture
def service(plane: ControlPlane, log: NatsServer, tmp_path: Path) -> Service:
    return Service(tmp_path, plane.kubeconfig(SERVICE), nats=log.url)


@pytest.fixture
async def running(service: Service, cluster: Cluster) -> AsyncIterator[Service]:
    async with own_control_plane.running(service, cluster):
        yield service


async def only(plane: ControlPlane, failing: str, observed: str = "") -> CheckedInstall:
    """Wait until exactly this check fails, with these words, and return everything."""

    async def look() -> CheckedInstall:
        return await check(plane.kubeconfig(ADMIN))

    def is_wanted(seen: CheckedInstall) -> bool:
        failed = seen.those(FAILED) == [failing]
        return failed and observed in seen.findings[failing]["observation"]

    checked = await eventually(
        look, is_wanted, within=WITHIN, what=f"{failing} fails {observed}", pause=PAUSE_SECONDS
    )
    assert checked.status == 1
    assert checked.findings[failing]["remedy"]
    return checked


async def test_nothing_fails_where_all_is_well(plane: ControlPlane, running: Service) -> None:
    checked = await check(plane.kubeconfig(ADMIN))
    assert (checked.status, checked.those(FAILED), checked.those(NOT_ASKED)) == (0, [], [])
    assert checked.findings["admission"]["observation"].endswith("one pod allowed, one denied")


async def test_an_installation_that_is_not_ready_in_time_is_reported(
    plane: ControlPlane, cluster: Cluster
) -> None:
    checked = await check(plane.kubeconfig(ADMIN), "--release=absent", "--wait=2")
    assert checked.status == 6
    assert "absent-gpuledger" in checked.findings["webhooks"]["observation"]


async def test_a_check_waits_until_the_installation_is_ready(
    plane: ControlPlane, cluster: Cluster, service: Service
) -> None:
    for kind in ("validating", "mutating"):
        await cluster.ask("DELETE", WEBHOOKS.replace("validating", kind))
    service.start()
    try:
        checked = await check(plane.kubeconfig(ADMIN), "--wait=60")
    finally:
        service.stop()
    assert (checked.status, checked.those(FAILED)) == (0, [])


async def test_a_ca_bundle_of_another_ca_fails(
    plane: ControlPlane, cluster: Cluster, running: Service, tmp_path: Path
) -> None:
    server_certificate.ensure(tmp_path / "other", (), server_certificate.utc_now())
    await give_authority(cluster, (tmp_path / "other" / "ca.crt").read_bytes())
    checked = await only(plane, "webhooks")
    assert checked.findings["admission"]["outcome"] == NOT_ASKED
    assert checked.findings["log"]["outcome"] == NOT_ASKED


async def test_a_stopped_log_fails(plane: ControlPlane, running: Service, log: NatsServer) -> None:
    log.stop()
    checked = await only(plane, "log")
    for silent in ("settlement", "projection", "durability", "admission"):
        assert checked.findings[silent]["outcome"] == NOT_ASKED


async def test_a_cluster_that_no_replica_settles_fails(
    plane: ControlPlane, cluster: Cluster, service: Service, log: NatsServer
) -> None:
    async with own_control_plane.running(service, cluster):
        pass
    connection = await NatsConnection.connect(Access((log.url,)), deadline=5.0)
    # Its lease outlasts a busy moment of this machine, so that the service does not get it.
    long = LeaseSettings(lease_seconds=60)
    other = Lease(connection, StreamNames("main"), writer="other", cluster=CLUSTER, settings=long)
    await other.start()
    try:
        await eventually(
            lambda: held(other), lambda mine: mine, within=WITHIN, what="the lease is taken"
        )
        service.start()
        await only(plane, "settlement", "none of 1 replicas")
    finally:
        service.stop()
        await other.stop()
        await connection.close()


async def held(lease: Lease) -> bool:
    return lease.is_owner


@pytest.mark.long
async def test_an_expired_certificate_fails(
    plane: ControlPlane, cluster: Cluster, service: Service, tmp_path: Path
) -> None:
    """The certificate ends while the service runs, because no service starts with an ended one."""
    life = timedelta(seconds=20)
    made = server_certificate.utc_now() - certificate_authority.SERVER_LIFE + life
    files = server_certificate.ensure(tmp_path / "given", ("127.0.0.1",), made)
    service.configure(tls_cert=files.certificate, tls_key=files.key)
    service.start()
    try:
        await eventually(
            lambda: registered(cluster),
            lambda url: service.address in url,
            within=WITHIN,
            what="the service is registered",
        )
        await give_authority(cluster, (tmp_path / "given" / "ca.crt").read_bytes())
        checked = await only(plane, "certificates")
    finally:
        service.stop()
    assert checked.findings["log"]["outcome"] == NOT_ASKED


async def registered(cluster: Cluster) -> str:
    """Return the address that the API server calls, if there is one."""
    webhooks = (await cluster.ask("GET", WEBHOOKS)).body.get("webhooks", ())
    return str(webhooks[0]["clientConfig"]["url"]) if webhooks else ""


async def give_authority(cluster: Cluster, authority: bytes) -> None:
    """Write a CA into both webhook configurations."""
    bundle = base64.b64encode(authority).decode()
    for kind in ("validating", "mutating"):
        path = WEBHOOKS.replace("validating", kind)
        count = len((await cluster.must("GET", path))["webhooks"])
        change: Any = [
            {"op": "add", "path": f"/webhooks/{number}/clientConfig/caBundle", "value": bundle}
            for number in range(count)
        ]
        await cluster.must("PATCH", path, change, headers=JSON_PATCH)


async def test_a_clock_that_is_ahead_fails(
    plane: ControlPlane, cluster: Cluster, service: Service, tmp_path: Path
) -> None:
    service._env |= {"PYTHONPATH": shifted(tmp_path / "clock", AHEAD_SECONDS)}
    async with own_control_plane.running(service, cluster):
        checked = await only(plane, "clock")
    assert "ahead of the API server" in checked.findings["clock"]["observation"]


async def test_an_unexpected_controller_fails(
    plane: ControlPlane, cluster: Cluster, running: Service
) -> None:
    team = await own_control_plane.team_of(
        cluster, running, "unexpected", **{f"limits.{CARDS}": "9"}
    )
    workloads = TeamWorkloads(team)
    await workloads.created(replicated("Deployment", 1))
    checked = await only(plane, "identities")
    assert f"replicasets.apps={CONTROLLERS}" in checked.findings["identities"]["observation"]
    await cluster.must("DELETE", f"{workloads.path('Deployment')}/web")


async def test_a_service_without_rights_fails(
    plane: ControlPlane, cluster: Cluster, service: Service
) -> None:
    async with own_control_plane.running(service, cluster):
        pass
    path = f"{BINDINGS}/e2e-{SERVICE}"
    binding = await cluster.must("GET", path)
    await cluster.must("DELETE", path)
    service.start()
    try:
        await only(plane, "settlement", "403")
    finally:
        service.stop()
        del binding["metadata"]["resourceVersion"], binding["metadata"]["uid"]
        await cluster.must("POST", BINDINGS, binding)
        await are_applied(cluster, SERVICE, [LISTS_PODS])


async def test_an_account_that_may_not_ask_fails(
    plane: ControlPlane, cluster: Cluster, running: Service
) -> None:
    checked = await check(plane.kubeconfig(TENANT))
    assert (checked.status, checked.those(FAILED)) == (1, ["rights"])
    assert "alice" in checked.findings["rights"]["remedy"]
    assert checked.findings["webhooks"]["outcome"] == NOT_ASKED


async def test_the_rights_of_the_checks_role_are_enough(
    plane: ControlPlane, cluster: Cluster, running: Service
) -> None:
    listed = ["list"]
    registration = [f"{kind}webhookconfigurations" for kind in ("mutating", "validating")]
    await grant(
        cluster,
        TENANT,
        [
            {
                "apiGroups": ["admissionregistration.k8s.io"],
                "resources": registration,
                "verbs": listed,
            },
            {"apiGroups": [""], "resources": ["nodes"], "verbs": listed},
            {"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": listed},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]},
        ],
    )
    checked = await check(plane.kubeconfig(TENANT))
    assert (checked.status, checked.those(FAILED), checked.those(NOT_ASKED)) == (0, [], [])


async def test_an_api_server_that_does_not_answer_fails(
    plane: ControlPlane, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "kubeconfig"
    elsewhere.write_text(
        plane.kubeconfig(ADMIN).read_text().replace(plane.url, "https://127.0.0.1:9")
    )
    checked = await check(elsewhere)
    assert (checked.status, checked.those(FAILED)) == (1, ["api-server"])
    assert checked.those("ok") == []


async def test_a_quota_without_room_is_named_with_the_option(
    plane: ControlPlane, cluster: Cluster, running: Service
) -> None:
    checked = await check(plane.kubeconfig(ADMIN), "--probe-namespace=canary")
    assert checked.those(FAILED) == ["admission"]
    assert "--probe-namespace" in checked.findings["admission"]["remedy"]
    assert await cluster.items("/api/v1/namespaces/canary/pods") == []
