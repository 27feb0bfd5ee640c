"""Universe quotas: accounts over namespaces and clusters, their scope, and their status."""

import asyncio
from collections import Counter

import pytest
from support.fakes.apiserver import pod_body
from support.harness.settlement import CLUSTER, World, full_world, settling

from ledger.core.model import accounts
from ledger.core.model.commands import Describe, Observe, SetLimits
from ledger.core.model.traits import NAME, Reach, Requirement
from ledger.kube.api.api_resources import NAMESPACES, UNIVERSE_QUOTAS
from ledger.kube.api.cluster_errors import ClusterUnavailable
from ledger.kube.requests import namespace_traits
from ledger.tasks import periodic
from webhook.quotas import changed_statuses, namespace_label_sync, universe_quota_status
from webhook.quotas.usage_by_namespace import UsageByNamespace

GPUS = "limits.nvidia.com/gpu"
ALL = accounts.universe("all")


def universe(world: World, name: str = "all", limit: str = "8", **spec) -> None:
    body = {"metadata": {"name": name, "generation": 1}, "spec": {"hard": {GPUS: limit}} | spec}
    world.server.create(UNIVERSE_QUOTAS.name, "", body)


def namespace(world: World, name: str, **labels: str) -> None:
    world.server.create(NAMESPACES.name, "", {"metadata": {"name": name, "labels": labels}})


def limits(world: World, name: str = "all") -> dict | None:
    account = world.state.accounts.get(accounts.universe(name))
    if account is None:
        return None
    return {key: world.state.limit[line] for key, line in account.lines.items()}


def pod(world: World, where: str, name: str) -> None:
    world.server.create("pods", where, pod_body(name))


async def test_accounts_follow_the_universe_quotas_of_the_authority():
    async with full_world() as world, settling(world):
        await world.synced()
        universe(world)
        await world.until(lambda: limits(world) == {GPUS: 8})
        world.server.update(UNIVERSE_QUOTAS.name, "", "all", spec={"hard": {GPUS: "4"}})
        await world.until(lambda: limits(world) == {GPUS: 4})
        world.server.delete(UNIVERSE_QUOTAS.name, "", "all")
        await world.until(lambda: limits(world) is None)


async def test_account_is_closed_when_its_quota_is_deleted_during_a_gap():
    async with full_world() as world:
        await world.writer.submit(SetLimits(accounts.universe("old"), (), {GPUS: 1}, reach=Reach()))
        async with settling(world):
            await world.synced()
            assert limits(world, "old") is None


async def test_universe_accounts_stay_when_the_cluster_is_not_the_authority():
    async with full_world(universe_authority=False) as world:
        await world.writer.submit(SetLimits(accounts.universe("old"), (), {GPUS: 1}, reach=Reach()))
        universe(world)
        async with settling(world):
            await world.synced()
            assert limits(world, "old") == {GPUS: 1}
            assert limits(world) is None


async def test_account_keeps_its_limits_when_its_quota_is_unreadable():
    async with full_world() as world, settling(world):
        await world.synced()
        universe(world)
        await world.until(lambda: limits(world) == {GPUS: 8})
        world.server.update(UNIVERSE_QUOTAS.name, "", "all", spec={"hard": 7})
        universe(world, "last")
        await world.until(lambda: limits(world, "last") == {GPUS: 8})
        assert limits(world) == {GPUS: 8}


async def test_quota_covers_namespaces_as_soon_as_their_labels_change():
    async with full_world() as world, settling(world):
        await world.synced()
        universe(world, namespaceSelector={"matchLabels": {"team": "a"}})
        namespace(world, "red", team="a")
        namespace(world, "blue", team="b")
        for where in ("red", "blue", "blue"):
            pod(world, where, f"p{world.server.version}")
        await world.until(lambda: ALL in world.state.accounts)
        await world.until(lambda: world.used(ALL, GPUS) == 1)
        world.server.update(NAMESPACES.name, "", "blue", metadata={"labels": {"team": "a"}})
        await world.until(lambda: world.used(ALL, GPUS) == 3)
        world.server.delete(NAMESPACES.name, "", "red")
        await world.until(lambda: world.used(ALL, GPUS) == 2)


async def test_cluster_labels_of_an_older_replica_are_replaced(monkeypatch):
    monkeypatch.setattr(namespace_label_sync, "SEND_SECONDS", 0.1)
    traits = namespace_traits.of_cluster(CLUSTER, "eu", None)
    async with full_world(cluster_traits=traits) as world, settling(world):
        await world.until(lambda: world.state.described.get(CLUSTER) == traits)
        await world.writer.submit(Describe(CLUSTER, f"!name={CLUSTER}"))
        await world.until(lambda: world.state.described.get(CLUSTER) == traits)


async def test_cluster_and_namespace_labels_are_sent_once():
    traits = namespace_traits.of_cluster(CLUSTER, "eu", {"tier": "prod"})
    async with full_world(cluster_traits=traits) as world:
        namespace(world, "red", team="a")
        async with settling(world):
            await world.synced()
            await world.until(lambda: world.state.described.get(CLUSTER) == traits)
            world.server.update(NAMESPACES.name, "", "red", metadata={"annotations": {"a": "b"}})
            namespace(world, "last")
            await world.until(lambda: f"{CLUSTER}/last" in world.state.described)
        async with settling(world):
            await world.synced()
        subjects = Counter(told.subject for told in world.asked if isinstance(told, Describe))
        assert subjects == {CLUSTER: 1, f"{CLUSTER}/red": 1, f"{CLUSTER}/last": 1}


async def test_labels_are_removed_when_their_namespace_is_deleted():
    async with full_world() as world:
        namespace(world, "red", team="a")
        async with settling(world):
            await world.until(lambda: f"{CLUSTER}/red" in world.state.described)
            world.server.delete(NAMESPACES.name, "", "red")
            await world.until(lambda: f"{CLUSTER}/red" not in world.state.described)
        assert f"{CLUSTER}/red" not in world.state.described_at


async def test_labels_are_removed_when_deleted_during_a_gap():
    async with full_world() as world:
        await world.writer.submit(Describe(f"{CLUSTER}/red", "!name=red,team=a"))
        await world.writer.submit(Describe("other/red", "!name=red,team=a"))
        async with settling(world):
            await world.synced()
            assert f"{CLUSTER}/red" not in world.state.described
            assert world.state.described["other/red"] == "!name=red,team=a"


def status(world: World, name: str = "all") -> dict:
    return world.server.objects[UNIVERSE_QUOTAS.name, "", name].get("status", {})


def outcomes(world: World) -> set[str]:
    """Return how writing statuses came out, each way once."""
    where = ("status_writes_total", "universeresourcequotas")
    return {key[2] for key in world.counted if key[:2] == where}


def condition(world: World, kind: str) -> dict:
    conditions = [entry for entry in status(world).get("conditions", []) if entry["type"] == kind]
    return conditions[0] if conditions else {}


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(universe_quota_status, "WRITE_SECONDS", 0.05)


async def test_status_has_the_usage_by_cluster_and_namespace(quick):
    async with full_world() as world, settling(world):
        await world.synced()
        universe(world)
        for where, name in (("red", "p"), ("red", "q"), ("blue", "r")):
            pod(world, where, name)
        other = Observe("other/green", "pods/s", "u", 5, {"nvidia.com/gpu": 3})
        await world.writer.submit(other)
        expected = [
            {
                "name": CLUSTER,
                "used": {GPUS: "3"},
                "namespaces": [
                    {"name": "blue", "used": {GPUS: "1"}},
                    {"name": "red", "used": {GPUS: "2"}},
                ],
            },
            {
                "name": "other",
                "used": {GPUS: "3"},
                "namespaces": [{"name": "green", "used": {GPUS: "3"}}],
            },
        ]
        await world.until(lambda: status(world).get("clusters") == expected)
        assert status(world)["hard"] == {GPUS: "8"}
        assert status(world)["used"] == {GPUS: "6"}
        world.server.delete("pods", "blue", "r")
        await world.until(lambda: status(world)["used"] == {GPUS: "5"})
        assert [usage["name"] for usage in status(world)["clusters"][0]["namespaces"]] == ["red"]


async def test_status_is_written_only_when_it_changes(quick):
    async with full_world() as world, settling(world):
        await world.synced()
        universe(world)
        await world.until(lambda: status(world).get("used") == {GPUS: "0"})
        await asyncio.sleep(0.3)  # some rounds, to give a needless write its chance
        assert len(world.cluster.writes) == 1


async def test_conditions_have_the_warnings_and_their_time(quick):
    async with full_world() as world, settling(world):
        await world.synced()
        universe(world)
        await world.until(lambda: condition(world, "InEffect").get("status") == "True")
        assert condition(world, "Understood")["status"] == "True"
        assert condition(world, "Ready")["reason"] == "Enforced"
        assert status(world)["summary"] == "gpu: 0/8"
        since = condition(world, "InEffect")["lastTransitionTime"]
        world.now += 60_000_000
        odd = {"hard": {GPUS: "2", "limits.nvidia.com/gpumem": "lots"}}
        world.server.update(UNIVERSE_QUOTAS.name, "", "all", spec=odd, metadata={"generation": 2})
        await world.until(lambda: condition(world, "Understood").get("status") == "False")
        assert "lots" in condition(world, "Understood")["message"]
        ready = condition(world, "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "Warnings")
        assert condition(world, "Understood")["lastTransitionTime"] != since
        assert condition(world, "InEffect")["lastTransitionTime"] == since
        assert condition(world, "InEffect")["observedGeneration"] == 2


async def test_condition_shows_when_a_quota_limits_nothing(quick):
    async with full_world() as world, settling(world):
        await world.synced()
        body = {"metadata": {"name": "all"}, "spec": {"hard": {"pods": "3"}}}
        world.server.create(UNIVERSE_QUOTAS.name, "", body)
        await world.until(lambda: condition(world, "InEffect").get("status") == "False")
        assert status(world)["hard"] == {}


async def test_status_is_retried_when_it_cannot_be_written(quick, monkeypatch):
    monkeypatch.setattr(changed_statuses, "RETRY_SECONDS", 0.1)
    async with full_world() as world, settling(world):
        await world.synced()
        world.cluster.refusing = ClusterUnavailable("the API server is down")
        universe(world)
        await world.until(lambda: limits(world) is not None)
        await asyncio.sleep(0.3)
        world.cluster.refusing = None
        await world.until(lambda: status(world).get("used") == {GPUS: "0"})
        assert outcomes(world) == {"failed", "done"}


async def test_condition_shows_when_the_cluster_is_not_the_authority(quick):
    async with full_world(universe_authority=False) as world, settling(world):
        await world.synced()
        universe(world)
        await world.until(lambda: condition(world, "InEffect").get("status") == "False")
        assert condition(world, "InEffect")["reason"] == "NotTheAuthority"
        assert condition(world, "Ready")["reason"] == "NotTheAuthority"
        assert status(world)["used"] == {}
        await asyncio.sleep(0.3)  # some rounds, to give a needless write its chance
        assert len(world.cluster.writes) == 1
        assert limits(world) is None


async def test_status_is_replaced_when_the_cluster_is_no_longer_authority(quick):
    async with full_world(universe_authority=False) as world:
        universe(world)
        old = {"used": {GPUS: "3"}, "conditions": [{"type": "InEffect", "status": "True"}]}
        world.server.update(UNIVERSE_QUOTAS.name, "", "all", status=old)
        async with settling(world):
            await world.until(
                lambda: condition(world, "InEffect").get("reason") == "NotTheAuthority"
            )
            assert status(world)["used"] == {}


async def test_ignored_quotas_status_is_retried_when_it_failed(quick, monkeypatch):
    monkeypatch.setattr(changed_statuses, "RETRY_SECONDS", 0.1)
    async with full_world(universe_authority=False) as world, settling(world):
        await world.synced()
        world.cluster.refusing = ClusterUnavailable("the API server is down")
        universe(world, "gone")
        universe(world)
        await asyncio.sleep(0.3)
        world.server.delete(UNIVERSE_QUOTAS.name, "", "gone")
        world.cluster.refusing = None
        await world.until(lambda: condition(world, "InEffect").get("reason") == "NotTheAuthority")
        assert outcomes(world) == {"failed", "done"}


async def test_usage_kept_up_to_date_equals_a_fresh_sum():
    async with full_world() as world:
        kept = UsageByNamespace(world.writer)
        world.writer.subscribe(kept.follow)
        submit = world.writer.submit
        await submit(SetLimits(ALL, (), {GPUS: 9}, reach=Reach()))
        for number in range(6):
            await submit(
                Observe(f"{CLUSTER}/n{number % 2}", f"pods/{number}", f"u{number}", 1, ONE)
            )
        assert await kept.of(ALL) is not None
        await submit(Observe(f"{CLUSTER}/n2", "pods/a", "ua", 1, ONE))
        await submit(Observe(f"{CLUSTER}/n0", "pods/0", "u0", 2, {"nvidia.com/gpu": 4}))
        fresh = await UsageByNamespace(world.writer).of(ALL)
        assert fresh is not None
        assert await kept.of(ALL) == fresh
        assert sum(sum(share.values()) for share in fresh.values()) == world.used(ALL, GPUS)
        await submit(Describe(f"{CLUSTER}/n0", "!name=n0,team=a"))
        some = Reach(namespaces=(Requirement(NAME, "In", ("n1", "n2")),))
        await submit(SetLimits(ALL, (), {GPUS: 9}, reach=some))
        narrower = await UsageByNamespace(world.writer).of(ALL)
        assert narrower is not None
        assert await kept.of(ALL) == narrower
        assert set(narrower) == {f"{CLUSTER}/n1", f"{CLUSTER}/n2"}


async def test_usage_has_the_changes_made_while_it_is_summed_up(monkeypatch):
    monkeypatch.setattr(periodic, "STEPS", 1)
    async with full_world() as world:
        kept = UsageByNamespace(world.writer)
        world.writer.subscribe(kept.follow)
        submit = world.writer.submit
        await submit(SetLimits(ALL, (), {GPUS: 999}, reach=Reach()))
        for number in range(200):
            await submit(Observe(f"{CLUSTER}/n{number:03}", "pods/p", f"u{number}", 1, ONE))
        under_way = asyncio.create_task(kept.of(ALL))
        await asyncio.sleep(0)
        for number in (0, 199):
            await submit(Observe(f"{CLUSTER}/n{number:03}", "pods/q", f"v{number}", 1, ONE))
        await submit(Observe(f"{CLUSTER}/new", "pods/p", "new", 1, ONE))
        assert not under_way.done()
        assert await under_way is None, "a namespace has come under way"
        assert await kept.of(ALL) == await UsageByNamespace(world.writer).of(ALL)


ONE = {"nvidia.com/gpu": 1}
