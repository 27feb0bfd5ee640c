"""A pod that ends, in any way, releases its charge."""

import pytest

from tests.e2e.objects.pods import CARDS, pod
from tests.e2e.objects.team import Team

pytestmark = pytest.mark.e2e


@pytest.fixture
async def full(team: Team) -> Team:
    """Fill a namespace of two cards with the pods `a` and `b`."""
    await team.limit({f"limits.{CARDS}": "2"})
    for name in ("a", "b"):
        await team.created(pod(name))
    await team.agrees(cards=2)
    return team


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_finished_pod_frees_its_cards_while_it_still_exists(full: Team, phase: str) -> None:
    await full.finish("a", phase)
    await full.agrees(cards=1)
    assert len(await full.pods()) == 2
    await full.created(pod("c"))
    await full.agrees(cards=2)


async def test_a_deleted_pod_frees_its_cards(full: Team) -> None:
    await full.delete("a")
    await full.agrees(cards=1)
    await full.created(pod("a"))
    await full.agrees(cards=2)


async def test_a_pod_on_a_lost_node_holds_its_cards_until_its_grace_is_over(team: Team) -> None:
    await team.limit({f"limits.{CARDS}": "2"})
    bound = pod("bound")
    bound["spec"]["nodeName"] = "lost"
    await team.created(bound)
    await team.delete("bound", grace=2)
    (terminating,) = await team.pods()
    assert "deletionTimestamp" in terminating["metadata"], "no kubelet is there to confirm"
    await team.agrees(cards=0)
    assert len(await team.pods()) == 1


async def test_a_deleted_collection_frees_everything(full: Team) -> None:
    await full.cluster.must("DELETE", f"{full.path}/pods", {"gracePeriodSeconds": 0})
    await full.agrees(cards=0)
