"""One real cluster with a node with cards for all stories; they skip outside of a rig."""

from collections.abc import Iterator

import pytest

from tests.e2e.install.rig.assets import RigAssets, missing, rig_assets, rig_name
from tests.e2e.real_node.story.gpu_cluster import GpuCluster, gpu_cluster


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Restart no agent while one counts how long a bypass lasts, and switch the agents once."""
    items.sort(key=lambda item: "cdi" in item.nodeid or "interrupt" in item.nodeid)
