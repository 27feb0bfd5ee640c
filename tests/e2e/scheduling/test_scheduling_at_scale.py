"""200 nodes, 3,000 pods, two schedulers, two extenders, kills: every card within its limits."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.harness.cluster import Manifest
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.service import Service
from tests.e2e.scheduling.support import nodes, pod_shapes
from tests.e2e.scheduling.support.pod_shapes import deployment, job
from tests.e2e.scheduling.support.scheduler import PROFILE
from tests.e2e.scheduling.support.scheduling_cluster import connected, opened
from tests.e2e.scheduling.support.team import SchedulingTeam

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1_800)]

NODES: Final = 200
PODS: Final = 3_000
PROFILES: Final = (PROFILE, "second")
SCHEDULED_SECONDS: Final = 900.0
SETTLE_SECONDS: Final = 30
"""So many pods at once on few cores: a Binding may take long, and must not be undone meanwhile."""

LOST_SHARE_MAX: Final = 0.01
ANSWERS: Final = 'gpuledger_extender_answers_total{{outcome="{}",verb="bind"}}'
BOUND, LOST = (ANSWERS.format(outcome) for outcome in ("bound", "lost"))


@pytest.fixture
async def team(
    assets: Path, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> AsyncIterator[SchedulingTeam]:
    """Run a large cluster for one test."""
    async with opened(assets, tmp_path_factory.mktemp("yard"), SETTLE_SECONDS) as yard:
        forms: tuple[nodes.Form, nodes.Form] = ("json", "colons")
        made = [nodes.node(f"gpu-{number}", form=forms[number % 2]) for number in range(NODES)]
        await nodes.make(yard.cluster, made)
        async with connected(yard.plane) as cluster:
            team = SchedulingTeam(yard, cluster, tmp_path)
            await team.open()
            yield team


async def test_three_thousand_pods_come_to_cards_while_processes_are_killed(
    team: SchedulingTeam,
) -> None:
    other = await team.yard.extender()
    await team.yard.scheduler(profile=PROFILES[0])
    await team.yard.scheduler(other, PROFILES[1])
    begun = time.monotonic()
    await team.create(*_workloads())
    seen = _Seen(team)
    await seen.reaches(PODS // 4)
    other.kill()
    await other.run_again()
    await seen.reaches(PODS // 2)
    team.yard.nats.kill()
    await team.yard.nats.start()
    await seen.reaches(PODS)
    print(f"\n{PODS:,} pods of {NODES} nodes had theirs after {time.monotonic() - begun:.0f} s")
    await team.agrees()
    assert await _lost(team.yard.service, other) <= LOST_SHARE_MAX
    await team.was_always_within_limits()


def _workloads() -> list[Manifest]:
    """Return Deployments and Jobs, as many pods of each shape, half of them for each scheduler."""
    made = []
    each = PODS // (len(pod_shapes.mixed()) * len(PROFILES) * 2)
    for profile in PROFILES:
        for shape in pod_shapes.mixed(profile):
            shape["metadata"]["name"] += f"-{PROFILES.index(profile)}"
            made += [deployment(shape, each), job(shape, each)]
    return made


class _Seen:
    """Counts pods that ever had a node: those of Jobs come to their end meanwhile."""

    def __init__(self, team: SchedulingTeam) -> None:
        self._team = team
        self._uids: set[str] = set()

    async def reaches(self, count: int) -> None:
        """Wait until so many were bound."""
        await eventually(
            self._look,
            lambda seen: seen >= count,
            within=SCHEDULED_SECONDS,
            what=f"{count} pods were bound",
        )

    async def _look(self) -> int:
        self._uids |= {pod["metadata"]["uid"] for pod in await self._team.bound()}
        return len(self._uids)


async def _lost(*services: Service) -> float:
    """Return, and print, which share of the binds was lost as the filter had known too little.

    An extender that was killed has forgotten those before.
    """
    bound, lost = [
        sum(await asyncio.gather(*(service.metric(sample) for service in services)))
        for sample in (BOUND, LOST)
    ]
    assert bound, "binds are counted"
    share = lost / (bound + lost)
    print(f"{bound:,.0f} pods were bound, {lost:,.0f} binds lost: {share:.2%}")
    return share
