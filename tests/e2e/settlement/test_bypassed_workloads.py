"""Workloads that come, change and go without reviews, or while the service is down."""

from collections.abc import AsyncIterator
from typing import Final

import pytest

from tests.e2e.harness.agreement import assert_ledger_is_cluster, cards_used
from tests.e2e.harness.bootstrap import webhooks_are_in_effect
from tests.e2e.harness.polling import eventually
from tests.e2e.objects.pods import CARDS, pod
from tests.e2e.objects.team import SEEN_SECONDS, Team
from tests.e2e.objects.workloads import TeamWorkloads, job, replicated

pytestmark = pytest.mark.e2e

LINE: Final = f"limits.{CARDS}"
CARDS_MAX: Final = 12
CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations/gpuledger"


@pytest.fixture
async def registered(team: Team) -> AsyncIterator[None]:
    """Register the webhooks again in the end."""
    yield
    if team.service.runs:
        team.service.kill()
    await team.service.run_again()
    await webhooks_are_in_effect(team.cluster)


async def test_what_happened_without_the_service_is_corrected_and_listed(
    team: Team, registered: None
) -> None:
    await team.limit({LINE: str(CARDS_MAX)})
    space = TeamWorkloads(team)
    for name in ("stays", "grows", "goes"):
        await space.created(replicated("Deployment", 2, name))
    await space.created(job(2, "ends"))
    await space.pods_are(8)
    await assert_ledger_is_cluster(team)
    team.service.kill()
    await bypass(space)
    assert (await space.scale("Deployment", "grows", 6)).status == 200
    await space.delete("Deployment", "goes")
    await space.created(replicated("StatefulSet", 3, "comes"))
    for manifest in await space.live():
        if manifest["metadata"]["name"].startswith("ends"):
            await team.finish(manifest["metadata"]["name"])
    await space.gone("Deployment", "goes")
    await space.pods_are(11)
    await team.service.run_again()
    await webhooks_are_in_effect(team.cluster)
    assert await cards_used(team) == 11
    assert await team.service.metric('gpuledger_drift_total{cause="unreserved"}') >= 2
    drift = await team.service.answer("drift", f"--namespace={team.namespace}")
    corrected = {row["key"]: row["cause"] for row in drift}
    assert corrected["statefulsets.apps/comes"] == "unreserved"
    assert corrected["deployments.apps/grows"] == "unreserved"
    assert "deployments.apps/goes" in corrected
    assert "deployments.apps/stays" not in corrected
    assert (await team.create(pod("late", cards=2))).status == 403


async def test_a_limit_exceeded_without_the_webhook_blocks_until_usage_is_below(
    team: Team, registered: None
) -> None:
    await team.limit({LINE: "4"})
    space = TeamWorkloads(team)
    await bypass(space)
    await space.created(replicated("Deployment", 6))
    await space.pods_are(6)
    assert await cards_used(team) == 6
    team.service.kill()
    await team.service.run_again()
    await webhooks_are_in_effect(team.cluster)
    refused = await team.create(pod("late"))
    assert refused.status == 403
    assert "allows 4, 6 are used" in refused.message
    assert (await space.scale("Deployment", "web", 3)).status == 200
    await space.pods_are(3)
    assert await cards_used(team) == 3
    await team.created(pod("late"))


async def bypass(space: TeamWorkloads) -> None:
    """Remove the product's webhooks, and return when the API server goes without them."""
    for kind in ("validating", "mutating"):
        await space.cluster.must("DELETE", CONFIGURATIONS.format(kind))

    async def look() -> int:
        beyond = replicated("Deployment", CARDS_MAX + 1, "probe")
        return (await space.create(beyond, params={"dryRun": "All"})).status

    await eventually(
        look, lambda status: status == 201, within=SEEN_SECONDS, what="nobody is asked any more"
    )
