"""An agent's token is good for its own node: the policies that deploy/ ships, on a real API server.

Two nodes with an agent and a tenant's pod each, and tokens as a kubelet gets them for its pods.
"""

import shutil
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from ledger.kube.client.pod_events import agent_of
from tests.e2e.conftest import _connected
from tests.e2e.harness.cluster import Answer, Cluster, Manifest
from tests.e2e.harness.controlplane import ADMIN, ControlPlane
from tests.e2e.harness.kubectl import Kubectl
from tests.e2e.harness.polling import eventually

pytestmark = pytest.mark.e2e

ROOT: Final = Path(__file__).parents[3]
AGENTS: Final = "/api/v1/namespaces/gpuledger-nodes"
TENANTS: Final = "/api/v1/namespaces/default"
NODES: Final = ("a", "b")
EFFECTIVE_SECONDS: Final = 60.0
ANNOTATED: Final = {"metadata": {"annotations": {"gpuledger.io/keeper": "gpuledger"}}}
OWNER: Final = {"apiVersion": "v1", "kind": "Namespace", "name": "gone", "uid": "0"}
Agents = dict[str, Cluster]


@pytest.fixture(scope="module")
def plane(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Run a control plane with what an administrator applies."""
    folder = tmp_path_factory.mktemp("own-node")
    running = ControlPlane(assets, folder)
    running.start()
    shutil.copytree(ROOT / "deploy", folder / "deploy")
    typist = Kubectl(assets, running.kubeconfig(ADMIN), folder)
    typist.type("kubectl apply -f deploy/namespace.yaml -f deploy/agent/namespace.yaml")
    typist.type("kubectl apply -k deploy/agent-evict")
    yield running
    running.stop()


@pytest.fixture
async def admin(plane: ControlPlane) -> AsyncIterator[Cluster]:
    async with _connected(plane) as cluster:
        yield cluster


@pytest.fixture
async def agents(admin: Cluster) -> Agents:
    """Return the agents by their nodes, with everything in effect."""
    by_node = {}
    for node in NODES:
        await admin.ask("POST", "/api/v1/nodes", {"metadata": {"name": node}})
        agent = pod(f"agent-{node}", node)
        agent["spec"]["serviceAccountName"] = "gpuledger-agent"
        await made(admin, f"{AGENTS}/pods", agent)
        await made(admin, f"{TENANTS}/pods", pod(f"tenant-{node}", node))
        by_node[node] = admin.with_token(await token(admin, f"agent-{node}"))
    await eventually(
        lambda: evict(by_node["a"], "tenant-b", dry_run=True),
        lambda answer: answer.status == 403,
        within=EFFECTIVE_SECONDS,
        what="the policy on evictions is in effect",
    )
    await eventually(
        lambda: by_node["a"].patch("/api/v1/nodes/b?dryRun=All", ANNOTATED),
        lambda answer: answer.status == 403,
        within=EFFECTIVE_SECONDS,
        what="the policy on nodes is in effect",
    )
    return by_node


def pod(name: str, node: str) -> Manifest:
    container = {"name": "main", "image": "none"}
    return {"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [container]}}


async def made(admin: Cluster, path: str, manifest: Manifest) -> None:
    """Make an object, unless it is there; until the controllers have made its preconditions."""
    await eventually(
        lambda: admin.ask("POST", path, manifest),
        lambda answer: answer.status in (201, 409),
        within=EFFECTIVE_SECONDS,
        what=f"{path} has {manifest['metadata']['name']}",
    )


async def token(admin: Cluster, agent: str | None) -> str:
    """Return a token of the agents' account, bound to a pod or to nothing."""
    bound = {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": agent}} if agent else {}
    request = {"spec": {"audiences": ["https://kubernetes.default.svc"], **bound}}
    path = f"{AGENTS}/serviceaccounts/gpuledger-agent/token"
    answer = await admin.must("POST", path, request)
    return str(answer["status"]["token"])


async def evict(agent: Cluster, name: str, *, dry_run: bool = False) -> Answer:
    eviction: Manifest = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": "default"},
    }
    query = "?dryRun=All" if dry_run else ""
    return await agent.ask("POST", f"{TENANTS}/pods/{name}/eviction{query}", eviction)


async def test_an_agent_writes_its_own_node_and_no_other(
    agents: Agents,
) -> None:
    for node, agent in agents.items():
        answer = await agent.patch(f"/api/v1/nodes/{node}", ANNOTATED)
        assert answer.status == 200, answer.message
        [other] = set(NODES) - {node}
        answer = await agent.patch(f"/api/v1/nodes/{other}", ANNOTATED)
        assert answer.status == 403
        assert f"its token is of node {node}" in answer.message


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"labels": {"pool": "trusted"}}},
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}},
        # The one would keep the Node from being deleted, the other have it deleted.
        {"metadata": {"finalizers": ["example.com/held"]}},
        {"metadata": {"ownerReferences": [OWNER]}},
    ],
)
async def test_an_agent_writes_annotations_and_nothing_else(
    agents: Agents, change: Manifest
) -> None:
    answer = await agents["a"].patch("/api/v1/nodes/a", change)
    assert answer.status == 403
    assert "annotations of its Node, and nothing else" in answer.message


async def test_an_agent_evicts_pods_of_its_own_node_and_not_of_another(
    agents: Agents, admin: Cluster
) -> None:
    answer = await evict(agents["a"], "tenant-b")
    assert answer.status == 403
    assert "its token is of node a" in answer.message
    assert (await admin.ask("GET", f"{TENANTS}/pods/tenant-b")).status == 200
    answer = await evict(agents["b"], "tenant-b")
    assert answer.status == 201, answer.message


async def test_a_token_that_is_of_no_node_is_good_for_nothing(
    agents: Agents, admin: Cluster
) -> None:
    free = agents["a"].with_token(await token(admin, None))
    await made(admin, f"{TENANTS}/pods", pod("waits", ""))
    for answer in (
        await free.patch("/api/v1/nodes/a", ANNOTATED),
        await evict(free, "tenant-a"),
        await evict(free, "waits"),
    ):
        assert answer.status == 403
        assert "its token is of no node" in answer.message


def event(pod: Manifest, node: str, **changes: Any) -> Manifest:
    """Return an event of the agent of a node about a pod, as the agent's own client writes it."""
    meta, reporter = pod["metadata"], agent_of(node)
    regarding = {"kind": "Pod", "apiVersion": "v1"}
    regarding |= {key: meta[key] for key in ("name", "namespace", "uid")}
    body = {
        "metadata": {"generateName": "e-", "labels": reporter.labels},
        "regarding": regarding,
        "reportingController": reporter.controller,
        "reportingInstance": reporter.instance,
        "type": "Warning",
        "reason": "Told",
        "action": "Tell",
        "eventTime": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
    }
    return body | changes


async def report(agent: Cluster, body: Manifest, namespace: str = "default") -> Answer:
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events?dryRun=All"
    return await agent.ask("POST", path, body)


@pytest.fixture
async def reporting(agents: Agents, admin: Cluster) -> dict[str, Manifest]:
    """Return a pod of each node, with the policies on events in effect."""
    pods = {}
    for node in NODES:
        await made(admin, f"{TENANTS}/pods", pod(f"told-{node}", node))
        pods[node] = await admin.must("GET", f"{TENANTS}/pods/told-{node}")
    for body in (event(pods["a"], "b"), event(pods["b"], "a")):
        await eventually(
            partial(report, agents["a"], body),
            lambda answer: answer.status == 403,
            within=EFFECTIVE_SECONDS,
            what="the policies on events are in effect",
        )
    return pods


async def test_an_agent_reports_events_of_pods_of_its_own_node_as_itself(
    agents: Agents, reporting: dict[str, Manifest]
) -> None:
    for node, agent in agents.items():
        answer = await report(agent, event(reporting[node], node))
        assert answer.status == 201, answer.message


async def test_an_agent_forges_no_event(
    agents: Agents, admin: Cluster, reporting: dict[str, Manifest]
) -> None:
    own, other = reporting["a"], reporting["b"]
    right = event(own, "a")
    held = right["metadata"] | {"finalizers": ["example.com/held"]}
    node = {"kind": "Node", "apiVersion": "v1", "name": "a", "uid": "a", "namespace": "default"}
    forged = {
        "about a pod of another node": event(other, "a"),
        "about a pod of the same name with another uid": event(
            other | {"metadata": other["metadata"] | {"uid": "0"}}, "a"
        ),
        "as the agent of another node": event(own, "b"),
        "as the kubelet": event(own, "a", reportingController="kubelet"),
        "as the service": event(own, "a", reportingController="gpuledger.io/gpuledger"),
        "without its label": event(own, "a", metadata={"generateName": "e-"}),
        "with a finalizer": right | {"metadata": held},
        "about a Node": right | {"regarding": node},
        "with another object": right | {"related": right["regarding"]},
        "about a pod without its uid": right
        | {"regarding": {key: right["regarding"][key] for key in ("kind", "name", "namespace")}},
    }
    accepted = {
        what for what, body in forged.items() if (await report(agents["a"], body)).status != 403
    }
    assert accepted == set()
    free = agents["a"].with_token(await token(admin, None))
    assert (await report(free, right)).status == 403


async def test_others_evict_and_write_as_before(agents: Agents, admin: Cluster) -> None:
    assert agents
    assert (await evict(admin, "tenant-a", dry_run=True)).status == 201
    assert (await admin.patch("/api/v1/nodes/b", {"spec": {"unschedulable": True}})).status == 200
    assert (await admin.patch("/api/v1/nodes/b", {"spec": {"unschedulable": None}})).status == 200
