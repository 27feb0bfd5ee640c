"""Jobs and CronJobs, with the job controller, and pods that finish by their kubelets' reports."""

from typing import Final

import pytest

from tests.e2e.harness.agreement import cards_used
from tests.e2e.harness.cluster import Manifest
from tests.e2e.harness.kubectl import Kubectl
from tests.e2e.harness.polling import eventually
from tests.e2e.objects.pods import CARDS, pod
from tests.e2e.objects.team import Team
from tests.e2e.objects.workloads import (
    CONTROLLER_SECONDS,
    TeamWorkloads,
    controlled_by,
    job,
    workload,
)

pytestmark = pytest.mark.e2e

LINE: Final = f"limits.{CARDS}"
CRON_CONTROLLER: Final = "system:serviceaccount:kube-system:cronjob-controller"
INDEX: Final = "batch.kubernetes.io/job-completion-index"


@pytest.fixture
async def space(team: Team) -> TeamWorkloads:
    """Limit a namespace to four cards."""
    await team.limit({LINE: "4"})
    return TeamWorkloads(team)


def cron_job(pods: int) -> Manifest:
    """A CronJob whose time does not come."""
    spec = {"template": job(pods)["spec"]["template"], "parallelism": pods, "completions": pods}
    return workload("CronJob", "nightly", schedule="0 0 30 2 *", jobTemplate={"spec": spec})


async def finished(space: TeamWorkloads, name: str = "train") -> None:
    """Wait until the controller has noted that a Job is over, well or badly."""

    async def conditions() -> list[str]:
        status = (await space.get("Job", name)).get("status", {})
        return [
            condition["type"]
            for condition in status.get("conditions", ())
            if condition["status"] == "True"
        ]

    await eventually(
        conditions,
        lambda types: not {"Complete", "Failed"}.isdisjoint(types),
        within=CONTROLLER_SECONDS,
        what=f"Job {name} is over",
    )


async def status_is(space: TeamWorkloads, **fields: int) -> None:
    """Wait until the controller has counted so many pods of a Job."""

    async def status() -> Manifest:
        reported: Manifest = (await space.get("Job", "train")).get("status", {})
        return {field: reported.get(field, 0) for field in fields}

    await eventually(
        status, lambda seen: seen == fields, within=CONTROLLER_SECONDS, what=f"{fields}"
    )


async def test_a_job_that_can_never_fit_is_refused_with_numbers(space: TeamWorkloads) -> None:
    refused = await space.create(job(3, cards=2, spec={"completions": 9}))
    assert refused.status == 403
    assert "allows 4, nothing is used" in refused.message
    assert await cards_used(space.team) == 0


async def test_a_job_gives_back_what_it_will_not_run_any_more(space: TeamWorkloads) -> None:
    await space.created(job(3, spec={"completions": 4}))
    for left, pods in ((3, 3), (2, 3), (1, 2)):
        first, *_ = await space.pods_are(pods)
        await space.team.finish(first["metadata"]["name"])
        await status_is(space, succeeded=4 - left)
        assert await cards_used(space.team) == left
    [last] = await space.pods_are(1)
    await space.team.finish(last["metadata"]["name"])
    await finished(space)
    assert await cards_used(space.team) == 0


async def test_a_retry_takes_the_place_of_what_failed(space: TeamWorkloads) -> None:
    await space.created(job(4, spec={"completions": 4, "backoffLimit": 6}))
    first, *_ = await space.pods_are(4)
    await space.team.finish(first["metadata"]["name"], "Failed")
    await status_is(space, failed=1)
    await space.pods_are(4)
    assert await cards_used(space.team) == 4


async def test_a_job_that_failed_for_good_frees_all(space: TeamWorkloads) -> None:
    await space.created(job(2, spec={"backoffLimit": 0}))
    first, *_ = await space.pods_are(2)
    await space.team.finish(first["metadata"]["name"], "Failed")
    await finished(space)
    await space.pods_are(0)
    assert await cards_used(space.team) == 0


async def test_indexes_that_failed_for_good_are_given_back(space: TeamWorkloads) -> None:
    indexed = {"completions": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 0}
    await space.created(job(3, spec=indexed))
    pods = await space.pods_are(3)
    [first] = [manifest for manifest in pods if manifest["metadata"]["annotations"][INDEX] == "0"]
    await space.team.finish(first["metadata"]["name"], "Failed")
    await status_is(space, failed=1)
    await space.pods_are(2)
    assert await cards_used(space.team) == 2


async def test_a_suspended_job_is_charged_when_it_is_resumed(space: TeamWorkloads) -> None:
    await space.created(job(3, spec={"suspend": True}))
    assert await cards_used(space.team) == 0
    await space.team.created(pod("in-the-way", cards=2))
    refused = await space.change("Job", "train", {"spec": {"suspend": False}})
    assert refused.status == 403
    assert "allows 4, 2 are used" in refused.message
    await space.team.delete("in-the-way")
    assert await cards_used(space.team) == 0
    assert (await space.change("Job", "train", {"spec": {"suspend": False}})).status == 200
    await space.pods_are(3)
    assert await cards_used(space.team) == 3
    assert (await space.change("Job", "train", {"spec": {"suspend": True}})).status == 200
    await space.pods_are(0)
    assert await cards_used(space.team) == 0


async def test_parallelism_is_asked_for_when_it_rises(space: TeamWorkloads) -> None:
    await space.created(job(1, spec={"completions": 8}))
    refused = await space.change("Job", "train", {"spec": {"parallelism": 5}})
    assert refused.status == 403
    assert "allows 4, 1 is used" in refused.message
    assert (await space.change("Job", "train", {"spec": {"parallelism": 4}})).status == 200
    await space.pods_are(4)
    assert await cards_used(space.team) == 4
    assert (await space.change("Job", "train", {"spec": {"parallelism": 2}})).status == 200
    await space.pods_are(2)
    assert await cards_used(space.team) == 2


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
async def test_a_deleted_job_frees_all_it_had(space: TeamWorkloads, propagation: str) -> None:
    await space.created(job(3))
    await space.pods_are(3)
    await space.delete("Job", "train", propagation)
    await space.gone("Job", "train")
    await space.pods_are(0)
    assert await cards_used(space.team) == 0


async def test_a_cron_job_of_which_no_run_can_fit_is_warned_about(space: TeamWorkloads) -> None:
    answer = await space.create(cron_job(5))
    assert answer.status == 201
    assert any("would need 5 GPUs" in warning for warning in answer.warnings), answer.warnings
    assert await cards_used(space.team) == 0


async def test_each_job_of_a_cron_job_is_charged_for_itself(space: TeamWorkloads) -> None:
    owner = await space.created(cron_job(2))
    assert await cards_used(space.team) == 0
    controller = space.as_user(CRON_CONTROLLER)
    for number in range(2):
        manifest = job(2, f"nightly-{number}", spec={"completions": 2})
        manifest["metadata"]["ownerReferences"] = controlled_by(owner)
        await controller.created(manifest)
    await space.pods_are(4)
    assert await cards_used(space.team) == 4
    third = job(2, "nightly-3", spec={"completions": 2})
    third["metadata"]["ownerReferences"] = controlled_by(owner)
    refused = await controller.create(third)
    assert refused.status == 403
    assert "allows 4, 4 are used" in refused.message


async def test_a_run_by_hand_of_a_cron_job_is_charged_once(
    space: TeamWorkloads, kubectl: Kubectl
) -> None:
    await space.created(cron_job(3))
    kubectl.type(f"kubectl -n {space.team.namespace} create job now --from=cronjob/nightly")
    await space.pods_are(3)
    assert await cards_used(space.team) == 3
