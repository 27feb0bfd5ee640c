"""The real kube-scheduler places pods on cards, and the ledger agrees with pods and nodes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from support.oracles.placement_oracle import CardUsage

from tests.e2e.harness.polling import eventually
from tests.e2e.scheduling.support import nodes, pod_shapes
from tests.e2e.scheduling.support.pod_shapes import container, deployment, job, pod
from tests.e2e.scheduling.support.scheduler import BACKOFF_SECONDS_MAX
from tests.e2e.scheduling.support.scheduling_cluster import SchedulingCluster, opened
from tests.e2e.scheduling.support.team import AGREED_SECONDS, SchedulingTeam, working

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

ALLOCATED: Final = "hami.io/vgpu-devices-allocated"
NODES: Final = 4
SMALL: Final = {"cards": 1, "memory": 4_000, "cores": 20}
ASKED_AGAIN_SECONDS: Final = 2 * BACKOFF_SECONDS_MAX
"""How long after a change the scheduler has asked about every pod again."""

WOKEN_SECONDS: Final = 10.0
"""How long after its release a card is given to a pod that was refused for it."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def yard(
    assets: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SchedulingCluster]:
    """Run a cluster with a few nodes, half of which announce their cards in the older form."""
    async with opened(assets, tmp_path_factory.mktemp("yard")) as running:
        forms: tuple[nodes.Form, nodes.Form] = ("json", "colons")
        made = [nodes.node(f"gpu-{number}", form=forms[number % 2]) for number in range(NODES)]
        await nodes.make(running.cluster, made)
        yield running


@pytest.fixture
async def team(yard: SchedulingCluster, tmp_path: Path) -> AsyncIterator[SchedulingTeam]:
    """Make a namespace of its own for a test; all its pods are gone before the next one."""
    async with working(yard, tmp_path) as made:
        yield made


async def test_a_pod_comes_to_a_card_and_carries_hamis_annotations(team: SchedulingTeam) -> None:
    await team.yard.scheduler()
    await team.create(pod("one", container(**SMALL)))
    [bound] = await team.are_bound(1)
    annotations = bound["metadata"]["annotations"]
    assert annotations["hami.io/vgpu-node"] == bound["spec"]["nodeName"]
    assert bound["metadata"]["labels"]["hami.io/vgpu-node"] == bound["spec"]["nodeName"]
    given = annotations[ALLOCATED]
    assert given.endswith(",NVIDIA,4000,20:;")
    usage = await team.agrees()
    assert len(usage) == 1
    await team.events_are("Scheduled")
    await team.has_only_the_schedulers_events()


async def test_pods_of_every_shape_get_what_they_ask_for(team: SchedulingTeam) -> None:
    await team.yard.scheduler()
    shaped = pod_shapes.mixed()
    await team.create(*shaped)
    await team.are_bound(len(shaped))
    await team.agrees()
    await team.was_always_within_limits()


async def test_a_pod_with_a_priority_comes_to_a_card(team: SchedulingTeam) -> None:
    """No node offers `nvidia.com/priority`, so the scheduler must not look for it."""
    await team.yard.scheduler()
    with_gpu, without = container(**SMALL), container()
    with_gpu["resources"]["limits"]["nvidia.com/priority"] = "1"
    without["resources"] = {"limits": {"nvidia.com/priority": "0"}}
    await team.create(pod("urgent", with_gpu), pod("cardless", without))
    bound = await team.are_bound(2)
    cards = {
        manifest["metadata"]["name"]: manifest["metadata"].get("annotations", {})
        for manifest in bound
    }
    assert cards["urgent"][ALLOCATED].endswith(",NVIDIA,4000,20:;")
    assert ALLOCATED not in cards["cardless"]
    await team.agrees()


async def test_the_annotation_of_a_resized_pod_follows_the_log(team: SchedulingTeam) -> None:
    """Also when the service was killed before it could write it: HAMi counts by the annotation."""
    await team.yard.scheduler()
    await team.create(pod("one", container(**SMALL)))
    [bound] = await team.are_bound(1)
    await team.agrees()
    where = "-n", team.namespace, "one", "--container", "main", "--memory"
    await team.yard.service.answer("resize", *where, "6000")
    before = bound["metadata"]["annotations"]
    after = await allocated(team, ",NVIDIA,6000,20:;")
    changed = {key for key in before if before[key] != after[key]}
    assert (before.keys(), changed) == (after.keys(), {ALLOCATED})
    team.yard.service.kill()
    await team.yard.service.answer("resize", *where, "5000")
    assert (await team.bound())[0]["metadata"]["annotations"] == after
    await team.yard.start(team.cluster)
    await allocated(team, ",NVIDIA,5000,20:;")
    cards = await team.yard.service.answer("cards")
    assert sum(card["used_memory"] for card in cards) == 5_000


async def allocated(team: SchedulingTeam, end: str) -> dict[str, str]:
    """Wait until the annotation with the cards of the only pod ends so; return all annotations."""

    async def look() -> dict[str, str]:
        [manifest] = await team.bound()
        annotations: dict[str, str] = manifest["metadata"]["annotations"]
        return annotations

    return await eventually(
        look,
        lambda annotations: annotations[ALLOCATED].endswith(end),
        within=AGREED_SECONDS,
        what=f"the cards of the pod end with {end}",
    )


async def test_deployments_and_jobs_run_and_leave_their_cards_when_they_end(
    team: SchedulingTeam,
) -> None:
    await team.yard.scheduler()
    small = pod("share", container(**SMALL))
    await team.create(deployment(small, 12), job(small, 12))
    await team.are_bound(24)
    usage = await team.agrees()
    await team.clear()
    assert sum(used.slots for used in usage.values()) >= 12
    assert not await team.agrees()


async def test_a_pod_that_fits_nowhere_gets_a_reason_by_card(team: SchedulingTeam) -> None:
    await team.yard.scheduler()
    await team.create(
        pod("large", container(cards=1, memory=30_000)),
        pod("many", container(cards=9, memory=1_000)),
        pod(
            "other",
            container(**SMALL),
            annotations={"nvidia.com/use-gputype": "H100"},
        ),
    )
    await team.has_event_with("large", "8/8 CardInsufficientMemory")
    await team.has_event_with("many", "NodeInsufficientDevice")
    await team.has_event_with("other", "8/8 CardTypeMismatch")
    await team.events_are("FailedScheduling")
    await team.has_only_the_schedulers_events()
    assert not await team.bound()


async def test_a_full_cluster_takes_the_next_pod_when_a_card_is_free(team: SchedulingTeam) -> None:
    await team.yard.scheduler()
    whole = [pod(f"whole-{number}", container(cards=8)) for number in range(NODES)]
    await team.create(*whole)
    await team.are_bound(NODES)
    await team.create(pod("late", container(**SMALL)))
    await team.has_event_with("late", "8/8 CardInsufficientMemory")
    await team.delete("whole-0")
    await team.are_bound(NODES)
    await team.agrees()


async def test_a_refused_pod_is_bound_when_settlement_is_late(team: SchedulingTeam) -> None:
    """The scheduler asks when a pod is gone, is refused, and reads no event of the release."""
    await team.yard.scheduler(await team.yard.extender())
    whole = [pod(f"whole-{number}", container(cards=8)) for number in range(NODES)]
    await team.create(*whole)
    await team.are_bound(NODES)
    await team.create(pod("late", container(**SMALL)))
    await team.has_event_with("late", "8/8 CardInsufficientMemory")
    with team.yard.service.paused():
        await team.delete("whole-0")
        await asyncio.sleep(ASKED_AGAIN_SECONDS)
        assert len(await team.bound()) == NODES - 1
    await team.are_bound(NODES, within=WOKEN_SECONDS)
    await team.agrees()


async def test_two_schedulers_with_an_extender_each_share_the_cards(team: SchedulingTeam) -> None:
    await team.yard.scheduler()
    other = await team.yard.extender()
    await team.yard.scheduler(other, "second")
    half = {"cards": 1, "memory": 12_000, "cores": 50}
    room = NODES * 8 * 2
    profiles = ("gpuledger-scheduler", "second")
    pods = [
        pod(f"p-{number}", container(**half), profile=profiles[number % 2])
        for number in range(room)
    ]
    await team.create(*pods)
    await team.are_bound(room)
    usage = await team.agrees()
    assert set(usage.values()) == {CardUsage(24_000, 100, 2)}, "all cards are full"
    await team.was_always_within_limits()
