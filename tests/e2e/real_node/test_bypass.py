"""A pod that bypasses the library: detected by the driver's memory of its processes, and evicted."""

from typing import Final

import pytest

from tests.e2e.real_node.story.api import wait_for
from tests.e2e.real_node.story.gpu_cluster import GpuCluster
from tests.e2e.real_node.story.tenant import Tenant, tenant
from tests.e2e.real_node.story.tenant_pod import BYPASS, tenant_pod

pytestmark = [pytest.mark.e2e, pytest.mark.install, pytest.mark.timeout(300)]

LIMIT_MIB: Final = 1_000
TAKEN_MIB: Final = 3_000
EVICTED_SECONDS: Final = 100.0
"""The agent waits 15 s before the report and 60 s before the eviction."""


def test_a_pod_that_bypasses_the_library_is_evicted(gpus: GpuCluster) -> None:
    with tenant(gpus, "bypass") as team:
        team.post(tenant_pod("honest", memory=LIMIT_MIB))
        team.post(tenant_pod("bypass", memory=LIMIT_MIB, command=BYPASS))
        with team.program("honest") as honest, team.program("bypass") as program:
            with gpus.teller.step("Start a program by a loader that ignores /etc/ld.so.preload"):
                assert honest.do("fill").held == LIMIT_MIB
                assert program.do("take", TAKEN_MIB).held == TAKEN_MIB
                pod = team.pod("bypass")
                [card] = team.cards_by_ledger(pod)
                uid = pod["metadata"]["uid"]
                assert gpus.driver.memory()[uid, card] == TAKEN_MIB
                gpus.teller.claim(f"it has {TAKEN_MIB:,} MiB of a limit of {LIMIT_MIB:,}")
            with gpus.teller.step("Wait for the agent"):
                _wait_evicted(team, uid)
                assert honest.do("info").held == LIMIT_MIB
                gpus.teller.claim("a pod beside it, which uses its whole limit, runs on")


def _wait_evicted(team: Tenant, uid: str) -> None:
    gpus = team.gpus
    note = team.wait_event("bypass", "GPUMemoryNotAccountedFor", within=EVICTED_SECONDS)
    gpus.teller.line(note)
    gpus.teller.claim("an event of the pod names the excess")
    wait_for(
        lambda: [pod["metadata"]["name"] for pod in team.pods()],
        lambda names: names == ["honest"],
        within=EVICTED_SECONDS,
        what="the pod is evicted",
    )
    gpus.tell()
    team.wait_event("bypass", "EvictedForGPUMemory")
    assert all(seen != uid for seen, _ in gpus.driver.memory())
    gpus.teller.claim("the pod is evicted, and its memory is free")
