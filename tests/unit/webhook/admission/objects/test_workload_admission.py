"""Workloads are charged at the root, for what an update adds, before they make any pod."""

from copy import deepcopy
from typing import Any

import pytest
from support.builders.admission_reviews import GPU, MEMORY, NAMESPACE, CoreLedger, review, serving
from support.builders.kind_objects import CATALOG as EVERY
from support.builders.kind_objects import cases_of
from support.builders.reviewed_namespaces import ReviewedNamespace, changed, reasons
from support.fakes.owner_cluster import (
    CRONJOBS,
    DEPLOYMENTS,
    JOBS,
    Manifest,
    OwnerCluster,
    around,
    manifest,
    of,
    template,
)

from ledger.core.model.commands import Asker, Observe, Reserve
from ledger.core.model.denials import Denial, Reason
from ledger.core.model.traits import Requirement
from ledger.kube.api.api_resources import Resource
from ledger.kube.requests.demand_rules import DemandRules
from webhook.context.admission_settings import AdmissionSettings
from webhook.kinds.kind_schema import WorkloadKind

DEMAND = {GPU: 3, MEMORY: 24_000}
TRAITS = ("!best-effort",)
WEB = "deployments.apps/web"
DEPLOYMENT = manifest(DEPLOYMENTS, "web", replicas=3)


OVERHEAD = {"cpu": "1000000"}
HEAVY = manifest(DEPLOYMENTS, "web", replicas=1)
HEAVY["spec"]["template"] = {"spec": {"containers": [{"name": "main"}], "overhead": OVERHEAD}}
LIGHT = manifest(DEPLOYMENTS, "web", replicas=1)
LIGHT["spec"]["template"] = {"spec": {"containers": [{"name": "main"}]}}


@pytest.mark.parametrize("old", [None, LIGHT], ids=["create", "update"])
async def test_overhead_of_a_template_is_reviewed_as_it_is_charged(old: Manifest | None) -> None:
    """A write needs room for the amounts that settlement would charge."""
    ledger = CoreLedger()
    ledger.limit_keys({"requests.cpu": 4_000})
    rules = DemandRules(managed=("cpu",))
    context = around(ledger, OwnerCluster(), rules=rules)
    operation = "CREATE" if old is None else "UPDATE"
    request = review(HEAVY, old, operation=operation, **of(DEPLOYMENTS))
    async with serving(ledger, context=context) as service:
        assert reasons(await service.post(request)) == ["ExceedsLimit"]
    assert ledger.used() == {"requests.cpu": 0}


# Roots


async def test_a_creation_reserves_the_envelope_for_its_uid() -> None:
    team = ReviewedNamespace()
    response = await team.answer(DEPLOYMENTS, DEPLOYMENT)
    assert response["allowed"]
    assert response["auditAnnotations"] == {"decision-d-1": "Reserved"}
    assert team.ledger.commands() == [
        Reserve(
            NAMESPACE,
            WEB,
            "u-web",
            DEMAND,
            owner="ada",
            owner_holds_max=64,
            actor="ada",
            traits=TRAITS,
            asker=Asker("Deployment", 3, replicas=True),
        )
    ]


async def test_no_room_is_refused_at_the_root_with_numbers() -> None:
    team = ReviewedNamespace()
    team.ledger.limit(memory=20_000)
    response = await team.answer(DEPLOYMENTS, DEPLOYMENT)
    assert reasons(response) == ["ExceedsLimit"]
    assert "allows 20000, nothing is used" in response["status"]["message"]
    assert response["status"]["details"]["kind"] == "Deployment"


async def test_what_cannot_be_understood_names_the_field_of_the_workload() -> None:
    team = ReviewedNamespace()
    wrong = manifest(DEPLOYMENTS, "web", template=template({GPU: "1", MEMORY: "16Gi"}))
    response = await team.answer(DEPLOYMENTS, wrong)
    [cause] = response["status"]["details"]["causes"]
    assert cause["reason"] == "InvalidQuantity"
    assert cause["field"].startswith("spec.template.spec.containers[0].resources")
    assert team.ledger.submitted == []
    relabelled = deepcopy(wrong)
    relabelled["metadata"]["labels"] = {"a": "b"}
    assert (await team.answer(DEPLOYMENTS, relabelled, wrong))["allowed"]


async def test_a_workload_that_asks_for_nothing_never_reaches_the_ledger() -> None:
    team = ReviewedNamespace()
    plain = manifest(DEPLOYMENTS, "web", template=template({"cpu": "1"}))
    assert await team.answer(DEPLOYMENTS, plain) == {"uid": "call-1", "allowed": True}
    assert team.ledger.submitted == []
    assert team.cluster.asked == []


async def test_update_asks_for_its_increase_after_its_base_is_shown() -> None:
    team = ReviewedNamespace()
    team.ledger.limit(cards=4)
    more = changed(DEPLOYMENT, replicas=4)
    assert (await team.answer(DEPLOYMENTS, more, DEPLOYMENT))["allowed"]
    base, reserve = team.ledger.commands()
    assert base == Observe(NAMESPACE, WEB, "u-web", 5, DEMAND, "ada", traits=TRAITS, generation=1)
    assert isinstance(reserve, Reserve)
    assert (reserve.base, reserve.demand[GPU]) == (5, 4)
    assert team.ledger.used() == {f"limits.{GPU}": 4}
    response = await team.answer(DEPLOYMENTS, changed(DEPLOYMENT, replicas=5), DEPLOYMENT)
    assert "allows 4, 4 are used" in response["status"]["message"]


@pytest.mark.parametrize("replicas", [0, 2, 3])
async def test_an_update_that_asks_for_no_more_does_not_need_the_ledger(replicas: int) -> None:
    team = ReviewedNamespace()
    team.ledger.answer = Denial(Reason.LEDGER_UNAVAILABLE, "down", transient=True)
    fewer = changed(DEPLOYMENT, replicas=replicas)
    assert (await team.answer(DEPLOYMENTS, fewer, DEPLOYMENT))["allowed"]
    assert team.ledger.submitted == []


async def test_an_update_that_other_quotas_would_count_is_asked_for() -> None:
    team = ReviewedNamespace()
    team.ledger.limit(selects=(Requirement("tier", "In", ("gold",)),), cards=8)
    relabelled = changed(DEPLOYMENT, template=template(tier="gold"))
    assert (await team.answer(DEPLOYMENTS, relabelled, DEPLOYMENT))["allowed"]
    [reserve] = team.reserved()
    assert reserve.traits == ("!best-effort,!read=1,tier=gold",)


async def test_a_resumed_job_reserves_what_the_suspended_one_did_not() -> None:
    team = ReviewedNamespace()
    waiting = manifest(JOBS, "train", suspend=True, parallelism=2, completions=4)
    assert (await team.answer(JOBS, waiting))["allowed"]
    team.ledger.limit(cards=1)
    resumed = changed(waiting, suspend=False)
    assert reasons(await team.answer(JOBS, resumed, waiting)) == ["ExceedsLimit"]
    team.ledger.limit(cards=2)
    assert (await team.answer(JOBS, resumed, waiting))["allowed"]


@pytest.mark.parametrize("version", ["", "0", "x"])
async def test_an_update_without_a_usable_version_names_the_field(version: str) -> None:
    team = ReviewedNamespace()
    old = deepcopy(DEPLOYMENT)
    old["metadata"]["resourceVersion"] = version
    request = review(changed(old, replicas=4), old, operation="UPDATE", **of(DEPLOYMENTS))
    request["request"]["oldObject"]["metadata"]["resourceVersion"] = version
    async with serving(team.ledger, context=team.context) as service:
        answer = await service.client.post("/admission/validate", json=request)
    assert answer.status_code == 400
    assert answer.json()["field"] == "$.request.oldObject.metadata.resourceVersion"


def privileged() -> Manifest:
    deployment = deepcopy(DEPLOYMENT)
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    container["securityContext"] = {"privileged": True}
    return deployment


def assigned() -> Manifest:
    deployment = deepcopy(DEPLOYMENT)
    deployment["spec"]["template"]["spec"] |= {
        "nodeName": "n1",
        "schedulerName": "gpuledger-scheduler",
    }
    return deployment


def allocated() -> Manifest:
    deployment = deepcopy(DEPLOYMENT)
    annotations = {"hami.io/vgpu-devices-allocated": "GPU-1:;"}
    deployment["spec"]["template"]["metadata"]["annotations"] = annotations
    return deployment


def misplaced() -> Manifest:
    deployment = deepcopy(DEPLOYMENT)
    annotations = {"hami.io/node-scheduler-policy": "binpak"}
    deployment["spec"]["template"]["metadata"]["annotations"] = annotations
    return deployment


@pytest.mark.parametrize(
    ("thing", "reason", "field"),
    [
        (
            misplaced(),
            "InvalidPolicy",
            "spec.template.metadata.annotations[hami.io/node-scheduler-policy]",
        ),
        (
            privileged(),
            "PrivilegedContainer",
            "spec.template.spec.containers[0].securityContext.privileged",
        ),
        (assigned(), "NodeAssigned", "spec.template.spec.nodeName"),
        (
            allocated(),
            "ReservedAnnotation",
            "spec.template.metadata.annotations[hami.io/vgpu-devices-allocated]",
        ),
    ],
)
async def test_workload_is_refused_when_each_pod_would_be(
    thing: Manifest, reason: str, field: str
) -> None:
    team = ReviewedNamespace()
    response = await team.answer(DEPLOYMENTS, thing)
    [cause] = response["status"]["details"]["causes"]
    assert (cause["reason"], cause["field"]) == (reason, field)
    assert reasons(await team.answer(DEPLOYMENTS, thing, DEPLOYMENT)) == [reason]
    assert team.ledger.submitted == []
    assert (await team.answer(DEPLOYMENTS, changed(thing, replicas=4), thing))["allowed"]


async def test_privileged_templates_are_allowed_where_privileged_pods_are() -> None:
    team = ReviewedNamespace()
    allowing = AdmissionSettings(allow_privileged=True)
    async with serving(team.ledger, policy=allowing, context=team.context) as service:
        assert (await service.post(review(privileged(), **of(DEPLOYMENTS))))["allowed"]


async def test_a_dry_run_changes_nothing() -> None:
    team = ReviewedNamespace()
    team.ledger.limit(cards=3)
    assert (await team.answer(DEPLOYMENTS, DEPLOYMENT, dryRun=True))["allowed"]
    more = changed(DEPLOYMENT, replicas=4)
    assert not (await team.answer(DEPLOYMENTS, more, DEPLOYMENT, dryRun=True))["allowed"]
    assert team.ledger.commands() == []


async def test_unknown_memory_is_refused_when_it_is_limited() -> None:
    team = ReviewedNamespace()
    team.ledger.limit(memory=8000)
    whole = manifest(DEPLOYMENTS, "web", template=template({GPU: "1"}))
    assert reasons(await team.answer(DEPLOYMENTS, whole)) == ["CardMemoryUnknown"]


async def test_update_to_unknown_memory_asks_for_it() -> None:
    team = ReviewedNamespace()
    team.ledger.limit(memory=80_000)
    await team.answer(DEPLOYMENTS, DEPLOYMENT)
    whole = changed(DEPLOYMENT, template=template({GPU: "1"}))
    assert reasons(await team.answer(DEPLOYMENTS, whole, DEPLOYMENT)) == ["CardMemoryUnknown"]
    team.ledger.submitted.clear()
    relabelled = deepcopy(whole)
    relabelled["metadata"]["annotations"] = {"a": "b"}
    assert (await team.answer(DEPLOYMENTS, relabelled, whole))["allowed"]
    assert team.ledger.submitted == []


@pytest.mark.parametrize("kind", list(EVERY), ids=lambda kind: str(kind.name))
async def test_every_kind_reserves_what_was_worked_out_by_hand(kind: WorkloadKind) -> None:
    for case in cases_of(kind):
        if case.options or case.finished:
            continue
        team = ReviewedNamespace(catalog=EVERY)
        thing = deepcopy(case.object)
        thing.setdefault("metadata", {}).update(name="a", namespace="team", uid="u-a")
        version = thing["apiVersion"].rpartition("/")[2]
        response = await team.answer(Resource(kind.group, version, kind.resource, kind.kind), thing)
        assert response["allowed"], (case.name, response)
        demands = [reserve.demand for reserve in team.reserved() if reserve.demand]
        assert demands == ([case.demand] if case.demand and kind.root else []), case.name


# Kinds that are only looked at, and namespaces that charge pods alone


@pytest.mark.parametrize("policy", [{"pods_only": True}, {"on_exceeded": "pending"}])
async def test_where_pods_alone_are_charged_a_root_is_only_warned_of(
    policy: dict[str, Any],
) -> None:
    team = ReviewedNamespace(**policy)
    team.ledger.limit(cards=2)
    response = await team.answer(DEPLOYMENTS, DEPLOYMENT)
    assert response["allowed"]
    [warning] = response["warnings"]
    assert warning.startswith("its pods can never run all at once: namespace team ")
    assert warning.endswith("[ExceedsLimit; decision d-1]")
    assert team.ledger.commands() == []
    fewer = await team.answer(DEPLOYMENTS, changed(DEPLOYMENT, replicas=2))
    assert fewer == {"uid": "call-1", "allowed": True}
    await team.ledger.submit(Reserve(NAMESPACE, "pods/other", "u-other", {GPU: 1}))
    later = await team.answer(DEPLOYMENTS, changed(DEPLOYMENT, replicas=2))
    assert later == {"uid": "call-1", "allowed": True}


async def test_a_cron_job_of_which_one_run_can_never_fit_is_warned_of() -> None:
    team = ReviewedNamespace()
    team.ledger.limit(cards=2)
    nightly = manifest(CRONJOBS, "nightly")
    nightly["spec"] = {"jobTemplate": {"spec": {"parallelism": 3, "template": template()}}}
    response = await team.answer(CRONJOBS, nightly)
    assert response["allowed"]
    assert "would need 3 GPUs (3 pods \N{MULTIPLICATION SIGN} 1), " in response["warnings"][0]
    nightly["spec"]["jobTemplate"]["spec"]["parallelism"] = 2
    assert "warnings" not in await team.answer(CRONJOBS, nightly)
    assert team.ledger.commands() == []


# Roll-outs


async def test_surge_is_reserved_by_policy() -> None:
    team = ReviewedNamespace(surge="reserve")
    image = changed(DEPLOYMENT, template=template(version="2"))
    image["metadata"]["generation"] = 2
    assert (await team.answer(DEPLOYMENTS, image, DEPLOYMENT))["allowed"]
    assert [reserve.demand[GPU] for reserve in team.reserved()] == [4]


RAYS = Resource("ray.io", "v1", "rayclusters", "RayCluster")


def rays(replicas: int) -> Manifest:
    """Return a cluster with an autoscaler, which may make up to five workers of it."""
    group = {"replicas": replicas, "maxReplicas": 5, "template": template()}
    ray = manifest(RAYS, "ray")
    ray["spec"] = {"enableInTreeAutoscaling": True, "workerGroupSpecs": [group]}
    return ray


async def test_autoscaled_workload_asks_for_its_largest_size_by_policy() -> None:
    team = ReviewedNamespace(elastic="max")
    assert (await team.answer(RAYS, rays(2)))["allowed"]
    assert (await team.answer(RAYS, changed(rays(4)), rays(2)))["allowed"]
    assert [reserve.demand[GPU] for reserve in team.reserved()] == [5]


async def test_autoscaled_workload_asks_for_each_increase_by_default() -> None:
    team = ReviewedNamespace()
    assert (await team.answer(RAYS, rays(2)))["allowed"]
    assert (await team.answer(RAYS, changed(rays(4)), rays(2)))["allowed"]
    assert [reserve.demand[GPU] for reserve in team.reserved()] == [2, 4]


NO_POD_MISSING = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


@pytest.mark.parametrize(
    ("surge", "cards", "allowed"),
    [("strict", 3, False), ("strict", 4, True), ("opportunistic", 3, True)],
)
async def test_a_roll_out_that_could_never_end_is_refused_where_policy_is_strict(
    surge: str, cards: int, allowed: bool
) -> None:
    team = ReviewedNamespace(surge=surge)
    team.ledger.limit(cards=cards)
    old = changed(DEPLOYMENT, strategy=NO_POD_MISSING)
    await team.answer(DEPLOYMENTS, old)
    new = changed(old, template=template())
    new["spec"]["template"]["spec"]["containers"][0]["image"] = "v2"
    response = await team.answer(DEPLOYMENTS, new, old)
    assert response["allowed"] is allowed
    if not allowed:
        assert "the roll-out of Deployment web would need " in response["status"]["message"]
    assert team.ledger.used() == {f"limits.{GPU}": 3}
