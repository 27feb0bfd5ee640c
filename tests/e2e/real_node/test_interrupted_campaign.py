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
    pytest.param(10, 3, 1, id="short"),
    pytest.param(100, 5, 2, id="whole", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("pods", "every", "seed"), CASES)
def test_no_pod_uses_more_than_its_limit(
    gpus: GpuCluster, pods: int, every: int, seed: int
) -> None:
    with (
        tenant(gpus, f"campaign-{pods}") as team,
        gpus.teller.step(f"Let {pods} pods come and go; seed {seed}"),
    ):
        campaign = Campaign(team, pods=pods, every=every, seed=seed)
        campaign.run(within=pods * SECONDS_PER_POD)
        kills = ", ".join(f"{program} {campaign.counts[program]}" for program in PROGRAMS)
        gpus.teller.line(f"SIGKILL: {kills}")
        gpus.teller.line(f"{campaign.counts['rejected']} pods were rejected by the kubelet meanwhile")
        gpus.teller.claim(f"{campaign.ran} pods ran on their own cards, each within its limit")
        gpus.teller.claim(
            f"at each of {campaign.looks} looks at most {campaign.most_used:,} MiB"
            f" of the {MEMORY_MIB:,} of a card were in use"
        )
