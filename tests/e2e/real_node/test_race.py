"""Two pods that race for what only one of them can have."""

from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from tests.e2e.real_node.machine.gpu_node import UUIDS
from tests.e2e.real_node.story.api import wait_for
from tests.e2e.real_node.story.gpu_cluster import GpuCluster
from tests.e2e.real_node.story.tenant import tenant
from tests.e2e.real_node.story.tenant_pod import tenant_pod

pytestmark = [pytest.mark.e2e, pytest.mark.install, pytest.mark.timeout(300)]

MORE_THAN_HALF_MIB: Final = 6_000
ON_THE_FIRST: Final = {"nvidia.com/use-gpuuuid": UUIDS[0]}
PODS: Final = ("left", "right")


@pytest.mark.short
def test_one_of_two_pods_gets_the_card_and_the_other_waits(gpus: GpuCluster) -> None:
    with tenant(gpus, "race-card") as team, gpus.teller.step("Let two pods race for one card"):
        pods = [
            tenant_pod(name, memory=MORE_THAN_HALF_MIB, annotations=ON_THE_FIRST) for name in PODS
        ]
        with ThreadPoolExecutor(2) as pool:
            assert [answer.status for answer in pool.map(team.ask, pods)] == [201, 201]
        phases = wait_for(
            lambda: {pod["metadata"]["name"]: pod["status"]["phase"] for pod in team.pods()},
            lambda seen: sorted(seen.values()) == ["Pending", "Running"],
            within=60,
            what="one runs",
        )
        [winner] = [name for name in PODS if phases[name] == "Running"]
        [waiting] = [name for name in PODS if phases[name] == "Pending"]
        reason = team.wait_event(waiting, "FailedScheduling")
        gpus.teller.line(reason)
        assert "CardInsufficientMemory" in reason
        gpus.teller.claim(f"{winner} runs, and the event of {waiting} has the reason")
        with team.program(winner) as program:
            assert program.do("fill").held == MORE_THAN_HALF_MIB
            used = [
                amount for (_, card), amount in gpus.driver.memory().items() if card == UUIDS[0]
            ]
            assert sum(used) >= MORE_THAN_HALF_MIB
            assert team.pod(waiting)["status"]["phase"] == "Pending"
        team.wait(winner, "Succeeded")
        team.assert_own_cards(team.wait(waiting, "Running"))
        gpus.tell()
        gpus.teller.claim(f"{waiting} runs as soon as {winner} has ended")


def test_one_of_two_pods_gets_the_quota_and_the_other_is_denied(gpus: GpuCluster) -> None:
    with tenant(gpus, "race-quota") as team, gpus.teller.step("Let two pods race for one quota"):
        team.limit(MORE_THAN_HALF_MIB)
        pods = [tenant_pod(name, memory=MORE_THAN_HALF_MIB) for name in PODS]
        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(team.ask, pods))
        assert sorted(answer.status for answer in answers) == [201, 403]
        [denied] = [answer for answer in answers if answer.status == 403]
        gpus.teller.line(denied.body["message"])
        [pod] = team.pods()
        team.assert_own_cards(team.wait(pod["metadata"]["name"], "Running"))
        gpus.teller.claim("one runs, and the other is denied")
