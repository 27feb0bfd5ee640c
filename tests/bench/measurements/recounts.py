"""Recounts: the time in which settlement compares the ledger with lists of all objects.

A real client reads the lists of Deployments, ReplicaSets and pods page by page from a list server,
which is a separate process on the same cores. Settlement sends the differences to a writer on the
real nats-server. Each recount has a process of its own, as after a restart of the service.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
from support.builders.cluster_contexts import cluster_context
from support.servers.ports import free_port

from ledger.core.model.qualified_names import qualified
from ledger.kube.api.api_resources import Resource
from ledger.kube.api.cluster_ports import Listed
from ledger.kube.client.api_client import ApiClient
from ledger.kube.cluster.kubernetes_cluster import KubernetesCluster
from ledger.log.command_delivery import CommandQueue
from ledger.log.embedded.nats_server import EmbeddedServer, EmbeddedSettings
from ledger.log.writer.writer import Writer
from ledger.runtime import gc_tuning
from ledger.runtime.counter_protocol import uncounted
from tests.bench.harness import ledgers
from tests.bench.harness.fresh_process import fresh, start
from tests.bench.harness.process_memory import forget_peak, peak, resident
from tests.bench.harness.results import Goal, Result, result
from tests.bench.load import list_server
from tests.bench.objects import fleet_commands
from tests.bench.objects.fleet import Fleet, workload
from webhook.gates.gate_opener import GateOpener
from webhook.settlement.charge_settlement_session import SettlementSession, SettlementSettings, Site
from webhook.settlement.invalid_objects import InvalidObjects
from webhook.settlement.open_attempt_ages import AttemptAges
from webhook.settlement.pod_reconciler import PodReconciler
from webhook.settlement.resource_claims.claims_by_owner import ClaimsByOwner
from webhook.settlement.resource_claims.pod_claims import PodClaims
from webhook.settlement.workloads.charging_modes import ChargingModes
from webhook.settlement.workloads.workload_reconciler import WorkloadReconciler

FLEET: Final = Fleet(namespaces=100, roots=10_000, pods=10, replicas=10)
MIB: Final = 2**20

_KINDS: Final = (
    Resource("apps", "v1", "deployments", "Deployment"),
    Resource("apps", "v1", "replicasets", "ReplicaSet"),
)


def run(quick: bool) -> list[Result]:
    """Measure a first recount, one that finds nothing, and one that finds a hundredth changed."""
    fleet = msgspec.structs.replace(FLEET, roots=500) if quick else FLEET
    told, port = msgspec.structs.asdict(fleet), free_port()
    server = start(list_server.serve, fleet=told, port=port)
    server.wait_ready()
    address = f"http://127.0.0.1:{port}"
    try:
        with tempfile.TemporaryDirectory() as store:
            first = fresh(measure, fleet=told, store=store, address=address)
            unaffected = fresh(measure, fleet=told, store=store, address=address)
            changed = fresh(measure, fleet=told, store=store, address=f"{address}/changed")
    finally:
        server.go()
        server.result()
    assert not unaffected["events"], f"{unaffected['events']:.0f} events where nothing differs"
    return _results(first, unaffected, changed, fleet)


def _results(
    first: dict[str, float], unaffected: dict[str, float], changed: dict[str, float], fleet: Fleet
) -> list[Result]:
    size = f"{fleet.roots * fleet.pods:,} pods of {fleet.roots:,} Deployments"
    return [
        result(
            "recount that finds nothing",
            unaffected["seconds"],
            "s",
            goal=Goal(30, "most"),
            note=f"{size}, lists included; the process computes {unaffected['computed']:.1f} s"
            " of it, the rest is the stand-in for the API server",
        ),
        result("memory of that, at its peak", unaffected["growth"] / MIB, "MiB"),
        result(
            "recount that finds 1 % changed",
            changed["seconds"],
            "s",
            baseline=unaffected["seconds"],
            note=f"{changed['events']:,.0f} corrections, each a durable event",
        ),
        result(
            "first recount, of an empty ledger",
            first["seconds"],
            "s",
            baseline=unaffected["seconds"],
            note=f"{first['events']:,.0f} events",
        ),
    ]


async def measure(fleet: dict[str, int], store: str, address: str) -> dict[str, float]:
    """Compare the ledger in a store with the lists at an address."""
    known = Fleet(**fleet)
    async with (
        EmbeddedServer(EmbeddedSettings(store=Path(store))) as server,
        ledgers.log_at(server.address) as log,
        ledgers.writer_on(log) as writer,
    ):
        await ledgers.set_limits(writer, known.namespaces)
        async with _settling(writer, known, address, store) as site:
            numbers = await _recount(writer, *site)
        _check(writer, known)
    return numbers


async def _recount(
    writer: Writer, session: SettlementSession, roots: list[WorkloadReconciler]
) -> dict[str, float]:
    """List and compare; `growth` is how far the process grew meanwhile, in bytes."""
    events: list[int] = []
    writer.subscribe(lambda record: events.append(len(record.items)))
    gc_tuning.freeze_existing()
    forget_peak()
    before, started, computed = resident(), time.perf_counter(), time.process_time()
    for root in roots:
        async with aclosing(session.cluster.watch_filtered(root.resource, root.keep)) as changes:
            await root.take(await anext(changes))
    async with aclosing(session.cluster.watch_pods()) as pods:
        claims = session.context.resource_claims
        reconciler = PodReconciler(
            session,
            GateOpener(session, writer),
            ages=AttemptAges(),
            invalid_objects=InvalidObjects(),
            listeners=(),
            claims=PodClaims(session, ClaimsByOwner(claims), source=claims),
        )
        await reconciler.take(await anext(pods))
    return {
        "seconds": time.perf_counter() - started,
        "computed": time.process_time() - computed,
        "growth": peak() - before,
        "events": sum(events),
    }


@asynccontextmanager
async def _settling(
    writer: Writer, fleet: Fleet, address: str, store: str
) -> AsyncIterator[tuple[SettlementSession, list[WorkloadReconciler]]]:
    """Settle the cluster at an address, its owners remembered, for the block."""
    kubeconfig = Path(store, "kubeconfig")
    list_server.write_kubeconfig(kubeconfig, address)
    async with await ApiClient.connect(kubeconfig) as client:
        cluster = KubernetesCluster(client)
        catalog, rules = fleet_commands.CATALOG, fleet_commands.RULES
        around = cluster_context(
            ledgers.CLUSTER, writer, catalog=catalog, rules=rules, cluster=cluster
        )
        for resource, make in zip(_KINDS, (fleet.deployment, fleet.replica_set), strict=True):
            seen = (workload(make(root)) for root in range(fleet.roots))
            parents = [around.parents.parent_of(resource, owner) for owner in seen]
            await around.parents.feed(resource, Listed(1, parents))
        site = Site(cluster, around)
        commands = CommandQueue(writer)
        settings = SettlementSettings(rules=rules)
        session = SettlementSession(
            writer,
            site,
            settings=settings,
            now=lambda: time.time_ns() // 1_000,
            commands=commands,
            count=uncounted,
        )
        delivering = asyncio.create_task(commands.run())
        try:
            yield session, [_roots(session, resource) for resource in _KINDS]
        finally:
            delivering.cancel()
            await asyncio.gather(delivering, return_exceptions=True)


def _roots(session: SettlementSession, resource: Resource) -> WorkloadReconciler:
    kind = fleet_commands.CATALOG.of_resource(resource.group, resource.plural)
    assert kind is not None
    return WorkloadReconciler(
        kind,
        resource,
        session=session,
        ages=AttemptAges(),
        invalid_objects=InvalidObjects(),
        charging_modes=ChargingModes(session.context.policies),
        recheck=lambda _: None,
    )


def _check(writer: Writer, fleet: Fleet) -> None:
    """Assert that the ledger ended where the lists were, or nothing measured means anything."""
    spaces = [
        writer.state.namespaces[qualified(ledgers.CLUSTER, f"team-{number}")]
        for number in range(fleet.namespaces)
    ]
    drawn = sum(len(pods) for space in spaces for pods in space.members.values())
    entries = sum(len(space.entries) for space in spaces)
    assert drawn == fleet.roots * fleet.pods, f"{drawn} pods draw from a root"
    assert entries == drawn + fleet.roots, f"{entries} entries"
