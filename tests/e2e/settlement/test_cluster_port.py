"""The cluster port on a real API server: any kind, definitions that come and go, and writes.

The API server is this file's own: a service of other tests would write the same usage and gates.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from ledger.kube.api.api_resources import DEFINITIONS, NAMESPACES, PODS, UNIVERSE_QUOTAS, Resource
from ledger.kube.api.cluster_errors import NotFound, NotServed, VersionConflict
from ledger.kube.api.cluster_ports import Change, Changed, Interrupted, Listed, Reached
from ledger.kube.api.objects import Workload
from ledger.kube.client.api_client import ApiClient
from ledger.kube.cluster.kubernetes_cluster import KubernetesCluster
from ledger.kube.watch.owner_cache import OwnerCache
from tests.e2e.harness import own_control_plane
from tests.e2e.harness.cluster import Cluster, Manifest
from tests.e2e.harness.controlplane import ADMIN, ControlPlane
from tests.e2e.harness.kubectl import Kubectl
from tests.e2e.harness.polling import eventually
from tests.e2e.objects.pods import MEMORY
from webhook.quotas.status_conditions import Condition, ready
from webhook.quotas.universe_quota_status import summary

pytestmark = pytest.mark.e2e

SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.2
"""How long these tests let the port wait where it would wait up to half a minute."""

WIDGETS: Final = Resource("e2e.example.com", "v1", "widgets", "Widget")
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
REPLICA_SETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet")
UNIVERSE_FILE: Final = Path(__file__).parents[3] / "deploy/crds/universeresourcequotas.yaml"


@pytest.fixture(scope="module")
def control_plane(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with own_control_plane.control_plane(assets, tmp_path_factory.mktemp("port")) as running:
        yield running


@pytest.fixture
async def port(control_plane: ControlPlane) -> AsyncIterator[KubernetesCluster]:
    """Return the port, made impatient."""

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(min(seconds, LOOK_SECONDS))

    async with await ApiClient.connect(control_plane.kubeconfig(ADMIN)) as client:
        yield KubernetesCluster(client, sleep)


@pytest.fixture
async def namespace(cluster: Cluster) -> str:
    name = f"port-{uuid.uuid4().hex[:8]}"
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await cluster.must("POST", NAMESPACES.collection(), manifest)
    return name


async def test_what_is_served_is_found_once_and_in_its_preferred_version(
    port: KubernetesCluster,
) -> None:
    served = await port.served()
    assert {PODS, NAMESPACES, DEPLOYMENTS, DEFINITIONS} <= set(served)
    assert Resource("batch", "v1", "cronjobs", "CronJob") in served
    assert len({resource.name for resource in served}) == len(served)


async def test_a_definition_comes_and_goes_while_it_is_watched(
    port: KubernetesCluster, cluster: Cluster, namespace: str
) -> None:
    async with aclosing(port.watch_objects(WIDGETS)) as changes:
        for round_ in range(2):
            absent = await told(
                changes, lambda change: isinstance(change, Interrupted) and change.absent
            )
            assert "no CustomResourceDefinition widgets.e2e.example.com" in absent.reason
            assert (await told(changes, Listed)).objects == []
            with pytest.raises(NotServed):
                await port.get_object(WIDGETS, namespace, "w")
            await cluster.must("POST", DEFINITIONS.collection(), definition())
            assert (await told(changes, Listed)).objects == []
            assert WIDGETS in await port.served()
            await cluster.must("POST", WIDGETS.collection(namespace), widget(round_))
            made = await told(changes, Changed)
            assert (made.object.metadata.name, made.object.spec) == ("w", {"size": round_})
            await cluster.must("DELETE", DEFINITIONS.object("", WIDGETS.name))
            gone = await told(
                changes, lambda change: isinstance(change, Changed) and change.deleted
            )
            assert gone.object.metadata.uid == made.object.metadata.uid


async def test_a_retired_version_is_not_taken_for_no_objects(
    port: KubernetesCluster, cluster: Cluster
) -> None:
    old = Resource("batch", "v1beta1", "cronjobs", "CronJob")
    async with aclosing(port.watch_objects(old)) as changes:
        absent = await told(changes, Interrupted)
        assert "cronjobs.batch v1beta1 is not served" in absent.reason
        assert "which serves it as v1" in absent.reason


async def test_our_own_definitions_may_be_missing_at_first(
    port: KubernetesCluster, cluster: Cluster
) -> None:
    await universe_is_not_defined(port, cluster)
    async with aclosing(port.watch_objects(UNIVERSE_QUOTAS)) as changes:
        await told(changes, lambda change: isinstance(change, Interrupted) and change.absent)
        assert (await told(changes, Listed)).objects == []
        await universe_is_defined(port, cluster)
        name = f"u-{uuid.uuid4().hex[:8]}"
        await cluster.must("POST", UNIVERSE_QUOTAS.collection(), universe_quota(name))
        seen = await told(changes, lambda change: name in names(change))
    assert not isinstance(seen, Interrupted)
    await cluster.must("DELETE", UNIVERSE_QUOTAS.object("", name))


async def test_an_object_is_read_as_it_is_now(
    port: KubernetesCluster, cluster: Cluster, namespace: str
) -> None:
    assert await port.get_object(DEPLOYMENTS, namespace, "web") is None
    made = await cluster.must("POST", DEPLOYMENTS.collection(namespace), deployment())
    seen = await port.get_object(DEPLOYMENTS, namespace, "web")
    assert seen is not None
    assert seen.metadata.uid == made["metadata"]["uid"]
    assert (seen.spec or {})["replicas"] == 0
    listed = await port.list_objects(DEPLOYMENTS, namespace)
    assert [workload.metadata.name for workload in listed.objects] == ["web"]
    assert listed.version >= seen.metadata.version()


async def test_parents_are_remembered_up_to_the_root(
    port: KubernetesCluster, cluster: Cluster, namespace: str
) -> None:
    parents: OwnerCache[None] = OwnerCache(lambda _, seen: None)
    following = [
        asyncio.create_task(parents.follow(port, resource))
        for resource in (DEPLOYMENTS, REPLICA_SETS)
    ]
    await cluster.must("POST", DEPLOYMENTS.collection(namespace), deployment())

    async def look() -> str:
        sets = await port.list_objects(REPLICA_SETS, namespace)
        known = [parents.get(replica_set.metadata.uid) for replica_set in sets.objects]
        owners = [owner.controller.uid for owner in known if owner is not None and owner.controller]
        root = parents.get(owners[0]) if owners else None
        return root.name if root is not None else ""

    try:
        await eventually(
            look, lambda name: name == "web", within=SECONDS, what="the root is remembered"
        )
        assert parents.by_name(DEPLOYMENTS, namespace, "web") is not None
        assert parents.is_current(DEPLOYMENTS)
    finally:
        for task in following:
            task.cancel()
        await asyncio.wait(following)


async def test_a_new_namespace_is_watched_with_its_labels(
    port: KubernetesCluster, cluster: Cluster
) -> None:
    name = f"port-{uuid.uuid4().hex[:8]}"
    async with aclosing(port.watch_namespaces()) as changes:
        await told(changes, Listed)
        manifest = {"metadata": {"name": name, "labels": {"tier": "gold"}}}
        await cluster.must("POST", NAMESPACES.collection(), manifest)
        seen = await told(changes, lambda change: name in names(change))
    assert (seen.object.metadata.labels or {})["tier"] == "gold"


async def test_kubernetes_keeps_the_usage_that_is_written_for_it(
    port: KubernetesCluster, cluster: Cluster, namespace: str, shell: Kubectl
) -> None:
    key = f"limits.{MEMORY}"
    assert await port.create_quota(namespace, "gpu", {key: "100", "pods": "5"})
    quota = await quota_when(cluster, namespace, lambda used: used == {"pods": "0"})
    await port.patch_quota_status(namespace, "gpu", {key: "40"}, version_of(quota))
    with pytest.raises(VersionConflict):
        await port.patch_quota_status(namespace, "gpu", {key: "41"}, version_of(quota))

    # The controller manager counts again after a pod came and went, and after the spec changed.
    await cluster.must("POST", PODS.collection(namespace), plain_pod("p"))
    await quota_when(cluster, namespace, lambda used: used == {"pods": "1", key: "40"})
    await cluster.must("DELETE", PODS.object(namespace, "p") + "?gracePeriodSeconds=0")
    await quota_when(cluster, namespace, lambda used: used == {"pods": "0", key: "40"})
    change = {"spec": {"hard": {"services": "3"}}}
    answer = await cluster.patch(f"{quotas(namespace)}/gpu", change)
    assert answer.status == 200, answer
    await quota_when(
        cluster, namespace, lambda used: used == {"pods": "0", "services": "0", key: "40"}
    )
    described = shell.type(f"kubectl -n {namespace} describe quota gpu").splitlines()
    assert [key, "40", "100"] in [line.split() for line in described]


async def test_a_quota_that_is_there_is_left_alone(
    port: KubernetesCluster, cluster: Cluster, namespace: str
) -> None:
    assert await port.create_quota(namespace, "default", {"pods": "5"})
    assert not await port.create_quota(namespace, "default", {"pods": "9"})
    stored = await cluster.must("GET", f"{quotas(namespace)}/default")
    assert stored["spec"]["hard"] == {"pods": "5"}
    with pytest.raises(NotFound):
        await port.create_quota(f"no-{namespace}", "default", {"pods": "5"})


async def test_one_gate_is_removed_and_the_others_stay(
    port: KubernetesCluster, cluster: Cluster, namespace: str
) -> None:
    gates = [{"name": name} for name in ("a.example/one", "gpuledger.io/quota", "b.example/two")]
    manifest = plain_pod("gated")
    manifest["spec"]["schedulingGates"] = gates
    made = await cluster.must("POST", PODS.collection(namespace), manifest)
    with pytest.raises(VersionConflict):
        await port.remove_gate(namespace, "gated", "gpuledger.io/quota", version_of(made) - 1)
    await port.remove_gate(namespace, "gated", "gpuledger.io/quota", version_of(made))
    left = await cluster.must("GET", PODS.object(namespace, "gated"))
    assert left["spec"]["schedulingGates"] == [gates[0], gates[2]]
    await port.remove_gate(namespace, "gated", "gpuledger.io/quota", version_of(left))
    same = await cluster.must("GET", PODS.object(namespace, "gated"))
    assert same["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]
    with pytest.raises(NotFound):
        await port.remove_gate(namespace, "nobody", "gpuledger.io/quota", 1)


async def test_a_universe_status_is_replaced_as_a_whole(
    port: KubernetesCluster, cluster: Cluster
) -> None:
    await universe_is_defined(port, cluster)
    name, key = f"u-{uuid.uuid4().hex[:8]}", f"limits.{MEMORY}"
    await cluster.must("POST", UNIVERSE_QUOTAS.collection(), universe_quota(name))
    row = {"name": "east", "used": {key: "5"}, "namespaces": [{"name": "a", "used": {key: "5"}}]}
    for used in ({key: "5", "limits.nvidia.com/gpu": "1"}, {key: "7"}):
        status = {"hard": {key: "10"}, "used": used, "clusters": [row]}
        await port.replace_status(UNIVERSE_QUOTAS, name, status)
        stored = await cluster.must("GET", UNIVERSE_QUOTAS.object("", name))
        assert stored["status"] == status
        assert stored["metadata"]["generation"] == 1
    await cluster.must("DELETE", UNIVERSE_QUOTAS.object("", name))
    with pytest.raises(NotFound):
        await port.replace_status(UNIVERSE_QUOTAS, name, {})


async def test_a_universe_quota_is_a_row(port: KubernetesCluster, cluster: Cluster) -> None:
    await universe_is_defined(port, cluster)
    name = f"u-{uuid.uuid4().hex[:8]}"
    await cluster.must("POST", UNIVERSE_QUOTAS.collection(), universe_quota(name))
    shown = ready([Condition("InEffect", "True", "Enforced", "")]).shown({}, 1, 0)
    text = summary({MEMORY: "5"}, {MEMORY: "10"})
    await port.replace_status(UNIVERSE_QUOTAS, name, {"summary": text, "conditions": [shown]})
    table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    answer = await cluster.ask("GET", UNIVERSE_QUOTAS.object("", name), headers=table)
    columns = [column["name"] for column in answer.body["columnDefinitions"][:4]]
    assert columns == ["Name", "Ready", "Reason", "Used/Limit"]
    assert answer.body["rows"][0]["cells"][:4] == [name, "True", "Enforced", "gpumem: 5/10"]


@pytest.fixture
def shell(assets: Path, control_plane: ControlPlane, tmp_path: Path) -> Kubectl:
    return Kubectl(assets, control_plane.kubeconfig(ADMIN), tmp_path)


async def told(
    changes: AsyncGenerator[Change[Workload], None],
    wanted: type | Callable[[Change[Workload]], bool],
) -> Any:
    """Return the next change that is wanted; bookmarks and others may come before it."""
    async with asyncio.timeout(SECONDS):
        while True:
            change = await anext(changes)
            if isinstance(wanted, type):
                assert isinstance(change, wanted | Reached | Interrupted), change
                if isinstance(change, wanted):
                    return change
            elif wanted(change):
                return change


def names(change: Change[Workload]) -> list[str]:
    if isinstance(change, Listed):
        return [workload.metadata.name for workload in change.objects]
    return [change.object.metadata.name] if isinstance(change, Changed) else []


async def quota_when(
    cluster: Cluster, namespace: str, wanted: Callable[[dict[str, str]], bool]
) -> Manifest:
    """Return the quota once its status shows this usage."""

    async def look() -> Manifest:
        return await cluster.must("GET", f"{quotas(namespace)}/gpu")

    return await eventually(
        look,
        lambda quota: wanted(quota.get("status", {}).get("used", {})),
        within=SECONDS,
        what=f"usage in the status of the quota of {namespace}",
    )


async def universe_is_defined(port: KubernetesCluster, cluster: Cluster) -> None:
    manifest = yaml.safe_load(UNIVERSE_FILE.read_text())
    answer = await cluster.ask("POST", DEFINITIONS.collection(), manifest)
    assert answer.status in (201, 409), answer

    async def look() -> bool:
        return UNIVERSE_QUOTAS in await port.served()

    await eventually(look, bool, within=SECONDS, what="universe quotas are served")


async def universe_is_not_defined(port: KubernetesCluster, cluster: Cluster) -> None:
    """Take the definition away that an earlier test on this control plane may have installed."""
    answer = await cluster.ask("DELETE", DEFINITIONS.object("", UNIVERSE_QUOTAS.name))
    assert answer.status in (200, 404), answer

    async def look() -> bool:
        return UNIVERSE_QUOTAS not in await port.served()

    await eventually(look, bool, within=SECONDS, what="universe quotas are not served")


def definition() -> Manifest:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": DEFINITIONS.api_version,
        "kind": DEFINITIONS.kind,
        "metadata": {"name": WIDGETS.name},
        "spec": {
            "group": WIDGETS.group,
            "scope": "Namespaced",
            "names": {"kind": WIDGETS.kind, "plural": WIDGETS.plural, "singular": "widget"},
            "versions": [
                {
                    "name": WIDGETS.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": anything},
                }
            ],
        },
    }


def widget(size: int) -> Manifest:
    return {
        "apiVersion": WIDGETS.api_version,
        "kind": WIDGETS.kind,
        "metadata": {"name": "w"},
        "spec": {"size": size},
    }


def universe_quota(name: str) -> Manifest:
    return {
        "apiVersion": UNIVERSE_QUOTAS.api_version,
        "kind": UNIVERSE_QUOTAS.kind,
        "metadata": {"name": name},
        "spec": {"hard": {f"limits.{MEMORY}": "10"}},
    }


def deployment() -> Manifest:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": plain_pod("x")["spec"]}
    return {
        "apiVersion": DEPLOYMENTS.api_version,
        "kind": DEPLOYMENTS.kind,
        "metadata": {"name": "web"},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    }


def plain_pod(name: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    }


def quotas(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/resourcequotas"


def version_of(stored: Manifest) -> int:
    return int(stored["metadata"]["resourceVersion"])
