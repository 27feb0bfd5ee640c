"""The root of a pod is found by uid, from cached or read objects, and never assumed."""

import asyncio
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from support.builders.admission_reviews import CLUSTER, NAMESPACE
from support.fakes.owner_cluster import (
    CRONJOBS,
    DEPLOYMENTS,
    JOBS,
    LEADERS,
    SETS,
    STATEFUL,
    FixedView,
    Manifest,
    OwnerCluster,
    around,
    controlled_by,
    manifest,
    remember,
)

from ledger.core.decide.decider import decide
from ledger.core.evolve.evolver import evolve
from ledger.core.model.commands import BARRED, Observe, Reserve
from ledger.kube.api.cluster_errors import ClusterUnavailable
from ledger.kube.api.objects import ObjectMeta
from webhook.context.owner_chain import DEPTH_MAX
from webhook.kinds.kind_schema import WorkloadKind

WEB = manifest(DEPLOYMENTS, "web", replicas=3)
SET = manifest(SETS, "web-1", owner=WEB)


def under(owner: Manifest, **changed: Any) -> ObjectMeta:
    """Return the metadata of a pod that names its controller."""
    reference = controlled_by(owner, **changed)
    return msgspec.convert({"name": "p", "ownerReferences": [reference]}, ObjectMeta)


def charged(view: FixedView, key: str, uid: str, **more: Any) -> None:
    """Have the ledger hold something for an object."""
    decision = decide(view.state, Reserve(NAMESPACE, key, uid, {"nvidia.com/gpu": 1}, **more))
    assert isinstance(decision, list)
    for event in decision:
        evolve(view.state, event, 1)


async def root_of(
    meta: ObjectMeta, *objects: Manifest, view: FixedView | None = None, seconds: float = 5.0
) -> tuple[str, str] | None:
    """Return key and uid of the root, reading from a cluster with these objects."""
    context = around(view or FixedView(), OwnerCluster(*objects))
    deadline = asyncio.get_running_loop().time() + seconds
    root = await context.owner_chains.root_of("team", meta, deadline=deadline)
    return None if root is None else (root.key, root.uid)


async def test_a_pod_without_a_controller_has_no_root() -> None:
    assert await root_of(ObjectMeta(name="p")) is None


async def test_the_walk_goes_up_to_the_highest_known_owner() -> None:
    assert await root_of(under(SET), SET, WEB) == ("deployments.apps/web", "u-web")


async def test_an_owner_that_controls_nothing_is_not_followed() -> None:
    assert await root_of(under(SET, controller=False), SET, WEB) is None


async def test_unknown_kind_ends_the_walk_below_it() -> None:
    unknown = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": WEB["metadata"]}
    child = manifest(SETS, "web-1", owner=unknown)
    assert await root_of(under(child), child) == ("replicasets.apps/web-1", "u-web-1")
    assert await root_of(under(unknown), unknown) is None


async def test_jobs_of_a_cron_job_are_roots_and_it_is_not() -> None:
    cron = manifest(CRONJOBS, "nightly")
    job = manifest(JOBS, "nightly-1", owner=cron)
    assert await root_of(under(job), job, cron) == ("jobs.batch/nightly-1", "u-nightly-1")


async def test_a_reference_to_another_uid_leads_nowhere() -> None:
    assert await root_of(under(SET, uid="u-forged"), SET, WEB) is None
    gone = manifest(SETS, "web-1", owner=WEB | {"metadata": WEB["metadata"] | {"uid": "u-old"}})
    assert await root_of(under(gone), gone, WEB) == ("replicasets.apps/web-1", "u-web-1")


@pytest.mark.parametrize("changed", [{"name": "other"}, {"kind": "Deployment"}])
async def test_a_remembered_uid_counts_only_at_its_own_name_and_kind(
    changed: dict[str, str],
) -> None:
    context = around(FixedView())
    await remember(context, SETS, SET)
    assert context.owner_chains.known_root_of("team", under(SET)) is not None
    assert context.owner_chains.known_root_of("team", under(SET, **changed)) is None


async def test_a_remembered_uid_counts_only_in_its_own_namespace() -> None:
    context = around(FixedView())
    await remember(context, SETS, SET)
    assert context.owner_chains.known_root_of("other", under(SET)) is None


async def test_what_is_remembered_is_not_read() -> None:
    cluster = OwnerCluster()
    context = around(FixedView(), cluster)
    await remember(context, SETS, SET)
    await remember(context, DEPLOYMENTS, WEB)
    root = await context.owner_chains.root_of("team", under(SET), deadline=0)
    assert root is not None
    assert root.key == "deployments.apps/web"
    assert root.seen is not None
    assert root.seen.version == 5
    assert cluster.asked == []


async def test_charged_owner_ends_the_walk() -> None:
    view = FixedView()
    charged(view, "replicasets.apps/web-1", "u-web-1", root=BARRED)
    assert await root_of(under(SET), SET, WEB, view=view) == ("replicasets.apps/web-1", "u-web-1")


async def test_a_charge_for_another_uid_at_the_name_does_not_end_the_walk() -> None:
    view = FixedView()
    charged(view, "replicasets.apps/web-1", "u-earlier")
    assert await root_of(under(SET), SET, WEB, view=view) == ("deployments.apps/web", "u-web")


async def test_a_root_that_the_ledger_has_is_found_without_a_cluster() -> None:
    view = FixedView()
    charged(view, "jobs.batch/train", "u-train")
    root = around(view).owner_chains.known_root_of("team", under(manifest(JOBS, "train")))
    assert root is not None
    assert (root.key, root.seen) == ("jobs.batch/train", None)


async def test_leader_pod_leads_to_its_root_by_the_ledger() -> None:
    view = FixedView()
    charged(view, "leaderworkersets.leaderworkerset.x-k8s.io/llm", "u-llm")
    leader = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "llm-0", "uid": "u-llm-0"}}
    charged(view, "pods/llm-0", "u-llm-0", root="leaderworkersets.leaderworkerset.x-k8s.io/llm")
    workers = manifest(STATEFUL, "llm-0", owner=leader)
    assert await root_of(under(workers), workers, view=view) == (
        "leaderworkersets.leaderworkerset.x-k8s.io/llm",
        "u-llm",
    )


async def test_owning_pod_of_another_uid_leads_to_no_root() -> None:
    view = FixedView()
    charged(view, "jobs.batch/train", "u-train")
    charged(view, "pods/x", "u-earlier", root="jobs.batch/train")
    leader = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "uid": "u-x"}}
    workers = manifest(STATEFUL, "w", owner=leader)
    assert await root_of(under(workers), workers, view=view) == ("statefulsets.apps/w", "u-w")


async def test_leader_pod_is_read_when_the_ledger_has_no_entry() -> None:
    group = manifest(LEADERS, "llm")
    leaders = manifest(STATEFUL, "llm", owner=group)
    leader = manifest(STATEFUL, "llm-0", owner=leaders) | {"apiVersion": "v1", "kind": "Pod"}
    workers = manifest(STATEFUL, "llm-0", owner=leader)
    workers["metadata"]["uid"] = "u-workers"
    assert await root_of(under(workers), workers, leader, leaders, group) == (
        "leaderworkersets.leaderworkerset.x-k8s.io/llm",
        "u-llm",
    )


async def test_barred_owning_pod_leads_to_no_root() -> None:
    view = FixedView()
    leader = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "uid": "u-x"}}
    charged(view, "pods/x", "u-x", root=BARRED)
    workers = manifest(STATEFUL, "w", owner=leader)
    assert await root_of(under(workers), workers, view=view) == ("statefulsets.apps/w", "u-w")


async def test_owners_in_a_circle_are_followed_for_a_bounded_number_of_steps() -> None:
    first, other = manifest(SETS, "one"), manifest(SETS, "other")
    first["metadata"]["ownerReferences"] = [controlled_by(other)]
    other["metadata"]["ownerReferences"] = [controlled_by(first)]
    cluster = OwnerCluster(first, other)
    deadline = asyncio.get_running_loop().time() + 5
    await around(FixedView(), cluster).owner_chains.root_of("team", under(first), deadline=deadline)
    assert len(cluster.asked) == DEPTH_MAX


@pytest.mark.parametrize("how", ["fails", "is silent", "has no version"])
async def test_an_owner_that_cannot_be_read_ends_the_walk_at_what_is_known(how: str) -> None:
    broken = deepcopy(WEB)
    broken["metadata"]["resourceVersion"] = "x"
    cluster = OwnerCluster(broken)
    cluster.failing = ClusterUnavailable("down") if how == "fails" else None
    cluster.silent = how == "is silent"
    context = around(FixedView(), cluster)
    await remember(context, SETS, SET)
    deadline = asyncio.get_running_loop().time() + 0.02
    root = await context.owner_chains.root_of("team", under(SET), deadline=deadline)
    assert root is not None
    assert root.key == "replicasets.apps/web-1"
    assert cluster.asked == [("deployments.apps", "web")]


def test_controller_kind_is_returned_for_kinds_of_roots_alone() -> None:
    owner_chains = around(FixedView()).owner_chains

    def kind_of(owner: Manifest) -> WorkloadKind | None:
        return owner_chains.controller_kind(under(owner))

    assert kind_of(WEB) is not None
    assert kind_of(manifest(CRONJOBS, "nightly")) is None
    assert kind_of({**WEB, "apiVersion": "example.com/v1"}) is None
    assert owner_chains.controller_kind(ObjectMeta()) is None


async def test_a_root_that_is_committed_is_charged_as_well() -> None:
    view = FixedView()
    observe = Observe(NAMESPACE, "jobs.batch/train", "u-train", 7, {"nvidia.com/gpu": 1})
    decision = decide(view.state, observe)
    assert isinstance(decision, list)
    for event in decision:
        evolve(view.state, event, 1)
    assert NAMESPACE.startswith(CLUSTER)
    assert await root_of(under(manifest(JOBS, "train")), view=view) is not None
