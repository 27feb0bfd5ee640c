"""The labels in the condition of the validating webhook, and the times of their writes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from ledger.kube.api.cluster_errors import ClusterUnavailable, Forbidden, NotFound
from ledger.kube.client.api_client import ApiClient
from ledger.kube.requests.recorded_labels import RecordedLabels
from webhook.configurations import label_conditions, pod_conditions
from webhook.configurations.label_conditions import SelectedLabels


class Cluster(ApiClient):
    """An API server that notes which conditions are written, and where; it may refuse."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.named: set[tuple[str, str, str]] = set()
        self.refusal: Exception | None = None
        self.labels = RecordedLabels()

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        [webhook] = msgspec.json.decode(options["body"])["webhooks"]
        [condition] = webhook["matchConditions"]
        self.named.add((path, webhook["name"], condition["name"]))
        self.written.append(condition["expression"])
        if self.refusal is not None:
            raise self.refusal
        return b"{}"

    async def has(self, count: int) -> None:
        """Return when so many conditions were written."""
        async with asyncio.timeout(30):
            while len(self.written) < count:  # noqa: ASYNC110 - another task writes
                await asyncio.sleep(0.001)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_conditions, "LOOK_SECONDS", 0.001)


@contextlib.asynccontextmanager
async def running(cluster: Cluster) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(SelectedLabels(cluster, lambda: cluster.labels).run())
    yield task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_condition_is_written_once_for_each_change_of_labels() -> None:
    cluster = Cluster()
    async with running(cluster):
        await cluster.has(1)
        cluster.labels = RecordedLabels(("team", "tier"), 2)
        await cluster.has(2)
        await asyncio.sleep(0.02)
    assert cluster.written == [pod_conditions.changed(()), pod_conditions.changed(("team", "tier"))]
    [(path, webhook, condition)] = cluster.named
    assert path.endswith("/validatingwebhookconfigurations/gpuledger")
    assert (webhook, condition) == ("pods.validate.gpuledger.io", "changes-what-is-judged")


async def test_condition_is_written_again_after_a_period(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(label_conditions, "AGAIN_SECONDS", 0.01)
    cluster = Cluster()
    async with running(cluster):
        await cluster.has(3)
    assert set(cluster.written) == {pod_conditions.changed(())}


async def test_condition_is_retried_when_it_could_not_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(label_conditions, "RETRY_SECONDS", 0.01)
    cluster = Cluster()
    cluster.refusal = ClusterUnavailable("busy")
    async with running(cluster):
        await cluster.has(3)


@pytest.mark.parametrize("refusal", [Forbidden("no"), NotFound("gone")], ids=["right", "absent"])
async def test_failure_to_write_the_condition_stops_nothing(refusal: Exception) -> None:
    cluster = Cluster()
    cluster.refusal = refusal
    async with running(cluster) as task:
        await cluster.has(1)
        cluster.labels = RecordedLabels(("tier",), 1)
        await cluster.has(2)
        assert not task.done()
