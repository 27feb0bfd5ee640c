"""Important pods get the cards of less important ones, by real scheduler and API server."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from tests.e2e.harness.cluster import Manifest
from tests.e2e.harness.polling import eventually
from tests.e2e.scheduling.support import nodes
from tests.e2e.scheduling.support.pod_shapes import container, pod
from tests.e2e.scheduling.support.scheduling_cluster import SchedulingCluster, opened
from tests.e2e.scheduling.support.team import SchedulingTeam, working

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

NODES: Final = 2
CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
PRIORITIES: Final[dict[str, Manifest]] = {
    "low": {"value": -5},
    "high": {"value": 1_000},
    "patient": {"value": 1_000, "preemptionPolicy": "Never"},
}
EVICTED_SECONDS: Final = 60.0


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def yard(
    assets: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SchedulingCluster]:
    """Run a cluster with a few nodes whose service may evict pods."""
    async with opened(assets, tmp_path_factory.mktemp("yard"), preemption="on") as running:
        await nodes.make(running.cluster, [nodes.node(f"gpu-{number}") for number in range(NODES)])
        for name, manifest in PRIORITIES.items():
            await running.cluster.must("POST", CLASSES, {"metadata": {"name": name}, **manifest})
        yield running


@pytest.fixture
async def team(yard: SchedulingCluster, tmp_path: Path) -> AsyncIterator[SchedulingTeam]:
    """Make a namespace of its own, on nodes that are full of unimportant pods."""
    async with working(yard, tmp_path) as made:
        await yard.scheduler()
        await made.create(*(_whole(f"low-{number}", "low") for number in range(NODES)))
        await made.are_bound(NODES)
        yield made


async def test_an_important_pod_gets_the_cards_of_another_and_a_rival_does_not(
    team: SchedulingTeam,
) -> None:
    small = container(cards=1, memory=1_000)
    await team.create(pod("rival", small, priorityClassName="patient"))
    await team.has_event_with("rival", "8/8 Card")
    await team.create(_whole("high", "high"))
    bound = await _bound_with(team, "high")
    assert len(bound) == NODES
    assert "rival" not in bound
    await team.events_are("PreemptionStarted", "Preempted", "Scheduled")
    await team.agrees()
    await team.was_always_within_limits()


async def test_who_is_protected_by_a_budget_stays_until_the_budget_goes(
    team: SchedulingTeam,
) -> None:
    budgets = f"/apis/policy/v1/namespaces/{team.namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"pod": "low-0"}}}
    await team.cluster.must("POST", budgets, {"metadata": {"name": "guard"}, "spec": spec})
    await team.create(_whole("high", "high"))
    assert await _bound_with(team, "high") == {"high", "low-0"}
    await team.create(_whole("second", "high"))
    await team.has_event_with("second", "8/8 Card")
    assert "low-0" in {manifest["metadata"]["name"] for manifest in await team.bound()}
    await team.cluster.must("DELETE", f"{budgets}/guard")
    assert await _bound_with(team, "second") == {"high", "second"}
    await team.agrees()


def _whole(name: str, priority: str) -> Manifest:
    """Return a pod that wants all cards of a node for itself."""
    asked = container(cards=8)
    return pod(name, asked, labels={"pod": name}, priorityClassName=priority)


async def _bound_with(team: SchedulingTeam, name: str) -> set[str]:
    """Wait until a pod is bound, and return the names of all pods that are."""

    async def look() -> set[str]:
        return {manifest["metadata"]["name"] for manifest in await team.bound()}

    return await eventually(
        look,
        lambda names: name in names,
        within=EVICTED_SECONDS,
        what=f"{name} is bound",
    )
