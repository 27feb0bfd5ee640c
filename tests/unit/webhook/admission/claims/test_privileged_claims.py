"""A privileged container sees every card of its node, also those of its pod's resource claims."""

from typing import Any

import pytest
from support.builders.admission_reviews import review
from support.claims.claim_reviews import (
    CONTROLLER,
    EXTENDED,
    SCHEDULER,
    ClaimTeam,
    claim_spec,
    claim_template,
    claiming_pod,
    device_class,
    generated,
    read,
    resource_claim,
)
from support.fakes.owner_cluster import DEPLOYMENTS, Manifest, manifest, of

from webhook.context.admission_settings import AdmissionSettings

PRIVILEGED = {"privileged": True}
SHELL = {"name": "shell", "image": "i", "securityContext": PRIVILEGED}
FIELD = "spec.containers[0].securityContext.privileged"
NIC = "dra.net"
"""A driver that the built-in mapping has among those without GPUs."""


def privileged(*templates: str, named: str = "") -> Manifest:
    """Return a privileged pod with claims of these templates, or with a claim by name."""
    pod = claiming_pod("p", *templates)
    pod["spec"]["containers"][0]["securityContext"] = PRIVILEGED
    if named:
        pod["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": named}]
    return pod


async def debug(team: ClaimTeam, pod: Manifest) -> Any:
    """Return the response to a privileged debugging container in a stored pod."""
    pod["metadata"]["resourceVersion"] = "5"
    new = {**pod, "spec": {**pod["spec"], "ephemeralContainers": [SHELL]}}
    where = {"operation": "UPDATE", "subResource": "ephemeralcontainers"}
    return await team.post(review(new, pod, **where))


def deployment(pod: Manifest) -> Manifest:
    web = manifest(DEPLOYMENTS, "web", replicas=2)
    web["spec"]["template"]["spec"] = pod["spec"]
    return web


def is_refused(response: Any, field: str = FIELD) -> None:
    assert not response["allowed"]
    [cause] = response["status"]["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("PrivilegedContainer", field)


async def with_claim(**spec: Any) -> ClaimTeam:
    """Return a namespace in which the claim `own` exists."""
    team = ClaimTeam()
    team.store.note_claim(read(resource_claim("own", claim_spec(**spec))))
    return team


async def test_a_privileged_pod_with_a_claim_of_cards_is_refused() -> None:
    team = ClaimTeam()
    response = await team.create(privileged())
    is_refused(response)
    assert "beside resource claim g, which asks for cards" in response["status"]["message"]
    assert team.reserved() == {}
    allowing = ClaimTeam(settings=AdmissionSettings(allow_privileged=True))
    assert (await allowing.create(privileged()))["allowed"]


async def test_a_privileged_pod_that_names_a_claim_of_cards_is_refused() -> None:
    team = await with_claim()
    is_refused(await team.create(privileged(named="own")))
    team = ClaimTeam(resource_claim("own"))
    is_refused(await team.create(privileged(named="own")))


async def test_a_privileged_pod_with_claims_of_other_devices_is_let_in() -> None:
    team = ClaimTeam()
    team.list_classes(device_class("gpu"), device_class("nic", NIC))
    team.list_templates(
        claim_template("nics", cls="nic"), claim_template("admin", adminAccess=True)
    )
    assert (await team.create(privileged("nics", "admin")))["allowed"]
    team.store.note_claim(read(resource_claim("own", claim_spec(cls="nic"))))
    assert (await team.create(privileged(named="own")))["allowed"]


async def test_a_privileged_pod_that_names_no_claim_yet_is_let_in() -> None:
    assert (await ClaimTeam().create(privileged(named="later")))["allowed"]


@pytest.mark.parametrize("named", ["", "own"])
async def test_a_workload_of_privileged_pods_with_cards_is_refused(named: str) -> None:
    team = await with_claim()
    web = deployment(privileged(named=named))
    is_refused(await team.post(review(web, **of(DEPLOYMENTS))), f"spec.template.{FIELD}")
    plain = deployment(claiming_pod("p"))
    assert (await team.post(review(plain, **of(DEPLOYMENTS))))["allowed"]


async def test_a_workload_that_was_privileged_before_can_be_labelled() -> None:
    team = await with_claim()
    old, new = (deployment(privileged(named="own")) for _ in range(2))
    new["metadata"]["labels"] = {"a": "b"}
    request = review(new, old, operation="UPDATE", **of(DEPLOYMENTS))
    assert (await team.post(request))["allowed"]


@pytest.mark.parametrize("known", [True, False], ids=["known", "read"])
@pytest.mark.parametrize("kind", ["generated", "named", "extended"])
async def test_no_debugging_container_beside_a_claim_is_privileged(kind: str, known: bool) -> None:
    pod = claiming_pod("p", "gone")
    claim = generated(pod, named="c")
    pod["status"] = {"resourceClaimStatuses": [{"name": "g", "resourceClaimName": "c"}]}
    if kind == "named":
        pod["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": "c"}]
        claim = resource_claim("c")
    if kind == "extended":
        del pod["spec"]["resourceClaims"]
        claim["metadata"]["annotations"] = {EXTENDED: "true"}
        pod["status"] = {
            "extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": []}
        }
    team = ClaimTeam(*(() if known else (claim,)))
    if known:
        team.store.note_claim(read(claim))
    is_refused(await debug(team, pod), "spec.ephemeralContainers[0].securityContext.privileged")
    assert (("resourceclaims.resource.k8s.io", "c") in team.cluster.asked) is not known
    assert (await debug(ClaimTeam(), pod))["allowed"]


async def test_a_claim_of_a_later_template_is_refused_for_a_privileged_pod() -> None:
    team = ClaimTeam()
    team.list_templates()
    pod = privileged("late")
    assert (await team.create(pod))["allowed"]
    team.cluster.put(pod)
    response = await team.create(generated(pod), CONTROLLER)
    is_refused(response, "metadata.ownerReferences")
    assert "pod p: container" in response["status"]["message"]


@pytest.mark.parametrize("allow", [False, True])
async def test_a_claim_of_a_served_resource_is_refused_for_a_privileged_pod(allow: bool) -> None:
    team = ClaimTeam(settings=AdmissionSettings(allow_privileged=allow))
    pod = privileged()
    del pod["spec"]["resourceClaims"]
    resources = {"limits": {"deviceclass.resource.kubernetes.io/gpu": "1"}}
    pod["spec"]["containers"][0]["resources"] = resources
    assert (await team.create(pod))["allowed"]
    team.cluster.put(pod)
    claim = generated(pod, annotations={EXTENDED: "true"})
    response = await team.create(claim, SCHEDULER)
    assert response["allowed"] is allow
    if not allow:
        is_refused(response, "metadata.ownerReferences")
