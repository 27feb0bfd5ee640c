"""One control plane, one ledger and one second webhook for all end-to-end tests.

They look only at KUBEBUILDER_ASSETS, the folder with etcd, kube-apiserver and
kube-controller-manager; without it every one of them is skipped with that reason.
"""

import json
import os
import ssl
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import pytest
import pytest_asyncio

from tests.e2e.harness.agreement import REGION
from tests.e2e.harness.bootstrap import set_up_cluster
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.controlplane import ADMIN, SERVICE, TENANT, ControlPlane
from tests.e2e.harness.kubectl import Kubectl
from tests.e2e.harness.second_webhook import SecondWebhook
from tests.e2e.harness.service import Service
from tests.e2e.objects.team import Team

ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"
CONNECTIONS_MAX: Final = 32
DECLARED: Final = Path(__file__).parents[2] / "docs" / "examples" / "kinds" / "rollout.yaml"
"""A kind that a user describes, as the page about kinds shows it."""

PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-controller-manager")


@pytest.fixture(scope="session")
def assets() -> Path:
    """Return the folder with the control plane's binaries, or skip."""
    folder = os.environ.get(ASSETS_VARIABLE)
    if not folder:
        pytest.skip(
            f"{ASSETS_VARIABLE} is not set: no end-to-end test ran. Point it at a folder with "
            f"{', '.join(PROGRAMS)} (tests/e2e/README.md says how to get them)"
        )
    missing = [program for program in PROGRAMS if not (Path(folder) / program).is_file()]
    if missing:
        pytest.fail(f"{ASSETS_VARIABLE}={folder} lacks {', '.join(missing)}")
    return Path(folder)


@pytest.fixture(scope="session")
def control_plane(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Run a control plane."""
    running = ControlPlane(assets, tmp_path_factory.mktemp("control-plane"))
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def later(control_plane: ControlPlane) -> Iterator[SecondWebhook]:
    """Run the second webhook. The API server's own certificate names 127.0.0.1, so it does."""
    webhook = SecondWebhook(control_plane.ca, control_plane.server_key)
    yield webhook
    webhook.stop()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def ledger(
    control_plane: ControlPlane, later: SecondWebhook, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Service]:
    """Run the product with both webhooks in effect."""
    service = Service(
        tmp_path_factory.mktemp("ledger"),
        control_plane.kubeconfig(SERVICE),
        workload_kinds=str(DECLARED),
        gpu_types="v100=32768,t4",
        region=REGION,
        page="login",
    )
    try:
        async with _connected(control_plane) as admin:
            await set_up_cluster(admin, later, service)
        yield service
    finally:
        status = service.stop() if service.runs else 0
    assert status == 0, "SIGTERM ends the service cleanly"


@pytest.fixture
async def cluster(control_plane: ControlPlane) -> AsyncIterator[Cluster]:
    """Return the API server as its administrator sees it."""
    async with _connected(control_plane) as admin:
        yield admin


@pytest.fixture
async def tenant(control_plane: ControlPlane) -> AsyncIterator[Cluster]:
    """Return the API server as a user sees it who may only handle pods."""
    async with _connected(control_plane, TENANT) as user:
        yield user


@pytest.fixture
def kubectl(assets: Path, control_plane: ControlPlane, tmp_path: Path) -> Kubectl:
    """Return kubectl as the cluster's administrator types it."""
    return Kubectl(assets, control_plane.kubeconfig(ADMIN), tmp_path)


@pytest.fixture
def service(ledger: Service) -> Service:
    """Return the running product; a test that left it down does not spoil the next one."""
    if not ledger.runs:
        ledger.start()
    ledger.wait_ready()
    return ledger


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def intact(ledger: Service) -> AsyncIterator[None]:
    """After the tests of each file, the log must be intact."""
    yield
    status, report = await ledger.run("audit", "verify")
    assert status == 0, report
    assert json.loads(report)["ok"] is True, report


@pytest.fixture
async def team(
    cluster: Cluster, service: Service, later: SecondWebhook, intact: None
) -> AsyncIterator[Team]:
    """Make a namespace of its own for a test."""
    name = f"team-{uuid.uuid4().hex[:8]}"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await cluster.must("POST", "/api/v1/namespaces", namespace)
    yield Team(name, cluster, service, later)
    fall = service.fall()
    assert not fall, fall


@asynccontextmanager
async def _connected(
    control_plane: ControlPlane, user: str = ADMIN, connections: int = CONNECTIONS_MAX
) -> AsyncIterator[Cluster]:
    context = ssl.create_default_context(cafile=str(control_plane.ca))
    connector = aiohttp.TCPConnector(ssl=context, limit=connections)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield Cluster(session, control_plane.url, control_plane.token(user))
