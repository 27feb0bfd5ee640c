"""Kinds whose operators do not run here: what they make is made in the operator's name.

One case per kind, among them one that only a user's YAML file describes. Each asks for six cards
in a namespace of eight, and runs them in as many pods as it likes.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest

from tests.e2e.harness.agreement import cards_used
from tests.e2e.harness.cluster import Manifest
from tests.e2e.objects.fake_operators import operator_of
from tests.e2e.objects.pods import CARDS, pod
from tests.e2e.objects.team import Team
from tests.e2e.objects.workloads import (
    TeamWorkloads,
    controlled_by,
    job,
    replicated,
    template,
    workload,
)

pytestmark = pytest.mark.e2e

LINE: Final = f"limits.{CARDS}"
CAPACITY: Final = 8
ASKED: Final = 6

NOTHING: Final = {"spec": {"containers": [{"name": "plain", "image": "busybox"}]}}
TWO: Final = template(cards=2)


class Case(NamedTuple):
    """An object that asks for six cards, a change to ten, and the cards of its played pods.

    `between` is what the operator makes between the object and its pods, one below the other; of a
    Job and a ReplicaSet the pods are made by their own controllers. `pause` and `resume` are the
    changes that stop it and let it go on.
    """

    manifest: Manifest
    more: Manifest
    pods: tuple[int, ...]
    between: tuple[str, ...] = ()
    pause: Manifest | None = None
    resume: Manifest | None = None

    @property
    def kind(self) -> str:
        return str(self.manifest["kind"])


def suspended(value: bool, *path: str) -> Manifest:
    """Return a merge patch of a field `suspend` in the spec."""
    change: Manifest = {"suspend": value}
    for name in reversed(path):
        change = {name: change}
    return {"spec": change}


def ray(workers: int) -> Manifest:
    """A Ray cluster's spec: a head without cards, and workers with two cards on two hosts each."""
    group = {"groupName": "w", "replicas": workers, "numOfHosts": 1, "minReplicas": 0}
    group |= {"maxReplicas": 9, "template": TWO}
    return {"headGroupSpec": {"template": NOTHING}, "workerGroupSpecs": [group]}


PAUSING: Final[dict[str, Any]] = {"pause": suspended(True), "resume": suspended(False)}
TRAINING: Final[dict[str, Any]] = {
    "pause": suspended(True, "runPolicy"),
    "resume": suspended(False, "runPolicy"),
}


def group_cases() -> Iterator[Case]:
    """Yield a case of each kind that makes groups of pods."""

    def jobs(replicas: int) -> Manifest:
        inner = {"parallelism": 1, "completions": 1, "template": TWO}
        return {
            "replicatedJobs": [{"name": "w", "replicas": replicas, "template": {"spec": inner}}]
        }

    yield Case(workload("JobSet", **jobs(3)), {"spec": jobs(5)}, (), between=("Job",), **PAUSING)
    groups = {"size": 3, "leaderTemplate": NOTHING, "workerTemplate": template(cards=1)}
    yield Case(
        workload("LeaderWorkerSet", replicas=3, leaderWorkerTemplate=groups),
        {"spec": {"replicas": 5}},
        (1, 1, 1, 1, 1, 1),
    )
    yield Case(
        workload("Rollout", replicas=3, template=TWO),
        {"spec": {"replicas": 5}},
        (),
        between=("ReplicaSet",),
    )


def training_cases() -> Iterator[Case]:
    """Yield a case of each kind of the training operators."""
    launcher = {"replicas": 1, "template": NOTHING}
    mpi = {"Launcher": launcher, "Worker": {"replicas": 3, "template": TWO}}
    yield Case(
        workload("MPIJob", mpiReplicaSpecs=mpi),
        {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 5}}}},
        (2, 2, 2),
        **TRAINING,
    )
    torch = {"Master": {"replicas": 1, "template": TWO}, "Worker": {"replicas": 2, "template": TWO}}
    yield Case(
        workload("PyTorchJob", pytorchReplicaSpecs=torch),
        {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 4}}}},
        (2, 2, 2),
        **TRAINING,
    )
    flow = {"PS": {"replicas": 1, "template": NOTHING}, "Worker": {"replicas": 3, "template": TWO}}
    yield Case(
        workload("TFJob", tfReplicaSpecs=flow),
        {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 5}}}},
        (2, 2, 2),
        **TRAINING,
    )
    nodes = {"numNodes": 3, "resourcesPerNode": TWO["spec"]["containers"][0]["resources"]}
    yield Case(
        workload("TrainJob", runtimeRef={"name": "torch"}, trainer=nodes),
        {"spec": {"trainer": {"numNodes": 5}}},
        (),
        between=("JobSet", "Job"),
        **PAUSING,
    )


def ray_cases() -> Iterator[Case]:
    """Yield a case of each kind of Ray."""
    yield Case(workload("RayCluster", **ray(3)), {"spec": ray(5)}, (2, 2, 2), **PAUSING)
    yield Case(
        workload("RayJob", rayClusterSpec=ray(3), submissionMode="HTTPMode"),
        {"spec": {"rayClusterSpec": ray(5)}},
        (2, 2, 2),
        between=("RayCluster",),
        **PAUSING,
    )
    yield Case(
        workload("RayService", rayClusterConfig=ray(3)),
        {"spec": {"rayClusterConfig": ray(5)}},
        (2, 2, 2),
        between=("RayCluster",),
    )


CASES: Final = (*group_cases(), *training_cases(), *ray_cases())

each_kind = pytest.mark.parametrize("case", CASES, ids=lambda case: case.kind)


@pytest.fixture
async def space(team: Team) -> TeamWorkloads:
    """Limit a namespace to eight cards."""
    await team.limit({LINE: str(CAPACITY)})
    return TeamWorkloads(team)


async def run(space: TeamWorkloads, case: Case, root: Manifest) -> None:
    """Make what the operator makes: what is between, and the pods below that."""
    owner = root
    for kind in case.between:
        manifest = intermediate(kind)
        manifest["metadata"]["ownerReferences"] = controlled_by(owner)
        operator = space.as_user(operator_of(owner["kind"]))
        owner = await operator.created(manifest)
    operator = space.as_user(operator_of(owner["kind"])) if case.pods else space
    for number, cards in enumerate(case.pods):
        manifest = pod(f"p-{number}", cards=cards, ownerReferences=controlled_by(owner))
        await operator.created(manifest)
    await space.pods_are(len(case.pods) or 3)


def intermediate(kind: str) -> Manifest:
    """Return an object as large as the whole."""
    if kind == "Job":
        return job(3, "below", cards=2)
    if kind == "RayCluster":
        return workload(kind, "below", **ray(3))
    if kind == "ReplicaSet":
        return replicated(kind, 3, "below", cards=2)
    inner = {"parallelism": 3, "completions": 3, "template": TWO}
    return workload(kind, "between", replicatedJobs=[{"name": "w", "template": {"spec": inner}}])


@each_kind
async def test_pods_of_an_operator_draw_from_the_admitted_envelope_of_the_root(
    space: TeamWorkloads, case: Case
) -> None:
    root = await space.created(case.manifest)
    assert await cards_used(space.team) == ASKED
    await run(space, case, root)
    assert await cards_used(space.team) == ASKED
    refused = await space.create(pod("alone", cards=3))
    assert refused.status == 403
    assert f"allows {CAPACITY}, {ASKED} are used" in refused.message


@each_kind
async def test_an_increase_beyond_the_limit_is_refused_at_the_root(
    space: TeamWorkloads, case: Case
) -> None:
    await space.created(case.manifest)
    refused = await space.change(case.kind, "web", case.more)
    assert refused.status == 403
    assert f"allows {CAPACITY}, {ASKED} are used" in refused.message
    assert await cards_used(space.team) == ASKED


@each_kind
async def test_pods_outlive_their_root_and_are_charged_until_they_go(
    space: TeamWorkloads, case: Case
) -> None:
    root = await space.created(case.manifest)
    await run(space, case, root)
    await space.delete(case.kind, "web", "Orphan")
    await space.gone(case.kind, "web")
    assert await cards_used(space.team) == ASKED
    for number in range(len(case.pods)):
        await space.team.delete(f"p-{number}")
    for kind in reversed(case.between):
        await space.delete(kind, "between" if kind == "JobSet" else "below")
    await space.pods_are(0)
    assert await cards_used(space.team) == 0


pausable = pytest.mark.parametrize(
    "case", [case for case in CASES if case.pause], ids=lambda case: case.kind
)


@pausable
async def test_a_suspended_root_holds_no_more_than_its_pods(
    space: TeamWorkloads, case: Case
) -> None:
    assert case.pause is not None, "only such cases are tried"
    assert case.resume is not None, "what pauses can go on"
    await space.created(case.manifest)
    assert await cards_used(space.team) == ASKED
    assert (await space.change(case.kind, "web", case.pause)).status == 200
    assert await cards_used(space.team) == 0
    await space.team.created(pod("in-the-way", cards=3))
    refused = await space.change(case.kind, "web", case.resume)
    assert refused.status == 403
    assert f"allows {CAPACITY}, 3 are used" in refused.message
    await space.team.delete("in-the-way")
    assert await cards_used(space.team) == 0
    assert (await space.change(case.kind, "web", case.resume)).status == 200
    assert await cards_used(space.team) == ASKED


@pytest.mark.parametrize("kind", ["LeaderWorkerSet", "PyTorchJob", "Rollout"])
async def test_a_custom_kind_is_scaled_by_its_subresource(space: TeamWorkloads, kind: str) -> None:
    [case] = [case for case in CASES if case.kind == kind]
    await space.created(case.manifest)
    refused = await space.scale(kind, "web", 6)
    assert refused.status == 403
    assert f"allows {CAPACITY}, {ASKED} are used" in refused.message
    assert (await space.scale(kind, "web", 1)).status == 200
    assert (
        await cards_used(space.team) == {"PyTorchJob": 4, "LeaderWorkerSet": 2, "Rollout": 2}[kind]
    )


async def test_an_older_version_of_a_kind_is_judged_alike(space: TeamWorkloads) -> None:
    older = workload("RayCluster", **ray(5)) | {"apiVersion": "ray.io/v1alpha1"}
    path = space.path("RayCluster").replace("/v1/", "/v1alpha1/")
    refused = await space.cluster.ask("POST", path, older)
    assert refused.status == 403
    assert f"allows {CAPACITY}, nothing is used" in refused.message
    older["spec"] = ray(3)
    await space.cluster.must("POST", path, older)
    refused = await space.cluster.patch(f"{path}/web", {"spec": ray(5)})
    assert refused.status == 403
    assert await cards_used(space.team) == ASKED
