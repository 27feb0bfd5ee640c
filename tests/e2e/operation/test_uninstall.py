"""`gpuledger uninstall` on a real API server: what it removes, what stays, and that nothing blocks.

The service is killed first, because an uninstall must work without it.
"""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import pytest_asyncio
import yaml

from ledger.kube.hami.fence_label import LABEL
from tests.e2e.conftest import _connected
from tests.e2e.harness import own_control_plane
from tests.e2e.harness.authorization import grant
from tests.e2e.harness.bootstrap import kinds_are_served, webhooks_are_in_effect
from tests.e2e.harness.cluster import Cluster, Manifest
from tests.e2e.harness.controlplane import ADMIN, SERVICE, TENANT, ControlPlane
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.service import Service
from tests.e2e.objects.pods import CARDS, pod
from tests.e2e.operation.support.install_check import typed
from tools.manifests import helm_chart

pytestmark = pytest.mark.e2e

GATE: Final = "gpuledger.io/quota"
NAMESPACE: Final = "leaving"
SYSTEM: Final = "gpuledger-system"
AGENTS: Final = "gpuledger-nodes"
QUOTAS: Final = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
POLICIES: Final = "/apis/gpuledger.io/v1alpha1/ledgerpolicies"
UNIVERSES: Final = "universeresourcequotas"
OURS: Final = ["gpuledger.io"]
UNIVERSE: Final = f"/apis/gpuledger.io/v1alpha1/{UNIVERSES}"
NODES: Final = "/api/v1/nodes"
REGISTRATION: Final = "/apis/admissionregistration.k8s.io/v1"
APPS: Final = f"/apis/apps/v1/namespaces/{SYSTEM}"
AGENT_SETS: Final = f"/apis/apps/v1/namespaces/{AGENTS}/daemonsets"
STRANGERS: Final = "/apis/apps/v1/namespaces/default/daemonsets"
WITHIN: Final = 60.0
ROOT: Final = Path(__file__).parents[3]
BOUNDS: Final = {
    f"gpuledger-{name}"
    for name in ("own-pods", "own-quota-status", "removals-of-nodes", "removals-of-quotas")
}
PLURALS: Final = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}

UNINSTALL_RIGHTS: Final[list[Manifest]] = [
    {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
        "verbs": ["list"],
    },
    {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
        "resourceNames": ["gpuledger"],
        "verbs": ["delete"],
    },
    {
        "apiGroups": ["apiregistration.k8s.io"],
        "resources": ["apiservices"],
        "resourceNames": ["v1.query.gpuledger.io"],
        "verbs": ["get", "delete"],
    },
    {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["list", "patch"]},
    {"apiGroups": [""], "resources": ["resourcequotas"], "verbs": ["list", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["resourcequotas/status"], "verbs": ["patch"]},
    {"apiGroups": OURS, "resources": [UNIVERSES, "ledgerpolicies"], "verbs": ["list"]},
    {
        "apiGroups": OURS,
        "resources": [f"{UNIVERSES}/status", "ledgerpolicies/status"],
        "verbs": ["patch"],
    },
    {"apiGroups": ["apps"], "resources": ["deployments", "daemonsets"], "verbs": ["list", "patch"]},
]
"""The rights that the chart gives the account of the command."""


class Uninstalled(NamedTuple):
    """The exit status and the report of the command."""

    status: int
    report: dict[str, list[dict[str, str]]]
    complaint: str

    def names(self, part: str) -> set[tuple[str, str]]:
        """Return kind and name of the things in a part of the report."""
        return {(thing["kind"], thing["name"]) for thing in self.report.get(part, ())}


async def uninstall(plane: ControlPlane, *options: str, user: str = ADMIN) -> Uninstalled:
    """Run the command."""
    kubeconfig = f"--kubeconfig={plane.kubeconfig(user)}"
    status, output, complaint = await typed("uninstall", kubeconfig, *options)
    return Uninstalled(status, json.loads(output) if output else {}, complaint)


@pytest.fixture(scope="module")
def plane(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with own_control_plane.control_plane(assets, tmp_path_factory.mktemp("left")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def prepared(plane: ControlPlane) -> None:
    async with _connected(plane) as admin:
        await own_control_plane.prepare(admin)
        await grant(admin, TENANT, UNINSTALL_RIGHTS)
        await kinds_are_served(admin)
        await _make_policies(admin)
        for name in (SYSTEM, AGENTS):
            await admin.must("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        await _bound(admin)


async def _bound(admin: Cluster) -> None:
    """Bound the writes of the tenant as the chart bounds those of the account of the Job."""
    account = f"system:serviceaccount:{SYSTEM}:gpuledger-uninstall"
    for rendered in helm_chart.render(ROOT, sets=("cluster=e2e",), namespace=SYSTEM):
        kind, name = rendered.manifest["kind"], rendered.manifest["metadata"]["name"]
        if name in BOUNDS and kind.startswith("ValidatingAdmissionPolicy"):
            path = f"{REGISTRATION}/{PLURALS[kind]}"
            await admin.must("POST", path, yaml.safe_load(rendered.text.replace(account, TENANT)))


@pytest.fixture
async def cluster(plane: ControlPlane, prepared: None) -> AsyncIterator[Cluster]:
    """Connect as administrator; afterwards nothing of a test is left that another one sees."""
    async with _connected(plane) as admin:
        yield admin
        await uninstall(plane, "--yes")
        for path in (QUOTAS, PODS, NODES):
            await admin.must("DELETE", f"{path}?gracePeriodSeconds=0")


@pytest.fixture
async def dead(plane: ControlPlane, cluster: Cluster, tmp_path: Path) -> Service:
    """Let a service write all that it writes, and kill it."""
    service = Service(tmp_path, plane.kubeconfig(SERVICE))
    await service.run_again()
    await webhooks_are_in_effect(cluster)
    await cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    hard = {f"limits.{CARDS}": "1", f"requests.{CARDS}": "0"}
    await cluster.must("POST", QUOTAS, {"metadata": {"name": "mine"}, "spec": {"hard": hard}})
    await eventually(
        lambda: _written(cluster), bool, within=WITHIN, what="quotas and statuses are written"
    )
    # A gate is checked by Kubernetes' quota, too, which has 0 here.
    await cluster.patch(f"{QUOTAS}/mine", {"spec": {"hard": {f"requests.{CARDS}": "9"}}})
    await eventually(
        lambda: _gated(cluster), bool, within=WITHIN, what="a pod waits behind the gate"
    )
    await cluster.patch(f"{QUOTAS}/mine", {"spec": {"hard": {f"requests.{CARDS}": "0"}}})
    await _make_nodes(cluster)
    service.kill()
    return service


async def _make_policies(cluster: Cluster) -> None:
    selector = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
    default = {"name": "by-policy", "hard": {f"limits.{CARDS}": "1"}}
    policy = {
        "apiVersion": "gpuledger.io/v1alpha1",
        "kind": "LedgerPolicy",
        "metadata": {"name": "waiting"},
        "spec": {
            "namespaceSelector": selector,
            "onExceeded": "pending",
            "defaultQuota": default,
        },
    }
    await cluster.must("POST", POLICIES, policy)
    universe = {
        "apiVersion": "gpuledger.io/v1alpha1",
        "kind": "UniverseResourceQuota",
        "metadata": {"name": "all"},
        "spec": {"hard": {f"limits.{CARDS}": "100"}},
    }
    await cluster.must("POST", UNIVERSE, universe)


async def _written(cluster: Cluster) -> bool:
    """Return whether the default quota and the statuses are there."""
    quotas = {quota["metadata"]["name"]: quota for quota in await cluster.items(QUOTAS)}
    universe = await cluster.must("GET", f"{UNIVERSE}/all")
    used = quotas["mine"].get("status", {}).get("used") or {}
    return "by-policy" in quotas and f"limits.{CARDS}" in used and bool(universe.get("status"))


async def _gated(cluster: Cluster) -> list[str]:
    """Create pods until one waits; return the names of those that wait."""
    await cluster.ask("POST", PODS, pod("waiting", generate=True, cards=2))
    return [
        stored["metadata"]["name"] for stored in await cluster.items(PODS) if GATE in gates(stored)
    ]


def gates(stored: Manifest) -> list[str]:
    return [gate["name"] for gate in stored["spec"].get("schedulingGates", ())]


async def _make_nodes(cluster: Cluster) -> None:
    notes = {
        "gpuledger.io/keeper": "gpuledger",
        "gpuledger.io/memory-scaling": "200",
        "hami.io/node-nvidia-register": "[]",
        "hami.io/node-handshake": "Reported",
    }
    labels = {"gpuledger.io/agent": "on"}
    await cluster.must(
        "POST", NODES, {"metadata": {"name": "ours", "annotations": notes, "labels": labels}}
    )
    theirs = {"hami.io/node-nvidia-register": "[]", "example.com/kept": "x"}
    await cluster.must("POST", NODES, {"metadata": {"name": "theirs", "annotations": theirs}})


async def test_a_dead_installation_is_removed_and_nothing_blocks(
    plane: ControlPlane, cluster: Cluster, dead: Service
) -> None:
    blocked = await cluster.ask("POST", PODS, pod("blocked"))
    assert blocked.status >= 400, "the webhooks fail closed"
    planned = await uninstall(plane, "--dry-run", user=TENANT)
    assert planned.status == 0
    assert await cluster.items(f"{REGISTRATION}/validatingwebhookconfigurations")
    removed = await uninstall(plane, "--yes", user=TENANT)
    assert (removed.status, removed.report["left"]) == (0, []), removed
    for kind in ("mutating", "validating"):
        assert await cluster.items(f"{REGISTRATION}/{kind}webhookconfigurations") == []
    pods = await cluster.items(PODS)
    assert pods
    assert [gates(stored) for stored in pods] == [[]] * len(pods)
    [mine] = await cluster.items(QUOTAS)
    assert mine["metadata"]["name"] == "mine", "the default quota is gone, the user's is not"
    assert f"limits.{CARDS}" not in mine["status"].get("used", {})
    assert not (await cluster.must("GET", f"{UNIVERSE}/all")).get("status")
    ours, theirs = [await cluster.must("GET", f"{NODES}/{name}") for name in ("ours", "theirs")]
    assert marks(ours) == []
    assert marks(theirs) == ["example.com/kept", "hami.io/node-nvidia-register"]
    again = await uninstall(plane, "--yes", user=TENANT)
    assert (again.status, again.report["removed"], again.report["left"]) == (0, [], [])


def marks(stored: Manifest) -> list[str]:
    """Return labels and annotations that neither Kubernetes nor its controllers write."""
    metadata = stored["metadata"]
    keys = [*metadata.get("annotations", {}), *metadata.get("labels", {})]
    return sorted(key for key in keys if "kubernetes.io/" not in key)


async def test_the_account_of_the_job_changes_nothing_of_others(
    plane: ControlPlane, cluster: Cluster, dead: Service
) -> None:
    assert (await uninstall(plane, "--yes", user=TENANT)).status == 0
    [waiting, *_] = await cluster.items(PODS)
    path = f"{PODS}/{waiting['metadata']['name']}"
    [container] = waiting["spec"]["containers"]
    image = {"spec": {"containers": [container | {"image": "evil"}]}}
    await cluster.patch(path, {"metadata": {"labels": {LABEL: "1"}}})
    fence = {"metadata": {"labels": {LABEL: None}}}
    note = {"metadata": {"annotations": {"example.com/kept": None}}}
    async with _connected(plane, TENANT) as account:
        for write in (
            lambda: account.patch(f"{NODES}/theirs?dryRun=All", {"spec": {"unschedulable": True}}),
            lambda: account.patch(f"{NODES}/theirs?dryRun=All", note),
            lambda: account.ask("DELETE", f"{QUOTAS}/mine?dryRun=All"),
            lambda: account.patch(f"{QUOTAS}/mine?dryRun=All", {"spec": {"hard": {"pods": "0"}}}),
            lambda: account.patch(f"{path}?dryRun=All", image),
            lambda: account.patch(f"{path}?dryRun=All", fence),
        ):
            await eventually(
                write,
                lambda answer: (
                    answer.status == 403 and "ValidatingAdmissionPolicy" in answer.message
                ),
                within=WITHIN,
                what="a policy denies the write",
            )


async def test_a_zero_that_kubernetes_enforces_is_reported_or_removed(
    plane: ControlPlane, cluster: Cluster, dead: Service
) -> None:
    reported = await uninstall(plane, "--yes")
    assert reported.status == 0
    assert ("resourcequota", f"{NAMESPACE}/mine") in reported.names("reported")
    refused = await cluster.ask("POST", PODS, pod("refused"))
    assert refused.status == 403
    assert "exceeded quota: mine" in refused.message
    assert (await uninstall(plane, "--yes", "--zero-quotas=delete")).status == 0
    [mine] = await cluster.items(QUOTAS)
    assert mine["spec"]["hard"] == {f"limits.{CARDS}": "1"}

    async def create() -> int:
        return (await cluster.ask("POST", f"{PODS}?dryRun=All", pod("allowed"))).status

    await eventually(create, lambda status: status == 201, within=WITHIN, what="a pod is allowed")


@pytest.mark.long
async def test_things_that_cannot_be_removed_are_left_with_the_reason(
    plane: ControlPlane, cluster: Cluster, dead: Service
) -> None:
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/e2e-alice"
    rights: list[Any] = [
        rule | {"verbs": ["list"]} if rule["resources"] == ["pods", "nodes"] else rule
        for rule in UNINSTALL_RIGHTS
    ]
    await cluster.patch(role, {"rules": rights})
    partly = await uninstall(plane, "--yes", user=TENANT)
    assert partly.status == 1
    left = partly.names("left")
    assert ("node", "ours") in left
    assert any(kind == "pod" for kind, _ in left)
    assert all("403" in thing["problem"] for thing in partly.report["left"])
    await cluster.patch(role, {"rules": UNINSTALL_RIGHTS})
    assert (await uninstall(plane, "--yes", user=TENANT)).status == 0


async def test_without_consent_nothing_is_removed(plane: ControlPlane, cluster: Cluster) -> None:
    refused = await uninstall(plane)
    assert refused.status == 2
    assert "--yes" in refused.complaint


async def test_running_parts_are_stopped_first(plane: ControlPlane, cluster: Cluster) -> None:
    await cluster.must("POST", NODES, {"metadata": {"name": "ours"}})
    service = part("Deployment", "gpuledger", "service")
    service["spec"]["replicas"] = 2
    await cluster.must("POST", f"{APPS}/deployments", service)
    await cluster.must("POST", AGENT_SETS, part("DaemonSet", "gpuledger-agent", "agent"))
    stranger = part("DaemonSet", "stranger", "agent")
    await cluster.must("POST", STRANGERS, stranger)
    foreign = part("Deployment", "other", "service", "another")
    await cluster.must("POST", f"{APPS}/deployments", foreign)
    system = f"/api/v1/namespaces/{SYSTEM}/pods"
    await eventually(
        lambda: cluster.items("/api/v1/pods"),
        lambda pods: len(pods) == 5,
        within=WITHIN,
        what="pods",
    )
    stopped = await uninstall(plane, "--yes")
    assert (stopped.status, stopped.report["left"]) == (0, []), stopped
    assert stopped.names("removed") == {
        ("deployment", f"{SYSTEM}/gpuledger"),
        ("daemonset", f"{AGENTS}/gpuledger-agent"),
    }
    assert stopped.names("reported") == {("daemonset", "default/stranger")}
    names = [stored["metadata"]["name"] for stored in await cluster.items(system)]
    assert [name.partition("-")[0] for name in names] == ["other"]
    for name in ("gpuledger", "other"):
        await cluster.must("DELETE", f"{APPS}/deployments/{name}")
    await cluster.must("DELETE", f"{STRANGERS}/stranger")
    await cluster.must("DELETE", f"{AGENT_SETS}/gpuledger-agent")


def part(kind: str, name: str, component: str, of: str = "gpuledger") -> Manifest:
    """Return a Deployment or DaemonSet of an installation."""
    labels = {"app.kubernetes.io/name": of, "app.kubernetes.io/component": component}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "a", "image": "i"}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


async def test_marks_stay_while_another_installation_uses_them(
    plane: ControlPlane, cluster: Cluster, dead: Service
) -> None:
    webhook = {
        "name": "pods.validate.gpuledger.io",
        "clientConfig": {"url": "https://other.example/admission/validate"},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
    }
    path = f"{REGISTRATION}/validatingwebhookconfigurations"
    await cluster.must(
        "POST", path, {"metadata": {"name": "east-gpuledger"}, "webhooks": [webhook]}
    )
    removed = await uninstall(plane, "--yes")
    assert (removed.status, removed.report["left"]) == (0, [])
    assert {name for kind, name in removed.names("reported")} == {"east-gpuledger"}
    assert [item["metadata"]["name"] for item in await cluster.items(path)] == ["east-gpuledger"]
    assert any(gates(stored) for stored in await cluster.items(PODS))
    await cluster.must("DELETE", f"{path}/east-gpuledger")
