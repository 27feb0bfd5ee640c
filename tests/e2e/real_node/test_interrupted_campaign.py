"""Pods come and go while the programs of the node are killed."""

from typing import Final

import pytest

from tests.e2e.real_node.machine.gpu_node import MEMORY_MIB
from tests.e2e.real_node.story.campaign import Campaign
from tests.e2e.real_node.story.gpu_cluster import GpuCluster
from tests.e2e.real_node.story.interruptions import PROGRAMS
from tests.e2e.real_node.story.tenant import tenant

pytestmark = [pytest.mark.e2e, pytest.mark.install, pytest.mark.timeout(900)]

SECONDS_PER_POD: Final = 12.0
CASES: Final = [
    pytest.param("mounts", 10, 3, 1, id="mounts-10", marks=pytest.mark.short),
    pytest.param("cdi", 10, 3, 2, id="cdi-10"),
    pytest.param("mounts", 100, 5, 3, id="mounts-100", marks=pytest.mark.long),
    pytest.param("cdi", 100, 5, 4, id="cdi-100", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("form", "pods", "every", "seed"), CASES)
def test_no_pod_uses_more_than_its_limit(
    gpus: GpuCluster, form: str, pods: int, every: int, seed: int
) -> None:
    gpus.use(form)
    with (
        tenant(gpus, f"campaign-{pods}-{form}") as team,
        gpus.teller.step(f"Let {pods} pods come and go; seed {seed}"),
    ):
        campaign = Campaign(team, pods=pods, every=every, seed=seed)
        campaign.run(within=pods * SECONDS_PER_POD)
        kills = ", ".join(f"{program} {campaign.counts[program]}" for program in PROGRAMS)
        gpus.teller.line(f"SIGKILL: {kills}")
        rejected, replaced = campaign.counts["rejected"], campaign.counts["evicted"]
        gpus.teller.line(f"{rejected} pods were rejected by the kubelet meanwhile")
        gpus.teller.line(
            f"{replaced} pods with an answer for another pod were evicted before a start"
        )
        gpus.teller.claim(f"{campaign.ran} pods ran on their own cards, each within its limit")
        gpus.teller.claim(
            f"at each of {campaign.looks} looks at most {campaign.most_used:,} MiB"
            f" of the {MEMORY_MIB:,} of a card were in use"
        )
