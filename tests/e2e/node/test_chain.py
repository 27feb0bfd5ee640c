"""The whole chain: from a pod that is posted to a process that is refused memory.

Everything is real but the card: API server, webhook, scheduler, ledger, agent, gRPC, the library.
The kubelet is played, and a mount namespace plays the container. `make e2e-chain` shows each step.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from support.fakes.kubelet import RESOURCE, Asked, kubelet_in
from support.harness.native_library import built

from gpuledger.demo.narration import Narrator
from tests.e2e.harness.polling import eventually
from tests.e2e.node.chain.agent import Agent
from tests.e2e.node.chain.container import OUT_OF_MEMORY, Container, ProgramAnswer, unshare
from tests.e2e.node.chain.node_story import NodeStory
from tests.e2e.objects.pods import MEMORY
from tests.e2e.scheduling.support.nodes import NODES
from tests.e2e.scheduling.support.pod_shapes import container, pod
from tests.e2e.scheduling.support.scheduling_cluster import opened
from tests.e2e.scheduling.support.team import SchedulingTeam, working
from vgpu_native.shared.limits_page import MEBIBYTE

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    # One event loop: the kubelet's connections belong to that in which they were made.
    pytest.mark.asyncio(loop_scope="session"),
]

NODE: Final = "gpu-0"
QUOTA_MIB: Final = 10_000
FIRST_MIB: Final = 4_000
RAISED_MIB: Final = 9_000
LOWERED_MIB: Final = 1_000
CORES: Final = 30
ANNOUNCED_SECONDS: Final = 60.0
COUNTED_SECONDS: Final = 30.0
COLLECTED_SECONDS: Final = 240.0
"""An allocation is kept for two minutes at least, and looked at once a minute."""

REFUSED: Final = "CUDA_ERROR_OUT_OF_MEMORY"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def story(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NodeStory]:
    """Run a cluster with one node, whose cards an agent announces."""
    unshare()
    teller = Narrator()
    teller.opening("From a pod that is posted to a process that is refused memory.")
    teller.line("Every `ok` was checked. Played are the kubelet, the container (by a mount")
    teller.line("namespace) and the cards (by a stub of the driver); all else is real.")
    folder = tmp_path_factory.mktemp("chain")
    with teller.step("Build libvgpu.so and the stub"):
        where = built()
        teller.line(str(where))
    async with AsyncExitStack() as stack:
        with teller.step("Start kube-apiserver, nats-server and gpuledger serve, and a kubelet"):
            yard = await stack.enter_async_context(opened(assets, folder))
            kubelet = await stack.enter_async_context(kubelet_in(folder / "kubelet"))
            teller.claim("the API server asks gpuledger's webhooks")
        agent = Agent(NODE, folder, where, yard.plane.kubeconfig("gpuledger"), yard.nats.url)
        made = NodeStory(yard, agent, kubelet, teller)
        try:
            await _announce(made)
            yield made
        finally:
            status = agent.stop()
        assert status == 0, "SIGTERM ends the agent cleanly"


@pytest_asyncio.fixture(loop_scope="session")
async def team(story: NodeStory, tmp_path: Path) -> AsyncIterator[SchedulingTeam]:
    """Make a namespace of its own for a test; all its pods are gone before the next one."""
    async with working(story.yard, tmp_path) as made:
        yield made


async def test_a_pod_gets_the_memory_of_its_limit_and_no_more(
    story: NodeStory, team: SchedulingTeam, tmp_path: Path
) -> None:
    await _limit(story, team)
    uid, process = await _started(story, team, tmp_path)
    try:
        _use_all(story, process)
        await _raise(story, team, process)
        await _lower_while_the_agent_is_down(story, team, process)
        await _free(story, process)
        assert process.end() == 0
    finally:
        process.kill()
    await _ended(story, team, uid)
    story.teller.closing(f"All {story.teller.claims} claims held.")


@pytest.mark.long
async def test_the_limits_page_of_a_pod_that_has_ended_goes(
    story: NodeStory, team: SchedulingTeam, tmp_path: Path
) -> None:
    await _limit(story, team)
    uid, process = await _started(story, team, tmp_path)
    process.kill()
    await _ended(story, team, uid)
    with story.teller.step("Wait for the agent to forget the container, which takes minutes"):
        await eventually(
            _soon(story.pages),
            lambda pages: not pages,
            within=COLLECTED_SECONDS,
            what="the page is gone",
        )
        story.teller.claim("its limits page is gone")


async def _announce(story: NodeStory) -> None:
    """Start the agent; wait until ledger, kubelet and Node have the cards."""
    with story.teller.step(f"Start the agent of node {NODE}, which has two cards"):
        await story.yard.cluster.must("POST", NODES, _node())
        story.agent.start()
        await story.agent.wait_ready()
        await story.kubelet.wait_listed()
        await eventually(
            lambda: story.yard.service.answer("cards"),
            lambda cards: len(cards) == 2,
            within=ANNOUNCED_SECONDS,
            what="the ledger knows the cards",
        )
        story.teller.claim("the agent wrote the cards on the Node, and the ledger has read them")
        await story.show_cards()
        # As the real kubelet counts slots.
        room = {RESOURCE: str(len(story.kubelet.health))}
        change = {"status": {"capacity": room, "allocatable": room}}
        answer = await story.yard.cluster.patch(f"{NODES}/{NODE}/status", change)
        assert answer.status == 200, answer
        story.teller.claim(f"it has told the kubelet of {room[RESOURCE]} slots of {RESOURCE}")


async def _limit(story: NodeStory, team: SchedulingTeam) -> None:
    """Give the namespace a quota, and see a pod refused that asks for more."""
    resource = f"limits.{MEMORY}"
    with story.teller.step("Limit the namespace, and ask for more than that"):
        story.teller.command(
            f"kubectl -n {team.namespace} create quota gpus --hard={resource}={QUOTA_MIB}"
        )
        metadata, spec = {"name": "gpus"}, {"hard": {resource: str(QUOTA_MIB)}}
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec}
        await team.cluster.must("POST", f"{team.path}/resourcequotas", quota)
        await eventually(
            lambda: story.yard.service.answer("usage", "-n", team.namespace),
            lambda rows: [row["limit"] for row in rows] == [QUOTA_MIB],
            within=COUNTED_SECONDS,
            what="the ledger knows the quota",
        )
        greedy = pod("greedy", container(cards=1, memory=QUOTA_MIB + 1))
        answer = await team.cluster.ask("POST", f"{team.path}/pods", greedy)
        story.teller.command(
            f"kubectl create -f greedy.yaml    # {QUOTA_MIB + 1:,} MiB of one card"
        )
        story.teller.line(answer.message)
        assert answer.status == 403, answer
        assert "ExceedsLimit" in answer.message
        story.teller.claim("the webhook refused it")


async def _started(story: NodeStory, team: SchedulingTeam, folder: Path) -> tuple[str, Container]:
    """Bring a pod from its post to its process; return its uid and that."""
    uid = await _placed(story, team)
    answer = await _allocated(story, team, uid)
    with story.teller.step("Start a program in the container, which knows CUDA and no limits"):
        process = Container(answer, story.agent.machine, folder)
        assert process.begun == ProgramAnswer(0, 0, FIRST_MIB, FIRST_MIB)
        story.teller.claim(f"process {process.pid} sees a card of {FIRST_MIB:,} MiB, all free")
    return uid, process


async def _placed(story: NodeStory, team: SchedulingTeam) -> str:
    """Post a pod and wait until it is on the node; return its uid."""
    with story.teller.step("Post a pod that fits"):
        what = f"{FIRST_MIB:,} MiB and {CORES} % of the time of a card"
        story.teller.command(f"kubectl -n {team.namespace} create -f web.yaml    # {what}")
        await team.create(pod("web", container(cards=1, memory=FIRST_MIB, cores=CORES)))
        story.teller.claim("the webhook has admitted it, so the ledger has charged it")
        await story.show_usage(team.namespace, FIRST_MIB)
    with story.teller.step("Let kube-scheduler find a node, and the ledger a card"):
        await team.yard.scheduler()
        [bound] = await team.are_bound(1)
        await team.agrees()
        given = bound["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"]
        story.teller.claim(f"it is bound to {bound['spec']['nodeName']}, with {given}")
        await story.show_cards()
    return str(bound["metadata"]["uid"])


async def _allocated(story: NodeStory, team: SchedulingTeam, uid: str) -> Any:
    """Let the kubelet ask for the container's cards; return the answer."""
    with story.teller.step("Let the kubelet ask the agent: Allocate, then PreStartContainer"):
        before = story.pages()
        await story.kubelet.admit(team.namespace, "web", uid, [Asked("main", 1)])
        [page] = set(story.pages()) - set(before)
        story.teller.claim("Allocate is answered, with a limits page that gives nothing yet")
        story.teller.line(str(page))
        assert story.show_page(page)[0] == 0, "nobody has said yet whose container it is"
        answer = await story.kubelet.start_container(uid, "main")
        story.teller.claim("PreStartContainer is answered: it is known whose container it is")
        assert story.show_page(page) == (FIRST_MIB, CORES)
        story.teller.line("what the container gets:")
        for name, value in sorted(answer.envs.items()):
            story.teller.line(f"  {name}={value}")
        for mount in answer.mounts:
            how = "read-only" if mount.read_only else "writable"
            story.teller.line(f"  {mount.container_path}, {how}")
    return answer


def _use_all(story: NodeStory, process: Container) -> None:
    with story.teller.step("Allocate until it is refused"):
        _fill(story, process, FIRST_MIB)


def _fill(story: NodeStory, process: Container, limit: int) -> None:
    """Let the program allocate all it can, to the last MiB."""
    told = process.do("fill")
    assert told == ProgramAnswer(OUT_OF_MEMORY, limit, 0, limit)
    assert process.do("take", 1) == told
    story.teller.claim(f"it was given {told.held:,} MiB, and 1 MiB more is {REFUSED}")


async def _raise(story: NodeStory, team: SchedulingTeam, process: Container) -> None:
    with story.teller.step("Raise the limit in the ledger; the process runs on"):
        await story.resize_and_see(team, process, RAISED_MIB)
        await story.show_usage(team.namespace, RAISED_MIB)
        _fill(story, process, RAISED_MIB)


async def _lower_while_the_agent_is_down(
    story: NodeStory, team: SchedulingTeam, process: Container
) -> None:
    with story.teller.step("Kill the agent: SIGKILL; and lower the limit meanwhile"):
        story.agent.kill()
        await story.resize(team, LOWERED_MIB)
        assert process.do("take", 1) == ProgramAnswer(OUT_OF_MEMORY, RAISED_MIB, 0, RAISED_MIB)
        story.teller.claim(f"without an agent the limit stays as it was, {RAISED_MIB:,} MiB")
    with story.teller.step("Start the agent again"):
        story.agent.start()
        await story.sees(process, LOWERED_MIB)
        story.teller.claim(f"process {process.pid} sees {LOWERED_MIB:,} MiB")
        assert process.do("take", 1) == ProgramAnswer(OUT_OF_MEMORY, RAISED_MIB, 0, LOWERED_MIB)
        story.teller.claim(f"it keeps the {RAISED_MIB:,} MiB that it holds, and is given no more")


async def _free(story: NodeStory, process: Container) -> None:
    with story.teller.step("Free everything, and allocate until it is refused"):
        process.do("free")
        _fill(story, process, LOWERED_MIB)
        usage = await story.use(LOWERED_MIB * MEBIBYTE)
        assert (usage["memory_limit"], usage["processes"]) == (LOWERED_MIB * MEBIBYTE, 1)
        story.teller.claim(
            f"the agent, too, says that {usage['namespace']}/{usage['pod']}/{usage['container']} "
            f"uses {LOWERED_MIB:,} of {LOWERED_MIB:,} MiB in 1 process"
        )


async def _ended(story: NodeStory, team: SchedulingTeam, uid: str) -> None:
    """Delete the pod, let the kubelet forget it, and wait until the ledger has its card back."""
    with story.teller.step("Delete the pod"):
        story.teller.command(f"kubectl -n {team.namespace} delete pod web")
        await team.delete("web")
        story.kubelet.end(uid)
        story.kubelet.write_checkpoint()
        assert not await team.agrees()
        story.teller.claim("its card is free again")
        await story.show_cards()
    with story.teller.step("Read what the ledger has of all this"):
        await story.show_events(team.namespace)


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
