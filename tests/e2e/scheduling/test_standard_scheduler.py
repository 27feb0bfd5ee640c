"""Whole cards on a plain NVIDIA cluster: a standard kube-scheduler, and nodes that offer cards."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from tests.e2e.harness.cluster import Answer, Manifest
from tests.e2e.harness.polling import eventually
from tests.e2e.objects.pods import CARDS, CORES
from tests.e2e.scheduling.support import nodes
from tests.e2e.scheduling.support.pod_shapes import container, daemon_set, deployment, pod
from tests.e2e.scheduling.support.scheduler import DEFAULT_PROFILE, PROFILE
from tests.e2e.scheduling.support.scheduling_cluster import SchedulingCluster, opened
from tests.e2e.scheduling.support.team import SchedulingTeam, working

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

NODE: Final = "plain"
WHOLE: Final = container(cards=1)
KNOWN_SECONDS: Final = 60.0


def plain_node() -> Manifest:
    """Return a node with eight cards, as NVIDIA's own device plugin announces them."""
    made = nodes.node(NODE)
    del made["metadata"]["annotations"]
    for room in ("capacity", "allocatable"):
        made["status"][room]["nvidia.com/gpu"] = "8"
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def yard(
    assets: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SchedulingCluster]:
    """Run a cluster with one node, no card of which anything is known, and default settings."""
    async with opened(assets, tmp_path_factory.mktemp("yard")) as running:
        await nodes.make(running.cluster, [plain_node()])
        yield running


@pytest.fixture
async def team(yard: SchedulingCluster, tmp_path: Path) -> AsyncIterator[SchedulingTeam]:
    """Make a namespace for a test; all its pods are gone before the next one."""
    async with working(yard, tmp_path) as made:
        yield made


def asked(manifest: Manifest) -> dict[str, str]:
    """Return the limits of the first container."""
    limits: dict[str, str] = manifest["spec"]["containers"][0]["resources"]["limits"]
    return limits


async def try_to_create(team: SchedulingTeam, manifest: Manifest) -> Answer:
    """Create a pod that may be refused."""
    return await team.cluster.ask("POST", f"{team.path}/pods", manifest)


async def limit(team: SchedulingTeam, **hard: str) -> None:
    """Limit the namespace, and wait until the ledger has the limit."""
    names = {"cards": f"limits.{CARDS}", "cores": f"limits.{CORES}"}
    limits = {names[name]: hard[name] for name in hard}
    quota = {"metadata": {"name": "gpus"}, "spec": {"hard": limits}}
    await team.cluster.must("POST", f"{team.path}/resourcequotas", quota)
    await eventually(
        lambda: team.yard.service.answer("usage", f"--namespace={team.namespace}"),
        bool,
        within=KNOWN_SECONDS,
        what="the quota is known to the ledger",
    )


async def test_a_whole_card_pod_of_the_standard_scheduler_runs_as_it_was_written(
    team: SchedulingTeam,
) -> None:
    await team.yard.standard_scheduler()
    await team.create(pod("whole", WHOLE, profile=DEFAULT_PROFILE))
    [bound] = await team.are_bound(1)
    assert asked(bound) == {CARDS: "1"}
    await team.create(deployment(pod("web", WHOLE, profile=DEFAULT_PROFILE), 2))
    await team.are_bound(3)


async def test_what_the_pod_leaves_out_is_charged_as_a_whole_card(team: SchedulingTeam) -> None:
    await team.yard.standard_scheduler()
    await limit(team, cores="150")
    await team.create(pod("first", WHOLE, profile=DEFAULT_PROFILE))
    await team.are_bound(1)
    answer = await try_to_create(team, pod("second", WHOLE, profile=DEFAULT_PROFILE))
    assert answer.status == 403, answer
    assert "QuotaExceeded" in answer.message, answer.message


async def test_the_node_may_be_named_where_no_extender_places(team: SchedulingTeam) -> None:
    named = pod("named", WHOLE, profile=DEFAULT_PROFILE, nodeName=NODE)
    await team.create(named)
    [bound] = await team.are_bound(1)
    assert asked(bound) == {CARDS: "1"}


async def test_pods_of_a_card_scheduler_are_completed_and_name_no_node(
    team: SchedulingTeam,
) -> None:
    await team.create(pod("waits", WHOLE, profile=PROFILE))
    [waiting] = await team.pods()
    assert asked(waiting) == {CARDS: "1", CORES: "100"}
    answer = await try_to_create(team, pod("named", WHOLE, profile=PROFILE, nodeName=NODE))
    assert answer.status == 403, answer
    assert "NodeAssigned" in answer.message, answer.message


async def test_daemon_sets_of_every_scheduler_make_their_pods(team: SchedulingTeam) -> None:
    await team.yard.standard_scheduler()
    await team.create(
        daemon_set(pod("plain", WHOLE, profile=DEFAULT_PROFILE)),
        daemon_set(pod("cards", WHOLE, profile=PROFILE)),
    )
    await team.are_bound(1)
    await eventually(
        team.pods, lambda pods: len(pods) == 2, within=KNOWN_SECONDS, what="both have a pod"
    )


async def test_a_pod_that_is_bound_past_its_scheduler_is_charged(team: SchedulingTeam) -> None:
    await limit(team, cards="1")
    await team.create(pod("waits", WHOLE, profile=PROFILE))
    target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
    binding = {"metadata": {"name": "waits"}, "target": target}
    await team.cluster.must("POST", f"{team.path}/pods/waits/binding", binding)
    await team.are_bound(1)
    answer = await try_to_create(team, pod("second", WHOLE, profile=DEFAULT_PROFILE))
    assert answer.status == 403, answer
    assert "QuotaExceeded" in answer.message, answer.message
