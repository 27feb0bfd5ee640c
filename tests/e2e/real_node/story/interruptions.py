"""Ends of kubelet, containerd and agent, and what has to be true after each."""

import time
from typing import Final

from tests.e2e.node.chain.container import OUT_OF_MEMORY, ProgramAnswer
from tests.e2e.real_node.story.api import wait_for
from tests.e2e.real_node.story.gpu_cluster import GpuCluster
from tests.e2e.real_node.story.tenant_pod import PodProgram

KUBELET: Final = "kubelet"
CONTAINERD: Final = "containerd"
AGENT: Final = "agent"
PROGRAMS: Final = (KUBELET, CONTAINERD, AGENT)
DOWN_SECONDS: Final = 0.5
BACK_SECONDS: Final = 60.0
_AGENT: Final = ("gpuledger", "agent")


def down(gpus: GpuCluster, program: str) -> None:
    """Kill a program. kubelet and containerd stay down; the kubelet starts the agent again."""
    if program == AGENT:
        gpus.node.end(*_AGENT)
    else:
        gpus.node.down(program)


def up(gpus: GpuCluster, program: str) -> None:
    """Let a program that is down start again."""
    if program != AGENT:
        gpus.node.up(program)


def interrupt(gpus: GpuCluster, program: str) -> None:
    """Kill a program, and let it start again a moment later."""
    down(gpus, program)
    time.sleep(DOWN_SECONDS)
    up(gpus, program)


def wait_back(gpus: GpuCluster) -> None:
    """Wait until the agent is registered with the kubelet, and the Node is ready."""
    wait_for(
        lambda: len(gpus.node.processes(*_AGENT)),
        lambda count: count == 1,
        within=BACK_SECONDS,
        what="the agent runs",
    )
    wait_for(
        gpus.readiness,
        lambda answer: answer == "ready",
        within=BACK_SECONDS,
        what="the agent is ready",
    )
    gpus.wait_allocatable()


def assert_keeps(program: PodProgram, limit: int) -> None:
    """Fail unless a program that has used up its limit still has it, and gets no more."""
    assert program.do("take", 1) == ProgramAnswer(OUT_OF_MEMORY, limit, 0, limit)
