"""Settlement between a real writer and a model of an API server."""

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta

import pytest
from support.fakes.apiserver import pod_body, quota_body
from support.harness.settlement import CLUSTER, DEMAND, World, settling, world

from ledger.core.model.commands import RegisterCluster, SetLimits
from ledger.core.model.events import Cause
from ledger.core.model.traits import Requirement, Selection
from ledger.kube.api.errors import ClusterUnavailable
from webhook.settlement_controller import ClusterNameTaken

GPUS = "limits.nvidia.com/gpu"


def committed(one: World, name: str) -> bool:
    entry = one.entry(name)
    return entry is not None and entry.committed is not None and not entry.holds


def persist(one: World, name: str, uid: str = "") -> dict:
    return one.server.create("pods", "red", pod_body(name), uid)


async def test_reserved_pod_is_committed_when_it_exists():
    async with world() as one, settling(one):
        await one.synced()
        await one.reserve("p", "u1")
        created = persist(one, "p", "u1")
        await one.until(lambda: committed(one, "p"))
    stored = one.entry("p").committed
    assert (stored.uid, stored.demand) == ("u1", DEMAND)
    assert str(stored.version) == created["metadata"]["resourceVersion"]
    assert not one.drift


async def test_unreserved_pod_is_charged_and_counted_as_drift():
    async with world() as one, settling(one):
        await one.synced()
        persist(one, "p")
        await one.until(lambda: committed(one, "p"))
        assert one.drift == {Cause.UNRESERVED: 1}


async def test_deleted_pod_is_released():
    async with world() as one, settling(one):
        await one.synced()
        persist(one, "p", "u1")
        await one.until(lambda: committed(one, "p"))
        one.server.delete("pods", "red", "p")
        await one.until(lambda: one.entry("p") is None)
    assert one.state.ended["u1"].cause == Cause.DELETED


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_finished_pod_is_released_while_it_exists(phase):
    async with world() as one, settling(one):
        await one.synced()
        persist(one, "p", "u1")
        await one.until(lambda: committed(one, "p"))
        one.server.update("pods", "red", "p", status={"phase": phase})
        await one.until(lambda: one.entry("p") is None)
    assert one.state.ended["u1"].cause == Cause.FINISHED


async def test_terminating_pod_is_released_when_its_grace_period_ends():
    async with world(settle_seconds=0.2) as one, settling(one):
        await one.synced()
        persist(one, "p", "u1")
        await one.until(lambda: committed(one, "p"))
        instant = datetime.fromtimestamp(one.now / 1e6, UTC)
        terminating = {
            "deletionTimestamp": instant.isoformat(),
            "deletionGracePeriodSeconds": 30,
        }
        one.server.update("pods", "red", "p", metadata=terminating)
        persist(one, "later", "u2")
        await one.until(lambda: committed(one, "later"))
        await asyncio.sleep(0.2)  # some ticks, to give a wrong release its chance
        assert committed(one, "p")
        one.now += timedelta(seconds=31) // timedelta(microseconds=1)
        await one.until(lambda: one.entry("p") is None)
    assert one.state.ended["u1"].cause == Cause.FINISHED


async def test_change_of_status_sends_no_command():
    async with world() as one, settling(one):
        await one.synced()
        persist(one, "p")
        await one.until(lambda: committed(one, "p"))
        before = len(one.asked)
        for _ in range(20):
            one.server.update("pods", "red", "p", status={"phase": "Running"})
        persist(one, "last")
        await one.until(lambda: committed(one, "last"))
    assert len(one.asked) == before + 1


async def test_short_lived_pod_leaves_no_charge():
    async with world() as one, settling(one):
        await one.synced()
        for number in range(50):
            persist(one, f"p{number}")
            one.server.delete("pods", "red", f"p{number}")
        persist(one, "last")
        await one.until(lambda: committed(one, "last"))
        await one.until(lambda: len(one.state.namespaces["c/red"].entries) == 1)


async def test_unwritten_creation_is_released_by_proof():
    async with world(settle_seconds=0.2) as one, settling(one):
        await one.synced()
        await one.reserve("p", "u1")
        await one.until(lambda: one.entry("p") is None)
    assert one.state.ended["u1"].cause == Cause.ABSENT
    assert one.drift == {}


async def test_time_alone_releases_nothing_while_lists_fail():
    async with world(settle_seconds=0.1) as one, settling(one):
        await one.synced()
        one.server.failing = ClusterUnavailable("etcd is down")
        lists = one.server.lists
        await one.reserve("p", "u1")
        await one.until(lambda: one.server.lists > lists)
        await asyncio.sleep(0.3)
        assert one.entry("p").holds, "a failed list proves nothing"
        one.server.failing = None
        await one.until(lambda: one.entry("p") is None)


async def test_one_list_serves_all_attempts_of_a_namespace():
    async with world(settle_seconds=0.4) as one, settling(one):
        await one.synced()
        lists = one.server.lists
        await asyncio.gather(*(one.reserve(f"p{n}", f"u{n}") for n in range(100)))
        await one.until(lambda: not one.state.namespaces["c/red"].entries)
        assert one.server.lists - lists <= 2


async def test_creation_is_not_released_when_it_was_written_late():
    async with world(settle_seconds=0.2) as one:
        await one.reserve("p", "u1")
        async with settling(one):
            await one.synced()
            persist(one, "p", "u1")
            await one.until(lambda: committed(one, "p"))


async def test_unwritten_update_is_released_and_its_object_stays():
    async with world(settle_seconds=0.2) as one, settling(one):
        await one.synced()
        version = int(persist(one, "p", "u1")["metadata"]["resourceVersion"])
        await one.until(lambda: committed(one, "p"))
        more = {**DEMAND, "nvidia.com/gpumem": 5000}
        await one.reserve("p", "u1", base=version, demand=more)
        assert one.entry("p").charge == more
        await one.until(lambda: committed(one, "p"))
        assert one.entry("p").charge == DEMAND


async def test_status_update_is_fenced_by_the_newer_version():
    async with world(settle_seconds=0.2) as one, settling(one):
        await one.synced()
        version = int(persist(one, "p", "u1")["metadata"]["resourceVersion"])
        await one.until(lambda: committed(one, "p"))
        one.server.update("pods", "red", "p", status={"phase": "Running"})
        persist(one, "last")
        await one.until(lambda: committed(one, "last"))
        more = {**DEMAND, "nvidia.com/gpumem": 5000}
        await one.reserve("p", "u1", base=version, demand=more)
        await one.until(lambda: committed(one, "p"))
        assert one.entry("p").committed.version == version + 1


async def test_changes_during_a_gap_are_recounted():
    async with world() as one:
        async with settling(one):
            await one.synced()
            persist(one, "stays", "u1")
            persist(one, "goes", "u2")
            await one.until(lambda: committed(one, "stays") and committed(one, "goes"))
        one.server.delete("pods", "red", "goes")
        persist(one, "comes", "u3")
        async with settling(one):
            await one.synced()
            assert committed(one, "stays")
            assert committed(one, "comes")
            assert one.entry("goes") is None
            assert one.drift == {Cause.DELETED: 1, Cause.UNRESERVED: 3}


async def test_recount_releases_no_open_attempt():
    async with world() as one:
        await one.reserve("p", "u1")
        async with settling(one):
            await one.synced()
            assert one.entry("p").holds
            assert one.settlement.open_attempts == 1


async def test_recount_is_repeated_periodically():
    async with world(recount_seconds=0.2) as one, settling(one):
        await one.synced()
        persist(one, "p", "u1")
        await one.until(lambda: committed(one, "p"))
        body = one.server.objects.pop(("pods", "red", "p"))  # gone without a word to the watch
        assert body
        await one.until(lambda: one.entry("p") is None)


async def test_other_clusters_and_kinds_are_not_changed():
    async with world(settle_seconds=0.1) as one:
        await one.reserve("p", "u1", namespace="elsewhere/red")
        await one.writer.submit(SetLimits("quota/elsewhere/red/q", ("elsewhere/red",), {GPUS: 5}))
        async with settling(one):
            await one.synced()
            await one.reserve("mine", "u2")
            await one.reserve("q", "u3", namespace="elsewhere/red")
            await one.until(lambda: one.entry("mine") is None)
            assert one.settlement.open_attempts == 0
        assert one.entry("q", "elsewhere/red").holds
        assert one.entry("p", "elsewhere/red").holds
        assert "quota/elsewhere/red/q" in one.state.accounts


async def test_accounts_follow_resource_quotas():
    async with world() as one, settling(one):
        await one.synced()
        one.server.create("resourcequotas", "red", quota_body("q", **{GPUS: "2", "pods": "9"}))
        await one.until(lambda: one.limits("q") == {GPUS: 2})
        one.server.update("resourcequotas", "red", "q", spec={"hard": {GPUS: "0"}})
        await one.until(lambda: one.limits("q") == {GPUS: 0})
        one.server.update("resourcequotas", "red", "q", spec={"hard": {"pods": "9"}})
        await one.until(lambda: one.limits("q") is None)
        one.server.update("resourcequotas", "red", "q", spec={"hard": {GPUS: "3"}})
        await one.until(lambda: one.limits("q") == {GPUS: 3})
        one.server.delete("resourcequotas", "red", "q")
        await one.until(lambda: one.limits("q") is None)


async def test_account_selects_by_new_scopes_when_its_quota_changes():
    def selects() -> Selection:
        return one.state.accounts[f"quota/{CLUSTER}/red/q"].selects

    def spec(*classes: str) -> dict:
        condition = {"scopeName": "PriorityClass", "operator": "In", "values": [*classes]}
        return {"hard": {GPUS: "2"}, "scopeSelector": {"matchExpressions": [condition]}}

    async with world() as one, settling(one):
        await one.synced()
        body = quota_body("q", **{GPUS: "2"})
        one.server.create("resourcequotas", "red", {**body, "spec": spec("high")})
        await one.until(lambda: one.limits("q") == {GPUS: 2})
        assert selects() == (Requirement("!priority", "In", ("high",)),)
        one.server.update("resourcequotas", "red", "q", spec=spec("high", "low"))
        await one.until(lambda: selects() == (Requirement("!priority", "In", ("high", "low")),))


async def test_account_is_closed_when_its_quota_was_deleted_in_a_gap():
    async with world() as one:
        async with settling(one):
            one.server.create("resourcequotas", "red", quota_body("q", **{GPUS: "2"}))
            await one.until(lambda: one.limits("q") == {GPUS: 2})
        one.server.delete("resourcequotas", "red", "q")
        async with settling(one):
            await one.synced()
            assert one.limits("q") is None


async def test_change_of_a_quotas_status_sends_no_command():
    async with world() as one, settling(one):
        one.server.create("resourcequotas", "red", quota_body("q", **{GPUS: "2"}))
        await one.until(lambda: one.limits("q") == {GPUS: 2})
        await one.synced()
        before = len(one.asked)
        for used in range(20):
            one.server.update("resourcequotas", "red", "q", status={"used": {"pods": str(used)}})
        one.server.create("resourcequotas", "red", quota_body("last", **{GPUS: "1"}))
        await one.until(lambda: one.limits("last") == {GPUS: 1})
    assert len(one.asked) == before + 1


async def test_start_is_refused_when_the_cluster_name_is_taken():
    async with world() as one:
        await one.writer.submit(RegisterCluster(CLUSTER, "uid-of-another-cluster"))
        with pytest.raises(ClusterNameTaken, match="--cluster"):
            await asyncio.wait_for(one.settlement.run(), 5)


async def test_registered_cluster_sends_no_command():
    async with world() as one:
        await one.writer.submit(RegisterCluster(CLUSTER, await one.cluster.kube_system_uid()))
        await one.settlement.register()
        assert one.asked == []


async def test_only_the_active_replica_sends_commands():
    async with world() as one:
        one.active = False
        async with settling(one):
            await one.until(lambda: one.state.clusters.get(CLUSTER) is not None)
            persist(one, "p")
            await asyncio.sleep(0.3)
            assert [type(command) for command in one.asked] == [RegisterCluster]
            one.active = True
            await one.synced()
            assert committed(one, "p")
            one.active = False
            await one.until(lambda: not one.settlement.listed)
            before = len(one.asked)
            persist(one, "q")
            await asyncio.sleep(0.3)
            assert len(one.asked) == before
            assert one.settlement.problems() == []


async def test_readiness_shows_which_watches_fail():
    async with world() as one:
        one.cluster.watch_pods = _silent
        async with settling(one):
            await one.until(lambda: one.settlement.problems() == ["pods: not listed yet"])


async def _silent():
    await asyncio.Event().wait()
    yield


async def test_invalid_pod_is_charged_nothing_and_counted():
    body = pod_body("p")
    body["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] = "16Gi"
    async with world() as one, settling(one):
        await one.synced()
        one.server.create("pods", "red", body)
        persist(one, "last")
        await one.until(lambda: committed(one, "last"))
        assert one.entry("p") is None
        assert one.settlement.invalid_objects == 1
        with contextlib.suppress(KeyError):
            one.server.delete("pods", "red", "p")
        await one.until(lambda: one.settlement.invalid_objects == 0)
