"""The condition of the mutating webhook, and the times of its writes."""

import asyncio
import contextlib
from typing import Any

import msgspec
import pytest
from support.fakes.owner_cluster import policy

from ledger.kube.api.cluster_errors import ClusterUnavailable, Forbidden, NotFound
from ledger.kube.api.cluster_ports import Changed, Listed
from ledger.kube.client.api_client import ApiClient
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.vendors.vendors import select_vendors
from webhook.configurations import mutating_conditions
from webhook.configurations.mutating_conditions import MutatingCondition, condition
from webhook.context.card_schedulers import CardSchedulers
from webhook.context.namespace_labels import Namespaces
from webhook.context.namespace_policies import NamespacePolicy, Policies


class Cluster(ApiClient):
    """An API server that notes which conditions are written; it may refuse."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.written: list[str] = []
        self.refusal = refusal

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        [webhook] = msgspec.json.decode(options["body"])["webhooks"]
        [entry] = webhook["matchConditions"]
        self.written.append(entry["expression"])
        if self.refusal is not None:
            raise self.refusal
        return b"{}"

    async def has(self, count: int) -> None:
        """Return when so many conditions were written."""
        async with asyncio.timeout(30):
            while len(self.written) < count:  # noqa: ASYNC110 - another task writes
                await asyncio.sleep(0.001)

    async def has_last(self, expression: str) -> None:
        """Return when this condition was the last to be written."""
        async with asyncio.timeout(30):
            while self.written[-1] != expression:  # noqa: ASYNC110 - another task writes
                await asyncio.sleep(0.001)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutating_conditions, "LOOK_SECONDS", 0.001)


@contextlib.asynccontextmanager
async def running(cluster: Cluster, policies: Policies) -> Any:
    task = asyncio.create_task(
        MutatingCondition(cluster, policies, rules=DemandRules(), schedulers=CardSchedulers()).run()
    )
    yield task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def policies_of(default: NamespacePolicy | None = None) -> Policies:
    return Policies(default or NamespacePolicy(), Namespaces(None))


async def test_condition_is_not_written_before_policies_are_listed() -> None:
    cluster, policies = Cluster(), policies_of()
    async with running(cluster, policies):
        for _ in range(20):
            await asyncio.sleep(0)
        assert not cluster.written
        policies.take(Listed(1, []))
        await cluster.has(1)


async def test_condition_is_written_once_for_each_change_of_policies() -> None:
    cluster, policies = Cluster(), policies_of()
    policies.take(Listed(1, []))
    async with running(cluster, policies):
        await cluster.has(1)
        policies.take(Changed(2, policy("p", onExceeded="pending")))
        await cluster.has(2)
        policies.take(Changed(3, policy("p", version=3, onExceeded="deny")))
        await cluster.has(3)
        await asyncio.sleep(0.02)
    narrow = condition(DemandRules(), CardSchedulers())
    assert cluster.written == [narrow, mutating_conditions.WIDE, narrow]


async def test_condition_is_written_again_after_a_period(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mutating_conditions, "AGAIN_SECONDS", 0.01)
    cluster, policies = Cluster(), policies_of()
    policies.take(Listed(1, []))
    async with running(cluster, policies):
        await cluster.has(3)
    assert set(cluster.written) == {condition(DemandRules(), CardSchedulers())}


async def test_condition_is_retried_when_it_could_not_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mutating_conditions, "RETRY_SECONDS", 0.01)
    cluster, policies = Cluster(ClusterUnavailable("busy")), policies_of()
    policies.take(Listed(1, []))
    async with running(cluster, policies):
        await cluster.has(2)
        policies.take(Changed(2, policy("p", onExceeded="pending")))
        await cluster.has_last(mutating_conditions.WIDE)
        count = len(cluster.written)
        cluster.refusal = None
        await cluster.has(count + 1)
    assert cluster.written[-1] == mutating_conditions.WIDE


@pytest.mark.parametrize("refusal", [Forbidden("no"), NotFound("gone")], ids=["right", "absent"])
async def test_failure_to_narrow_the_condition_stops_nothing(refusal: Exception) -> None:
    cluster, policies = Cluster(refusal), policies_of()
    policies.take(Listed(1, []))
    async with running(cluster, policies) as task:
        await cluster.has(1)
        policies.take(Changed(2, policy("p", onExceeded="pending")))
        await cluster.has(2)
        assert not task.done()


def test_condition_never_holds_when_no_pod_is_completed() -> None:
    assert condition(DemandRules(vendors=select_vendors(["hygon"])), CardSchedulers()) == "false"
