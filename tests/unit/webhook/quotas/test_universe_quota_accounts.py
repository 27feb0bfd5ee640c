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
from ledger.kube.api.errors import ClusterUnavailable
from ledger.kube.requests import namespace_traits
from ledger.tasks import periodic
from webhook.quotas import ignored_universe_quotas, namespace_label_sync, universe_quota_status
from webhook.quotas.usage_by_namespace import UsageByNamespace

GPUS = "limits.nvidia.com/gpu"
ALL = accounts.universe("all")


def universe(one: World, name: str = "all", limit: str = "8", **spec) -> None:
    body = {"metadata": {"name": name, "generation": 1}, "spec": {"hard": {GPUS: limit}} | spec}
    one.server.create(UNIVERSE_QUOTAS.name, "", body)


def namespace(one: World, name: str, **labels: str) -> None:
    one.server.create(NAMESPACES.name, "", {"metadata": {"name": name, "labels": labels}})


def limits(one: World, name: str = "all") -> dict | None:
    account = one.state.accounts.get(accounts.universe(name))
    if account is None:
        return None
    return {key: one.state.limit[line] for key, line in account.lines.items()}


def pod(one: World, where: str, name: str) -> None:
    one.server.create("pods", where, pod_body(name))


async def test_accounts_follow_the_universe_quotas_of_the_authority():
    async with full_world() as one, settling(one):
        await one.synced()
        universe(one)
        await one.until(lambda: limits(one) == {GPUS: 8})
        one.server.update(UNIVERSE_QUOTAS.name, "", "all", spec={"hard": {GPUS: "4"}})
        await one.until(lambda: limits(one) == {GPUS: 4})
        one.server.delete(UNIVERSE_QUOTAS.name, "", "all")
        await one.until(lambda: limits(one) is None)


async def test_account_is_closed_when_its_quota_is_deleted_during_a_gap():
    async with full_world() as one:
        await one.writer.submit(SetLimits(accounts.universe("old"), (), {GPUS: 1}, reach=Reach()))
        async with settling(one):
            await one.synced()
            assert limits(one, "old") is None


async def test_universe_accounts_stay_when_the_cluster_is_not_the_authority():
    async with full_world(universe_authority=False) as one:
        await one.writer.submit(SetLimits(accounts.universe("old"), (), {GPUS: 1}, reach=Reach()))
        universe(one)
        async with settling(one):
            await one.synced()
            assert limits(one, "old") == {GPUS: 1}
            assert limits(one) is None


async def test_account_keeps_its_limits_when_its_quota_is_unreadable():
    async with full_world() as one, settling(one):
        await one.synced()
        universe(one)
        await one.until(lambda: limits(one) == {GPUS: 8})
        one.server.update(UNIVERSE_QUOTAS.name, "", "all", spec={"hard": 7})
        universe(one, "last")
        await one.until(lambda: limits(one, "last") == {GPUS: 8})
        assert limits(one) == {GPUS: 8}


async def test_quota_covers_namespaces_as_soon_as_their_labels_change():
    async with full_world() as one, settling(one):
        await one.synced()
        universe(one, namespaceSelector={"matchLabels": {"team": "a"}})
        namespace(one, "red", team="a")
        namespace(one, "blue", team="b")
        for where in ("red", "blue", "blue"):
            pod(one, where, f"p{one.server.version}")
        await one.until(lambda: ALL in one.state.accounts)
        await one.until(lambda: one.used(ALL, GPUS) == 1)
        one.server.update(NAMESPACES.name, "", "blue", metadata={"labels": {"team": "a"}})
        await one.until(lambda: one.used(ALL, GPUS) == 3)
        one.server.delete(NAMESPACES.name, "", "red")
        await one.until(lambda: one.used(ALL, GPUS) == 2)


async def test_cluster_labels_of_an_older_replica_are_replaced(monkeypatch):
    monkeypatch.setattr(namespace_label_sync, "SEND_SECONDS", 0.1)
    traits = namespace_traits.of_cluster(CLUSTER, "eu", None)
    async with full_world(cluster_traits=traits) as one, settling(one):
        await one.until(lambda: one.state.described.get(CLUSTER) == traits)
        await one.writer.submit(Describe(CLUSTER, f"!name={CLUSTER}"))
        await one.until(lambda: one.state.described.get(CLUSTER) == traits)


async def test_cluster_and_namespace_labels_are_sent_once():
    traits = namespace_traits.of_cluster(CLUSTER, "eu", {"tier": "prod"})
    async with full_world(cluster_traits=traits) as one:
        namespace(one, "red", team="a")
        async with settling(one):
            await one.synced()
            await one.until(lambda: one.state.described.get(CLUSTER) == traits)
            one.server.update(NAMESPACES.name, "", "red", metadata={"annotations": {"a": "b"}})
            namespace(one, "last")
            await one.until(lambda: f"{CLUSTER}/last" in one.state.described)
        async with settling(one):
            await one.synced()
        subjects = Counter(told.subject for told in one.asked if isinstance(told, Describe))
        assert subjects == {CLUSTER: 1, f"{CLUSTER}/red": 1, f"{CLUSTER}/last": 1}


async def test_labels_are_removed_when_their_namespace_is_deleted():
    async with full_world() as one:
        namespace(one, "red", team="a")
        async with settling(one):
            await one.until(lambda: f"{CLUSTER}/red" in one.state.described)
            one.server.delete(NAMESPACES.name, "", "red")
            await one.until(lambda: f"{CLUSTER}/red" not in one.state.described)
        assert f"{CLUSTER}/red" not in one.state.described_at


async def test_labels_are_removed_when_deleted_during_a_gap():
    async with full_world() as one:
        await one.writer.submit(Describe(f"{CLUSTER}/red", "!name=red,team=a"))
        await one.writer.submit(Describe("other/red", "!name=red,team=a"))
        async with settling(one):
            await one.synced()
            assert f"{CLUSTER}/red" not in one.state.described
            assert one.state.described["other/red"] == "!name=red,team=a"


def status(one: World, name: str = "all") -> dict:
    return one.server.objects[UNIVERSE_QUOTAS.name, "", name].get("status", {})


def outcomes(one: World) -> set[str]:
    """Return how writing statuses came out, each way once."""
    where = ("status_writes_total", "universeresourcequotas")
    return {key[2] for key in one.counted if key[:2] == where}


def condition(one: World, kind: str) -> dict:
    found = [one for one in status(one).get("conditions", []) if one["type"] == kind]
    return found[0] if found else {}


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(universe_quota_status, "WRITE_SECONDS", 0.05)


async def test_status_has_the_usage_by_cluster_and_namespace(quick):
    async with full_world() as one, settling(one):
        await one.synced()
        universe(one)
        for where, name in (("red", "p"), ("red", "q"), ("blue", "r")):
            pod(one, where, name)
        other = Observe("other/green", "pods/s", "u", 5, {"nvidia.com/gpu": 3})
        await one.writer.submit(other)
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
        await one.until(lambda: status(one).get("clusters") == expected)
        assert status(one)["hard"] == {GPUS: "8"}
        assert status(one)["used"] == {GPUS: "6"}
        one.server.delete("pods", "blue", "r")
        await one.until(lambda: status(one)["used"] == {GPUS: "5"})
        assert [one["name"] for one in status(one)["clusters"][0]["namespaces"]] == ["red"]


async def test_status_is_written_only_when_it_changes(quick):
    async with full_world() as one, settling(one):
        await one.synced()
        universe(one)
        await one.until(lambda: status(one).get("used") == {GPUS: "0"})
        await asyncio.sleep(0.3)  # some rounds, to give a needless write its chance
        assert len(one.cluster.writes) == 1


async def test_conditions_have_the_warnings_and_their_time(quick):
    async with full_world() as one, settling(one):
        await one.synced()
        universe(one)
        await one.until(lambda: condition(one, "InEffect").get("status") == "True")
        assert condition(one, "Understood")["status"] == "True"
        since = condition(one, "InEffect")["lastTransitionTime"]
        one.now += 60_000_000
        odd = {"hard": {GPUS: "2", "limits.nvidia.com/gpumem": "lots"}}
        one.server.update(UNIVERSE_QUOTAS.name, "", "all", spec=odd, metadata={"generation": 2})
        await one.until(lambda: condition(one, "Understood").get("status") == "False")
        assert "lots" in condition(one, "Understood")["message"]
        assert condition(one, "Understood")["lastTransitionTime"] != since
        assert condition(one, "InEffect")["lastTransitionTime"] == since
        assert condition(one, "InEffect")["observedGeneration"] == 2


async def test_condition_shows_when_a_quota_limits_nothing(quick):
    async with full_world() as one, settling(one):
        await one.synced()
        body = {"metadata": {"name": "all"}, "spec": {"hard": {"pods": "3"}}}
        one.server.create(UNIVERSE_QUOTAS.name, "", body)
        await one.until(lambda: condition(one, "InEffect").get("status") == "False")
        assert status(one)["hard"] == {}


async def test_status_is_retried_when_it_cannot_be_written(quick, monkeypatch):
    monkeypatch.setattr(universe_quota_status, "RETRY_SECONDS", 0.1)
    async with full_world() as one, settling(one):
        await one.synced()
        one.cluster.refusing = ClusterUnavailable("the API server is down")
        universe(one)
        await one.until(lambda: limits(one) is not None)
        await asyncio.sleep(0.3)
        one.cluster.refusing = None
        await one.until(lambda: status(one).get("used") == {GPUS: "0"})
        assert outcomes(one) == {"failed", "done"}


async def test_condition_shows_when_the_cluster_is_not_the_authority(quick):
    async with full_world(universe_authority=False) as one, settling(one):
        await one.synced()
        universe(one)
        await one.until(lambda: condition(one, "InEffect").get("status") == "False")
        assert condition(one, "InEffect")["reason"] == "NotTheAuthority"
        assert status(one)["used"] == {}
        await asyncio.sleep(0.3)  # some rounds, to give a needless write its chance
        assert len(one.cluster.writes) == 1
        assert limits(one) is None


async def test_status_is_replaced_when_the_cluster_is_no_longer_authority(quick):
    async with full_world(universe_authority=False) as one:
        universe(one)
        old = {"used": {GPUS: "3"}, "conditions": [{"type": "InEffect", "status": "True"}]}
        one.server.update(UNIVERSE_QUOTAS.name, "", "all", status=old)
        async with settling(one):
            await one.until(lambda: condition(one, "InEffect").get("reason") == "NotTheAuthority")
            assert status(one)["used"] == {}


async def test_ignored_quotas_status_is_retried_when_it_failed(quick, monkeypatch):
    monkeypatch.setattr(ignored_universe_quotas, "RETRY_SECONDS", 0.1)
    async with full_world(universe_authority=False) as one, settling(one):
        await one.synced()
        one.cluster.refusing = ClusterUnavailable("the API server is down")
        universe(one, "gone")
        universe(one)
        await asyncio.sleep(0.3)
        one.server.delete(UNIVERSE_QUOTAS.name, "", "gone")
        one.cluster.refusing = None
        await one.until(lambda: condition(one, "InEffect").get("reason") == "NotTheAuthority")
        assert outcomes(one) == {"failed", "done"}


async def test_usage_kept_up_to_date_equals_a_fresh_sum():
    async with full_world() as one:
        kept = UsageByNamespace(one.writer)
        one.writer.subscribe(kept.follow)
        submit = one.writer.submit
        await submit(SetLimits(ALL, (), {GPUS: 9}, reach=Reach()))
        for number in range(6):
            await submit(
                Observe(f"{CLUSTER}/n{number % 2}", f"pods/{number}", f"u{number}", 1, ONE)
            )
        assert await kept.of(ALL) is not None
        await submit(Observe(f"{CLUSTER}/n2", "pods/a", "ua", 1, ONE))
        await submit(Observe(f"{CLUSTER}/n0", "pods/0", "u0", 2, {"nvidia.com/gpu": 4}))
        fresh = await UsageByNamespace(one.writer).of(ALL)
        assert fresh is not None
        assert await kept.of(ALL) == fresh
        assert sum(sum(share.values()) for share in fresh.values()) == one.used(ALL, GPUS)
        await submit(Describe(f"{CLUSTER}/n0", "!name=n0,team=a"))
        some = Reach(namespaces=(Requirement(NAME, "In", ("n1", "n2")),))
        await submit(SetLimits(ALL, (), {GPUS: 9}, reach=some))
        narrower = await UsageByNamespace(one.writer).of(ALL)
        assert narrower is not None
        assert await kept.of(ALL) == narrower
        assert set(narrower) == {f"{CLUSTER}/n1", f"{CLUSTER}/n2"}


async def test_usage_has_the_changes_made_while_it_is_summed_up(monkeypatch):
    monkeypatch.setattr(periodic, "STEPS", 1)
    async with full_world() as one:
        kept = UsageByNamespace(one.writer)
        one.writer.subscribe(kept.follow)
        submit = one.writer.submit
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
        assert await kept.of(ALL) == await UsageByNamespace(one.writer).of(ALL)


ONE = {"nvidia.com/gpu": 1}
