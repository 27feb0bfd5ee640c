"""A pod that bypasses the library: detected by the driver's memory of its processes, and evicted.

The first story begins the bypass, and the others look at it later.
"""

from collections.abc import Iterator
from typing import Final

import pytest

from tests.e2e.real_node.story.api import wait_for
from tests.e2e.real_node.story.gpu_cluster import GpuCluster
from tests.e2e.real_node.story.tenant import Tenant
from tests.e2e.real_node.story.tenant_pod import BYPASS, PodProgram, tenant_pod

pytestmark = [pytest.mark.e2e, pytest.mark.install, pytest.mark.timeout(300)]

LIMIT_MIB: Final = 500
TAKEN_MIB: Final = 1_500
EVICTED_SECONDS: Final = 100.0
"""The agent waits 15 s before the report and 60 s before the eviction."""


@pytest.fixture(scope="session")
def honest(bypassing: Tenant) -> Iterator[PodProgram]:
    """Run a program beside the bypass that uses its whole limit."""
    bypassing.post(tenant_pod("honest", memory=LIMIT_MIB))
    with bypassing.program("honest") as program:
        assert program.do("fill").held == LIMIT_MIB
        yield program


@pytest.fixture(scope="session")
def bypass(bypassing: Tenant) -> Iterator[PodProgram]:
    """Run a program whose loader ignores /etc/ld.so.preload."""
    bypassing.post(tenant_pod("bypass", memory=LIMIT_MIB, command=BYPASS))
    with bypassing.program("bypass") as program:
        assert program.do("take", TAKEN_MIB).held == TAKEN_MIB
        yield program


@pytest.mark.short
def test_a_program_can_bypass_the_library(
    gpus: GpuCluster, bypassing: Tenant, honest: PodProgram, bypass: PodProgram
) -> None:
    with gpus.teller.step("Start a program by a loader that ignores /etc/ld.so.preload"):
        pod = bypassing.pod("bypass")
        [card] = bypassing.cards_by_ledger(pod)
        assert gpus.driver.memory()[pod["metadata"]["uid"], card] == TAKEN_MIB
        gpus.tell()
        gpus.teller.claim(f"it has {TAKEN_MIB:,} MiB of a limit of {LIMIT_MIB:,}")


@pytest.mark.short
def test_a_bypass_is_reported(gpus: GpuCluster, bypassing: Tenant, bypass: PodProgram) -> None:
    with gpus.teller.step("Wait for the agent to report the bypass"):
        note = bypassing.wait_event("bypass", "GPUMemoryNotAccountedFor", within=EVICTED_SECONDS)
        gpus.teller.line(note)
        gpus.teller.claim("an event of the pod names the excess")


def test_a_bypass_is_evicted(
    gpus: GpuCluster, bypassing: Tenant, honest: PodProgram, bypass: PodProgram
) -> None:
    with gpus.teller.step("Wait for the agent to evict the pod"):
        wait_for(
            lambda: [pod["metadata"]["name"] for pod in bypassing.pods()],
            lambda names: names == ["honest"],
            within=EVICTED_SECONDS,
            what="the pod is evicted",
        )
        bypassing.wait_event("bypass", "EvictedForGPUMemory")
        memory = gpus.driver.memory().values()
        assert TAKEN_MIB not in memory
        gpus.tell()
        gpus.teller.claim("the pod is evicted, and its memory is free")
        assert honest.do("info").held == LIMIT_MIB
        gpus.teller.claim("a pod beside it, which uses its whole limit, runs on")
