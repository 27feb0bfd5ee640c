"""Refusals of claims and allocations that the scheduler writes, as its events show them."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.e2e.harness.polling import eventually
from tests.e2e.objects.pods import CARDS, MEMORY
from tests.e2e.objects.team import QUOTA
from tests.e2e.resource_claims.support import claim_supply
from tests.e2e.resource_claims.support.claim_cluster import ClaimCluster, opened
from tests.e2e.resource_claims.support.claim_manifests import exactly, pod_with, template
from tests.e2e.resource_claims.support.claim_supply import API, H100_NODE, WHOLE, WHOLE_MIB
from tests.e2e.resource_claims.support.claim_team import ClaimTeam

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="session"),
]

LARGER_MIB = 90_000
ASSUMED_MIB = 1_000
"""Size of the card for which a pod is charged that requests one without an amount."""

WITHIN = 60.0


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def yard(assets, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ClaimCluster]:
    """Run a cluster in which allocations are reviewed."""
    folder = tmp_path_factory.mktemp("larger")
    settings = {"review_claim_status": "true", "worst_card_memory": str(ASSUMED_MIB)}
    async with opened(assets, folder, **settings) as running:
        yield running


async def refusal(team: ClaimTeam) -> str:
    """Wait until the scheduler reports a refusal of gpuledger, and return it."""
    path = f"/api/v1/namespaces/{team.namespace}/events"

    async def look() -> list[str]:
        events = await team.cluster.items(path)
        return [each["message"] for each in events if "gpuledger.io" in each["message"]]

    seen = await eventually(look, bool, within=WITHIN, what="the scheduler reports a refusal")
    return str(seen[0])


async def test_resource_of_a_class_is_charged_in_the_claim_of_the_scheduler(
    team: ClaimTeam,
) -> None:
    await team.open(memory=1000, cards=10, cores=1000)
    pod = pod_with("a")
    asked = {"limits": {f"deviceclass.resource.kubernetes.io/{WHOLE}": "1"}}
    pod["spec"]["containers"][0]["resources"] = asked
    await team.make(pod)
    assert f"would need {WHOLE_MIB} MiB" in await refusal(team)
    assert await team.listed("ResourceClaim") == []


async def test_privileged_pod_gets_no_claim_for_the_resource_of_a_class(team: ClaimTeam) -> None:
    await team.open(memory=WHOLE_MIB, cards=10, cores=1000)
    pod = pod_with("a")
    asked = {"limits": {f"deviceclass.resource.kubernetes.io/{WHOLE}": "1"}}
    privileged = {"securityContext": {"privileged": True}}
    pod["spec"]["containers"][0] |= {"resources": asked, **privileged}
    await team.make(pod)
    assert "pod a: container main is privileged" in await refusal(team)
    assert await team.listed("ResourceClaim") == []
    await team.remove("Pod", "a")


async def test_larger_allocation_of_an_extended_resource_is_refused(team: ClaimTeam) -> None:
    await team.open(memory=WHOLE_MIB - 1, cards=10, cores=1000)
    pod = pod_with("a")
    pod["spec"]["containers"][0]["resources"] = {"limits": {CARDS: "1"}}
    await team.make(pod)
    assert f"would need {WHOLE_MIB} MiB, quota" in await refusal(team)
    await team.charge_is(memory=ASSUMED_MIB, cards=1, cores=100)
    await raise_memory(team, WHOLE_MIB)
    await team.allocated(1)
    await team.charge_is(memory=WHOLE_MIB, cards=1, cores=100)
    await team.remove("Pod", "a")


async def raise_memory(team: ClaimTeam, limit: int) -> None:
    raised = {"spec": {"hard": {f"limits.{MEMORY}": str(limit)}}}
    quota = await team.cluster.patch(f"{team.path}/resourcequotas/{QUOTA}", raised)
    assert quota.status == 200, quota.message


async def test_allocation_of_a_larger_device_is_refused_and_later_stored(team: ClaimTeam) -> None:
    await team.open(memory=WHOLE_MIB, cards=10, cores=1000)
    pod = pod_with("a", templates=("whole",))
    pod["spec"]["nodeSelector"] = {"larger": "yes"}
    await team.make(template("whole", exactly(WHOLE)), pod)
    await team.charge_is(memory=WHOLE_MIB, cards=1, cores=100)
    card = claim_supply.whole_card("whole", "GPU-larger")
    card["capacity"]["memory"]["value"] = f"{LARGER_MIB}Mi"
    larger = claim_supply.slice_of(H100_NODE, claim_supply.WHOLE_DRIVER, [card], generation=2)
    await team.cluster.must("POST", f"{API}/resourceslices", larger)
    label = {"metadata": {"labels": {"larger": "yes"}}}
    assert (await team.cluster.patch(f"/api/v1/nodes/{H100_NODE}", label)).status == 200
    assert f"would need {LARGER_MIB} MiB, quota" in await refusal(team)
    await team.charge_is(memory=WHOLE_MIB, cards=1, cores=100)
    await raise_memory(team, LARGER_MIB)
    await team.allocated(1)
    await team.charge_is(memory=LARGER_MIB, cards=1, cores=100)
