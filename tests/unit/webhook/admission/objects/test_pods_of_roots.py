"""Pods draw from the root whose controller made them, and from no other root."""

from copy import deepcopy
from typing import Any

import pytest
from support.builders.admission_reviews import (
    GPU,
    MEMORY,
    NAMESPACE,
    CoreLedger,
    pod,
    review,
    serving,
)
from support.fakes.owner_cluster import (
    CARD,
    CATALOG,
    DEPLOYMENTS,
    JOBS,
    LEADERS,
    REPLICATOR,
    SETS,
    STATEFUL,
    Manifest,
    OwnerCluster,
    around,
    controlled_by,
    manifest,
    of,
    template,
)

from ledger.core.model.commands import BARRED, Describe, Observe, Reserve, SetLimits
from ledger.core.model.traits import Reach, Requirement
from ledger.kube.api.api_resources import Resource
from ledger.kube.api.cluster_errors import ClusterUnavailable
from ledger.kube.api.pod_gates import GATE
from webhook.context.namespace_policies import NamespacePolicy

WEB = manifest(DEPLOYMENTS, "web", replicas=3)
SET = manifest(SETS, "web-1", owner=WEB, replicas=3)
ROOT = "deployments.apps/web"
ADA = "ada"
[LWS] = [kind for kind in CATALOG if kind.kind == "LeaderWorkerSet"]


class Namespace:
    """One namespace in which pods of a Deployment are created."""

    def __init__(self, *objects: Manifest, **policy: Any) -> None:
        self.ledger = CoreLedger()
        self.cluster = OwnerCluster(*(objects or (WEB, SET)))
        default = NamespacePolicy(**policy)
        self.context = around(self.ledger, self.cluster, default=default)

    async def deploy(self) -> None:
        """Reserve for the Deployment, and forget that it was submitted."""
        await self.post(review(WEB, **of(DEPLOYMENTS)))
        self.ledger.submitted.clear()

    async def post(self, request: dict[str, Any], webhook: str = "validate") -> dict[str, Any]:
        async with serving(self.ledger, context=self.context) as service:
            return await service.post(request, webhook)

    async def create(self, name: str = "p", username: str = REPLICATOR, **more: Any) -> Any:
        """Return the response to the creation of a pod."""
        return await self.post(review(pod_of(name, **more), username=username))

    async def update(self, new: Manifest, old: Manifest, username: str = ADA) -> Any:
        """Return the response to an update of a pod on version 5."""
        old["metadata"]["resourceVersion"] = "5"
        return await self.post(review(new, old, operation="UPDATE", username=username))

    def reserved(self) -> list[Reserve]:
        return [command for command in self.ledger.commands() if isinstance(command, Reserve)]


def pod_of(
    name: str = "p",
    owner: Manifest | None = SET,
    gate: str = "",
    limits: dict[str, str] | None = None,
) -> Manifest:
    references = {} if owner is None else {"ownerReferences": [controlled_by(owner)]}
    new_pod = pod(limits or CARD, name=name, uid=f"u-{name}", **references)
    if gate:
        new_pod["spec"]["schedulingGates"] = [{"name": gate}]
    return new_pod


def reasons(response: dict[str, Any]) -> list[str]:
    assert not response["allowed"]
    return [cause["reason"] for cause in response["status"]["details"]["causes"]]


async def test_pods_that_the_controller_makes_draw_from_the_envelope() -> None:
    team = Namespace()
    team.ledger.limit(cards=3)
    await team.deploy()
    for name in ("a", "b", "c"):
        assert (await team.create(name))["allowed"]
    assert {reserve.root for reserve in team.reserved()} == {ROOT}
    assert team.ledger.used() == {f"limits.{GPU}": 3}


async def test_pod_beyond_the_envelope_is_denied_with_the_root() -> None:
    team = Namespace()
    team.ledger.limit(cards=3)
    await team.deploy()
    for name in ("a", "b", "c"):
        await team.create(name)
    response = await team.create("d")
    assert reasons(response) == ["ExceedsLimit"] or reasons(response) == ["QuotaExceeded"]
    assert f"beyond the envelope of {ROOT}" in response["status"]["message"]


async def test_pod_does_not_draw_when_another_user_makes_it() -> None:
    team = Namespace()
    team.ledger.limit(cards=3)
    await team.deploy()
    assert reasons(await team.create("forged", username=ADA)) == ["QuotaExceeded"]
    team.ledger.limit(cards=4)
    assert (await team.create("forged", username=ADA))["allowed"]
    assert [reserve.root for reserve in team.reserved()] == [BARRED, BARRED]
    assert team.ledger.used() == {f"limits.{GPU}": 4}
    [problem] = team.context.owner_chains.unrecognized_controllers.problems()
    assert f"{ADA} made 2 objects" in problem


async def test_recognized_controller_is_not_a_problem() -> None:
    team = Namespace()
    await team.deploy()
    assert (await team.create("a"))["allowed"]
    assert team.context.owner_chains.unrecognized_controllers.problems() == []


@pytest.mark.parametrize(("username", "root"), [(REPLICATOR, ""), (ADA, BARRED)])
async def test_pod_counts_by_itself_when_its_owner_is_not_found(username: str, root: str) -> None:
    team = Namespace(manifest(JOBS, "other"))
    assert (await team.create(username=username))["allowed"]
    assert [reserve.root for reserve in team.reserved()] == [root]


async def test_a_root_that_the_ledger_does_not_have_is_shown_to_it_first() -> None:
    team = Namespace()
    assert (await team.create())["allowed"]
    root, reserve = team.ledger.commands()
    assert root == Observe(
        NAMESPACE,
        ROOT,
        "u-web",
        5,
        {GPU: 3, MEMORY: 24_000},
        REPLICATOR,
        traits=("!best-effort",),
        generation=1,
    )
    assert isinstance(reserve, Reserve)
    assert reserve.root == ROOT


async def test_root_is_shown_at_its_largest_size_when_the_policy_is_elastic_max() -> None:
    rays = Resource("ray.io", "v1", "rayclusters", "RayCluster")
    ray = manifest(rays, "ray")
    group = {"replicas": 1, "maxReplicas": 5, "template": template()}
    ray["spec"] = {"enableInTreeAutoscaling": True, "workerGroupSpecs": [group]}
    operator = "system:serviceaccount:ray-system:kuberay-operator"
    for elastic, cards in (("current", 1), ("max", 5)):
        team = Namespace(ray, elastic=elastic)
        assert (await team.create(username=operator, owner=ray))["allowed"]
        root, _ = team.ledger.commands()
        assert isinstance(root, Observe)
        assert root.demand[GPU] == cards


async def test_a_forged_pod_shows_the_ledger_nothing() -> None:
    team = Namespace()
    await team.create(username=ADA)
    assert [type(command) for command in team.ledger.commands()] == [Reserve]


async def test_a_root_that_is_finished_or_makes_no_sense_is_not_shown() -> None:
    job = manifest(JOBS, "train")
    job["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    controller = "system:serviceaccount:kube-system:job-controller"
    for thing in (job, manifest(JOBS, "train", parallelism="many")):
        team = Namespace(thing)
        assert (await team.create(username=controller, owner=thing))["allowed"]
        [reserve] = team.ledger.commands()
        assert isinstance(reserve, Reserve)
        assert reserve.root == "jobs.batch/train"


@pytest.mark.parametrize("policy", [{"pods_only": True}, {"on_exceeded": "pending"}])
async def test_where_pods_alone_are_charged_no_root_is_shown(policy: dict[str, Any]) -> None:
    team = Namespace(**policy)
    await team.create()
    [reserve] = team.ledger.commands()
    assert isinstance(reserve, Reserve)
    assert reserve.root == ROOT


async def test_a_slow_api_server_leaves_a_pod_to_stand_alone_within_the_limits() -> None:
    team = Namespace()
    team.cluster.failing = ClusterUnavailable("down")
    team.ledger.limit(cards=1)
    assert (await team.create("a"))["allowed"]
    assert reasons(await team.create("b")) == ["QuotaExceeded"]


async def test_barred_pod_stays_barred_when_the_api_server_is_slow() -> None:
    team = Namespace()
    team.cluster.failing = ClusterUnavailable("down")
    await team.create(username=ADA)
    assert [reserve.root for reserve in team.reserved()] == [BARRED]


async def test_the_workers_of_a_group_draw_where_its_controller_made_them() -> None:
    group = manifest(LEADERS, "llm", leaderWorkerTemplate={"size": 2, "workerTemplate": template()})
    del group["spec"]["template"]
    leaders = manifest(STATEFUL, "llm", owner=group)
    leader = manifest(STATEFUL, "llm-0", owner=leaders) | {"apiVersion": "v1", "kind": "Pod"}
    workers = manifest(STATEFUL, "workers", owner=leader)
    controller = LWS.controllers[0]
    for username, root in ((controller, None), (ADA, BARRED)):
        team = Namespace(group, leaders, leader)
        await team.post(review(workers, **of(STATEFUL), username=username))
        assert [reserve.root for reserve in team.reserved()] == ([] if root is None else [root])


async def test_a_pod_without_a_controller_is_reviewed_without_asking_the_cluster() -> None:
    team = Namespace()
    assert (await team.create(owner=None))["allowed"]
    assert team.cluster.asked == []
    assert [type(command) for command in team.ledger.commands()] == [Reserve]


# Updates


async def test_an_update_stays_under_the_root_that_the_ledger_has() -> None:
    team = Namespace()
    await team.create("p", username=ADA)
    bigger = pod_of(limits={GPU: "2", MEMORY: "8k"})
    assert (await team.update(bigger, pod_of()))["allowed"]
    observe, reserve = team.ledger.commands()[-2:]
    assert isinstance(observe, Observe)
    assert isinstance(reserve, Reserve)
    assert (observe.root, reserve.root, reserve.base) == (BARRED, BARRED, 5)


async def test_an_update_of_a_pod_that_the_ledger_does_not_have_finds_its_root() -> None:
    team = Namespace()
    bigger = pod_of(limits={GPU: "2", MEMORY: "8k"})
    assert (await team.update(bigger, pod_of()))["allowed"]
    assert [reserve.root for reserve in team.reserved()] == [ROOT]


@pytest.mark.parametrize(("username", "allowed"), [(ADA, False), (REPLICATOR, True)])
async def test_a_controller_may_be_added_by_that_controller_alone(
    username: str, allowed: bool
) -> None:
    team = Namespace()
    response = await team.update(pod_of(), pod_of(owner=None), username)
    assert response["allowed"] is allowed
    if not allowed:
        assert reasons(response) == ["ForgedOwner"]


async def test_another_controller_is_refused_too_and_giving_one_up_is_not() -> None:
    team = Namespace()
    other = deepcopy(SET)
    other["metadata"] |= {"uid": "u-other", "name": "other"}
    assert reasons(await team.update(pod_of(owner=other), pod_of())) == ["ForgedOwner"]
    assert (await team.update(pod_of(owner=None), pod_of()))["allowed"]


async def test_controller_of_an_unknown_kind_is_ignored() -> None:
    team = Namespace()
    unknown = {**SET, "apiVersion": "example.com/v1"}
    assert (await team.update(pod_of(owner=unknown), pod_of(owner=None)))["allowed"]


async def test_a_pod_that_asks_for_nothing_may_name_whom_it_likes() -> None:
    team = Namespace()
    plain = {"cpu": "1"}
    response = await team.update(pod_of(limits=plain), pod_of(owner=None, limits=plain))
    assert response["allowed"]


# Pods that wait for room


async def test_a_pod_waits_without_a_hold_and_is_warned_when_there_is_no_room() -> None:
    team = Namespace(on_exceeded="pending")
    team.ledger.limit(cards=0)
    response = await team.create(owner=None, gate=GATE)
    assert response["allowed"]
    assert response["warnings"][0].startswith(
        "Pod p is created and waits; do not create it again. "
    )
    assert response["warnings"][0].endswith("[ExceedsLimit; decision d-1]")
    team.ledger.limit(cards=1)
    assert "warnings" not in await team.create(owner=None, gate=GATE)
    assert team.ledger.commands() == []


async def test_pending_pod_is_warned_of_every_shortage_and_needed_release() -> None:
    team = Namespace(on_exceeded="pending")
    team.ledger.limit(cards=1, memory=9_000)
    assert (await team.create("first", owner=None))["allowed"]
    [warning] = (await team.create("second", owner=None, gate=GATE))["warnings"]
    assert warning.startswith("Pod second is created and waits; it starts when ")
    assert "it starts when 1 GPU and 7000 MiB are released; do not create it again. " in warning
    assert "It also has too little GPU memory left" in warning
    assert "at most" not in warning


async def test_a_pod_that_does_not_wait_is_refused_also_where_others_wait() -> None:
    team = Namespace(on_exceeded="pending")
    team.ledger.limit(cards=0)
    assert reasons(await team.create(owner=None)) == ["ExceedsLimit"]
    assert reasons(await team.create(owner=None, gate="other.example/gate")) == ["ExceedsLimit"]


async def test_pod_with_its_own_gate_is_charged_when_pods_do_not_wait() -> None:
    team = Namespace()
    team.ledger.limit(cards=0)
    assert reasons(await team.create(owner=None, gate=GATE)) == ["ExceedsLimit"]


async def test_pod_with_a_forged_controller_may_not_wait() -> None:
    team = Namespace(on_exceeded="pending")
    assert reasons(await team.create(username=ADA, gate=GATE)) == ["ForgedOwner"]
    assert (await team.create(gate=GATE))["allowed"]


async def test_update_without_the_gate_asks_for_everything() -> None:
    team = Namespace(on_exceeded="pending")
    team.ledger.limit(cards=0)
    waiting, free = pod_of(owner=None, gate=GATE), pod_of(owner=None)
    assert reasons(await team.update(free, waiting)) == ["ExceedsLimit"]
    team.ledger.limit(cards=1)
    assert (await team.update(free, waiting))["allowed"]
    reserve = team.reserved()[-1]
    assert (reserve.base, reserve.demand) == (5, {GPU: 1, MEMORY: 8000})
    assert not any(isinstance(command, Observe) for command in team.ledger.commands())


async def test_the_gate_may_go_where_settlement_has_reserved() -> None:
    team = Namespace(on_exceeded="pending")
    team.ledger.limit(cards=1)
    waiting, free = pod_of(owner=None, gate=GATE), pod_of(owner=None)
    held = Reserve(NAMESPACE, "pods/p", "u-p", {GPU: 1, MEMORY: 8000}, base=5)
    await team.ledger.submit(held)
    assert (await team.update(free, waiting))["allowed"]
    assert team.ledger.used() == {f"limits.{GPU}": 1}


async def test_a_waiting_pod_can_be_labelled() -> None:
    team = Namespace(on_exceeded="pending")
    labelled = pod_of(owner=None, gate=GATE)
    labelled["metadata"]["labels"] = {"a": "b"}
    assert (await team.update(labelled, pod_of(owner=None, gate=GATE)))["allowed"]
    assert team.ledger.submitted == []


# Quotas that select namespaces


def universe(*namespaces: Requirement) -> SetLimits:
    return SetLimits(
        "universe/all", (), {f"limits.{GPU}": 1}, reach=Reach(namespaces=tuple(namespaces))
    )


async def test_a_namespace_is_described_before_a_quota_that_selects_it_is_asked() -> None:
    team = Namespace()
    team.cluster.namespace("team", env="prod")
    await team.ledger.submit(universe(Requirement("env", "In", ("prod",))))
    team.ledger.submitted.clear()
    assert (await team.create("a", owner=None))["allowed"]
    assert reasons(await team.create("b", owner=None)) == ["UniverseExceeded"]
    described = [command for command in team.ledger.commands() if isinstance(command, Describe)]
    assert described == [Describe(NAMESPACE, "!name=team,env=prod", "webhook")]


async def test_a_namespace_is_not_described_where_no_quota_selects() -> None:
    team = Namespace()
    team.cluster.namespace("team", env="prod")
    await team.create(owner=None)
    assert team.cluster.asked == []


async def test_a_namespace_that_cannot_be_read_is_known_by_its_name() -> None:
    team = Namespace()
    await team.ledger.submit(universe(Requirement("!name", "In", ("team",))))
    assert (await team.create("a", owner=None))["allowed"]
    assert reasons(await team.create("b", owner=None)) == ["UniverseExceeded"]
