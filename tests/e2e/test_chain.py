"""The whole chain: from a pod that is posted to a process that is refused memory.

Everything is real but the card: API server, webhook, scheduler, ledger, agent, gRPC, the library.
The kubelet is played, and a mount namespace plays the container. `make e2e-chain` shows each step.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from support.kubelet import RESOURCE, Asked, Kubelet, kubelet_in

from tests.e2e.chain import building
from tests.e2e.chain.agent import Agent
from tests.e2e.chain.container import OUT_OF_MEMORY, Container, Told, unshare
from tests.e2e.polling import eventually
from tests.e2e.scheduling.nodes import NODES
from tests.e2e.scheduling.shapes import container, pod
from tests.e2e.scheduling.team import Team, working
from tests.e2e.scheduling.yard import Yard, opened

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    # One event loop: the kubelet's connections belong to that in which they were made.
    pytest.mark.asyncio(loop_scope="session"),
]

NODE: Final = "gpu-0"
FIRST_MIB: Final = 4_000
RAISED_MIB: Final = 9_000
LOWERED_MIB: Final = 1_000
CORES: Final = 30
ANNOUNCED_SECONDS: Final = 60.0
LIMITED_SECONDS: Final = 30.0
COLLECTED_SECONDS: Final = 240.0
"""An allocation is kept for two minutes at least, and looked at once a minute."""


class Story:
    """One node with its agent and its kubelet, and a teller of what happens."""

    def __init__(self, yard: Yard, agent: Agent, kubelet: Kubelet) -> None:
        self.yard, self.agent, self.kubelet = yard, agent, kubelet
        self._begun = time.monotonic()

    def tell(self, text: str) -> None:
        """Print a step; pytest shows it with -s, and when a test fails."""
        print(f"{time.monotonic() - self._begun:6.1f} s  {text}", flush=True)

    def pages(self) -> list[Path]:
        """Return the limits pages that the agent has written."""
        return sorted(self.agent.state.glob("allocations/*/limits"))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def story(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Story]:
    """Run a cluster with one node, whose cards an agent announces."""
    unshare()
    built = building.built()
    folder = tmp_path_factory.mktemp("chain")
    async with opened(assets, folder) as yard, kubelet_in(folder / "kubelet") as kubelet:
        agent = Agent(NODE, folder, built, yard.plane.kubeconfig("gpuledger"), yard.nats.url)
        made = Story(yard, agent, kubelet)
        made.tell("API server, webhook, ledger and a played kubelet run")
        await yard.cluster.must("POST", NODES, _node())
        agent.start()
        try:
            await agent.wait_ready()
            await kubelet.wait_listed()
            await _announced(made)
            yield made
        finally:
            status = agent.stop()
        assert status == 0, "SIGTERM ends the agent cleanly"


@pytest_asyncio.fixture(loop_scope="session")
async def team(story: Story, tmp_path: Path) -> AsyncIterator[Team]:
    """Make a namespace of its own for a test; all its pods are gone before the next one."""
    async with working(story.yard, tmp_path) as made:
        yield made


async def test_a_pod_gets_the_memory_that_the_ledger_says_and_no_more(
    story: Story, team: Team, tmp_path: Path
) -> None:
    uid, process = await _started(story, team, tmp_path)
    try:
        await _follow(story, team, process)
    finally:
        process.kill()
    await _ended(story, team, uid)
    assert not await team.agrees()
    story.tell("its card is free again")


@pytest.mark.long
async def test_the_limits_page_of_a_pod_that_has_ended_goes(
    story: Story, team: Team, tmp_path: Path
) -> None:
    uid, process = await _started(story, team, tmp_path)
    process.kill()
    await _ended(story, team, uid)
    await eventually(
        _soon(story.pages),
        lambda pages: not pages,
        within=COLLECTED_SECONDS,
        what="the page is gone",
    )
    story.tell("the page is gone")


async def _started(story: Story, team: Team, folder: Path) -> tuple[str, Container]:
    """Bring a pod from its post to its process; return its uid and that."""
    uid = await _placed(story, team)
    before = story.pages()
    await story.kubelet.admit(team.namespace, "web", uid, [Asked("main", 1)])
    answer = await story.kubelet.start_container(uid, "main")
    [page] = set(story.pages()) - set(before)
    story.tell(f"kubelet: Allocate and PreStartContainer are answered; the page is {page}")
    process = Container(answer, story.agent.machine, folder)
    story.tell(f"a program runs in the container and sees {process.begun.total:,} MiB")
    assert process.begun == Told(0, 0, FIRST_MIB, FIRST_MIB)
    return uid, process


async def _ended(story: Story, team: Team, uid: str) -> None:
    """Delete the pod, and let the kubelet forget it."""
    await team.delete("web")
    story.kubelet.end(uid)
    story.kubelet.write_checkpoint()
    story.tell("the pod has ended")


async def _follow(story: Story, team: Team, process: Container) -> None:
    """Raise the limit of a running process and lower it, and see it obey."""
    _full(story, process.do("fill"), FIRST_MIB)
    assert process.do("take", 1).status == OUT_OF_MEMORY

    await _resized(story, team, process, RAISED_MIB)
    _full(story, process.do("fill"), RAISED_MIB)

    story.agent.kill()
    story.tell("the agent is killed")
    assert process.do("take", 1).status == OUT_OF_MEMORY
    story.agent.start()
    await _resized(story, team, process, LOWERED_MIB)
    told = process.do("take", 1)
    assert told == Told(OUT_OF_MEMORY, RAISED_MIB, 0, LOWERED_MIB)
    story.tell(f"it keeps its {told.held:,} MiB and is given nothing more")
    process.do("free")
    _full(story, process.do("fill"), LOWERED_MIB)
    await _exported(story)
    assert process.end() == 0


def _full(story: Story, told: Told, limit: int) -> None:
    story.tell(f"it allocates until it is refused: {told.held:,} MiB, then status {told.status}")
    assert told == Told(OUT_OF_MEMORY, limit, 0, limit)


async def _placed(story: Story, team: Team) -> str:
    """Post a pod and wait until it is on the node; return its uid."""
    await team.yard.scheduler()
    await team.create(pod("web", container(cards=1, memory=FIRST_MIB, cores=CORES)))
    story.tell(f"a pod that asks for {FIRST_MIB:,} MiB is admitted")
    [bound] = await team.are_bound(1)
    given = bound["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"]
    story.tell(f"kube-scheduler and the ledger have placed it on {NODE}: {given}")
    await team.agrees()
    return str(bound["metadata"]["uid"])


async def _resized(story: Story, team: Team, process: Container, memory: int) -> None:
    """Change the limit in the ledger and wait until the process sees it."""
    await story.yard.service.answer(
        "resize", "web", "-n", team.namespace, "-c", "main", "--memory", str(memory)
    )
    begun = time.monotonic()

    async def total() -> int:
        return process.do("info").total

    await eventually(
        total,
        lambda seen: seen == memory,
        within=LIMITED_SECONDS,
        what=f"the process sees {memory:,} MiB",
    )
    after = time.monotonic() - begun
    story.tell(f"gpuledger resize --memory {memory}: the same process sees it after {after:.2f} s")


async def _exported(story: Story) -> None:
    """Wait until the agent tells of the container what the program holds."""
    [one] = await eventually(
        story.agent.containers,
        lambda found: LOWERED_MIB * 1024**2 in _numbers(found),
        within=LIMITED_SECONDS,
        what="the agent tells what the container uses",
    )
    story.tell(f"the agent tells of it: {one}")


def _numbers(found: Any) -> list[int]:
    """Return all integers in a decoded JSON value."""
    if isinstance(found, dict):
        return [number for one in found.values() for number in _numbers(one)]
    if isinstance(found, list):
        return [number for one in found for number in _numbers(one)]
    return [found] if isinstance(found, int) else []


async def _announced(story: Story) -> None:
    """Wait until the ledger knows the node's cards; then count slots as the real kubelet does."""
    service = story.yard.service
    cards = await eventually(
        lambda: service.answer("cards"),
        lambda found: len(found) == 2,
        within=ANNOUNCED_SECONDS,
        what="the ledger knows the cards",
    )
    room = {RESOURCE: str(len(story.kubelet.health))}
    change = {"status": {"capacity": room, "allocatable": room}}
    answer = await story.yard.cluster.patch(f"{NODES}/{NODE}/status", change)
    assert answer.status == 200, answer
    names = ", ".join(one["uuid"] for one in cards)
    story.tell(f"the agent announces {names}, and {room[RESOURCE]} slots to the kubelet")


def _node() -> dict[str, Any]:
    room = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    labels = {"kubernetes.io/hostname": NODE, "type": "kwok"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NODE, "labels": labels},
        "status": {"capacity": room, "allocatable": room},
    }


def _soon(look: Any) -> Any:
    async def later() -> Any:
        await asyncio.sleep(0)
        return look()

    return later
