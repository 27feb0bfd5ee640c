"""The demand of a pod's claims: what exists counts, and what does not exist yet is deferred."""

from typing import Any

import msgspec
import pytest
from support.claims.claim_reviews import (
    EXTENDED,
    GI,
    ClaimTeam,
    claim_template,
    claiming_pod,
    generated,
    read,
    resource_claim,
    resource_slice,
)
from support.fakes.owner_cluster import Manifest

from ledger.core.model.denials import Denial, Reason
from ledger.kube.api.cluster_ports import Interrupted
from ledger.kube.api.objects import Pod
from ledger.kube.api.pod_gates import GATE
from ledger.kube.requests.confirmed_card_sizes import CARD_MEMORY_MAX
from ledger.kube.requests.demand import NO_DEMAND
from webhook.context.resource_claims import claim_index

MEMORY = "nvidia.com/gpumem"
GIVEN = {
    "request": "main",
    "driver": "gpu.nvidia.com",
    "pool": "n1",
    "device": "gpu-0",
    "shareID": "s-1",
    "consumedCapacity": {"memory": "3Gi"},
}


def stored(pod: Manifest, **status: str) -> Manifest:
    """Return a pod as the watch shows it; `status` has the claims by their names in the pod."""
    statuses = [
        {"name": name, "resourceClaimName": claim} for name, claim in status.items() if claim
    ]
    metadata = {**pod["metadata"], "resourceVersion": "7"}
    return {**pod, "metadata": metadata, "status": {"resourceClaimStatuses": statuses}}


def allocated(claim: Manifest) -> Manifest:
    return {**claim, "status": {"allocation": {"devices": {"results": [GIVEN]}}}}


def amounts(team: ClaimTeam, pod: Manifest) -> tuple[int, int]:
    """Return the MiB of a pod's claims, and the deferred part."""
    demand = team.demand(pod)
    return demand.amounts.get(MEMORY, 0), demand.deferred.get(MEMORY, 0)


def test_claim_that_does_not_exist_is_deferred() -> None:
    team = ClaimTeam()
    for pod in (claiming_pod(), stored(claiming_pod())):
        assert amounts(team, pod) == (8 * GI, 8 * GI)


def test_generated_claim_counts_with_its_own_spec() -> None:
    team = ClaimTeam()
    team.store.note_claim(read(generated(claiming_pod(), gi=40)))
    assert amounts(team, stored(claiming_pod())) == (40 * GI, 0)


def test_allocated_claim_counts_with_what_it_consumes() -> None:
    team = ClaimTeam()
    team.store.note_claim(read(allocated(generated(claiming_pod()))))
    demand = team.demand(stored(claiming_pod()))
    assert (demand.amounts[MEMORY], demand.assumed, demand.deferred) == (3 * GI, (), {})
    [device] = team.store.devices_of_pod(_pod(stored(claiming_pod())))
    assert (device.claim, device.card, device.memory) == ("p-g-x1", "GPU-n1-0", 3 * GI)


def test_claim_with_an_entry_of_its_own_adds_nothing() -> None:
    team = ClaimTeam()
    team.store.note_claim(read(allocated(generated(claiming_pod()))))
    team.observe("resourceclaims.resource.k8s.io/p-g-x1", "u-p-g-x1", memory=8 * GI)
    pod = stored(claiming_pod())
    assert team.demand(pod) == NO_DEMAND
    assert team.store.devices_of_pod(_pod(pod)) == ()


def test_entry_of_an_earlier_claim_of_the_name_is_not_its_own() -> None:
    team = ClaimTeam()
    team.store.note_claim(read(generated(claiming_pod())))
    team.observe("resourceclaims.resource.k8s.io/p-g-x1", "u-old", memory=8 * GI)
    assert amounts(team, stored(claiming_pod())) == (8 * GI, 0)


def test_claim_in_the_status_of_the_pod_wins_over_others() -> None:
    team = ClaimTeam()
    for gi, name in ((40, "first"), (20, "second")):
        team.store.note_claim(read(generated(claiming_pod(), gi=gi, named=name)))
    pod = claiming_pod()
    assert amounts(team, stored(pod)) == (40 * GI, 0)
    assert amounts(team, stored(pod, g="second")) == (20 * GI, 0)
    assert amounts(team, stored(pod, g="unknown")) == (40 * GI, 0)


def test_forged_claim_with_its_own_charge_does_not_hide_the_generated_one() -> None:
    team = ClaimTeam()
    team.store.note_claim(read(generated(claiming_pod(), gi=1, named="forged")))
    team.observe("resourceclaims.resource.k8s.io/forged", "u-forged", memory=GI)
    team.store.note_claim(read(generated(claiming_pod())))
    assert amounts(team, stored(claiming_pod())) == (8 * GI, 0)


def test_claim_of_another_namespace_or_pod_does_not_count() -> None:
    team = ClaimTeam()
    team.store.note_claim(read(generated(claiming_pod(), gi=1, namespace="other")))
    team.store.note_claim(read(generated(claiming_pod("q"), gi=1)))
    assert amounts(team, stored(claiming_pod())) == (8 * GI, 8 * GI)


def test_named_and_extended_claims_add_nothing_to_the_amounts() -> None:
    team = ClaimTeam()
    pod = claiming_pod()
    pod["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": "own"}]
    team.store.note_claim(read(allocated(resource_claim("own"))))
    extended = allocated(generated(pod, annotations={EXTENDED: "true"}, named="p-ext"))
    team.store.note_claim(read(extended))
    assert team.demand(stored(pod)) == NO_DEMAND
    [device] = team.store.devices_of_pod(_pod(stored(pod)))
    assert device.claim == "p-ext"
    other = allocated(generated(pod, annotations={EXTENDED: "true"}, named="x", namespace="other"))
    team.store.note_claim(read(other))
    team.observe("resourceclaims.resource.k8s.io/p-ext", "u-p-ext", memory=GI)
    assert team.store.devices_of_pod(_pod(stored(pod))) == ()


def test_dropped_claim_and_list_are_followed() -> None:
    team = ClaimTeam()
    team.store.note_claim(read(generated(claiming_pod(), gi=40)))
    team.store.drop_claim("u-p-g-x1")
    assert amounts(team, stored(claiming_pod())) == (8 * GI, 8 * GI)
    team.store.relist_claims([read(generated(claiming_pod(), gi=20))])
    assert amounts(team, stored(claiming_pod())) == (20 * GI, 0)


def test_template_that_is_unknown_is_unresolved_until_all_are_listed() -> None:
    team = ClaimTeam()
    pod = claiming_pod("p", "later")
    assert team.demand(stored(pod)) == NO_DEMAND
    team.store.templates.take(Interrupted("forbidden"))
    assert team.demand(stored(pod)).unresolved
    assert team.demand(pod) == NO_DEMAND


@pytest.mark.parametrize("more", [{"count": 40}, {"capacity": {"requests": {"memory": "1e30"}}}])
def test_stored_pod_is_never_denied_for_a_template_made_again(more: Any) -> None:
    """A denial would end the charge of the pod, whose other claims may be allocated."""
    team = ClaimTeam()
    team.list_templates(claim_template(), claim_template("wide", **more))
    pod = claiming_pod("p", "small", "wide")
    denial = team.demand(pod)
    assert isinstance(denial, Denial)
    assert denial.field == "spec.resourceClaims[1].resourceClaimTemplateName"
    assert "spec.spec.devices.requests" in denial.message
    demand = team.demand(stored(pod))
    assert (demand.amounts[MEMORY], demand.unresolved) == (8 * GI, True)


def test_stored_pod_is_not_denied_beyond_what_amounts_can_be() -> None:
    team = ClaimTeam()
    team.list_slices(resource_slice(shared=False))
    huge = {"requests": {"memory": "600000000000Mi"}}
    team.list_templates(claim_template("huge", capacity=huge))
    assert amounts(team, claiming_pod("p", "huge")) == (6 * 10**11, 6 * 10**11)
    demand = team.demand(stored(claiming_pod("p", "huge")))
    assert (demand.amounts, demand.deferred, demand.unresolved) == ({}, {}, True)


def test_stored_pod_is_charged_when_an_allocation_is_beyond_all_cards() -> None:
    """Else the pod is invalid, and its charge ends."""
    team = ClaimTeam()
    claim = generated(claiming_pod())
    result = {"request": "r", "driver": "hami-core-gpu.project-hami.io", "pool": "gone"}
    consumed = {"device": "x", "consumedCapacity": {"memory": "9E", "cores": "9E"}}
    claim["status"] = {"allocation": {"devices": {"results": [result | consumed]}}}
    team.store.note_claim(read(claim))
    demand = team.demand(stored(claiming_pod()))
    assert not isinstance(demand, Denial)
    assert demand.amounts == {
        "nvidia.com/gpu": 1,
        "nvidia.com/gpucores": 100,
        MEMORY: CARD_MEMORY_MAX,
    }


def test_claim_that_can_never_be_allocated_counts_nothing() -> None:
    team = ClaimTeam()
    claim = generated(claiming_pod())
    claim["spec"]["devices"]["requests"][0]["exactly"]["count"] = 2**63 - 1
    team.store.note_claim(read(claim))
    assert amounts(team, stored(claiming_pod())) == (0, 0)
    denial = team.store.of_claim(read(claim))
    assert isinstance(denial, Denial)
    assert denial.reason is Reason.TOO_MANY_DEVICES


def test_unknown_amounts_matter_until_the_pod_is_let_in() -> None:
    team = ClaimTeam()
    team.list_slices()
    whole = claim_template()
    del whole["spec"]["spec"]["devices"]["requests"][0]["exactly"]["capacity"]
    team.list_templates(whole)
    assert team.demand(claiming_pod()).unknown == MEMORY
    field = "spec.resourceClaims[0].resourceClaimTemplateName"
    assert team.demand(claiming_pod()).memory_unknown == field
    assert team.demand(stored(claiming_pod(gate=GATE))).unknown == MEMORY
    assert team.demand(stored(claiming_pod())).unknown == ""


async def test_store_waits_for_its_lists_until_a_deadline() -> None:
    team = ClaimTeam()
    assert await team.store.wait_listed(0.0) == ""
    team.store.classes.listed.clear()
    team.store.classes.take(Interrupted("deviceclasses is forbidden"))
    problem = await team.store.wait_listed(0.0)
    assert problem == "deviceclasses.resource.k8s.io: deviceclasses is forbidden"
    assert problem in team.context.problems()


def test_claims_beyond_the_bound_are_a_problem_until_the_next_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claim_index, "CLAIMS_MAX", 0)
    team = ClaimTeam()
    for _ in range(2):
        team.store.note_claim(read(generated(claiming_pod())))
        problem = "resourceclaims.resource.k8s.io: only 200000 of them are kept"
        assert team.store.problems() == [problem]
    team.store.relist_claims(())
    assert team.store.problems() == []


def test_world_changes_with_classes_and_rules() -> None:
    team = ClaimTeam()
    world = team.store.world
    assert team.store.world is world
    team.list_classes()
    assert team.store.world is not world
    assert team.store.world.classes == {}


def _pod(manifest: Manifest) -> Pod:
    return msgspec.convert(manifest, Pod)
