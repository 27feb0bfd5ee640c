"""The service before its cluster is registered by its name."""

import asyncio
from typing import Any

import pytest
from support.claims.kept_slices import kept
from support.harness.replicas import running

from gpuledger.server.cluster_tasks import ClusterTasks
from gpuledger.server.registered_cluster_ledger import RegisteredClusterLedger
from ledger.core.model.commands import RegisterCluster, Reserve
from ledger.core.model.denials import Denial, Reason
from ledger.kube.api.cluster_errors import ClusterUnavailable
from ledger.kube.api.cluster_ports import Changed, Listed
from ledger.log.ledger_port import Accepted
from ledger.log.memory_log import MemoryStore
from ledger.log.writer.writer import Writer
from ledger.runtime.settings.settings import Settings
from webhook.active_replica import ClusterNameTaken
from webhook.configurations import webhook_configurations

NAME = "east-1"
UID = "uid-of-kube-system"
RESERVE = Reserve(f"{NAME}/red", "pods/p", "u", {"nvidia.com/gpu": 1})


class Namespaces:
    """A client of an API server that has the namespace `kube-system` and nothing else."""

    async def get(self, path: str, *_: object, **__: object) -> bytes:
        if not path.endswith("/kube-system"):
            raise ClusterUnavailable("there is nothing else here")
        return b'{"metadata": {"uid": "%s"}}' % UID.encode()

    async def request(self, *_: object, **__: object) -> bytes:
        raise ClusterUnavailable("there is nothing else here")


class Replica:
    """A replica whose log is open; it is not the one that settles."""

    def __init__(self, writer: Writer) -> None:
        self.opened = asyncio.Event()
        self.opened.set()
        self.submit, self.subscribe, self._writer = writer.submit, writer.subscribe, writer

    @property
    def state(self):
        return self._writer.state

    def is_active(self) -> bool:
        return False


@pytest.fixture
def registered(monkeypatch):
    """Collect how often webhooks are registered."""
    calls = []

    async def register(*_: object) -> None:
        calls.append(1)

    monkeypatch.setattr(webhook_configurations, "register", register)
    return calls


def service(writer: Writer) -> ClusterTasks:
    settings = Settings(cluster=NAME, register_webhook="https://gpuledger.example:8443")
    client: Any = Namespaces()
    replica: Any = Replica(writer)
    return ClusterTasks(settings, client, replica=replica, count=lambda *_: None)


async def test_webhooks_are_registered_for_a_cluster_that_has_its_name(registered):
    async with running(MemoryStore()) as writer:
        cluster_tasks = service(writer)
        task = asyncio.create_task(cluster_tasks.run(bytes, lambda: True))
        async with asyncio.timeout(30):
            while not registered:  # noqa: ASYNC110 - a list has no event
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert writer.state.clusters == {NAME: UID}
        assert isinstance(await cluster_tasks.ledger.submit(RESERVE), Accepted)


async def test_cluster_with_a_taken_name_registers_and_charges_nothing(
    registered,
):
    async with running(MemoryStore()) as writer:
        await writer.submit(RegisterCluster(NAME, "uid-of-another-cluster"))
        cluster_tasks = service(writer)
        with pytest.RaisesGroup(pytest.RaisesExc(ClusterNameTaken, match="--cluster")):
            await asyncio.wait_for(cluster_tasks.run(bytes, lambda: True), 5)
        assert not registered
        assert isinstance(await cluster_tasks.ledger.submit(RESERVE), Denial)
        assert not writer.state.namespaces


async def test_cards_of_watched_slices_are_the_offered_cards():
    """The overlaps and the extender subscribe to the offered cards."""
    async with running(MemoryStore()) as writer:
        cluster_tasks = service(writer)
        slices = cluster_tasks.context.resource_claims.slices
        slices.take(Listed(1, [kept("a", "GPU-0"), kept("b", "GPU-1", node="n2")]))
        assert cluster_tasks.cards.offered.of("n1") == {"GPU-0"}
        slices.take(Changed(2, kept("a"), deleted=True))
        assert cluster_tasks.cards.offered.of("n1") == set()
        assert cluster_tasks.cards.offered.of("n2") == {"GPU-1"}


async def test_nothing_is_decided_for_a_cluster_whose_name_is_not_confirmed():
    confirmed = asyncio.Event()
    async with running(MemoryStore()) as writer:
        ledger = RegisteredClusterLedger(writer, NAME, is_registered=confirmed.is_set)
        denial = await ledger.submit(RESERVE)
        assert isinstance(denial, Denial)
        assert denial.reason is Reason.LEDGER_UNAVAILABLE
        assert denial.transient
        assert NAME in denial.message
        confirmed.set()
        assert isinstance(await ledger.submit(RESERVE), Accepted)
