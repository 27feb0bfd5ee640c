"""The parts of the product that the trips lead through, on a log in memory.

This is the only module of the trips that imports the product.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from support.builders.cluster_contexts import cluster_context

from extender.extender_routes import endpoints
from extender.inventory.cluster_inventory import ClusterInventory
from extender.inventory.unrecorded_card_use import UsageOverlay
from extender.scheduler_api.extender_ports import ExtenderPorts
from extender.scheduler_extender import Extender
from ledger.core.model import accounts
from ledger.core.model.cards import OWN, Card
from ledger.core.model.commands import AnyCommand, RegisterCards, Reserve, SetLimits
from ledger.core.model.denials import Denial
from ledger.core.model.qualified_names import qualified
from ledger.kube.cluster.kubernetes_cluster import KubernetesCluster
from ledger.kube.requests.demand_rules import DemandRules
from ledger.log.memory_log import MemoryLog, MemoryStore
from ledger.log.writer.writer import Writer
from ledger.runtime.counter_protocol import uncounted
from ledger.runtime.http.direct_endpoints import routes
from projections.projector.projector import Projector
from projections.store.store_writer import Store
from tests.bench.trips.api_server_stub import ApiServerStub
from tests.bench.trips.sample_objects import CARDS, MEMORY, NAMESPACE
from tests.bench.trips.virtual_time import idle
from webhook import app as webhook_app
from webhook.active_replica import Settlement
from webhook.admission.mutating_webhook import MutatingWebhook
from webhook.admission.validating_webhook import ValidatingWebhook
from webhook.context.admission_settings import AdmissionSettings
from webhook.context.cluster_context import ClusterContext
from webhook.kinds.kind_catalog import KindCatalog
from webhook.settlement.charge_settlement_session import SettlementSettings, Site

CLUSTER: Final = "here"
NOW: Final = 1_750_000_000_000_000
"""Microseconds of Unix time at which everything happens."""
NODES: Final = ("n1", "n2", "n3")
CARDS_PER_NODE: Final = 2
BODY_MAX: Final = 2**20
LISTED_SECONDS: Final = 1.0
"""After so long, in virtual time, settlement has read all lists."""
LIMITS: Final = {f"limits.{MEMORY}": 2**20, f"requests.{CARDS}": 100}

_RULES: Final = DemandRules()
_QUALIFIED: Final = qualified(CLUSTER, NAMESPACE)


@contextlib.asynccontextmanager
async def writing(store: MemoryStore | None = None) -> AsyncIterator[Writer]:
    """Run a writer on a log in memory, with one quota, for the block."""
    log = MemoryLog(MemoryStore() if store is None else store)
    await log.open(create=True)
    numbers = itertools.count()
    writer = Writer(log, name="writer", now=lambda: NOW, nonces=lambda: f"nonce-{next(numbers)}")
    await writer.open()
    async with _running(writer.run()):
        quota = accounts.quota(CLUSTER, NAMESPACE, "main")
        await decide(writer, SetLimits(quota, (_QUALIFIED,), LIMITS))
        yield writer


async def decide(writer: Writer, command: AnyCommand) -> None:
    """Have a command accepted."""
    answer = await writer.submit(command)
    assert not isinstance(answer, Denial), answer.message


@contextlib.asynccontextmanager
async def admission(server: ApiServerStub) -> AsyncIterator[Starlette]:
    """Run both webhooks for the block, with the owners that a server lists."""
    async with writing() as writer:
        around = _context(writer, server)
        policy = AdmissionSettings()
        mutating = MutatingWebhook(policy, around)
        validating = ValidatingWebhook(writer, settings=policy, context=around)
        assert around.informers is not None
        async with _running(around.informers.run()):
            await idle()
            yield webhook_app.application(mutating, validating, policy)


@contextlib.asynccontextmanager
async def settlement(server: ApiServerStub) -> AsyncIterator[Writer]:
    """Settle what a server lists and watches, for the block."""
    async with writing() as writer:
        around = _context(writer, server)
        assert around.informers is not None
        settlement = Settlement(
            writer,
            writer,
            site=Site(_cluster(server), around),
            now=lambda: NOW,
            is_active=lambda: True,
            settings=SettlementSettings(rules=_RULES),
            count=uncounted,
            listeners=(),
        )
        async with _running(around.informers.run()), _running(settlement.run()):
            await asyncio.sleep(LISTED_SECONDS)
            assert settlement.listed, settlement.problems()
            yield writer


@contextlib.asynccontextmanager
async def scheduling(server: ApiServerStub, *pods: str) -> AsyncIterator[Starlette]:
    """Run an extender for the block, with three nodes of cards and these pods in the ledger."""
    async with writing() as writer:
        for node in NODES:
            cards = tuple(_card(node, index) for index in range(CARDS_PER_NODE))
            await decide(writer, RegisterCards(qualified(CLUSTER, node), OWN, cards))
        for name in pods:
            await reserve(writer, name)
        inventory = ClusterInventory(CLUSTER, UsageOverlay())
        writer.subscribe(lambda record: inventory.follow(writer.state, record))
        inventory.load(writer.state)
        service = ExtenderPorts(writer, writer, _cluster(server), lambda: _RULES)
        time = asyncio.get_running_loop().time
        extender = Extender(inventory, service, now=time, clock=time)
        async with _running(extender.run()):
            yield Starlette(routes=routes(endpoints(extender, BODY_MAX)))


def is_charged(writer: Writer, pod: str) -> bool:
    """Return whether a pod is charged."""
    space = writer.state.namespaces.get(_QUALIFIED)
    return space is not None and f"pods/{pod}" in space.entries


async def reserve(writer: Writer, pod: str) -> None:
    """Reserve for the creation of a pod."""
    amounts = {CARDS: 1, MEMORY: 4_000}
    await decide(writer, Reserve(_QUALIFIED, f"pods/{pod}", f"uid-{pod}", amounts))


async def records(*pods: str) -> list[bytes]:
    """Return the records of a log in which one quota was set and each pod reserved for."""
    store = MemoryStore()
    async with writing(store) as writer:
        for pod in pods:
            await reserve(writer, pod)
    return list(store.records)


@contextlib.asynccontextmanager
async def projecting(
    path: Path, payloads: list[bytes]
) -> AsyncIterator[tuple[MemoryLog, Projector]]:
    """Give a log of these records and a projector of it at its beginning, for the block."""
    store = MemoryStore(exists=True)
    store.records = list(payloads)
    log = MemoryLog(store)
    await log.open(create=False)
    async with await Store.open(path) as file:
        yield log, await Projector.resume(log, file)


def _context(writer: Writer, server: ApiServerStub) -> ClusterContext:
    return cluster_context(
        CLUSTER, writer, catalog=KindCatalog.load(), rules=_RULES, cluster=_cluster(server)
    )


def _cluster(server: Any) -> KubernetesCluster:
    return KubernetesCluster(server)


def _card(node: str, index: int) -> Card:
    return Card(f"GPU-{node}-{index}", index, "NVIDIA-T4", 16_000, 100, 4)


@contextlib.asynccontextmanager
async def _running(work: Any) -> AsyncIterator[None]:
    """Run a coroutine beside the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
