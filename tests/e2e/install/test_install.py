"""The README's section about a cluster, typed on a bare one: installed, ready, and a pod denied."""

import re
import time
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.harness.kubectl import commands_of
from tests.e2e.install.rig.real_cluster import HELM_SECONDS, RealCluster
from tests.e2e.install.story.timeline import Timeline

pytestmark = [pytest.mark.e2e, pytest.mark.install, pytest.mark.timeout(420)]

ROOT: Final = Path(__file__).parents[3]
HEADING: Final = "Install"
MAKE: Final = "make "
"""Beginning of blocks for a machine that builds; `make e2e-install` built the images."""

DENIED_SECONDS_MAX: Final = 120.0
OURS: Final = re.compile(
    r'admission webhook "[a-z.]*gpuledger\.io" denied the request: .*decision [0-9a-f-]+', re.DOTALL
)


class ReadmeSection:
    """The commands of the section, which are typed in the root of the repository."""

    def __init__(self, cluster: RealCluster) -> None:
        page = (ROOT / "README.md").read_text()
        blocks = [block for block in commands_of(page, HEADING) if not block.startswith(MAKE)]
        *self.installing, self.limiting, self.asking = blocks
        self._cluster = cluster

    def type(self, block: str) -> str:
        """Type a block that has to succeed."""
        return self._cluster.kubectl.type(f"cd {ROOT}\n{block}", within=HELM_SECONDS)

    def denial(self) -> str:
        """Type the last block; return the message. Fails unless gpuledger denies the pod."""
        status, printed = self._cluster.kubectl.attempt(f"cd {ROOT}\n{self.asking}")
        assert status != 0, f"the pod was allowed: {printed}"
        assert OURS.search(printed), f"the pod was not denied by gpuledger: {printed}"
        return printed


@pytest.fixture(scope="module")
def timeline() -> Timeline:
    """Print the steps of this file."""
    return Timeline()


@pytest.fixture
def section(
    real_cluster: RealCluster, product_images: list[Path], timeline: Timeline
) -> ReadmeSection:
    """Import the images into the bare cluster, as a registry of a site has them."""
    with timeline.step("the images are on both nodes of a bare cluster"):
        for archive in product_images:
            real_cluster.import_image(archive)
    return ReadmeSection(real_cluster)


def test_a_pod_is_denied_within_two_minutes_of_the_readme(
    section: ReadmeSection, real_cluster: RealCluster, timeline: Timeline
) -> None:
    with timeline.step("before the installation, the pod is not denied by gpuledger"):
        section.type(section.limiting)
        with pytest.raises(AssertionError):
            section.denial()
        real_cluster.kubectl.type("kubectl delete namespace team-a --wait")
    begun = time.monotonic()
    for block in section.installing:
        with timeline.step(block.splitlines()[0].rstrip(" \\")):
            section.type(block)
    with timeline.step("every pod is ready, and none was restarted"):
        _assert_ready(real_cluster)
    section.type(section.limiting)
    with timeline.step("a pod is denied"):
        message = section.denial()
    seconds = time.monotonic() - begun
    timeline.line(message.strip().splitlines()[-1])
    timeline.line(f"{seconds:.1f} s from helm install to the denied pod")
    assert seconds <= DENIED_SECONDS_MAX
    with timeline.step("helm test passes"):
        real_cluster.helm("test", "gpuledger", "--namespace=gpuledger")


def _assert_ready(cluster: RealCluster) -> None:
    pods = cluster.pods("gpuledger")
    assert len(pods) == 3, [pod["metadata"]["name"] for pod in pods]
    states = [state for pod in pods for state in pod["status"]["containerStatuses"]]
    assert all(state["ready"] and not state["restartCount"] for state in states), states
