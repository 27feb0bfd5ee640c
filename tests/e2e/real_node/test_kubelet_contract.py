"""The real kubelet passes the contract that the tests' played kubelet passes."""

import asyncio

import pytest
from support.kubelets.kubelet_contract import CASES, DEVICES, Case
from support.kubelets.recording_plugin import plugin_at

from tests.e2e.real_node.story.gpu_cluster import GpuCluster
from tests.e2e.real_node.story.interruptions import wait_back
from tests.e2e.real_node.story.real_kubelet import RealKubelet
from tests.e2e.real_node.story.tenant import Tenant, tenant

pytestmark = [pytest.mark.e2e, pytest.mark.install, pytest.mark.timeout(300)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_real_kubelet_keeps_the_contract(gpus: GpuCluster, case: Case) -> None:
    name = case.__name__.replace("_", "-")
    with tenant(gpus, f"contract-{name}") as team:
        with gpus.teller.step(f"Kubelet: {(case.__doc__ or '').splitlines()[0]}"):
            asyncio.run(_kept(team, case, f"example.com/{name}"))
            gpus.teller.claim("the real kubelet does so, as the played one")
        gpus.voices.new_lines()
    wait_back(gpus)


async def _kept(team: Tenant, case: Case, resource: str) -> None:
    kubelet = RealKubelet(team, resource)
    endpoint = f"{resource.rpartition('/')[2]}.sock"
    async with plugin_at(kubelet.plugins, endpoint, *DEVICES) as plugin:
        plugin.resource = resource
        await case(kubelet, plugin)
