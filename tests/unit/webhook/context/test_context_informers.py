"""A replica watches its cluster, and reads objects that the watch has not listed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from support.claims.device_supplies import resource_slice, whole_card
from support.fakes.owner_cluster import (
    CRONJOBS,
    DEPLOYMENTS,
    JOBS,
    FixedView,
    OwnerCluster,
    around,
    manifest,
    policy,
)

from ledger.kube.api.api_resources import PODS
from ledger.kube.api.cluster_errors import ClusterUnavailable
from ledger.kube.api.cluster_ports import Changed, Interrupted, Listed, Reached
from ledger.kube.api.objects import Workload
from webhook.context import context_informers, read_deadline
from webhook.context.cluster_context import ClusterContext
from webhook.context.owner_cache_content import cached_workload


def workload(thing: object) -> Workload:
    return msgspec.convert(thing, Workload)


@asynccontextmanager
async def followed(cluster: OwnerCluster) -> AsyncIterator[ClusterContext]:
    """Follow a cluster for the block."""
    context = around(FixedView(), cluster, policies_known=False)
    assert context.informers is not None
    running = asyncio.create_task(context.informers.run())
    try:
        yield context
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not true():  # noqa: ASYNC110 - no event marks this condition
            await asyncio.sleep(0)


async def test_kinds_of_roots_that_are_served_are_remembered_and_no_others() -> None:
    cluster = OwnerCluster()
    cluster.serves = (PODS, DEPLOYMENTS, CRONJOBS)
    async with followed(cluster) as context:
        await until(lambda: "deployments.apps" in cluster.kinds)
        web = workload(manifest(DEPLOYMENTS, "web"))
        cluster.kinds["deployments.apps"].put_nowait(Listed(3, [web]))
        await until(lambda: len(context.parents) == 1)
        assert set(cluster.kinds) == {"deployments.apps"}
        assert context.problems() == []


async def test_a_kind_that_is_defined_later_is_found_and_followed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(context_informers, "DISCOVER_SECONDS", 0.001)
    cluster = OwnerCluster()
    cluster.serves = (DEPLOYMENTS,)
    async with followed(cluster):
        await until(lambda: cluster.discovered == 2)
        cluster.serves = (DEPLOYMENTS, JOBS)
        await until(lambda: "jobs.batch" in cluster.kinds)
        await until(lambda: cluster.discovered == 5)
        assert cluster.watches == ["deployments.apps", "jobs.batch"]


async def test_a_kind_is_followed_in_the_version_that_is_preferred_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(context_informers, "DISCOVER_SECONDS", 0.001)
    cluster = OwnerCluster()
    cluster.serves = (JOBS,)
    async with followed(cluster) as context:
        await until(lambda: "jobs.batch" in cluster.kinds)
        train = workload(manifest(JOBS, "train"))
        cluster.kinds["jobs.batch"].put_nowait(Listed(3, [train]))
        await until(lambda: context.parents.is_current(JOBS))
        newer = msgspec.structs.replace(JOBS, version="v2")
        cluster.serves = (newer,)
        await until(lambda: cluster.versions == ["v1", "v2"])
        assert not context.parents.is_current(newer)
        cluster.kinds["jobs.batch"].put_nowait(Listed(4, [train]))
        await until(lambda: context.parents.is_current(newer))
        known = context.parents.get("u-train")
        assert known is not None
        assert known.resource == newer
        await until(lambda: cluster.discovered > 10)
        assert cluster.versions == ["v1", "v2"]


async def test_a_discovery_that_fails_is_a_problem_until_it_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(context_informers, "RETRY_SECONDS", 0.001)
    cluster = OwnerCluster()
    cluster.failing = ClusterUnavailable("the API server is down")
    async with followed(cluster) as context:
        await until(lambda: cluster.discovered == 2)
        assert context.problems() == ["discovery: the API server is down"]
        cluster.failing = None
        await until(lambda: context.problems() == [])


async def test_a_slice_beyond_the_largest_card_is_a_problem() -> None:
    async with followed(OwnerCluster()) as context:
        huge = resource_slice(whole_card("w", "1Ei"), node="bad")
        context.resource_claims.slices.supply.take_slice(huge)
        expected = "a slice of gpu.example.com on bad announces a device of more than 294912 MiB"
        assert any(problem.startswith(expected) for problem in context.problems())


async def test_policies_and_labels_of_namespaces_are_followed() -> None:
    cluster = OwnerCluster()
    async with followed(cluster) as context:
        selector = {"matchLabels": {"env": "prod"}}
        cluster.policies.put_nowait(Listed(1, [policy("p", namespaceSelector=selector)]))
        labelled = workload({"metadata": {"name": "team", "labels": {"env": "prod"}}})
        cluster.namespaces.put_nowait(Listed(1, [labelled]))
        await until(lambda: context.policies.of("team").name == "p")
        assert context.namespaces.traits_of("team") == "!name=team,env=prod"


async def test_a_namespace_that_is_deleted_is_forgotten() -> None:
    namespaces = around(FixedView()).namespaces
    team = workload({"metadata": {"name": "team", "labels": {"env": "prod"}}})
    assert namespaces.take(Changed(1, team)) == ("team",)
    assert namespaces.take(Changed(2, team)) == ()
    assert namespaces.take(Changed(3, team, deleted=True)) == ("team",)
    assert namespaces.labels_of("team") is None
    assert namespaces.take(Listed(4, [team])) == ("team",)
    assert namespaces.take(Listed(5, [])) == ("team",)
    assert namespaces.take(Reached(6)) == ()


# Objects that are not listed yet


async def soon(context: ClusterContext, namespace: str, seconds: float = 5.0) -> str:
    """Return the name of a namespace's policy, as a review gets it."""
    deadline = asyncio.get_running_loop().time() + seconds
    return (await context.policies.policy_of(namespace, deadline)).name


async def test_a_review_waits_for_the_first_list_of_policies() -> None:
    context = around(FixedView(), OwnerCluster(), policies_known=False)
    asking = asyncio.create_task(soon(context, "team"))
    await asyncio.sleep(0)
    assert not asking.done()
    context.policies.take(Listed(1, [policy("p", namespaces=["team"])]))
    assert await asking == "p"


async def test_review_does_not_wait_when_policies_are_not_defined() -> None:
    context = around(FixedView(), OwnerCluster(), policies_known=False)
    context.policies.take(Interrupted("not served, and the reason is not readable", absent=True))
    async with asyncio.timeout(read_deadline.REVIEW_READ_SECONDS / 2):
        assert await soon(context, "team", 3600) == ""


async def test_a_list_that_does_not_come_is_waited_for_within_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read_deadline, "REVIEW_READ_SECONDS", 0.01)
    context = around(FixedView(), OwnerCluster(), policies_known=False)
    async with asyncio.timeout(5):
        assert await soon(context, "team", 3600) == ""


async def test_a_namespace_that_was_just_made_is_read() -> None:
    cluster = OwnerCluster()
    cluster.namespace("team", env="prod")
    context = around(FixedView(), cluster)
    context.policies.take(
        Listed(2, [policy("p", namespaceSelector={"matchLabels": {"env": "prod"}})])
    )
    assert await soon(context, "team") == "p"
    assert await soon(context, "team") == "p"
    assert cluster.asked == [("namespaces", "team")]


async def test_without_policies_no_namespace_is_read() -> None:
    cluster = OwnerCluster()
    assert await soon(around(FixedView(), cluster), "team") == ""
    assert cluster.asked == []


@pytest.mark.parametrize("how", ["fails", "is silent", "does not know it"])
async def test_a_namespace_that_cannot_be_read_has_no_labels(how: str) -> None:
    cluster = OwnerCluster()
    cluster.failing = ClusterUnavailable("down") if how == "fails" else None
    cluster.silent = how == "is silent"
    context = around(FixedView(), cluster)
    context.policies.take(
        Listed(2, [policy("p", namespaceSelector={"matchLabels": {"env": "prod"}})])
    )
    assert await soon(context, "team", 0.02) == ""
    deadline = asyncio.get_running_loop().time() + 0.02
    assert await context.traits_of("team", deadline) is None


# Cached objects


async def test_of_what_asks_for_nothing_only_the_metadata_is_remembered() -> None:
    context = around(FixedView())
    plain = manifest(DEPLOYMENTS, "plain", template={"spec": {"containers": [{"name": "a"}]}})
    parent = context.parents.parent_of(DEPLOYMENTS, workload(plain))
    assert parent.digest == b""
    assert cached_workload(parent) is None


async def test_what_asks_for_something_is_remembered_whole_also_at_no_replicas() -> None:
    context = around(FixedView())
    seen = workload(manifest(DEPLOYMENTS, "web", replicas=0, huge=2**70))
    parent = context.parents.parent_of(DEPLOYMENTS, seen)
    assert cached_workload(parent) == seen


async def test_invalid_object_is_cached_without_harm() -> None:
    context = around(FixedView())
    seen = workload(manifest(DEPLOYMENTS, "web", replicas="many"))
    assert cached_workload(context.parents.parent_of(DEPLOYMENTS, seen)) == seen
    assert context.parents.parent_of(PODS, seen).digest == b""
