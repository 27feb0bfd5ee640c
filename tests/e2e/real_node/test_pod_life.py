"""The life of a pod with a card: from its post to its end, by mounts and by CDI."""

from typing import Final

import pytest

from tests.e2e.node.chain.container import OUT_OF_MEMORY, ProgramAnswer
from tests.e2e.real_node.story.api import wait_for
from tests.e2e.real_node.story.gpu_cluster import GpuCluster
from tests.e2e.real_node.story.tenant import Tenant, tenant
from tests.e2e.real_node.story.tenant_pod import PodProgram, tenant_pod
from vgpu_native.shared.limits_page import MEBIBYTE

pytestmark = [pytest.mark.e2e, pytest.mark.install, pytest.mark.timeout(300)]

QUOTA_MIB: Final = 4_000
FIRST_MIB: Final = 1_000
RAISED_MIB: Final = 2_000
SEEN_SECONDS: Final = 30.0
EXHAUSTED: Final = "CUDA_ERROR_OUT_OF_MEMORY"


@pytest.mark.short
@pytest.mark.parametrize("form", ["mounts", "cdi"])
def test_a_pod_is_held_to_its_limit(gpus: GpuCluster, form: str) -> None:
    gpus.use(form)
    with tenant(gpus, f"life-{form}") as team:
        _deny(team)
        uid = _run(team, form)
        program = team.program("web")
        gpus.voices.process(f"begins: {program.begun}")
        with gpus.teller.step("Allocate to the limit, and above it"):
            _fill(team, program, FIRST_MIB)
            gpus.tell()
        _resize(team, program)
        _end(team, program, uid)


def test_a_pod_cannot_choose_its_cards_when_cdi_is_used(gpus: GpuCluster) -> None:
    gpus.use("cdi")
    with tenant(gpus, "chooser") as team, gpus.teller.step("Ask for all cards by the environment"):
        chosen = {"NVIDIA_VISIBLE_DEVICES": "all"}
        team.post(tenant_pod("greedy", environment=chosen))
        with team.program("greedy") as program:
            assert program.begun == ProgramAnswer(0, 0, FIRST_MIB, FIRST_MIB)
            team.assert_own_cards(team.pod("greedy"))
        gpus.tell()
        gpus.teller.claim("the runtime gave it the card of its placement only")


def _deny(team: Tenant) -> None:
    teller = team.gpus.teller
    with teller.step(f"Limit the namespace to {QUOTA_MIB:,} MiB, and ask for more"):
        team.limit(QUOTA_MIB)
        answer = team.ask(tenant_pod("greedy", memory=QUOTA_MIB + 1))
        assert answer.status == 403, answer
        assert "ExceedsLimit" in answer.body["message"]
        teller.line(answer.body["message"])
        teller.claim("the webhook denied it")


def _run(team: Tenant, form: str) -> str:
    """Post a pod and wait until it runs with its limits; return its uid."""
    teller = team.gpus.teller
    with teller.step(f"Post a pod with 1 nvidia.com/gpu and {FIRST_MIB:,} MiB, answered by {form}"):
        team.post(tenant_pod("web", memory=FIRST_MIB))
        pod = team.wait("web", "Running")
        uid = str(pod["metadata"]["uid"])
        team.gpus.tell()
        assert team.usage() == FIRST_MIB
        teller.claim(f"the ledger counts {FIRST_MIB:,} MiB, and kube-scheduler bound the pod")
        team.assert_own_cards(pod)
        [card] = team.cards_by_ledger(pod)
        teller.claim(f"the runtime gave it {card}, as the ledger has it")
        _assert_known_to_kubelet(team, uid, card, form)
    with teller.step("Read what is in the container"):
        _assert_mounted(team)
    return uid


def _assert_known_to_kubelet(team: Tenant, uid: str, card: str, form: str) -> None:
    entry, holder = team.entry(uid), team.holder("web")
    assert entry is not None, "the kubelet's checkpoint has the pod"
    assert holder is not None, "the kubelet's pod-resources API has the pod"
    assert entry.ids == holder.ids
    assert (entry.cdi, entry.container) == (form == "cdi", "main")
    assert len(entry.ids) == 1, entry
    team.gpus.teller.claim(
        f"checkpoint and pod-resources API of the kubelet name {', '.join(entry.ids)}"
    )


def _assert_mounted(team: Tenant) -> None:
    teller, execute = team.gpus.teller, team.gpus.cluster.exec
    mounts = execute(team.name, "web", "cat", "/proc/1/mountinfo").splitlines()
    modes = {line.split()[4]: line.split()[5].split(",")[0] for line in mounts}
    for place, mode in (
        ("/usr/local/gpuledger/libvgpu.so", "ro"),
        ("/etc/ld.so.preload", "ro"),
        ("/etc/gpuledger/limits", "ro"),
        ("/run/gpuledger", "rw"),
    ):
        assert modes.get(place) == mode, modes
    teller.claim("library, ld.so.preload and limits page are read-only, the usage region writable")
    assert "/usr/local/gpuledger/libvgpu.so" in execute(team.name, "web", "cat", "/proc/1/maps")
    teller.claim("libvgpu.so is mapped into process 1")
    nodes = execute(team.name, "web", "sh", "-c", "ls /dev | grep nvidia").split()
    assert len(nodes) == 1, nodes
    teller.claim(f"its only device node is /dev/{nodes[0]}")


def _fill(team: Tenant, program: PodProgram, limit: int) -> None:
    """Let the program allocate all it can, to the last MiB."""
    answer = program.do("fill")
    team.gpus.voices.process(f"fill: {answer}")
    assert answer == ProgramAnswer(OUT_OF_MEMORY, limit, 0, limit)
    assert program.do("take", 1) == answer
    team.gpus.teller.claim(f"the process has {limit:,} MiB, and 1 MiB more is {EXHAUSTED}")


def _resize(team: Tenant, program: PodProgram) -> None:
    teller = team.gpus.teller
    with teller.step("Resize the container while it runs"):
        asked = ("web", "-n", team.name, "--container", "main", "--memory", str(RAISED_MIB))
        teller.command(f"gpuledger resize {' '.join(asked)}")
        team.gpus.gpuledger("resize", *asked)
        wait_for(
            lambda: program.do("info").total,
            lambda total: total == RAISED_MIB,
            within=SEEN_SECONDS,
            what=f"the process sees {RAISED_MIB:,} MiB",
        )
        _fill(team, program, RAISED_MIB)
        wait_for(
            team.gpus.containers,
            lambda uses: (
                [use["memory_used"] for use in uses if use["namespace"] == team.name]
                == [RAISED_MIB * MEBIBYTE]
            ),
            within=SEEN_SECONDS,
            what="the agent reports the usage",
        )
        teller.claim(f"the agent, too, reports {RAISED_MIB:,} MiB in use")
        assert team.usage() == RAISED_MIB
        team.gpus.tell()


def _end(team: Tenant, program: PodProgram, uid: str) -> None:
    teller = team.gpus.teller
    with teller.step("End the program"):
        [card] = team.cards_by_ledger(team.pod("web"))
        assert team.gpus.driver.memory()[uid, card] == RAISED_MIB, "the driver, too, has them"
        program.close()
        team.wait("web", "Succeeded")
        assert team.gpus.driver.memory().get((uid, card), 0) == 0
        wait_for(team.usage, lambda used: used == 0, within=SEEN_SECONDS, what="nothing is used")
        teller.claim("the pod Succeeded; driver and ledger count 0 MiB")
        team.gpus.tell()
