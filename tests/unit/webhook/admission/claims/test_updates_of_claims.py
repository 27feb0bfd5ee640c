"""A claim with its own charge may not leave a quota by its labels; other updates pass."""

from copy import deepcopy
from typing import Any

import pytest
from support.claims.claim_reviews import (
    CONTROLLER,
    DRIVER,
    GI,
    ClaimTeam,
    claim_spec,
    claiming_pod,
    generated,
    resource_claim,
)
from support.fakes.owner_cluster import Manifest

from ledger.core.model.commands import Reserve
from ledger.core.model.traits import Requirement

GOLD = (Requirement("tier", "In", ("gold",)),)
MEMORY = "limits.nvidia.com/gpumem"
KEY = "resourceclaims.resource.k8s.io/own"
CLAIM_OF_POD = "resourceclaims.resource.k8s.io/p-g-x1"


def labelled(thing: Manifest, **labels: str) -> Manifest:
    copied = deepcopy(thing)
    copied["metadata"]["labels"] = labels
    return copied


def reasons(response: dict[str, Any]) -> list[str]:
    assert not response["allowed"]
    return [cause["reason"] for cause in response["status"]["details"]["causes"]]


@pytest.fixture
def team() -> ClaimTeam:
    """Return a namespace with a quota over claims with the label tier=gold."""
    team = ClaimTeam(exempt_users=("root",))
    team.ledger.limit(selects=GOLD, memory=20 * GI)
    return team


async def test_claim_counts_in_quotas_that_select_by_its_labels(team: ClaimTeam) -> None:
    assert (await team.create(resource_claim("other", claim_spec(30))))["allowed"]
    assert (await team.create(labelled(resource_claim("own"), tier="gold")))["allowed"]
    assert team.ledger.used()[MEMORY] == 8 * GI


async def test_claim_may_not_leave_a_quota_by_its_labels(team: ClaimTeam) -> None:
    gold = labelled(resource_claim("own"), tier="gold")
    assert (await team.create(gold))["allowed"]
    assert reasons(await team.update(labelled(gold), gold)) == ["LeavesQuota"]
    assert (await team.update(labelled(gold, tier="gold", a="b"), gold))["allowed"]
    assert (await team.update(labelled(gold), gold, "root"))["allowed"]


async def test_claim_enters_a_quota_only_with_room(team: ClaimTeam) -> None:
    own, big = resource_claim("own"), resource_claim("big", claim_spec(30))
    for claim in (own, big):
        assert (await team.create(claim))["allowed"]
    assert reasons(await team.update(labelled(big, tier="gold"), big)) == ["ExceedsLimit"]
    assert (await team.update(labelled(own, tier="gold"), own))["allowed"]
    assert team.ledger.used()[MEMORY] == 8 * GI


async def test_claim_enters_a_quota_with_what_it_is_charged(team: ClaimTeam) -> None:
    """It was allocated less than its bound, so less counts."""
    big = resource_claim("big", claim_spec(30))
    assert (await team.create(big))["allowed"]
    team.observe("resourceclaims.resource.k8s.io/big", "u-big", memory=10 * GI)
    assert (await team.update(labelled(big, tier="gold"), big))["allowed"]
    assert team.ledger.used()[MEMORY] == 10 * GI


async def test_labels_of_a_claim_that_counts_with_its_pod_are_free(team: ClaimTeam) -> None:
    pod = claiming_pod()
    assert (await team.create(pod))["allowed"]
    claim = generated(pod)
    assert (await team.create(claim, CONTROLLER))["allowed"]
    team.ledger.submitted.clear()
    assert (await team.update(labelled(claim, tier="gold"), claim))["allowed"]
    assert team.ledger.submitted == []


async def test_other_updates_of_claims_do_not_reach_the_ledger(team: ClaimTeam) -> None:
    gold = labelled(resource_claim("own"), tier="gold")
    assert (await team.create(gold))["allowed"]
    team.ledger.submitted.clear()
    finalized = deepcopy(gold)
    finalized["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    assert (await team.update(finalized, gold))["allowed"]
    assert (await team.update(finalized, gold, subresource="status"))["allowed"]
    assert team.ledger.submitted == []


async def test_creations_of_one_user_are_bounded_and_those_of_pods_apart() -> None:
    team = ClaimTeam()
    team.settings = type(team.settings)(owner_holds_max=2)
    for name in ("a", "b"):
        assert (await team.create(resource_claim(name)))["allowed"]
    assert reasons(await team.create(resource_claim("c"))) == ["TooManyUnsettled"]
    for name in ("x", "y", "z"):
        pod = claiming_pod(name, "later")
        team.cluster.put(pod)
        assert (await team.create(pod))["allowed"]
        assert (await team.create(generated(pod), CONTROLLER))["allowed"]
    forged = [generated(claiming_pod(name), named=name) for name in ("k", "l", "m")]
    assert reasons(await team.create(forged[0])) == ["TooManyUnsettled"]


async def test_denial_names_no_other_namespace_where_the_policy_forbids_it() -> None:
    team = ClaimTeam(foreign_holders="none")
    assert (await team.create(resource_claim("own")))["allowed"]
    [reserve] = team.ledger.commands()
    assert isinstance(reserve, Reserve)
    assert reserve.own_holders
    assert reserve.asker.kind == "ResourceClaim"


@pytest.mark.parametrize("field", ["ownerReferences", "annotations"])
async def test_claim_leaves_its_pod_only_with_room_for_itself(field: str) -> None:
    """Else a workload would have a second claim for one charge, with the successor of the pod."""
    team = ClaimTeam()
    pod = claiming_pod()
    stored = generated(pod)
    for thing, user in ((pod, "ada"), (stored, CONTROLLER)):
        assert (await team.create(thing, user))["allowed"]
    assert team.reserved() == {"pods/p": 8 * GI}
    new = deepcopy(stored)
    del new["metadata"][field]
    assert (await team.update(new, stored))["allowed"]
    assert team.reserved() == {"pods/p": 8 * GI, CLAIM_OF_POD: 8 * GI}
    team.ledger.limit(memory=16 * GI)
    other = claiming_pod("q")
    assert reasons(await team.create(other)) == ["QuotaExceeded"]


async def test_allocated_claim_leaves_its_pod_with_its_bound() -> None:
    """Else the end of the allocation would leave the amounts of its devices as the bound."""
    team = ClaimTeam()
    pod = claiming_pod()
    stored = generated(pod)
    for thing, user in ((pod, "ada"), (stored, CONTROLLER)):
        assert (await team.create(thing, user))["allowed"]
    device = {"request": "main", "driver": DRIVER, "pool": "n1", "device": "gpu-0"}
    results = [{**device, "shareID": "s", "consumedCapacity": {"memory": "2Gi"}}]
    stored["status"] = {"allocation": {"devices": {"results": results}}}
    new = deepcopy(stored)
    del new["metadata"]["ownerReferences"]
    assert (await team.update(new, stored))["allowed"]
    assert team.reserved() == {"pods/p": 8 * GI, CLAIM_OF_POD: 8 * GI}


async def test_claim_without_room_for_itself_stays_with_its_pod() -> None:
    team = ClaimTeam()
    team.ledger.limit(memory=8 * GI)
    pod = claiming_pod()
    stored = generated(pod)
    for thing, user in ((pod, "ada"), (stored, CONTROLLER)):
        assert (await team.create(thing, user))["allowed"]
    other = deepcopy(stored)
    other["metadata"]["ownerReferences"][0]["uid"] = "u-other"
    assert reasons(await team.update(other, stored)) == ["QuotaExceeded"]
    finalized = deepcopy(stored)
    finalized["metadata"]["finalizers"] = ["example.com/keep"]
    assert (await team.update(finalized, stored))["allowed"]
