"""Two clusters with real API servers on one ledger, over a link that breaks under load."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from tests.e2e.deployment.support import two_clusters
from tests.e2e.deployment.support.contending_clients import ContendingClients
from tests.e2e.deployment.support.shared_quota import (
    GROUP,
    KEY,
    QUOTAS,
    SETTLED_SECONDS,
    SharedQuota,
    universe,
)
from tests.e2e.deployment.support.two_clusters import ClusterSite, TwoClusters
from tests.e2e.harness.cluster import Manifest
from tests.e2e.harness.polling import eventually
from tests.e2e.objects.pods import pod
from tests.e2e.objects.workloads import replicated

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(240),
    pytest.mark.asyncio(loop_scope="module"),
]

POD = 1_000
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/gpuledger"
OUT_OF_REACH = "JetStream domain hub is out of reach"
START_SECONDS = 30.0
STATUS_SECONDS = 20.0
"""Statuses are written every few seconds."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def both(
    assets: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[TwoClusters]:
    """Run both clusters and their services."""
    async with two_clusters.running(assets, tmp_path_factory.mktemp("sites")) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def shared(both: TwoClusters) -> AsyncIterator[SharedQuota]:
    """Make a namespace of its own for a test, in both clusters."""
    yield SharedQuota(both, f"team-{uuid.uuid4().hex[:8]}")
    await both.link.restore()
    for site in both.both:
        fall = site.service.fall()
        assert not fall, fall


async def increases_are_denied(shared: SharedQuota, site: ClusterSite) -> None:
    """Assert that a request for more at a cut-off cluster is denied with the cause."""
    answers = await asyncio.gather(
        shared.create(site, "pods", pod("more")),
        shared.create(site, "deployments", replicated("Deployment", 1, "more")),
        shared.scale(site, "web", 4),
    )
    for answer in answers:
        assert answer.status == 403, answer
        assert "LedgerUnavailable" in answer.message
        assert OUT_OF_REACH in answer.message


async def test_one_decision_charges_the_namespace_and_both_clusters_together(
    shared: SharedQuota,
) -> None:
    await shared.open(3 * POD)
    west, east = shared.sites.both
    await shared.limit_at(east, "gpus", 2 * POD)
    admitted = await shared.create(east, "pods", pod("web"))
    uid = admitted.body["metadata"]["uid"]
    [reserved] = [
        event
        for event in await shared.events()
        if event["type"] == "Reserved" and event["uid"] == uid
    ]
    posted = {posting["account"]: posting["used_after"] for posting in reserved["postings"]}
    assert posted == {
        f"quota/{east.name}/{shared.name}/gpus": POD,
        f"universe/{shared.name}": POD,
    }
    for name in ("first", "second"):
        assert (await shared.create(west, "pods", pod(name))).status == 201
    refused = await shared.create(east, "pods", pod("too-much"))
    assert (refused.status, "UniverseExceeded" in refused.message) == (403, True), refused
    assert shared.name in refused.message
    await shared.agrees()


async def test_a_cut_off_cluster_admits_no_more_and_is_recounted_when_it_is_back(
    shared: SharedQuota,
) -> None:
    await shared.open(7 * POD)
    west, east = shared.sites.both
    await shared.create(east, "deployments", replicated("Deployment", 3))
    for name in ("stays", "goes"):
        assert (await shared.create(east, "pods", pod(name))).status == 201
    await shared.agrees()
    await shared.sites.link.cut()
    try:
        await increases_are_denied(shared, east)
        ready, reason = await east.service.check("ledger")
        assert (ready, OUT_OF_REACH in reason) == (False, True), reason
        assert (await shared.delete(east, "goes")).status == 200
        assert (await shared.scale(east, "web", 1)).status == 200
        for name in ("one", "two"):
            assert (await shared.create(west, "pods", pod(name))).status == 201
        refused = await shared.create(west, "pods", pod("three"))
        assert "UniverseExceeded" in refused.message, "what the edge may still use is charged"
        await shared.used_is(7 * POD)
    finally:
        await shared.sites.link.restore()
    await shared.used_is(4 * POD, within=SETTLED_SECONDS)
    await shared.agrees()
    ends = [event for event in await shared.events() if event["key"] == "pods/goes"]
    assert [(end["type"], end["cause"], end["actor"]) for end in ends[-1:]] == [
        ("Released", "deleted", "recount")
    ]
    assert (await shared.create(east, "pods", pod("again"))).status == 201
    await shared.agrees()


@pytest.mark.long
async def test_both_clusters_stay_within_one_limit_while_the_link_breaks(
    shared: SharedQuota,
) -> None:
    limit = 16
    await shared.open(limit * POD)
    (west, east), link = shared.sites.both, shared.sites.link
    load = ContendingClients(shared)
    async with asyncio.TaskGroup() as clients:
        clients.create_task(load.run())
        for break_it in (link.cut, link.stall):
            await load.reaches(load.admitted, east, 3)
            await break_it()
            await load.reaches(load.cut_off, east, 1)
            await load.may_reach(load.admitted, west, 3)
            await link.restore()
        for _ in range(3):
            await load.reaches(load.admitted, east, 3)
            await link.cut()  # and back before any review has waited for too long
            await load.may_reach(load.admitted, west, 1)
            await link.restore()
        await load.reaches(load.admitted, east, 3)
        load.stop()
    assert not load.odd
    assert limit // 2 < load.most <= limit
    await shared.agrees()
    events = await shared.events()
    account = f"universe/{shared.name}"
    used = [
        posting["used_after"]
        for event in events
        for posting in event["postings"]
        if posting["account"] == account
    ]
    assert max(used) == limit * POD
    surprises = [event for event in events if event["cause"] in ("unreserved", "late")]
    assert not surprises
    assert (await west.service.answer("audit", "verify"))["ok"]


async def test_the_status_contains_the_usage_of_each_cluster_and_namespace(
    shared: SharedQuota,
) -> None:
    await shared.open(9 * POD)
    west, east = shared.sites.both
    beyond = f"{shared.name}-east"
    selecting = {"matchLabels": {GROUP: shared.name}}
    await shared.limit(beyond, 8 * POD, regions=["us-east"], namespaceSelector=selecting)
    await shared.create(west, "pods", pod("web"))
    await shared.create(east, "deployments", replicated("Deployment", 2))
    await shared.agrees()

    async def look(quota: str) -> Manifest:
        stored = await west.cluster.must("GET", f"{QUOTAS}/{quota}")
        return dict(stored.get("status", {}))

    def share(cluster: str, used: int) -> Manifest:
        amounts = {KEY: str(used)}
        spaces = [{"name": shared.name, "used": amounts}]
        return {"name": cluster, "used": amounts, "namespaces": spaces}

    def shows(clusters: list[Manifest], seen: Manifest) -> bool:
        return bool(seen.get("clusters") == clusters)

    whole, part = [share("east-1", 2 * POD), share("west-1", POD)], [share("east-1", 2 * POD)]
    for quota, clusters, used in ((shared.name, whole, 3 * POD), (beyond, part, 2 * POD)):
        status = await eventually(
            partial(look, quota),
            partial(shows, clusters),
            within=STATUS_SECONDS,
            what=f"the status of {quota} is {clusters}",
        )
        assert status["used"] == {KEY: str(used)}


async def test_another_label_at_the_edge_moves_usage_in_one_event(shared: SharedQuota) -> None:
    await shared.open(9 * POD)
    _, east = shared.sites.both
    other = f"{shared.name}-other"
    selecting = {"matchLabels": {GROUP: other}}
    await shared.limit(other, 9 * POD, namespaceSelector=selecting)
    await shared.create(east, "deployments", replicated("Deployment", 2))
    await shared.create(east, "pods", pod("web"))
    await shared.agrees()
    await shared.update(east, "", {"metadata": {"labels": {GROUP: other}}})
    await shared.used_is(3 * POD, other)
    described = [event for event in await east.service.replay() if event["type"] == "Described"]
    moved = {posting["account"]: posting["used_after"] for posting in described[-1]["postings"]}
    assert moved == {f"universe/{shared.name}": 0, f"universe/{other}": 3 * POD}
    assert described[-1]["key"] == f"{east.name}/{shared.name}"
    await shared.agrees()


async def test_a_cluster_that_claims_the_name_of_another_does_not_start(
    both: TwoClusters, tmp_path: Path
) -> None:
    west, east = both.both
    impostor = two_clusters.service_at(west.plane, tmp_path, two_clusters.EAST, both.at_the_hub)
    registered = await west.cluster.must("GET", WEBHOOKS)
    impostor.start()
    said = await eventually(
        lambda: asyncio.to_thread(impostor.fall),
        bool,
        within=START_SECONDS,
        what="the service has ended",
    )
    assert f"cluster name {east.name} is bound to" in said
    assert "Give this cluster another name with --cluster" in said
    assert await west.cluster.must("GET", WEBHOOKS) == registered


async def test_a_universe_quota_at_the_edge_limits_nothing_and_reports_it(
    shared: SharedQuota,
) -> None:
    await shared.open(9 * POD)
    _, east = shared.sites.both
    selecting = {"matchLabels": {GROUP: shared.name}}
    made = await east.cluster.ask(
        "POST", QUOTAS, universe(shared.name, 0, namespaceSelector=selecting)
    )
    assert made.status == 201
    assert any("this quota limits nothing" in warning for warning in made.warnings), made.warnings
    stored = await eventually(
        lambda: east.cluster.must("GET", f"{QUOTAS}/{shared.name}"),
        lambda seen: "status" in seen,
        within=STATUS_SECONDS,
        what="the edge says of its quota whether it counts",
    )
    for condition in stored["status"]["conditions"]:
        assert (condition["status"], condition["reason"]) == ("False", "NotTheAuthority")
    assert (await shared.create(east, "pods", pod("web"))).status == 201
    await shared.agrees()
