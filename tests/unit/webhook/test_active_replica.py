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
from ledger.kube.api.cluster_errors import ClusterUnavailable
from webhook.active_replica import ClusterNameTaken

GPUS = "limits.nvidia.com/gpu"


def committed(bare_world: World, name: str) -> bool:
    entry = bare_world.entry(name)
    return entry is not None and entry.committed is not None and not entry.holds


def persist(bare_world: World, name: str, uid: str = "") -> dict:
    return bare_world.server.create("pods", "red", pod_body(name), uid)


async def test_reserved_pod_is_committed_when_it_exists():
    async with world() as bare_world, settling(bare_world):
        await bare_world.synced()
        await bare_world.reserve("p", "u1")
        created = persist(bare_world, "p", "u1")
        await bare_world.until(lambda: committed(bare_world, "p"))
    stored = bare_world.entry("p").committed
    assert (stored.uid, stored.demand) == ("u1", DEMAND)
    assert str(stored.version) == created["metadata"]["resourceVersion"]
    assert not bare_world.drift


async def test_unreserved_pod_is_charged_and_counted_as_drift():
    async with world() as bare_world, settling(bare_world):
        await bare_world.synced()
        persist(bare_world, "p")
        await bare_world.until(lambda: committed(bare_world, "p"))
        assert bare_world.drift == {Cause.UNRESERVED: 1}


async def test_deleted_pod_is_released():
    async with world() as bare_world, settling(bare_world):
        await bare_world.synced()
        persist(bare_world, "p", "u1")
        await bare_world.until(lambda: committed(bare_world, "p"))
        bare_world.server.delete("pods", "red", "p")
        await bare_world.until(lambda: bare_world.entry("p") is None)
    assert bare_world.state.ended["u1"].cause == Cause.DELETED


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_finished_pod_is_released_while_it_exists(phase):
    async with world() as bare_world, settling(bare_world):
        await bare_world.synced()
        persist(bare_world, "p", "u1")
        await bare_world.until(lambda: committed(bare_world, "p"))
        bare_world.server.update("pods", "red", "p", status={"phase": phase})
        await bare_world.until(lambda: bare_world.entry("p") is None)
    assert bare_world.state.ended["u1"].cause == Cause.FINISHED


async def test_terminating_pod_is_released_when_its_grace_period_ends():
    async with world(settle_seconds=0.2) as bare_world, settling(bare_world):
        await bare_world.synced()
        persist(bare_world, "p", "u1")
        await bare_world.until(lambda: committed(bare_world, "p"))
        instant = datetime.fromtimestamp(bare_world.now / 1e6, UTC)
        terminating = {
            "deletionTimestamp": instant.isoformat(),
            "deletionGracePeriodSeconds": 30,
        }
        bare_world.server.update("pods", "red", "p", metadata=terminating)
        persist(bare_world, "later", "u2")
        await bare_world.until(lambda: committed(bare_world, "later"))
        await asyncio.sleep(0.2)  # some ticks, to give a wrong release its chance
        assert committed(bare_world, "p")
        bare_world.now += timedelta(seconds=31) // timedelta(microseconds=1)
        await bare_world.until(lambda: bare_world.entry("p") is None)
    assert bare_world.state.ended["u1"].cause == Cause.FINISHED


async def test_change_of_status_sends_no_command():
    async with world() as bare_world, settling(bare_world):
        await bare_world.synced()
        persist(bare_world, "p")
        await bare_world.until(lambda: committed(bare_world, "p"))
        before = len(bare_world.asked)
        for _ in range(20):
            bare_world.server.update("pods", "red", "p", status={"phase": "Running"})
        persist(bare_world, "last")
        await bare_world.until(lambda: committed(bare_world, "last"))
    assert len(bare_world.asked) == before + 1


async def test_short_lived_pod_leaves_no_charge():
    async with world() as bare_world, settling(bare_world):
        await bare_world.synced()
        for number in range(50):
            persist(bare_world, f"p{number}")
            bare_world.server.delete("pods", "red", f"p{number}")
        persist(bare_world, "last")
        await bare_world.until(lambda: committed(bare_world, "last"))
        await bare_world.until(lambda: len(bare_world.state.namespaces["c/red"].entries) == 1)


async def test_unwritten_creation_is_released_by_proof():
    async with world(settle_seconds=0.2) as bare_world, settling(bare_world):
        await bare_world.synced()
        await bare_world.reserve("p", "u1")
        await bare_world.until(lambda: bare_world.entry("p") is None)
    assert bare_world.state.ended["u1"].cause == Cause.ABSENT
    assert bare_world.drift == {}


async def test_time_alone_releases_nothing_while_lists_fail():
    async with world(settle_seconds=0.1) as bare_world, settling(bare_world):
        await bare_world.synced()
        bare_world.server.failing = ClusterUnavailable("etcd is down")
        lists = bare_world.server.lists
        await bare_world.reserve("p", "u1")
        await bare_world.until(lambda: bare_world.server.lists > lists)
        await asyncio.sleep(0.3)
        assert bare_world.entry("p").holds, "a failed list proves nothing"
        bare_world.server.failing = None
        await bare_world.until(lambda: bare_world.entry("p") is None)


async def test_one_list_serves_all_attempts_of_a_namespace():
    async with world(settle_seconds=0.4) as bare_world, settling(bare_world):
        await bare_world.synced()
        lists = bare_world.server.lists
        await asyncio.gather(*(bare_world.reserve(f"p{n}", f"u{n}") for n in range(100)))
        await bare_world.until(lambda: not bare_world.state.namespaces["c/red"].entries)
        assert bare_world.server.lists - lists <= 2


async def test_creation_is_not_released_when_it_was_written_late():
    async with world(settle_seconds=0.2) as bare_world:
        await bare_world.reserve("p", "u1")
        async with settling(bare_world):
            await bare_world.synced()
            persist(bare_world, "p", "u1")
            await bare_world.until(lambda: committed(bare_world, "p"))


async def test_unwritten_update_is_released_and_its_object_stays():
    async with world(settle_seconds=0.2) as bare_world, settling(bare_world):
        await bare_world.synced()
        version = int(persist(bare_world, "p", "u1")["metadata"]["resourceVersion"])
        await bare_world.until(lambda: committed(bare_world, "p"))
        more = {**DEMAND, "nvidia.com/gpumem": 5000}
        await bare_world.reserve("p", "u1", base=version, demand=more)
        assert bare_world.entry("p").charge == more
        await bare_world.until(lambda: committed(bare_world, "p"))
        assert bare_world.entry("p").charge == DEMAND


async def test_status_update_is_fenced_by_the_newer_version():
    async with world(settle_seconds=0.2) as bare_world, settling(bare_world):
        await bare_world.synced()
        version = int(persist(bare_world, "p", "u1")["metadata"]["resourceVersion"])
        await bare_world.until(lambda: committed(bare_world, "p"))
        bare_world.server.update("pods", "red", "p", status={"phase": "Running"})
        persist(bare_world, "last")
        await bare_world.until(lambda: committed(bare_world, "last"))
        more = {**DEMAND, "nvidia.com/gpumem": 5000}
        await bare_world.reserve("p", "u1", base=version, demand=more)
        await bare_world.until(lambda: committed(bare_world, "p"))
        assert bare_world.entry("p").committed.version == version + 1


async def test_changes_during_a_gap_are_recounted():
    async with world() as bare_world:
        async with settling(bare_world):
            await bare_world.synced()
            persist(bare_world, "stays", "u1")
            persist(bare_world, "goes", "u2")
            await bare_world.until(
                lambda: committed(bare_world, "stays") and committed(bare_world, "goes")
            )
        bare_world.server.delete("pods", "red", "goes")
        persist(bare_world, "comes", "u3")
        async with settling(bare_world):
            await bare_world.synced()
            assert committed(bare_world, "stays")
            assert committed(bare_world, "comes")
            assert bare_world.entry("goes") is None
            assert bare_world.drift == {Cause.DELETED: 1, Cause.UNRESERVED: 3}


async def test_recount_releases_no_open_attempt():
    async with world() as bare_world:
        await bare_world.reserve("p", "u1")
        async with settling(bare_world):
            await bare_world.synced()
            assert bare_world.entry("p").holds
            assert bare_world.settlement.open_attempts == 1


async def test_recount_is_repeated_periodically():
    async with world(recount_seconds=0.2) as bare_world, settling(bare_world):
        await bare_world.synced()
        persist(bare_world, "p", "u1")
        await bare_world.until(lambda: committed(bare_world, "p"))
        body = bare_world.server.objects.pop(
            ("pods", "red", "p")
        )  # gone without a word to the watch
        assert body
        await bare_world.until(lambda: bare_world.entry("p") is None)


async def test_other_clusters_and_kinds_are_not_changed():
    async with world(settle_seconds=0.1) as bare_world:
        await bare_world.reserve("p", "u1", namespace="elsewhere/red")
        await bare_world.writer.submit(
            SetLimits("quota/elsewhere/red/q", ("elsewhere/red",), {GPUS: 5})
        )
        async with settling(bare_world):
            await bare_world.synced()
            await bare_world.reserve("mine", "u2")
            await bare_world.reserve("q", "u3", namespace="elsewhere/red")
            await bare_world.until(lambda: bare_world.entry("mine") is None)
            assert bare_world.settlement.open_attempts == 0
        assert bare_world.entry("q", "elsewhere/red").holds
        assert bare_world.entry("p", "elsewhere/red").holds
        assert "quota/elsewhere/red/q" in bare_world.state.accounts


async def test_accounts_follow_resource_quotas():
    async with world() as bare_world, settling(bare_world):
        await bare_world.synced()
        bare_world.server.create(
            "resourcequotas", "red", quota_body("q", **{GPUS: "2", "pods": "9"})
        )
        await bare_world.until(lambda: bare_world.limits("q") == {GPUS: 2})
        bare_world.server.update("resourcequotas", "red", "q", spec={"hard": {GPUS: "0"}})
        await bare_world.until(lambda: bare_world.limits("q") == {GPUS: 0})
        bare_world.server.update("resourcequotas", "red", "q", spec={"hard": {"pods": "9"}})
        await bare_world.until(lambda: bare_world.limits("q") is None)
        bare_world.server.update("resourcequotas", "red", "q", spec={"hard": {GPUS: "3"}})
        await bare_world.until(lambda: bare_world.limits("q") == {GPUS: 3})
        bare_world.server.delete("resourcequotas", "red", "q")
        await bare_world.until(lambda: bare_world.limits("q") is None)


async def test_account_selects_by_new_scopes_when_its_quota_changes():
    def selects() -> Selection:
        return bare_world.state.accounts[f"quota/{CLUSTER}/red/q"].selects

    def spec(*classes: str) -> dict:
        condition = {"scopeName": "PriorityClass", "operator": "In", "values": [*classes]}
        return {"hard": {GPUS: "2"}, "scopeSelector": {"matchExpressions": [condition]}}

    async with world() as bare_world, settling(bare_world):
        await bare_world.synced()
        body = quota_body("q", **{GPUS: "2"})
        bare_world.server.create("resourcequotas", "red", {**body, "spec": spec("high")})
        await bare_world.until(lambda: bare_world.limits("q") == {GPUS: 2})
        assert selects() == (Requirement("!priority", "In", ("high",)),)
        bare_world.server.update("resourcequotas", "red", "q", spec=spec("high", "low"))
        await bare_world.until(
            lambda: selects() == (Requirement("!priority", "In", ("high", "low")),)
        )


async def test_account_is_closed_when_its_quota_was_deleted_in_a_gap():
    async with world() as bare_world:
        async with settling(bare_world):
            bare_world.server.create("resourcequotas", "red", quota_body("q", **{GPUS: "2"}))
            await bare_world.until(lambda: bare_world.limits("q") == {GPUS: 2})
        bare_world.server.delete("resourcequotas", "red", "q")
        async with settling(bare_world):
            await bare_world.synced()
            assert bare_world.limits("q") is None


async def test_change_of_a_quotas_status_sends_no_command():
    async with world() as bare_world, settling(bare_world):
        bare_world.server.create("resourcequotas", "red", quota_body("q", **{GPUS: "2"}))
        await bare_world.until(lambda: bare_world.limits("q") == {GPUS: 2})
        await bare_world.synced()
        before = len(bare_world.asked)
        for used in range(20):
            bare_world.server.update(
                "resourcequotas", "red", "q", status={"used": {"pods": str(used)}}
            )
        bare_world.server.create("resourcequotas", "red", quota_body("last", **{GPUS: "1"}))
        await bare_world.until(lambda: bare_world.limits("last") == {GPUS: 1})
    assert len(bare_world.asked) == before + 1


async def test_start_is_refused_when_the_cluster_name_is_taken():
    async with world() as bare_world:
        await bare_world.writer.submit(RegisterCluster(CLUSTER, "uid-of-another-cluster"))
        with pytest.raises(ClusterNameTaken, match="--cluster"):
            await asyncio.wait_for(bare_world.settlement.run(), 5)


async def test_registered_cluster_sends_no_command():
    async with world() as bare_world:
        await bare_world.writer.submit(
            RegisterCluster(CLUSTER, await bare_world.cluster.kube_system_uid())
        )
        await bare_world.settlement.register()
        assert bare_world.asked == []


async def test_only_the_active_replica_sends_commands():
    async with world() as bare_world:
        bare_world.active = False
        async with settling(bare_world):
            await bare_world.until(lambda: bare_world.state.clusters.get(CLUSTER) is not None)
            persist(bare_world, "p")
            await asyncio.sleep(0.3)
            assert [type(command) for command in bare_world.asked] == [RegisterCluster]
            bare_world.active = True
            await bare_world.synced()
            assert committed(bare_world, "p")
            bare_world.active = False
            await bare_world.until(lambda: not bare_world.settlement.listed)
            before = len(bare_world.asked)
            persist(bare_world, "q")
            await asyncio.sleep(0.3)
            assert len(bare_world.asked) == before
            assert bare_world.settlement.problems() == []


async def test_readiness_shows_which_watches_fail():
    async with world() as bare_world:
        bare_world.cluster.watch_pods = _silent
        async with settling(bare_world):
            await bare_world.until(
                lambda: bare_world.settlement.problems() == ["pods: not listed yet"]
            )


async def _silent():
    await asyncio.Event().wait()
    yield


async def test_invalid_pod_is_charged_nothing_and_counted():
    body = pod_body("p")
    body["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] = "16Gi"
    async with world() as bare_world, settling(bare_world):
        await bare_world.synced()
        bare_world.server.create("pods", "red", body)
        persist(bare_world, "last")
        await bare_world.until(lambda: committed(bare_world, "last"))
        assert bare_world.entry("p") is None
        assert bare_world.settlement.invalid_objects == 1
        with contextlib.suppress(KeyError):
            bare_world.server.delete("pods", "red", "p")
        await bare_world.until(lambda: bare_world.settlement.invalid_objects == 0)
