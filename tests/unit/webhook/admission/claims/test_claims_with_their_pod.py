"""A generated claim counts with its pod if nothing about it is forged, and else by itself."""

import asyncio
from typing import Any

import pytest
from support.claims.claim_reviews import (
    CONTROLLER,
    GI,
    SCHEDULER,
    ClaimTeam,
    charged_alone,
    claim_template,
    claiming_pod,
    generated,
    read,
    resource_slice,
)
from support.fakes.owner_cluster import Manifest

from ledger.core.model.commands import End, Reserve
from ledger.core.model.events import Cause
from ledger.kube.api.cluster_errors import ClusterUnavailable
from ledger.kube.api.pod_gates import GATE
from webhook.admission import claim_ownership
from webhook.context.namespace_policies import NamespacePolicy
from webhook.context.resource_claims import reviewed_pods

POD = claiming_pod()
OF_POD = "resourceclaims.resource.k8s.io/p-g-x1"


def reasons(response: dict[str, Any]) -> list[str]:
    assert not response["allowed"]
    return [cause["reason"] for cause in response["status"]["details"]["causes"]]


async def charged_pod(pod: Manifest = POD, **policy: Any) -> ClaimTeam:
    """Return a namespace in which a pod was allowed, and forget that."""
    team = ClaimTeam(pod, **policy)
    assert (await team.create(pod))["allowed"]
    team.ledger.submitted.clear()
    return team


async def test_pod_is_charged_for_its_templates_and_the_claim_adds_nothing() -> None:
    team = ClaimTeam()
    team.ledger.limit(memory=8 * GI)
    assert (await team.create(POD))["allowed"]
    assert team.reserved() == {"pods/p": 8 * GI}
    assert (await team.create(generated(POD), CONTROLLER))["allowed"]
    assert team.reserved() == {"pods/p": 8 * GI}
    assert team.cluster.asked == []  # the pod of a moment ago is remembered


async def test_pod_is_denied_with_numbers_for_its_templates() -> None:
    team = ClaimTeam()
    team.ledger.limit(memory=10 * GI)
    two = claiming_pod("p", "small", "small")
    response = await team.create(two)
    assert reasons(response) == ["ExceedsLimit"]
    assert "16384" in response["status"]["message"]


@pytest.mark.parametrize("user", ["ada", "system:serviceaccount:team:default", SCHEDULER, ""])
async def test_claim_of_another_creator_counts_by_itself(user: str) -> None:
    team = await charged_pod()
    assert await charged_alone(team, generated(POD), user)


async def test_untrusted_creator_of_a_claim_is_named_and_no_other() -> None:
    team = await charged_pod()
    noted = team.context.owner_chains.unrecognized_controllers
    await team.create(generated(POD), "ada", dryRun=True)
    await team.create(generated(POD, ownerReferences=[], named="own"), "ada")
    await team.create(generated(POD), CONTROLLER)
    assert noted.problems() == []
    await team.create(generated(POD, named="p-g-x2"), "ada")
    [problem] = noted.problems()
    assert problem.startswith("ada made 1 resource claims")


async def test_claim_counts_with_its_pod_for_the_service_account_too() -> None:
    team = await charged_pod()
    user = "system:serviceaccount:kube-system:resource-claim-controller"
    assert not await charged_alone(team, generated(POD), user)


async def test_claim_counts_by_itself_without_an_owner() -> None:
    team = await charged_pod()
    assert await charged_alone(team, generated(POD, ownerReferences=[]))


async def test_claim_counts_by_itself_if_its_owner_does_not_control_it() -> None:
    claim = generated(POD)
    claim["metadata"]["ownerReferences"][0]["controller"] = False
    assert await charged_alone(await charged_pod(), claim)


async def test_claim_counts_by_itself_without_the_name_of_a_claim() -> None:
    team = await charged_pod()
    assert await charged_alone(team, generated(POD, annotations={}))


async def test_claim_counts_by_itself_if_the_pod_does_not_list_it() -> None:
    team = await charged_pod()
    assert await charged_alone(team, generated(POD, "other"))


async def test_claim_counts_by_itself_if_the_pod_names_a_claim_there() -> None:
    pod = claiming_pod()
    pod["spec"]["resourceClaims"].append({"name": "by-name", "resourceClaimName": "own"})
    team = await charged_pod(pod)
    assert await charged_alone(team, generated(pod, "by-name", gi=1))


async def test_claim_counts_by_itself_if_its_pod_is_another_one_now() -> None:
    team = ClaimTeam({**POD, "metadata": {**POD["metadata"], "uid": "u-new"}})
    assert await charged_alone(team, generated(POD))


async def test_claim_counts_by_itself_if_its_pod_does_not_exist() -> None:
    team = ClaimTeam()
    assert await charged_alone(team, generated(POD))


async def test_claim_counts_by_itself_if_the_pod_is_not_charged() -> None:
    team = ClaimTeam(POD)
    assert await charged_alone(team, generated(POD))


async def test_claim_counts_by_itself_once_its_pod_has_ended() -> None:
    team = await charged_pod()
    team.observe("pods/p", "u-p", memory=8 * GI)
    team.ledger.apply(End("east/team", "pods/p", "u-p", 7, Cause.FINISHED))
    assert await charged_alone(team, generated(POD))


async def test_claim_of_a_larger_template_counts_by_itself() -> None:
    """The template was deleted, and made again with more, after the pod was reviewed."""
    team = await charged_pod()
    team.ledger.limit(memory=60 * GI)
    team.list_templates(claim_template(gi=40))
    assert await charged_alone(team, generated(POD, gi=40))
    assert team.ledger.used()["limits.nvidia.com/gpumem"] == 48 * GI


async def test_larger_claim_is_refused_without_room_for_it() -> None:
    team = await charged_pod()
    team.ledger.limit(memory=40 * GI)
    response = await team.create(generated(POD, gi=40), CONTROLLER)
    assert reasons(response) == ["QuotaExceeded"]


async def test_claim_of_a_smaller_template_counts_with_its_pod() -> None:
    team = await charged_pod()
    assert not await charged_alone(team, generated(POD, gi=4))


async def test_claim_counts_by_itself_after_the_charge_of_its_pod_fell() -> None:
    """A smaller template lowered the charge, then the first one was made again."""
    team = await charged_pod()
    team.observe("pods/p", "u-p", memory=GI)
    team.list_templates(claim_template(gi=8))
    assert await charged_alone(team, generated(POD))


async def test_second_claim_for_one_claim_of_a_pod_counts_by_itself() -> None:
    first, second = generated(POD), generated(POD, named="p-g-x2")
    team = await charged_pod()
    assert not await charged_alone(team, first)
    team.cluster.put(first)
    assert await charged_alone(team, second)


async def test_second_claim_counts_by_itself_when_the_watch_shows_the_first() -> None:
    first, second = generated(POD), generated(POD, named="p-g-x2")
    team = await charged_pod()
    team.cluster.put(first)
    team.store.note_claim(read(first))
    assert await charged_alone(team, second)


async def test_second_claim_waits_while_the_first_may_still_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two creations at once, in the name of the controller: neither exists yet."""
    first, second = generated(POD), generated(POD, named="p-g-x2")
    team = await charged_pod()
    assert not await charged_alone(team, first)
    response = await team.create(second, CONTROLLER)
    assert reasons(response) == ["ClaimUndecided"]
    monkeypatch.setattr(claim_ownership, "IN_FLIGHT_SECONDS", 0.0)
    assert not await charged_alone(team, second)  # the first was not written


async def test_claim_counts_with_its_pod_after_another_one_was_deleted() -> None:
    team = await charged_pod()
    team.store.note_claim(read(generated(POD)))
    assert not await charged_alone(team, generated(POD, named="p-g-x2"))


async def test_forged_claim_with_its_own_charge_takes_no_place_of_a_pod() -> None:
    team, forged = await charged_pod(), generated(POD, named="forged")
    team.observe("resourceclaims.resource.k8s.io/forged", "u-forged", memory=8 * GI)
    team.cluster.put(forged)
    team.store.note_claim(read(forged))
    assert not await charged_alone(team, generated(POD))


async def test_claim_of_another_namespace_takes_no_place_of_a_pod() -> None:
    team, other = await charged_pod(), read(generated(POD, named="other", namespace="blue"))
    team.store.note_claim(other)
    assert not await charged_alone(team, generated(POD))
    assert team.store.claims.of_name("blue", "other") == other
    assert team.cluster.asked == []


async def test_two_claims_of_a_pod_share_its_charge() -> None:
    pod = claiming_pod("p", "small", "small")
    team = await charged_pod(pod)
    assert not await charged_alone(team, generated(pod, "g"))
    assert not await charged_alone(team, generated(pod, "g1"))


async def test_second_of_two_larger_claims_counts_by_itself() -> None:
    """Each alone would be covered while the template of the other is small."""
    pod = claiming_pod("p", "small", "other")
    team = ClaimTeam(pod)
    team.list_templates(claim_template(), claim_template("other"))
    assert (await team.create(pod))["allowed"]
    team.ledger.submitted.clear()
    team.list_templates(claim_template(), claim_template("other", gi=1))
    assert not await charged_alone(team, generated(pod, "g", gi=15))
    team.list_templates(claim_template(gi=1), claim_template("other"))
    assert await charged_alone(team, generated(pod, "g1", gi=15))


async def test_claim_of_a_pod_of_another_replica_is_decided_by_a_read() -> None:
    team = await charged_pod()
    team.store.reviewed_pods._pods.clear()
    assert not await charged_alone(team, generated(POD))
    assert team.cluster.asked == [("pods", "p")]
    larger = generated(POD, gi=40, named="p-g-x2")
    team.store.drop_claim("u-p-g-x1")
    assert await charged_alone(team, larger)


async def test_claim_waits_for_a_charge_that_another_replica_has_reserved() -> None:
    team = ClaimTeam(POD)
    amounts = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 8 * GI}
    reserve = Reserve("east/team", "pods/p", "u-p", amounts)
    asyncio.get_running_loop().call_later(0.3, team.ledger.apply, reserve)
    assert not await charged_alone(team, generated(POD))


async def test_claim_keeps_what_its_pod_was_admitted_for_when_cards_change() -> None:
    """The same template is reviewed when all cards have become whole ones of 80 Gi."""
    team = await charged_pod()
    team.list_slices(resource_slice(shared=False))
    assert not await charged_alone(team, generated(POD))


async def test_claim_of_an_earlier_pod_is_not_excused_by_a_gated_one() -> None:
    pod = claiming_pod(gate=GATE)
    new = {**pod, "metadata": {**pod["metadata"], "uid": "u-new"}}
    team = ClaimTeam(new, on_exceeded="pending")
    assert await charged_alone(team, generated(pod))


async def test_claim_of_a_gated_pod_is_not_charged_for_an_earlier_pod() -> None:
    pod = claiming_pod(gate=GATE)
    team = ClaimTeam(pod, on_exceeded="pending")
    team.observe("pods/p", "u-old", memory=GI)
    assert not await charged_alone(team, generated(pod))


async def test_remembered_gate_does_not_excuse_a_claim_after_its_removal() -> None:
    team = await charged_pod(claiming_pod(gate=GATE))
    gated = NamespacePolicy(on_exceeded="pending")
    team.context.policies._default = gated
    team.observe("pods/p", "u-p", memory=8 * GI)
    team.ledger.apply(End("east/team", "pods/p", "u-p", 7, Cause.FINISHED))
    team.cluster.put(POD)
    assert await charged_alone(team, generated(POD))


async def test_claim_is_refused_for_now_if_its_pod_cannot_be_read() -> None:
    team = await charged_pod()
    team.store.reviewed_pods._pods.clear()
    team.cluster.failing = ClusterUnavailable("the API server is down")
    response = await team.create(generated(POD), CONTROLLER)
    assert reasons(response) == ["ClaimUndecided"]
    assert "the API server is down" in response["status"]["message"]
    team.cluster.failing, team.cluster.silent = None, True
    response = await team.create(generated(POD), CONTROLLER)
    assert reasons(response) == ["ClaimUndecided"]


async def test_dry_run_of_a_claim_is_not_remembered() -> None:
    team = await charged_pod()
    assert (await team.create(generated(POD), CONTROLLER, dryRun=True))["allowed"]
    assert len(team.store.claims) == 0
    assert not await charged_alone(team, generated(POD, named="p-g-x2"))


async def test_dry_run_of_a_pod_is_not_remembered() -> None:
    team = ClaimTeam(POD)
    assert (await team.create(POD, dryRun=True))["allowed"]
    assert len(team.store.reviewed_pods) == 0


async def test_claim_of_a_gated_pod_reserves_nothing() -> None:
    pod = claiming_pod(gate=GATE)
    team = ClaimTeam(pod, on_exceeded="pending")
    assert (await team.create(pod))["allowed"]
    team.ledger.submitted.clear()
    assert not await charged_alone(team, generated(pod, gi=40))


async def test_gate_excuses_no_claim_where_pods_do_not_wait() -> None:
    """A tenant may write the gate; its pod named a template that did not exist yet."""
    pod = claiming_pod("p", "later", gate=GATE)
    team = ClaimTeam(pod)
    assert (await team.create(pod))["allowed"]
    assert await charged_alone(team, generated(pod))


async def test_claim_of_a_pod_whose_gate_was_removed_is_covered_or_not() -> None:
    pod = claiming_pod(gate=GATE)
    team = ClaimTeam(pod, on_exceeded="pending")
    assert (await team.create(pod))["allowed"]
    team.ledger.submitted.clear()
    team.observe("pods/p", "u-p", memory=GI)
    team.cluster.put(claiming_pod())
    assert await charged_alone(team, generated(POD))


async def test_gate_of_another_name_does_not_excuse_a_claim() -> None:
    pod = claiming_pod(gate="example.com/later")
    team = ClaimTeam(pod, on_exceeded="pending")
    assert await charged_alone(team, generated(pod))


async def test_remembered_pods_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviewed_pods, "PODS_MAX", 2)
    team = ClaimTeam()
    for name in ("a", "b", "c"):
        assert (await team.create(claiming_pod(name)))["allowed"]
    assert len(team.store.reviewed_pods) == 2
