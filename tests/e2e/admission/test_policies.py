"""How a namespace is treated: by the LedgerPolicy that selects it."""

import asyncio
from typing import Final

import pytest

from ledger.kube.api.api_resources import DEFINITIONS, Resource
from ledger.kube.api.cluster_errors import NotFound
from ledger.kube.client.api_client import ApiClient
from ledger.kube.cluster.kubernetes_cluster import KubernetesCluster
from tests.e2e.harness.agreement import cards_used
from tests.e2e.harness.cluster import Cluster, Manifest
from tests.e2e.harness.controlplane import ADMIN, TENANT, ControlPlane
from tests.e2e.harness.kubectl import Kubectl
from tests.e2e.harness.polling import eventually
from tests.e2e.objects.definitions import POLICIES, definition_without_status, policy
from tests.e2e.objects.pods import CARDS, pod
from tests.e2e.objects.policies import under
from tests.e2e.objects.team import QUOTA, SEEN_SECONDS, Team
from tests.e2e.objects.workloads import TeamWorkloads, replicated

pytestmark = pytest.mark.e2e

LINE: Final = f"limits.{CARDS}"
TWO: Final = {LINE: "2"}
GADGETS: Final = Resource("e2e.example.com", "v1", "gadgets", "Gadget", namespaced=False)


async def test_warn_lets_everything_in_and_counts_it(team: Team) -> None:
    async with under(team, TWO, mode="warn"):
        space = TeamWorkloads(team)
        answer = await space.create(replicated("Deployment", 3))
        assert answer.status == 201
        assert any("allows 2, nothing is used" in warning for warning in answer.warnings), (
            answer.warnings
        )
        await space.pods_are(3)
        answer = await space.create(pod("alone"))
        assert answer.status == 201
        assert any("allows 2, 3 are used" in warning for warning in answer.warnings), (
            answer.warnings
        )
        assert await cards_used(team) == 4


async def test_policy_off_reviews_no_pod_and_counts_existing_ones(team: Team) -> None:
    async with under(team, TWO, mode="off"):
        space = TeamWorkloads(team)
        answer = await space.create(replicated("Deployment", 3))
        assert answer.status == 201
        assert answer.warnings == ()
        await space.pods_are(3)
        assert await cards_used(team) == 3


async def test_who_is_exempt_may_exceed_and_is_counted(team: Team, tenant: Cluster) -> None:
    async with under(team, TWO, exempt={"users": [TENANT]}):
        assert (await team.create(pod("refused", cards=3))).status == 403
        answer = await TeamWorkloads(team, tenant).create(pod("rescue", cards=3))
        assert answer.status == 201
        assert any("allows 2, nothing is used" in warning for warning in answer.warnings), (
            answer.warnings
        )
        assert await cards_used(team) == 3


async def test_who_is_in_an_exempt_group_may_exceed(team: Team, tenant: Cluster) -> None:
    async with under(team, TWO, exempt={"groups": ["tenants"]}):
        assert (await team.create(pod("refused", cards=3))).status == 403
        assert (await TeamWorkloads(team, tenant).create(pod("rescue", cards=3))).status == 201
        assert await cards_used(team) == 3


async def test_with_pods_only_a_workload_is_not_asked_about(team: Team) -> None:
    async with under(team, TWO, podsOnly=True):
        space = TeamWorkloads(team)
        await space.created(replicated("ReplicaSet", 3))
        await space.pods_are(2)
        assert await cards_used(team) == 2
        assert (await space.scale("ReplicaSet", "web", 1)).status == 200
        await space.pods_are(1)
        assert await cards_used(team) == 1


async def test_pods_without_room_wait_behind_a_gate_in_order(team: Team, tenant: Cluster) -> None:
    async with under(team, TWO, onExceeded="pending"):
        await team.created(pod("first", cards=2))
        await ungated(team, "first")
        for name in ("second", "third"):
            answer = await TeamWorkloads(team, tenant).create(pod(name, cards=2))
            assert answer.status == 201
            assert any("is created and waits" in warning for warning in answer.warnings), (
                answer.warnings
            )
        assert await cards_used(team) == 2
        assert await gated(team) == ["second", "third"]
        await team.delete("first")
        await ungated(team, "second")
        assert await gated(team) == ["third"]
        assert await cards_used(team) == 2


async def test_pending_pods_show_their_reason_in_kubectl(team: Team, kubectl: Kubectl) -> None:
    async with under(team, TWO, onExceeded="pending"):
        await team.created(pod("first", cards=2))
        await ungated(team, "first")
        for name in ("second", "third"):
            await team.created(pod(name, cards=2))

        async def told() -> dict[str, str]:
            listed = await asyncio.to_thread(kubectl.get, team.namespace, "events")
            return {
                event["involvedObject"]["name"]: f"{event['type']} {event['message']}"
                for event in listed["items"]
                if event["reason"] == "WaitingForQuota"
            }

        events = await eventually(
            told,
            lambda messages: len(messages) == 2,
            within=SEEN_SECONDS,
            what="both pods have an event",
        )
        assert events["second"].startswith("Warning waits for room: "), events
        assert LINE in events["second"] or "GPU" in events["second"], events
        assert events["third"].startswith("Warning waits behind pod second, which "), events
        shown = await asyncio.to_thread(
            kubectl.type, f"kubectl -n {team.namespace} describe pod second"
        )
        assert "WaitingForQuota" in shown, shown


async def test_only_the_service_takes_the_gate_away(team: Team) -> None:
    async with under(team, TWO, onExceeded="pending"):
        await team.created(pod("first", cards=2))
        await ungated(team, "first")
        await team.created(pod("second"))
        refused = await TeamWorkloads(team).change(
            "Pod", "second", {"spec": {"schedulingGates": None}}
        )
        assert refused.status == 403
        assert await gated(team) == ["second"]
        assert await cards_used(team) == 2


async def test_a_workload_without_room_has_pods_that_wait(team: Team) -> None:
    async with under(team, TWO, onExceeded="pending"):
        space = TeamWorkloads(team)
        await space.created(replicated("ReplicaSet", 3))
        await space.pods_are(3)

        async def waiting() -> int:
            return len(await gated(team))

        await eventually(
            waiting, lambda count: count == 1, within=SEEN_SECONDS, what="one pod waits"
        )
        assert await cards_used(team) == 2
        assert (await space.scale("ReplicaSet", "web", 0)).status == 200
        await space.pods_are(0)
        assert await cards_used(team) == 0


async def test_a_default_quota_comes_again_when_it_is_deleted(team: Team) -> None:
    path = f"{team.path}/resourcequotas/{QUOTA}"
    async with under(team, TWO):
        before = await team.cluster.must("GET", path)
        await team.cluster.must("DELETE", path)

        async def uid() -> str:
            answer = await team.cluster.ask("GET", path)
            return str(answer.body["metadata"].get("uid", "")) if answer.status == 200 else ""

        await eventually(
            uid,
            lambda seen: seen not in ("", before["metadata"]["uid"]),
            within=SEEN_SECONDS,
            what="the default quota is made again",
        )
        await team.limits_are(TWO)
        assert (await team.create(pod("refused", cards=3))).status == 403


async def test_the_policy_of_the_highest_priority_holds_alone(team: Team) -> None:
    low = policy(namespaces=[team.namespace], priority=-1, mode="warn", podsOnly=True)
    made = await team.cluster.must("POST", POLICIES, low)
    try:
        async with under(team, TWO, priority=1):
            assert (await TeamWorkloads(team).create(replicated("Deployment", 3))).status == 403
    finally:
        await team.cluster.must("DELETE", f"{POLICIES}/{made['metadata']['name']}")


async def test_kubectl_shows_which_policies_apply(team: Team, kubectl: Kubectl) -> None:
    async with under(team, TWO, priority=1):
        low = policy(namespaces=[team.namespace], mode="warn")
        made = await team.cluster.must("POST", POLICIES, low)
        name = made["metadata"]["name"]
        try:
            waiting = f"kubectl wait --for=condition=Ready=false lp/{name} --timeout=30s"
            await asyncio.to_thread(kubectl.type, waiting)
            shown = await asyncio.to_thread(kubectl.type, "kubectl get lp")
            [titles, *rows] = [line.split() for line in shown.splitlines()]
            assert titles[:7] == [
                "NAME",
                "READY",
                "REASON",
                "NAMESPACES",
                "MODE",
                "EXCEEDED",
                "PRIORITY",
            ]
            assert [name, "False", "Shadowed", "0", "warn", "deny", "0"] in [
                row[:7] for row in rows
            ]
            high = ["True", "Applied", "1", "enforce", "deny", "1"]
            [winner] = [row[0] for row in rows if row[1:7] == high]
            stored = await team.cluster.must("GET", f"{POLICIES}/{name}")
            [condition] = stored["status"]["conditions"]
            assert condition["observedGeneration"] == 1
            assert f"{winner} (spec.priority 1) in {team.namespace}" in condition["message"]
        finally:
            await team.cluster.must("DELETE", f"{POLICIES}/{name}")


async def test_object_is_still_read_when_its_definition_has_no_status(
    team: Team, control_plane: ControlPlane
) -> None:
    await team.cluster.must("POST", DEFINITIONS.collection(), definition_without_status(GADGETS))
    gadget = {"apiVersion": GADGETS.api_version, "kind": GADGETS.kind, "metadata": {"name": "g"}}
    try:
        async with await ApiClient.connect(control_plane.kubeconfig(ADMIN)) as client:
            port = KubernetesCluster(client)
            await eventually(
                port.served,
                lambda served: GADGETS in served,
                within=SEEN_SECONDS,
                what="gadgets are served",
            )
            await team.cluster.must("POST", GADGETS.collection(), gadget)
            with pytest.raises(NotFound):
                await port.replace_status(GADGETS, "g", {"namespaces": 1})
            assert await port.get_object(GADGETS, "", "g") is not None
    finally:
        await team.cluster.must("DELETE", DEFINITIONS.object("", GADGETS.name))


async def gated(team: Team) -> list[str]:
    """Name the pods that wait."""
    return [manifest["metadata"]["name"] for manifest in await team.pods() if _gates(manifest)]


async def ungated(team: Team, name: str) -> None:
    """Wait until a pod may be scheduled."""

    async def look() -> list[str]:
        return _gates(await team.cluster.must("GET", f"{team.path}/pods/{name}"))

    await eventually(
        look, lambda gates: not gates, within=SEEN_SECONDS, what=f"{name} waits no more"
    )


def _gates(manifest: Manifest) -> list[str]:
    return [gate["name"] for gate in manifest["spec"].get("schedulingGates", ())]
