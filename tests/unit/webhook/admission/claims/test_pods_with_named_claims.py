"""Pods that use claims by name: charged once at the claim, refused for claims of other pods."""

from typing import Any

from support.claims.claim_reviews import (
    CONTROLLER,
    GI,
    ClaimTeam,
    claim_spec,
    claiming_pod,
    generated,
    read,
    resource_claim,
)

CLAIM_KEY = "resourceclaims.resource.k8s.io/"


def reasons(response: dict[str, Any]) -> list[str]:
    assert not response["allowed"]
    return [cause["reason"] for cause in response["status"]["details"]["causes"]]


def fields(response: dict[str, Any]) -> list[str]:
    return [cause["field"] for cause in response["status"]["details"]["causes"]]


async def test_named_claims_add_nothing_to_their_pods() -> None:
    team = ClaimTeam()
    assert (await team.create(resource_claim("own", claim_spec(8))))["allowed"]
    for name in ("a", "b"):
        pod = claiming_pod(name)
        pod["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": "own"}]
        assert (await team.create(pod))["allowed"]
    assert team.reserved() == {f"{CLAIM_KEY}own": 8 * GI}


async def test_generated_claim_of_another_pod_is_refused_by_name() -> None:
    """Else the second pod would use it uncharged after the first has ended."""
    team = ClaimTeam()
    first = claiming_pod("a")
    assert (await team.create(first))["allowed"]
    assert (await team.create(generated(first), CONTROLLER))["allowed"]
    second = claiming_pod("b")
    second["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": "a-g-x1"}]
    response = await team.create(second)
    assert reasons(response) == ["ClaimOfOtherPod"]
    assert fields(response) == ["spec.resourceClaims[0].resourceClaimName"]
    assert "generated for pod a" in response["status"]["message"]


async def test_generated_claim_that_another_replica_reviewed_is_refused_by_name() -> None:
    team = ClaimTeam()
    team.cluster.put(generated(claiming_pod("a")))
    second = claiming_pod("b")
    second["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": "a-g-x1"}]
    assert reasons(await team.create(second)) == ["ClaimOfOtherPod"]
    assert team.cluster.asked == [("resourceclaims.resource.k8s.io", "a-g-x1")]


async def test_claim_with_its_own_charge_may_be_named_by_any_pod() -> None:
    team = ClaimTeam()
    owned = generated(claiming_pod("a"), named="own")
    assert (await team.create(owned, "ada"))["allowed"]
    team.store.note_claim(read(owned))
    second = claiming_pod("b")
    second["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": "own"}]
    assert (await team.create(second))["allowed"]
