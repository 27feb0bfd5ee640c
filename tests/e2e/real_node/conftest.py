"""One real cluster with a node with cards for all stories; they skip outside of a rig.

The stories have an order. A bypass lasts while the first ones run, in which no agent restarts, and
the agents are switched from mounts to CDI once.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from tests.e2e.install.rig.assets import RigAssets, missing, rig_assets, rig_name
from tests.e2e.real_node.story.gpu_cluster import GpuCluster, gpu_cluster
from tests.e2e.real_node.story.tenant import Tenant, tenant

ORDER: Final = (
    "can_bypass",
    "test_pod_life.py::test_a_pod_is_held_to_its_limit[mounts]",
    "test_race",
    "test_kubelet_contract",
    "test_bypass",
    "test_interruptions",
    "[mounts-",
    "cdi",
)
"""Parts of the names of stories, in their order."""


@pytest.fixture(scope="session")
def rig() -> RigAssets:
    """Return the folders with the programs, or skip with the reason."""
    if reason := missing():
        pytest.skip(f"no pod ran below a real kubelet: {reason}")
    if not rig_name():
        pytest.skip("no pod ran below a real kubelet: use `make e2e-node`")
    return rig_assets()


@pytest.fixture(scope="session")
def gpus(rig: RigAssets, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuCluster]:
    """Run the cluster, with agents that answer by mounts."""
    with gpu_cluster(rig, tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def bypassing(gpus: GpuCluster) -> Iterator[Tenant]:
    """Return the tenant of the pods that bypass the library, which outlives the first stories."""
    with ExitStack() as stack:
        yield stack.enter_context(tenant(gpus, "bypass"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the stories in their order."""
    items.sort(key=lambda item: _rank(item.nodeid))


def _rank(name: str) -> int:
    return next((rank for rank, part in enumerate(ORDER) if part in name), len(ORDER))
