"""kubelet, containerd and agent are killed at each step of a pod's life.

No pod gets the cards of another, running pods keep their limits, and the node takes pods again.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from tests.e2e.real_node.story.api import wait_for
from tests.e2e.real_node.story.gpu_cluster import AGENTS, GpuCluster
from tests.e2e.real_node.story.interruptions import (
    AGENT,
    CONTAINERD,
    KUBELET,
    PROGRAMS,
    assert_keeps,
    down,
    interrupt,
    up,
    wait_back,
)
from tests.e2e.real_node.story.tenant import Tenant, tenant
from tests.e2e.real_node.story.tenant_pod import PodProgram, tenant_pod

pytestmark = [pytest.mark.e2e, pytest.mark.install, pytest.mark.timeout(300)]

LIMIT_MIB: Final = 1_000
WAIT_SECONDS: Final = 2
"""How long an init container runs between Allocate and PreStartContainer."""

REJECTED: Final = "UnexpectedAdmissionError"
SHORT: Final = ((KUBELET, "between"), (CONTAINERD, "running"), (AGENT, "allocate"))
"""The steps that `make e2e-node-short` interrupts, too."""


@pytest.fixture(scope="module")
def steady(gpus: GpuCluster) -> Iterator[PodProgram]:
    """Run a program that has used up its limit before the first interruption."""
    with tenant(gpus, "steady") as team:
        team.post(tenant_pod("web", memory=LIMIT_MIB))
        with team.program("web") as program:
            program.do("fill")
            yield program


def before_allocate(team: Tenant, program: str) -> None:
    """The program is down when a pod is bound to the node."""
    down(team.gpus, program)
    team.post(tenant_pod("web"))
    wait_for(
        lambda: team.pod("web")["spec"].get("nodeName"),
        bool,
        within=30,
        what="the pod is bound",
    )
    up(team.gpus, program)


def between_answers(team: Tenant, program: str) -> None:
    """The kubelet has the answer of Allocate, and has not called PreStartContainer."""
    main = tenant_pod("web")
    first = {**main["spec"]["containers"][0], "name": "first", "resources": {}}
    first["command"] = ["sleep", str(WAIT_SECONDS)]
    uid = team.post(main | {"spec": main["spec"] | {"initContainers": [first]}})["metadata"]["uid"]
    wait_for(lambda: team.entry(uid), bool, within=30, what="Allocate is answered", pause=0.01)
    interrupt(team.gpus, program)


def while_running(team: Tenant, program: str) -> None:
    """The container runs."""
    team.post(tenant_pod("web"))
    team.wait("web", "Running")
    interrupt(team.gpus, program)


def while_ending(team: Tenant, program: str) -> None:
    """The pod is deleted, and its process ignores the signal to end."""
    team.post(tenant_pod("web", terminationGracePeriodSeconds=2))
    team.wait("web", "Running")
    team.delete("web")
    time.sleep(0.5)
    interrupt(team.gpus, program)
    team.wait_gone("web")
    team.post(tenant_pod("web"))


STEPS: Final[dict[str, Callable[[Tenant, str], None]]] = {
    "allocate": before_allocate,
    "between": between_answers,
    "running": while_running,
    "ending": while_ending,
}


def cases() -> Iterator[object]:
    """Yield each program at each step."""
    for step in STEPS:
        for program in PROGRAMS:
            marks = (pytest.mark.short,) if (program, step) in SHORT else ()
            yield pytest.param(program, step, marks=marks)


@pytest.mark.parametrize(("program", "step"), list(cases()))
def test_pods_keep_their_cards_and_limits(
    gpus: GpuCluster, steady: PodProgram, program: str, step: str
) -> None:
    explained = (STEPS[step].__doc__ or "").splitlines()[0]
    with tenant(gpus, f"{program}-{step}") as team:
        with gpus.teller.step(f"SIGKILL of the {program}. {explained}"):
            STEPS[step](team, program)
            assert_keeps(steady, LIMIT_MIB)
            gpus.teller.claim(f"another container keeps its {LIMIT_MIB:,} MiB and gets no more")
            wait_back(gpus)
            gpus.teller.claim("the agent is registered, and all slots are allocatable")
            _runs_or_is_replaced(team)
            gpus.tell()
        assert_keeps(steady, LIMIT_MIB)


def test_an_agent_that_is_replaced_by_force_registers(gpus: GpuCluster, steady: PodProgram) -> None:
    """The kubelet disconnects the new agent when the old one ends after its registration."""
    with gpus.teller.step("Delete the agent's pod by force, so that two agents run for a moment"):
        before = gpus.agent_pod()["metadata"]
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        gpus.api.must("DELETE", f"/api/v1/namespaces/{AGENTS}/pods/{before['name']}", options)
        wait_for(
            gpus.agent_pods,
            lambda pods: pods and before["uid"] not in {pod["metadata"]["uid"] for pod in pods},
            within=30,
            what="another agent is there",
        )
        wait_back(gpus)
        assert_keeps(steady, LIMIT_MIB)
        gpus.tell()
        gpus.teller.claim("the new agent is registered, and all slots are allocatable")


def _runs_or_is_replaced(team: Tenant) -> None:
    """Check that the pod runs on its cards, or was rejected and the next one does."""
    pod = team.wait("web", "Running", "Failed")
    if pod["status"]["phase"] == "Failed":
        assert pod["status"]["reason"] == REJECTED, pod["status"]
        assert team.cards_by_runtime(pod["metadata"]["uid"]) == []
        team.gpus.teller.line(pod["status"]["message"])
        team.gpus.teller.claim("the kubelet rejected the pod, none of whose containers started")
        team.delete("web")
        team.wait_gone("web")
        team.post(tenant_pod("web"))
    with team.program("web") as program:
        assert program.do("fill").held == LIMIT_MIB
        assert_keeps(program, LIMIT_MIB)
    team.assert_own_cards(team.pod("web"))
    team.gpus.teller.claim("the pod runs on the card of its placement, within its limit")
