"""Binding, evicting, annotating nodes and recording events, on a real API server."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from ledger.kube.api.api_resources import NAMESPACES, NODES, PODS
from ledger.kube.api.cluster_errors import BudgetExhausted, NotFound, VersionConflict
from ledger.kube.api.cluster_ports import Change, Changed, Listed, PodBinding, PodEvent
from ledger.kube.api.objects import ApiNode, Pod
from ledger.kube.client.api_client import ApiClient
from ledger.kube.cluster.kubernetes_cluster import KubernetesCluster
from ledger.kube.hami.fence_label import LABEL
from tests.e2e.harness.cluster import Cluster, Manifest
from tests.e2e.harness.controlplane import ADMIN, ControlPlane
from tests.e2e.harness.kubectl import Kubectl

pytestmark = pytest.mark.e2e

SECONDS: Final = 30.0
T = TypeVar("T", ApiNode, Pod)

CARDS: Final = "hami.io/node-nvidia-register"


@pytest.fixture
async def port(control_plane: ControlPlane) -> AsyncIterator[KubernetesCluster]:
    async with await ApiClient.connect(control_plane.kubeconfig(ADMIN)) as client:
        yield KubernetesCluster(client)


@pytest.fixture
async def namespace(cluster: Cluster) -> str:
    name = f"binding-{uuid.uuid4().hex[:8]}"
    await cluster.must("POST", NAMESPACES.collection(), {"metadata": {"name": name}})
    return name


@pytest.fixture
async def node(cluster: Cluster) -> AsyncIterator[str]:
    name = f"n-{uuid.uuid4().hex[:8]}"
    await cluster.must("POST", NODES.collection(), {"metadata": {"name": name}})
    yield name
    await cluster.must("DELETE", NODES.object("", name))


@pytest.fixture
def shell(assets: Path, control_plane: ControlPlane, tmp_path: Path) -> Kubectl:
    return Kubectl(assets, control_plane.kubeconfig(ADMIN), tmp_path)


async def test_a_binding_writes_node_annotations_and_labels_at_once(
    port: KubernetesCluster, cluster: Cluster, namespace: str, node: str
) -> None:
    async with aclosing(port.watch_pods()) as changes:
        assert isinstance(await anext(changes), Listed)
        made = await created(cluster, namespace, annotations={"mine": "stays"})
        assert (await told(changes, "p")).object.spec.node_name == ""
        await port.bind(binding(made, node))
        bound = (await told(changes, "p")).object  # the very next write
    assert bound.spec.node_name == node
    assert bound.metadata.annotations == {"mine": "stays", "example.com/cards-on": node}
    assert (bound.metadata.labels or {})["example.com/cards-on"] == node
    assert await port.get_pod(namespace, "p") == bound


async def test_a_second_binding_is_a_conflict_and_changes_nothing(
    port: KubernetesCluster, cluster: Cluster, namespace: str, node: str
) -> None:
    made = await created(cluster, namespace)
    await port.bind(binding(made, node))
    before = await port.get_pod(namespace, "p")
    for again in (node, "elsewhere"):
        with pytest.raises(VersionConflict, match="already assigned"):
            await port.bind(binding(made, again, version=""))
    assert await port.get_pod(namespace, "p") == before


@pytest.mark.parametrize("wrong", [{"uid": "u-of-another"}, {"version": "1"}])
async def test_a_binding_of_another_pod_or_version_is_a_conflict(
    port: KubernetesCluster, cluster: Cluster, namespace: str, node: str, wrong: dict[str, str]
) -> None:
    made = await created(cluster, namespace)
    with pytest.raises(VersionConflict):
        await port.bind(binding(made, node, **wrong))
    left = await port.get_pod(namespace, "p")
    assert left is not None
    assert left.spec.node_name == ""
    assert left.metadata.annotations is None
    assert left.metadata.resource_version == made["metadata"]["resourceVersion"]


async def test_a_label_has_the_api_server_refuse_bindings_of_the_version_before(
    port: KubernetesCluster, cluster: Cluster, namespace: str, node: str
) -> None:
    made = await created(cluster, namespace, labels={"mine": "stays"})
    version = made["metadata"]["resourceVersion"]
    await port.label_pod(namespace, "p", {LABEL: "1"}, version)
    with pytest.raises(VersionConflict):
        await port.bind(binding(made, node))
    labelled = await port.get_pod(namespace, "p")
    assert labelled is not None
    assert labelled.metadata.labels == {"mine": "stays", LABEL: "1"}
    assert labelled.metadata.version() > int(version)
    with pytest.raises(VersionConflict):
        await port.label_pod(namespace, "p", {LABEL: "2"}, version)
    now = labelled.metadata.resource_version
    await port.label_pod(namespace, "p", {LABEL: "1"}, now)
    assert await port.get_pod(namespace, "p") == labelled, "what changes nothing proves nothing"
    await port.bind(binding(made, node, version=now))
    with pytest.raises(NotFound):
        await port.label_pod(namespace, "gone", {LABEL: "1"}, now)


async def test_a_pod_that_is_gone_cannot_be_bound(
    port: KubernetesCluster, cluster: Cluster, namespace: str, node: str
) -> None:
    made = await created(cluster, namespace)
    await cluster.must("DELETE", f"{PODS.object(namespace, 'p')}?gracePeriodSeconds=0")
    with pytest.raises(NotFound):
        await port.bind(binding(made, node))
    assert await port.get_pod(namespace, "p") is None


async def test_an_eviction_ends_the_pod_of_its_uid_only(
    port: KubernetesCluster, cluster: Cluster, namespace: str
) -> None:
    made = await created(cluster, namespace)
    with pytest.raises(VersionConflict):
        await port.evict(namespace, "p", "u-of-another")
    assert await port.get_pod(namespace, "p") is not None
    await port.evict(namespace, "p", made["metadata"]["uid"])
    assert await port.get_pod(namespace, "p") is None
    with pytest.raises(NotFound):
        await port.evict(namespace, "p", made["metadata"]["uid"])


async def test_a_budget_protects_a_pod_that_runs(
    port: KubernetesCluster, cluster: Cluster, namespace: str, node: str
) -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "all"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "p"}}},
    }
    made = await created(cluster, namespace, labels={"app": "p"})
    await cluster.must(
        "POST", f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets", budget
    )
    await port.bind(binding(made, node))
    status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    answer = await cluster.patch(f"{PODS.object(namespace, 'p')}/status", status)
    assert answer.status == 200, answer
    with pytest.raises(BudgetExhausted, match="disruption budget"):
        await port.evict(namespace, "p", made["metadata"]["uid"])
    assert await port.get_pod(namespace, "p") is not None


async def test_annotations_of_a_node_are_set_and_removed_and_others_stay(
    port: KubernetesCluster, node: str
) -> None:
    before = await port.get_node(node)
    assert before is not None
    version = before.metadata.resource_version
    kept = before.metadata.annotations or {}
    await port.patch_node_annotations(node, {"lock": "mine", CARDS: "[]"}, version)
    with pytest.raises(VersionConflict):
        await port.patch_node_annotations(node, {"lock": "yours"}, version)
    await port.patch_node_annotations(node, {"lock": None})
    after = await port.get_node(node)
    assert after is not None
    assert after.metadata.annotations == {**kept, CARDS: "[]"}
    with pytest.raises(NotFound):
        await port.patch_node_annotations(f"no-{node}", {"lock": None})
    assert await port.get_node(f"no-{node}") is None


async def test_nodes_are_watched_as_they_come_change_and_go(
    port: KubernetesCluster, cluster: Cluster
) -> None:
    name = f"told-{uuid.uuid4().hex[:8]}"
    async with aclosing(port.watch_nodes()) as changes:
        assert isinstance(await anext(changes), Listed)
        made = await cluster.must("POST", NODES.collection(), {"metadata": {"name": name}})
        assert (await told(changes, name)).object.metadata.uid == made["metadata"]["uid"]
        await port.patch_node_annotations(name, {CARDS: "[]"})
        while (seen := await told(changes, name)).object.metadata.annotations is None or (
            CARDS not in seen.object.metadata.annotations
        ):
            assert not seen.deleted
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        allocatable = {"nvidia.com/gpu": "10"}
        change = {"status": {**ready, "capacity": allocatable, "allocatable": allocatable}}
        answer = await cluster.patch(f"{NODES.object('', name)}/status", change)
        assert answer.status == 200, answer
        while not (seen := await told(changes, name)).object.is_ready():
            assert not seen.deleted
        assert (seen.object.status.allocatable or {})["nvidia.com/gpu"] == "10"
        await cluster.must("DELETE", NODES.object("", name))
        while not (await told(changes, name)).deleted:
            pass
    assert name not in [listed.metadata.name for listed in (await port.list_nodes()).objects]


async def test_events_of_a_pod_show_where_it_is_described(
    port: KubernetesCluster, cluster: Cluster, namespace: str, shell: Kubectl
) -> None:
    made = await created(cluster, namespace)
    for number in range(2):
        await port.create_event(
            PodEvent(
                namespace=namespace,
                name="p",
                uid=made["metadata"]["uid"],
                reason="PreemptionStarted",
                note=f"evicting pods, for the {number + 1}. time",
                action="Preempting",
                warning=True,
            )
        )
    described = shell.type(f"kubectl -n {namespace} describe pod p")
    assert "Warning  PreemptionStarted" in described
    assert "evicting pods, for the 1. time" in described
    assert "evicting pods, for the 2. time" in described


async def created(cluster: Cluster, namespace: str, **metadata: Any) -> Manifest:
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", **metadata},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    }
    return await cluster.must("POST", PODS.collection(namespace), manifest)


def binding(made: Manifest, node: str, *, uid: str = "", version: str | None = None) -> PodBinding:
    """Return the binding of a pod as it was created.

    Its annotation is none of those that the product reserves, because an administrator binds here.
    """
    meta = made["metadata"]
    return PodBinding(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=uid or meta["uid"],
        node=node,
        annotations={"example.com/cards-on": node},
        labels={"example.com/cards-on": node},
        version=meta["resourceVersion"] if version is None else version,
    )


async def told(changes: AsyncGenerator[Change[T], None], name: str) -> Changed[T]:
    """Return the next change of one object."""
    async with asyncio.timeout(SECONDS):
        while True:
            change = await anext(changes)
            if isinstance(change, Changed) and change.object.metadata.name == name:
                return change
