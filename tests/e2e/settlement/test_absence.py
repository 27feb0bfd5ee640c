"""The service is not there, or not asked, while the cluster goes on."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.e2e.harness.bootstrap import webhooks_are_in_effect
from tests.e2e.harness.cluster import Cluster, Manifest
from tests.e2e.harness.polling import eventually
from tests.e2e.objects.pods import CARDS, pod
from tests.e2e.objects.team import SEEN_SECONDS, Team

pytestmark = pytest.mark.e2e

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"

Smuggle = Callable[[Manifest], Awaitable[None]]


@pytest.fixture
async def smuggle(team: Team) -> AsyncIterator[Smuggle]:
    """Return a function that creates a pod past the webhook, which is registered afterwards."""

    async def create(manifest: Manifest) -> None:
        for name in await _configurations(team.cluster):
            await team.cluster.must("DELETE", f"{WEBHOOKS}/{name}")

        async def look() -> int:
            return (await team.create(manifest)).status

        await eventually(
            look,
            lambda status: status == 201,
            within=SEEN_SECONDS,
            what=f"{manifest['metadata']['name']} is created without being asked about",
        )

    yield create
    if team.service.runs:
        team.service.kill()
    await team.service.run_again()
    await webhooks_are_in_effect(team.cluster)


async def test_without_the_service_no_accelerator_is_admitted(team: Team) -> None:
    await team.limit({f"limits.{CARDS}": "4"})
    await team.created(pod("before"))
    team.service.kill()
    answer = await team.create(pod("meanwhile"))
    assert answer.status == 500
    assert "failed calling webhook" in answer.message
    await team.service.run_again()
    await team.created(pod("after"))
    await team.agrees(cards=2)


async def test_pods_that_come_and_go_while_the_service_is_down_are_recounted(
    team: Team, smuggle: Smuggle
) -> None:
    await team.limit({f"limits.{CARDS}": "4"})
    for name in ("stays", "deleted", "finished", "replaced"):
        await team.created(pod(name))
    await team.agrees(cards=4)
    team.service.kill()
    await team.delete("deleted")
    await team.finish("finished")
    await team.delete("replaced")
    await smuggle(pod("replaced", cards=5))
    await team.service.run_again()
    await webhooks_are_in_effect(team.cluster)
    await team.agrees(cards=6)
    answer = await team.create(pod("more"))
    assert answer.status == 403
    assert "allows 4, 6 are used" in answer.message


async def test_quotas_that_change_while_the_service_is_down_are_recounted(team: Team) -> None:
    await team.limit({f"limits.{CARDS}": "4"}, "changed")
    await team.limit({f"limits.{CARDS}": "0"}, "deleted")
    team.service.kill()
    quotas = f"{team.path}/resourcequotas"
    await team.cluster.patch(f"{quotas}/changed", {"spec": {"hard": {f"limits.{CARDS}": "1"}}})
    await team.cluster.must("DELETE", f"{quotas}/deleted")
    await team.service.run_again()
    await team.limits_are({f"limits.{CARDS}": "1"}, "changed")
    await team.limits_are({}, "deleted")
    await team.created(pod("fits"))
    assert (await team.create(pod("exceeds"))).status == 403
    await team.agrees(cards=1)


async def test_a_pod_that_bypassed_the_webhook_is_charged_as_observed(
    team: Team, smuggle: Smuggle
) -> None:
    await team.limit({f"limits.{CARDS}": "1"})
    await smuggle(pod("smuggled", cards=3))
    await team.agrees(cards=3)
    (event,) = [
        event
        for event in await team.service.events(team.namespace)
        if event["key"] == "pods/smuggled" and event["type"] == "Observed"
    ]
    assert event["cause"] == "unreserved"
    assert event["amounts"][CARDS] == 3


async def _configurations(cluster: Cluster) -> list[str]:
    """Name the product's validating configurations: all but the tests' own."""
    names = [configuration["metadata"]["name"] for configuration in await cluster.items(WEBHOOKS)]
    return [name for name in names if not name.endswith("e2e.gpuledger.io")]
