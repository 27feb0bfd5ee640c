"""Workloads whose pods have resource claims, from their templates to what their pods consume."""

from typing import Final

import pytest

from tests.e2e.objects.pods import CARDS, MEMORY
from tests.e2e.resource_claims.support.claim_agreement import ledger_is_cluster
from tests.e2e.resource_claims.support.claim_cluster import ClaimCluster
from tests.e2e.resource_claims.support.claim_manifests import (
    claim,
    deployment_with,
    exactly,
    pod_with,
    template,
)
from tests.e2e.resource_claims.support.claim_supply import (
    H100_NODE,
    SMALL,
    SMALL_BOUND,
    SMALL_CONSUMED,
)
from tests.e2e.resource_claims.support.claim_team import ClaimTeam

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="session"),
]

PLENTY: Final = 1_000_000
STRATEGIC: Final = {"Content-Type": "application/strategic-merge-patch+json"}


async def test_a_deployment_is_charged_what_its_pods_consume(
    team: ClaimTeam, yard: ClaimCluster
) -> None:
    await team.open(memory=35_000)
    web = deployment_with("web", 3, templates=("part",), on=team.gate)
    await team.make(template("part", exactly(memory=SMALL)), web)
    await team.charge_is(memory=3 * SMALL_BOUND)
    own = claim("own", exactly(memory=SMALL))
    await team.refused(own, f"{3 * SMALL_BOUND} are used")
    await team.open_gate(H100_NODE)
    await team.allocated(3)
    await team.charge_is(memory=3 * SMALL_CONSUMED)
    await team.make(own)
    await team.charge_is(memory=3 * SMALL_CONSUMED + SMALL_BOUND)
    await team.remove("ResourceClaim", "own")
    await team.charge_is(memory=3 * SMALL_CONSUMED)

    grown = await team.scale("web", 4)
    assert grown.status == 200, grown
    await team.allocated(4)
    await team.charge_is(memory=4 * SMALL_CONSUMED)
    refused = await team.scale("web", 5)
    assert refused.status == 403, refused
    assert str(4 * SMALL_CONSUMED + SMALL_BOUND) in refused.message, refused.message

    yard.service.kill()
    await yard.run_service()
    first, *_ = await team.listed("Pod")
    await team.remove("Pod", first["metadata"]["name"])
    await team.allocated(4)
    await team.charge_is(memory=4 * SMALL_CONSUMED)
    await ledger_is_cluster(team)
    await team.remove("Deployment", "web")
    await team.charge_is(memory=0)


async def test_allocations_while_the_service_is_killed_are_settled_afterwards(
    team: ClaimTeam, yard: ClaimCluster
) -> None:
    await team.open(memory=PLENTY, cards=PLENTY, cores=PLENTY)
    await team.make(template("part", exactly(memory=SMALL)), claim("own", exactly(memory=SMALL)))
    await team.make(
        pod_with("web", templates=("part",), on=team.gate),
        pod_with("user", claims=("own",), on=team.gate),
        deployment_with("set", 2, templates=("part",), on=team.gate),
    )
    await team.claims_are(4)
    await team.charge_is(memory=4 * SMALL_BOUND)
    yard.service.kill()
    await team.open_gate(H100_NODE)
    await team.allocated(4)
    await yard.run_service()
    await ledger_is_cluster(team)
    yard.service.kill()
    await team.remove("Deployment", "set")
    await team.remove("Pod", "web", "user")
    await team.remove("ResourceClaim", "own")
    await team.claims_are(0)
    await yard.run_service()
    await team.charge_is(memory=0, cards=0, cores=0)
    await ledger_is_cluster(team)


async def test_scale_without_a_review_is_charged_when_the_service_is_back(
    team: ClaimTeam, yard: ClaimCluster
) -> None:
    """The writes of scales are not reviewed while no replica answers."""
    await team.open(memory=5 * SMALL_BOUND)
    by_claim = deployment_with("by-claim", 1, templates=("part",), on=team.gate)
    plain = deployment_with("plain", 2, on=team.gate)
    limits = {CARDS: "1", MEMORY: str(SMALL_BOUND)}
    plain["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": limits}
    await team.make(template("part", exactly(memory=SMALL)), by_claim, plain)
    await team.charge_is(memory=3 * SMALL_BOUND)
    with yard.paused_controllers():
        yard.service.kill()
        for name in ("by-claim", "plain"):
            assert (await team.scale(name, 4)).status == 200
        await yard.run_service()
        await team.charge_is(memory=8 * SMALL_BOUND)
        assert len(await team.listed("Pod")) == 3
    await team.remove("Deployment", "by-claim", "plain")


async def test_no_privileged_container_runs_beside_a_claim(team: ClaimTeam) -> None:
    await team.open(memory=PLENTY)
    privileged = {"securityContext": {"privileged": True}}
    late, plain = pod_with("late", templates=("later",)), pod_with("plain", templates=("part",))
    early = pod_with("early", templates=("part",))
    web = deployment_with("web", 1, templates=("part",))
    for spec in (late["spec"], early["spec"], web["spec"]["template"]["spec"]):
        spec["containers"][0] |= privileged
    await team.make(template("part", exactly(memory=SMALL)), plain, late)
    await team.refused(early, "PrivilegedContainer", "beside resource claim t0")
    await team.refused(web, "PrivilegedContainer")

    path = f"{team.place('Pod', 'plain')}/ephemeralcontainers"
    shell = {"name": "shell", "image": "i", **privileged}
    change = {"spec": {"ephemeralContainers": [shell]}}
    answer = await team.cluster.ask("PATCH", path, change, headers=STRATEGIC)
    assert answer.status == 403, answer
    assert "PrivilegedContainer" in answer.message, answer.message

    await team.make(template("later", exactly(memory=SMALL)))
    events = f"/api/v1/namespaces/{team.namespace}/events"

    async def refusals() -> list[str]:
        return [each["message"] for each in await team.cluster.items(events)]

    await team.until(
        refusals,
        lambda seen: any("pod late: container main is privileged" in text for text in seen),
        "the controller reports that the claim was refused",
    )
    await team.remove("Pod", "plain", "late")
