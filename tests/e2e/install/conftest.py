"""A real cluster for each file of tests; all of them skip outside the namespaces of a rig."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.install.rig import images
from tests.e2e.install.rig.assets import RigAssets, missing, rig_assets, rig_name
from tests.e2e.install.rig.real_cluster import RealCluster


@pytest.fixture(scope="session")
def rig() -> RigAssets:
    """Return the folders with the programs, or skip with the reason."""
    if reason := missing():
        pytest.skip(f"nothing was installed on a real node: {reason}")
    if not rig_name():
        pytest.skip("nothing was installed on a real node: use `make e2e-install`")
    return rig_assets()


@pytest.fixture
def real_cluster(
    rig: RigAssets, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[RealCluster]:
    """Run a bare cluster with the nodes a and b for one test, so that a rerun has a bare one."""
    with _cluster(rig, tmp_path_factory, request) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def shared_cluster(
    rig: RigAssets, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[RealCluster]:
    """Run a bare cluster with the nodes a and b for a file of tests that can share one."""
    with _cluster(rig, tmp_path_factory, request) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def product_images(rig: RigAssets) -> list[Path]:
    """Return the archives of the product's images; fails without them."""
    return images.product_archives()


def _cluster(
    rig: RigAssets, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> RealCluster:
    return RealCluster(rig, tmp_path_factory.mktemp(request.node.path.stem))
