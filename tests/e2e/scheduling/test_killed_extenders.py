"""A replica is killed while it binds a pod: another replica binds that pod within seconds."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from tests.e2e.harness.controlplane import SERVICE
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.service import Service
from tests.e2e.scheduling.support import faulty_apiserver, nodes
from tests.e2e.scheduling.support.extender_requests import ExtenderClient
from tests.e2e.scheduling.support.pod_shapes import container, pod
from tests.e2e.scheduling.support.scheduling_cluster import SchedulingCluster, opened
from tests.e2e.scheduling.support.team import SchedulingTeam, working

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SETTLE_SECONDS: Final = 60
"""The shipped bound: what came through by settlement alone took this long."""

PROMISED_SECONDS: Final = 10.0
SMALL: Final = {"cards": 1, "memory": 4_000, "cores": 20}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def yard(
    assets: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SchedulingCluster]:
    """Run a cluster with two nodes and the shipped bound of settlement."""
    folder = tmp_path_factory.mktemp("yard")
    async with opened(assets, folder, SETTLE_SECONDS) as running:
        await nodes.make(running.cluster, [nodes.node(f"gpu-{number}") for number in range(2)])
        yield running


@pytest.fixture
async def team(yard: SchedulingCluster, tmp_path: Path) -> AsyncIterator[SchedulingTeam]:
    """Make a namespace of its own for a test; all its pods are gone before the next one."""
    async with working(yard, tmp_path) as made:
        yield made


async def test_a_pod_of_a_killed_replica_is_bound_by_another_within_ten_seconds(
    team: SchedulingTeam,
) -> None:
    async with faulty_apiserver.in_between(team.yard.plane) as between:
        way = faulty_apiserver.kubeconfig(team.yard.plane, SERVICE, between)
        killed = await team.yard.extender(way, Service)
        between.holding = True
        await team.create(pod("one", container(**SMALL)))
        await _placed_by(team, killed, between)
        killed.kill()
        other = ExtenderClient(team, team.yard.service)
        took = await other.seconds_until_bound("one", "gpu-0", within=2.0 * SETTLE_SECONDS)
        print(f"bound {took:.1f} s after the kill", *other.errors, sep="\n  ")
        assert took < PROMISED_SECONDS
        assert await between.deliver() == [409], "the API server refuses the older Binding"
    await team.agrees()
    await team.was_always_within_limits()


async def _placed_by(
    team: SchedulingTeam, replica: Service, between: faulty_apiserver.Faults
) -> None:
    """Have a replica place the pod; return when it has sent the Binding, which is held."""
    asked = asyncio.create_task(ExtenderClient(team, replica).bind("one", "gpu-0"))

    async def held() -> int:
        return len(between.held)

    await eventually(held, lambda count: count == 1, within=30.0, what="the Binding was sent")
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
