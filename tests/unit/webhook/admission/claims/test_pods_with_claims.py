"""Pods and workloads are charged for the claims of their templates, and named claims once."""

from base64 import b64decode
from typing import Any

import pytest
from support.builders.admission_reviews import review
from support.claims.claim_reviews import (
    CONTROLLER,
    GI,
    ClaimTeam,
    claim_spec,
    claim_template,
    claiming_pod,
    device_class,
    generated,
    resource_claim,
)
from support.fakes.owner_cluster import (
    DEPLOYMENTS,
    SETS,
    Manifest,
    controlled_by,
    manifest,
    of,
    remember,
)

from ledger.core.model.commands import Observe, Reserve
from ledger.core.model.traits import Requirement
from ledger.kube.api.cluster_errors import ClusterUnavailable, NotServed
from ledger.kube.api.cluster_ports import Interrupted
from ledger.kube.api.pod_gates import GATE

MEMORY = "limits.nvidia.com/gpumem"
CLAIM_KEY = "resourceclaims.resource.k8s.io/"


def reasons(response: dict[str, Any]) -> list[str]:
    assert not response["allowed"]
    return [cause["reason"] for cause in response["status"]["details"]["causes"]]


def fields(response: dict[str, Any]) -> list[str]:
    return [cause["field"] for cause in response["status"]["details"]["causes"]]


def deployment(replicas: int = 3, *templates: str, version: int = 5) -> Manifest:
    """Return a Deployment whose pods have claims of these templates."""
    web = manifest(DEPLOYMENTS, "web", replicas=replicas, version=version)
    spec = web["spec"]["template"]["spec"]
    spec["containers"] = [{"name": "main"}]
    spec["resourceClaims"] = claiming_pod("p", *templates)["spec"]["resourceClaims"]
    return web


async def test_deployment_is_charged_for_the_claims_of_all_its_pods() -> None:
    team = ClaimTeam()
    team.ledger.limit(memory=24 * GI)
    assert (await team.post(review(deployment(), **of(DEPLOYMENTS))))["allowed"]
    assert team.reserved() == {"deployments.apps/web": 24 * GI}


async def test_deployment_beyond_a_quota_is_denied_with_numbers() -> None:
    team = ClaimTeam()
    team.ledger.limit(memory=20 * GI)
    response = await team.post(review(deployment(), **of(DEPLOYMENTS)))
    assert reasons(response) == ["ExceedsLimit"]
    assert "at most 2 replicas" in response["status"]["message"]


async def test_pods_of_a_deployment_and_their_claims_draw_from_its_charge() -> None:
    team = ClaimTeam()
    team.ledger.limit(memory=24 * GI)
    web = deployment()
    assert (await team.post(review(web, **of(DEPLOYMENTS))))["allowed"]
    replicas = manifest(SETS, "web-1", owner=web)
    team.cluster.put(web)
    team.cluster.put(replicas)
    user = "system:serviceaccount:kube-system:replicaset-controller"
    for name in ("a", "b", "c"):
        pod = claiming_pod(name)
        pod["metadata"]["ownerReferences"] = [controlled_by(replicas)]
        assert (await team.create(pod, user))["allowed"]
        assert (await team.create(generated(pod), CONTROLLER))["allowed"]
    assert team.ledger.used()[MEMORY] == 24 * GI


@pytest.mark.parametrize("limits", [{}, {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1k"}])
async def test_scale_of_a_deployment_is_charged_for_the_claims(limits: Any) -> None:
    team = ClaimTeam()
    team.ledger.limit(memory=40 * GI)
    web = deployment()
    if limits:
        web["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": limits}
    await remember(team.context, DEPLOYMENTS, web)
    scale = {"metadata": web["metadata"], "spec": {"replicas": 5}}
    old = {"metadata": web["metadata"], "spec": {"replicas": 3}}
    request = review(scale, old, operation="UPDATE", **of(DEPLOYMENTS, "scale"))
    assert team.context.parents.get("u-web") is not None
    response = await team.post(request)
    assert response["allowed"] is not bool(limits)
    assert team.reserved() == {"deployments.apps/web": 5 * (8 * GI + (1000 if limits else 0))}


async def test_template_without_a_cached_copy_is_read() -> None:
    team = ClaimTeam(claim_template("fresh", gi=4))
    assert (await team.create(claiming_pod("p", "fresh")))["allowed"]
    assert team.reserved() == {"pods/p": 4 * GI}
    assert team.cluster.asked == [("resourceclaimtemplates.resource.k8s.io", "fresh")]


async def test_template_of_another_namespace_does_not_count() -> None:
    foreign = claim_template("foreign")
    foreign["metadata"]["namespace"] = "other"
    team = ClaimTeam(foreign)
    team.list_templates(foreign)
    response = await team.create(claiming_pod("p", "foreign"))
    assert "does not exist" in response["warnings"][0]
    assert team.reserved() == {}


@pytest.mark.parametrize("silent", [False, True])
async def test_pod_is_refused_for_now_if_its_template_cannot_be_read(silent: bool) -> None:
    team = ClaimTeam()
    team.cluster.silent = silent
    team.cluster.failing = None if silent else ClusterUnavailable("the API server is down")
    response = await team.create(claiming_pod("p", "fresh"))
    assert reasons(response) == ["ClaimUndecided"]
    assert "Try again" in response["status"]["message"]
    response = await team.post(review(deployment(3, "fresh"), **of(DEPLOYMENTS)))
    assert reasons(response) == ["ClaimUndecided"]
    assert team.ledger.submitted == []


async def test_pod_is_refused_for_now_until_slices_were_listed() -> None:
    team = ClaimTeam()
    team.store.slices.listed.clear()
    team.store.slices.take(Interrupted("resourceslices is forbidden"))
    response = await team.create(claiming_pod())
    assert reasons(response) == ["ClaimUndecided"]
    assert "resourceslices is forbidden" in response["status"]["message"]


async def test_missing_template_is_a_warning_and_the_claim_is_charged() -> None:
    team = ClaimTeam()
    team.ledger.limit(memory=8 * GI)
    pod = claiming_pod("p", "later")
    team.cluster.put(pod)
    response = await team.create(pod)
    assert response["allowed"]
    assert "is charged when it is created" in response["warnings"][0]
    assert (await team.create(generated(pod), CONTROLLER))["allowed"]
    assert team.reserved() == {f"{CLAIM_KEY}p-g-x1": 8 * GI}
    assert not (await team.create(generated(pod, named="p-g-x2"), CONTROLLER))["allowed"]


async def test_missing_template_is_refused_where_the_policy_requires_it() -> None:
    team = ClaimTeam(missing_claim_templates="deny")
    response = await team.create(claiming_pod("p", "small", "later"))
    assert reasons(response) == ["ClaimTemplateMissing"]
    assert fields(response) == ["spec.resourceClaims[1].resourceClaimTemplateName"]
    response = await team.post(review(deployment(3, "later"), **of(DEPLOYMENTS)))
    assert reasons(response) == ["ClaimTemplateMissing"]
    field = "spec.template.spec.resourceClaims[0].resourceClaimTemplateName"
    assert fields(response) == [field]


async def test_missing_template_is_a_warning_in_mode_warn() -> None:
    team = ClaimTeam(mode="warn", missing_claim_templates="deny")
    response = await team.create(claiming_pod("p", "later"))
    assert response["allowed"]
    assert "ClaimTemplateMissing" in response["warnings"][0]


async def test_claims_are_neither_charged_nor_refused_in_mode_off() -> None:
    team = ClaimTeam(mode="off", missing_claim_templates="deny")
    assert (await team.create(claiming_pod("p", "later")))["allowed"]
    assert (await team.create(resource_claim("own", claim_spec(count=99))))["allowed"]
    assert (await team.create(claim_template("odd", cls="odd")))["allowed"]
    assert team.ledger.submitted == []


async def test_claims_are_not_charged_where_they_are_not_served() -> None:
    team = ClaimTeam()
    for cache in (team.store.templates, team.store.classes, team.store.slices):
        cache.take(Interrupted("not served", absent=True))
    team.cluster.failing = NotServed("resource.k8s.io")
    response = await team.create(claiming_pod())
    assert response["allowed"]
    assert "is not served" in response["warnings"][0]


@pytest.mark.parametrize("more", [{"count": 40}, {"count": 2**63 - 1}])
async def test_template_beyond_32_devices_is_refused_everywhere(more: Any) -> None:
    team = ClaimTeam()
    wide = claim_template("wide", gi=1, **more)
    assert reasons(await team.create(wide)) == ["TooManyDevices"]
    team.list_templates(wide)
    response = await team.create(claiming_pod("p", "wide"))
    assert reasons(response) == ["TooManyDevices"]
    assert fields(response) == ["spec.resourceClaims[0].resourceClaimTemplateName"]
    response = await team.post(review(deployment(3, "wide"), **of(DEPLOYMENTS)))
    assert reasons(response) == ["TooManyDevices"]
    response = await team.create(resource_claim("own", claim_spec(1, **more)))
    assert reasons(response) == ["TooManyDevices"]
    assert fields(response) == ["spec.devices.requests[0].exactly.count"]


@pytest.mark.parametrize("cls", ["missing", "odd"])
async def test_class_that_is_not_mapped_is_refused_everywhere(cls: str) -> None:
    team = ClaimTeam()
    team.list_classes(device_class("gpu"), device_class("odd", driver="gpu.example.com"))
    odd = claim_template("odd", cls=cls)
    assert reasons(await team.create(odd)) == ["UnmappedDeviceClass"]
    team.list_templates(odd)
    assert reasons(await team.create(claiming_pod("p", "odd"))) == ["UnmappedDeviceClass"]
    response = await team.post(review(deployment(3, "odd"), **of(DEPLOYMENTS)))
    assert reasons(response) == ["UnmappedDeviceClass"]
    response = await team.create(resource_claim("own", claim_spec(cls=cls)))
    assert reasons(response) == ["UnmappedDeviceClass"]
    assert cls in response["status"]["message"]


async def test_class_that_is_not_mapped_is_a_warning_by_policy() -> None:
    team = ClaimTeam(unmapped_device_classes="warn")
    odd = claim_template("odd", cls="missing")
    team.list_templates(odd)
    for new in (odd, claiming_pod("p", "odd"), resource_claim("own", claim_spec(cls="missing"))):
        response = await team.create(new)
        assert response["allowed"]
        assert "missing" in response["warnings"][0]


async def test_class_that_was_made_a_moment_ago_is_read() -> None:
    team = ClaimTeam(device_class("fresh"))
    assert (await team.create(resource_claim("own", claim_spec(cls="fresh"))))["allowed"]
    assert team.reserved() == {f"{CLAIM_KEY}own": 8 * GI}


async def test_claims_of_administration_are_allowed_uncharged() -> None:
    team = ClaimTeam()
    team.ledger.limit(memory=1)
    claim = resource_claim("own", claim_spec(adminAccess=True))
    assert (await team.create(claim))["allowed"]
    assert team.ledger.submitted == []


async def test_update_of_a_workload_is_not_refused_for_unchanged_claims() -> None:
    team = ClaimTeam(missing_claim_templates="deny")
    assert (await team.post(review(deployment(), **of(DEPLOYMENTS))))["allowed"]
    team.list_templates()
    labelled = deployment()
    labelled["metadata"]["labels"] = {"a": "b"}
    request = review(labelled, deployment(), operation="UPDATE", **of(DEPLOYMENTS))
    assert (await team.post(request))["allowed"]
    team.cluster.failing = ClusterUnavailable("down")
    assert (await team.post(request))["allowed"]
    other = review(deployment(3, "x"), deployment(), operation="UPDATE", **of(DEPLOYMENTS))
    assert reasons(await team.post(other)) == ["ClaimUndecided"]


async def test_update_of_a_workload_does_not_raise_its_charge_unreviewed() -> None:
    """The template was made larger since: the base of an update counts as it was admitted."""
    team = ClaimTeam()
    team.ledger.limit(memory=30 * GI)
    assert (await team.post(review(deployment(), **of(DEPLOYMENTS))))["allowed"]
    team.list_templates(claim_template(gi=40))
    more = review(deployment(4), deployment(), operation="UPDATE", **of(DEPLOYMENTS))
    assert reasons(await team.post(more)) == ["ExceedsLimit"]
    assert team.ledger.used()[MEMORY] == 24 * GI


async def test_pod_does_not_show_a_root_with_a_larger_template() -> None:
    team = ClaimTeam()
    team.ledger.limit(memory=30 * GI)
    web, replicas = deployment(9), manifest(SETS, "web-1", owner=deployment(9))
    await remember(team.context, DEPLOYMENTS, web)
    await remember(team.context, SETS, replicas)
    pod = claiming_pod()
    pod["metadata"]["ownerReferences"] = [controlled_by(replicas)]
    user = "system:serviceaccount:kube-system:replicaset-controller"
    assert (await team.create(pod, user))["allowed"]
    assert not [command for command in team.ledger.commands() if isinstance(command, Observe)]
    assert team.ledger.used()[MEMORY] == 8 * GI


async def test_pod_shows_no_part_of_a_root_whose_claims_another_replica_admitted() -> None:
    team = ClaimTeam()
    web = deployment(9)
    [container] = web["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    replicas = manifest(SETS, "web-1", owner=web)
    await remember(team.context, DEPLOYMENTS, web)
    await remember(team.context, SETS, replicas)
    pod = claiming_pod()
    pod["metadata"]["ownerReferences"] = [controlled_by(replicas)]
    user = "system:serviceaccount:kube-system:replicaset-controller"
    assert (await team.create(pod, user))["allowed"]
    assert not [command for command in team.ledger.commands() if isinstance(command, Observe)]


async def test_update_shows_no_base_whose_claims_another_replica_admitted() -> None:
    """The base would lower a reservation that this replica has not applied yet."""
    team = ClaimTeam()
    more = review(deployment(4), deployment(), operation="UPDATE", **of(DEPLOYMENTS))
    assert (await team.post(more))["allowed"]
    pods = [
        claiming_pod(**{"nvidia.com/gpu": "1", "nvidia.com/gpumem": mib}) for mib in ("2k", "1k")
    ]
    for body in pods:
        body["metadata"]["resourceVersion"] = "5"
    bigger = review(*pods, operation="UPDATE", subResource="resize")
    assert (await team.post(bigger))["allowed"]
    assert [type(command) for command in team.ledger.commands()] == [Reserve, Reserve]


async def test_pod_with_claims_is_gated_where_pods_wait() -> None:
    team = ClaimTeam(claim_template("fresh"), on_exceeded="pending")
    team.ledger.limit(memory=4 * GI)
    response = await team.post(review(claiming_pod("p", "fresh")), "mutate")
    assert GATE in b64decode(response["patch"]).decode()
    response = await team.create(claiming_pod(gate=GATE))
    assert response["allowed"]
    assert "is created and waits" in response["warnings"][0]
    assert team.reserved() == {}


async def test_removed_gate_reserves_the_claims_that_are_read() -> None:
    """Another replica allowed the claim because of the gate, and its template is gone."""
    pod = claiming_pod(gate=GATE)
    claim = generated(pod, gi=40)
    team = ClaimTeam(claim, on_exceeded="pending")
    team.ledger.limit(memory=20 * GI)
    team.list_templates()
    pod["status"] = {"resourceClaimStatuses": [{"name": "g", "resourceClaimName": "p-g-x1"}]}
    opened = {**pod, "spec": {**pod["spec"], "schedulingGates": []}}
    opened["metadata"] = {**pod["metadata"]}
    assert reasons(await team.update(opened, pod)) == ["ExceedsLimit"]
    team.ledger.limit(memory=50 * GI)
    assert (await team.update(opened, pod))["allowed"]
    assert team.reserved() == {"pods/p": 40 * GI}
    assert [name for _, name in team.cluster.asked].count("p-g-x1") == 1  # then it is remembered
    team.store.drop_claim("u-p-g-x1")
    team.cluster.failing = ClusterUnavailable("down")
    assert reasons(await team.update(opened, pod)) == ["ClaimUndecided"]


async def test_pod_update_does_not_raise_its_charge_by_a_larger_template() -> None:
    team = ClaimTeam()
    team.ledger.limit(memory=30 * GI)
    old = claiming_pod()
    assert (await team.create(old))["allowed"]
    team.list_templates(claim_template(gi=80))
    new = claiming_pod()
    new["metadata"]["labels"] = {"a": "b"}
    assert (await team.update(new, old))["allowed"]
    assert team.ledger.used()[MEMORY] == 8 * GI


async def test_removed_gate_reserves_the_templates_of_claims_that_do_not_exist() -> None:
    team = ClaimTeam(on_exceeded="pending")
    gated, opened = claiming_pod(gate=GATE), claiming_pod()
    assert (await team.update(opened, gated))["allowed"]
    assert team.reserved() == {"pods/p": 8 * GI}


async def test_pod_enters_a_quota_with_what_it_was_admitted_for() -> None:
    team = ClaimTeam()
    assert (await team.create(claiming_pod()))["allowed"]
    gold = (Requirement("tier", "In", ("gold",)),)
    team.ledger.limit(selects=gold, memory=8 * GI, cards=1)
    team.list_templates(claim_template(gi=80, count=2))
    new = claiming_pod()
    new["metadata"]["labels"] = {"tier": "gold"}
    assert (await team.update(new, claiming_pod()))["allowed"]
    assert team.ledger.used()[MEMORY] == 8 * GI


async def test_exempt_user_is_charged_beyond_the_limit() -> None:
    team = ClaimTeam(exempt_users=("ada",))
    team.ledger.limit(memory=4 * GI)
    response = await team.create(resource_claim("own", claim_spec(8)))
    assert response["allowed"]
    assert "over the limit" in response["warnings"][0]
    assert team.ledger.used()[MEMORY] == 8 * GI


async def test_dry_runs_change_nothing() -> None:
    team = ClaimTeam()
    for new in (claiming_pod(), resource_claim("own"), claim_template("t")):
        assert (await team.create(new, dryRun=True))["allowed"]
    assert team.ledger.commands() == []
    assert len(team.store.claims) == 0
