"""Follow docs/how-to/from-hami.md back to HAMi, on a cluster with pending pods."""

import asyncio
import re
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from tests.e2e.harness.cluster import Manifest
from tests.e2e.harness.controlplane import ADMIN
from tests.e2e.harness.kubectl import Kubectl
from tests.e2e.harness.polling import eventually
from tests.e2e.objects.definitions import POLICIES, policy
from tests.e2e.objects.pods import MEMORY
from tests.e2e.scheduling.support import nodes
from tests.e2e.scheduling.support.pod_shapes import container, deployment, pod
from tests.e2e.scheduling.support.scheduler import PROFILE
from tests.e2e.scheduling.support.scheduling_cluster import SchedulingCluster, opened
from tests.e2e.scheduling.support.team import SCHEDULED_SECONDS, SchedulingTeam, working

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PAGE: Final = (Path(__file__).parents[3] / "docs" / "how-to" / "from-hami.md").read_text()
SYSTEM: Final = "gpuledger-system"
DEFAULT: Final = "default-scheduler"
SMALL: Final = {"cards": 1, "memory": 4_000, "cores": 20}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def yard(
    assets: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SchedulingCluster]:
    """Run a cluster whose pods with cards are given to the scheduler of gpuledger."""
    folder = tmp_path_factory.mktemp("yard")
    async with opened(assets, folder, scheduler_name=PROFILE) as running:
        await nodes.make(running.cluster, [nodes.node("gpu-0")])
        yield running


@pytest.fixture
async def team(yard: SchedulingCluster, tmp_path: Path) -> AsyncIterator[SchedulingTeam]:
    """Make a namespace whose quota has no room for a large pod beside small ones: it waits."""
    async with working(yard, tmp_path) as made:
        quota: Manifest = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "gpus"},
            "spec": {"hard": {f"limits.{MEMORY}": "20000"}},
        }
        await made.cluster.must("POST", f"{made.path}/resourcequotas", quota)
        waits = policy(namespaces=[made.namespace], onExceeded="pending")
        await made.cluster.must("POST", POLICIES, waits)
        yield made


def blocks() -> list[str]:
    """Return the blocks of commands of the page's section, without their indents."""
    section = PAGE.split("## Switch back")[1].split("\n## ")[0]
    matches = re.findall(r"(?ms)^( *)```sh\n(.*?)^ *```", section)
    return [textwrap.dedent(commands) for _, commands in matches]


def waiting(names: str) -> list[list[str]]:
    """Return namespace, name and last column of the rows that kubectl prints."""
    return [line.split() for line in names.splitlines()[1:]]


async def names_of(team: SchedulingTeam, app: str) -> list[str]:
    return [
        manifest["metadata"]["name"]
        for manifest in await team.pods()
        if manifest["metadata"]["labels"].get("app") == app
        and manifest["spec"]["schedulerName"] == DEFAULT
    ]


async def test_pods_that_wait_are_made_again_and_those_that_run_stay(
    team: SchedulingTeam, assets: Path, tmp_path: Path
) -> None:
    kubectl = Kubectl(assets, team.yard.plane.folder / f"{ADMIN}.kubeconfig", tmp_path)
    await installed(team)
    await team.yard.scheduler()
    small = container(**SMALL)
    await team.create(deployment(pod("runs", small, profile=DEFAULT), 1))
    [runs] = await team.are_bound(1)
    team.yard.stop_schedulers()
    await team.create(deployment(pod("waits", small, profile=DEFAULT), 1))
    await eventually(
        lambda: waiting_in(team),
        lambda pods: len(pods) == 1 and not pods[0]["spec"].get("schedulingGates"),
        within=SCHEDULED_SECONDS,
        what="a pod for which there is room waits for a scheduler",
    )
    await eventually(
        lambda: gates_of_new(team), bool, within=SCHEDULED_SECONDS, what="a new pod gets a gate"
    )
    await team.create(pod("gated", container(cards=1, memory=14_000), profile=DEFAULT))
    before = {manifest["metadata"]["name"]: manifest for manifest in await team.pods()}
    assert {manifest["spec"]["schedulerName"] for manifest in before.values()} == {PROFILE}
    assert before["gated"]["spec"]["schedulingGates"]

    team.yard.service.stop()
    team.yard.service.configure(scheduler_name="")
    await team.yard.start(team.cluster)
    scale, again, gated = blocks()
    await asyncio.to_thread(kubectl.type, scale)
    listed = waiting(await asyncio.to_thread(kubectl.type, gated))
    assert listed == [[team.namespace, "gated", "gpuledger.io/quota"]]
    shown = waiting((await asyncio.to_thread(kubectl.type, again)).split("pod ")[0])
    assert [owner for *_, owner in sorted(shown)] == ["<none>", "ReplicaSet"]
    assert {name for _, name, _ in shown} == before.keys() - {runs["metadata"]["name"]}

    made = await eventually(
        lambda: names_of(team, "waits"),
        lambda names: len(names) == 1,
        within=SCHEDULED_SECONDS,
        what="the controller makes the pod again for the default scheduler",
    )
    assert made[0] not in before
    [stays] = await team.bound()
    assert stays["metadata"]["uid"] == runs["metadata"]["uid"]
    assert len(await team.pods()) == 2, "what no controller has made is gone"
    await team.agrees()


async def waiting_in(team: SchedulingTeam) -> list[Manifest]:
    """Return the pods that have no node."""
    return [manifest for manifest in await team.pods() if "nodeName" not in manifest["spec"]]


async def gates_of_new(team: SchedulingTeam) -> Manifest:
    """Return the scheduling gates of a pod that is not stored."""
    asked = pod("asked", container(**SMALL), profile=DEFAULT)
    answer = await team.cluster.ask("POST", f"{team.path}/pods?dryRun=All", asked)
    gates: Manifest = answer.body.get("spec", {}).get("schedulingGates", {})
    return gates


async def installed(team: SchedulingTeam) -> None:
    """Install something that can be scaled in the place of the scheduler of deploy/scheduler."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}
    await team.cluster.ask("POST", "/api/v1/namespaces", namespace)
    made = deployment(pod("gpuledger-scheduler", container(), profile="none"), 0)
    made["metadata"]["name"] = "gpuledger-scheduler"
    await team.cluster.must("POST", f"/apis/apps/v1/namespaces/{SYSTEM}/deployments", made)
