"""Extenders and the log are killed, Bindings fail, nodes vanish: no card is given twice or lost."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from tests.e2e.harness.controlplane import SERVICE
from tests.e2e.harness.polling import eventually
from tests.e2e.scheduling.support import faulty_apiserver, nodes
from tests.e2e.scheduling.support.hami_device_plugin import admitted
from tests.e2e.scheduling.support.nodes import HAMI
from tests.e2e.scheduling.support.pod_shapes import container, deployment, job, mixed, pod
from tests.e2e.scheduling.support.scheduling_cluster import SchedulingCluster, opened
from tests.e2e.scheduling.support.team import SchedulingTeam, working

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

NODES: Final = 6
KILLS: Final = 5
PODS: Final = 120
SMALL: Final = {"cards": 1, "memory": 4_000, "cores": 20}
RECOVERED_SECONDS: Final = 120.0
"""Pods that were tried while everything was down wait out the scheduler's back-off."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def yard(
    assets: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SchedulingCluster]:
    """Run a cluster with a few nodes that our agent keeps."""
    async with opened(assets, tmp_path_factory.mktemp("yard")) as running:
        made = [nodes.node(f"gpu-{number}", pool="own") for number in range(NODES)]
        await nodes.make(running.cluster, made)
        yield running


@pytest.fixture
async def team(yard: SchedulingCluster, tmp_path: Path) -> AsyncIterator[SchedulingTeam]:
    """Make a namespace of its own for a test; all its pods are gone before the next one."""
    async with working(yard, tmp_path) as made:
        yield made


@pytest.mark.long
async def test_an_extender_that_is_killed_over_and_over_loses_no_card(team: SchedulingTeam) -> None:
    extender = await team.yard.extender()
    await team.yard.scheduler(extender)
    await team.create(deployment(pod("share", container(**SMALL)), PODS))
    for number in range(1, KILLS + 1):
        await _at_least(team, number * PODS // (KILLS + 1))
        extender.kill()
        await extender.run_again()
    await team.are_bound(PODS, within=RECOVERED_SECONDS)
    await team.agrees()
    await team.was_always_within_limits()


@pytest.mark.long
async def test_a_log_server_that_is_killed_over_and_over_loses_no_card(
    team: SchedulingTeam,
) -> None:
    await team.yard.scheduler()
    await team.create(deployment(pod("share", container(**SMALL)), PODS))
    for number in range(1, KILLS + 1):
        await _at_least(team, number * PODS // (KILLS + 1))
        team.yard.nats.kill()
        await team.yard.nats.start()
    await team.are_bound(PODS, within=RECOVERED_SECONDS)
    await team.agrees()
    await team.was_always_within_limits()


async def test_bindings_that_are_refused_lost_or_unanswered_leave_no_card_behind(
    team: SchedulingTeam,
) -> None:
    async with faulty_apiserver.in_between(team.yard.plane, seed=5) as between:
        between.share = 0.4
        way = faulty_apiserver.kubeconfig(team.yard.plane, SERVICE, between)
        await team.yard.scheduler(await team.yard.extender(way))
        await team.create(deployment(pod("share", container(**SMALL)), PODS), *mixed())
        await team.are_bound(PODS + len(mixed()), within=RECOVERED_SECONDS)
        await team.agrees()
        assert set(between.met) == set(faulty_apiserver.Fault), "every fault was met"
        team.yard.stop_schedulers()
    await team.was_always_within_limits()


@pytest.mark.long
async def test_two_schedulers_of_one_name_never_give_one_pod_two_sets_of_cards(
    team: SchedulingTeam,
) -> None:
    await team.yard.scheduler()
    await team.yard.scheduler(await team.yard.extender())
    await team.create(deployment(pod("share", container(**SMALL)), PODS))
    await team.are_bound(PODS, within=RECOVERED_SECONDS)
    await team.agrees()
    await team.was_always_within_limits()


@pytest.mark.long
async def test_cards_of_a_vanished_node_are_not_given_and_come_back_free(
    team: SchedulingTeam,
) -> None:
    await team.yard.scheduler()
    name = f"brief-{team.namespace}"
    await nodes.make(team.cluster, [nodes.node(name, pool=name)])
    here: dict[str, Any] = {"nodeSelector": {"pool": name}}
    await team.create(*(pod(f"p-{number}", container(cards=1), **here) for number in range(8)))
    await team.are_bound(8)
    await nodes.remove(team.cluster, name)
    await team.create(pod("late", container(**SMALL), **here))
    await eventually(
        team.bound, lambda pods: not pods, within=RECOVERED_SECONDS, what="its pods are gone"
    )
    await nodes.make(team.cluster, [nodes.node(name, pool=name)])
    await team.are_bound(1)
    usage = await team.agrees()
    assert len(usage) == 1
    await team.clear()
    await nodes.remove(team.cluster, name)


async def test_a_node_of_hamis_plugin_is_handed_one_pod_at_a_time(team: SchedulingTeam) -> None:
    plugin = await admitted(team.cluster)
    name = f"hami-{team.namespace}"
    await nodes.make(team.cluster, [nodes.node(name, keeper=HAMI, pool=name)])
    here: dict[str, Any] = {"nodeSelector": {"pool": name}}
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(plugin.run())
        await team.yard.scheduler()
        await team.create(job(pod("share", container(**SMALL), **here), 12))
        await team.are_bound(12, within=RECOVERED_SECONDS)
        await team.agrees()
        plugin.stop()
    assert plugin.allocated == 12
    assert plugin.most == 1
    await team.clear()
    await nodes.remove(team.cluster, name)


async def _at_least(team: SchedulingTeam, count: int) -> None:
    await eventually(
        team.bound,
        lambda pods: len(pods) >= count,
        within=RECOVERED_SECONDS,
        what=f"{count} pods are bound",
    )
