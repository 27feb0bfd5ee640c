"""Scheduling: pods bound by the real kube-scheduler on kwok's nodes, against a baseline.

The baseline is an extender that accepts every node and binds, on the frozen stack. In
one run both get the same pods, which exist before the scheduler starts, so that nothing of their
creation is measured; the clock runs from the scheduler's start to the last pod's Binding.
"""

import asyncio
import json
import os
import ssl
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp

from tests.bench.frozen.permissive_extender import permissive_extender
from tests.bench.harness import process_tree
from tests.bench.harness.bench_cluster import ASSETS_VARIABLE, BenchCluster, bench_cluster
from tests.bench.harness.results import Goal, Result, result
from tests.e2e.harness.bootstrap import grant_service
from tests.e2e.harness.cluster import Cluster, Manifest
from tests.e2e.harness.controlplane import ADMIN, SCHEDULER, SERVICE
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.service import Service
from tests.e2e.objects.rights import RIGHTS
from tests.e2e.scheduling.support import kwok, nodes
from tests.e2e.scheduling.support.pod_shapes import container, pod
from tests.e2e.scheduling.support.scheduler import Extender, Scheduler

FLOOR, LEDGER = WAYS = ("floor", "ledger")
REQUESTS_MAX: Final = 32
SCHEDULED_SECONDS_MAX: Final = 300.0


class Sizes(NamedTuple):
    """How many rounds, nodes and pods of each round."""

    rounds: int
    nodes: int
    pods: int


class Sample(NamedTuple):
    """The outcome of one round's pods, and the processor seconds of each pod."""

    per_second: float
    computed: float


def run(quick: bool) -> list[Result]:
    """Measure both in turn, several times."""
    sizes = Sizes(1, 20, 200) if quick else Sizes(3, 200, 2_000)
    with tempfile.TemporaryDirectory() as directory, bench_cluster(Path(directory, "plane")) as on:
        assets = Path(os.environ[ASSETS_VARIABLE])
        players = kwok.start(assets, Path(directory), on.plane.kubeconfig(ADMIN))
        try:
            on.do(lambda cluster: grant_service(cluster, RIGHTS))
            made = [nodes.node(f"gpu-{number}") for number in range(sizes.nodes)]
            on.do(lambda cluster: nodes.make(cluster, made))
            samples = _in_turn(on, assets, Path(directory), sizes)
        finally:
            players.stop()
    return _results(samples, sizes)


def _results(samples: dict[str, list[Sample]], sizes: Sizes) -> list[Result]:
    rates = {way: statistics.median(sample.per_second for sample in samples[way]) for way in WAYS}
    computed = {way: statistics.median(sample.computed for sample in samples[way]) for way in WAYS}
    note = (
        f"{sizes.nodes} nodes of 8 cards, {sizes.rounds} x {sizes.pods:,} pods each, all processes"
        " on the same cores; baseline: the frozen stack accepts every node and binds"
    )
    return [
        result("pods scheduled, a permissive extender", rates[FLOOR], "pods/s"),
        result(
            "pods scheduled, gpuledger",
            rates[LEDGER],
            "pods/s",
            baseline=rates[FLOOR],
            goal=Goal(0.7, "least", "ratio"),
            note=note,
        ),
        result(
            "processor time of a scheduled pod, gpuledger",
            computed[LEDGER] * 1e6,
            "µs",
            baseline=computed[FLOOR] * 1e6,
            note="of everything: API server, etcd, controllers, scheduler, kwok, extender, log",
        ),
    ]


def _in_turn(on: BenchCluster, assets: Path, folder: Path, sizes: Sizes) -> dict[str, list[Sample]]:
    """Measure both once a round, each round beginning with the other one."""
    samples: dict[str, list[Sample]] = {way: [] for way in WAYS}
    service = Service(folder, on.plane.kubeconfig(SERVICE), settle_seconds="60")
    store = folder / "floor"
    for number in range(sizes.rounds):
        for way in (*WAYS[number % 2 :], *WAYS[: number % 2]):
            floor = permissive_extender(store, on.plane.url, on.ca, on.token)
            with _ours(on, service) if way == LEDGER else floor as extender:
                scheduler = Scheduler(assets, folder / "scheduler", on.plane.kubeconfig(SCHEDULER))
                samples[way].append(_sample(on, extender, scheduler, f"{way}-{number}", sizes))
    return samples


@contextmanager
def _ours(on: BenchCluster, service: Service) -> Iterator[Extender]:
    """Run the service for the block, with its webhooks in effect."""
    service.start()
    try:
        service.wait_ready()
        yield Extender(service.address, service.authority)
    finally:
        service.stop()
        on.do(_unregister)


def _sample(
    on: BenchCluster, extender: Extender, scheduler: Scheduler, namespace: str, sizes: Sizes
) -> Sample:
    on.make_namespace(namespace)
    on.do(lambda cluster: _create(cluster, namespace, sizes.pods))
    before = process_tree.computed()
    try:
        seconds = asyncio.run(_scheduled(on, extender, scheduler, namespace, sizes.pods))
    finally:
        computed = process_tree.computed() - before
        scheduler.stop()
    on.clear(namespace)
    on.do(lambda cluster: _is_empty(cluster, namespace))
    return Sample(sizes.pods / seconds, computed / sizes.pods)


async def _create(cluster: Cluster, namespace: str, count: int) -> None:
    at_once = asyncio.Semaphore(REQUESTS_MAX)

    async def post(number: int) -> None:
        made = pod(f"p-{number}", container(cards=1, memory=4_000, cores=10))
        async with at_once:
            await cluster.must("POST", f"/api/v1/namespaces/{namespace}/pods", made)

    await asyncio.gather(*map(post, range(count)))


async def _scheduled(
    on: BenchCluster, extender: Extender, scheduler: Scheduler, namespace: str, count: int
) -> float:
    """Start the scheduler and return after how many seconds so many pods are bound."""
    async with asyncio.timeout(SCHEDULED_SECONDS_MAX), _bindings(on, namespace) as bound:
        await asyncio.to_thread(scheduler.start, extender)
        started = time.perf_counter()
        names = set[str]()
        while len(names) < count:
            names.add(await anext(bound))
        return time.perf_counter() - started


@asynccontextmanager
async def _bindings(on: BenchCluster, namespace: str) -> AsyncIterator[AsyncIterator[str]]:
    """Watch which pods come to a node; only their metadata travel."""
    context = ssl.create_default_context(cafile=on.ca)
    timeout = aiohttp.ClientTimeout(total=SCHEDULED_SECONDS_MAX)
    headers = {
        "Authorization": f"Bearer {on.token}",
        "Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    }
    pods = f"{on.plane.url}/api/v1/namespaces/{namespace}/pods"
    url = f"{pods}?watch=true&fieldSelector=spec.nodeName!="
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.get(url, headers=headers, timeout=timeout) as stream,
    ):
        yield _names(stream)


async def _names(stream: aiohttp.ClientResponse) -> AsyncIterator[str]:
    async for line in stream.content:
        event: Manifest = json.loads(line)
        assert event["type"] != "ERROR", event
        yield event["object"]["metadata"]["name"]


async def _is_empty(cluster: Cluster, namespace: str) -> None:
    await eventually(
        lambda: cluster.items(f"/api/v1/namespaces/{namespace}/pods?limit=1"),
        lambda pods: not pods,
        within=SCHEDULED_SECONDS_MAX,
        what=f"no pod of {namespace} is left",
    )


async def _unregister(cluster: Cluster) -> None:
    """Take the webhooks of a service that has ended out of the way of the other's pods."""
    group = "/apis/admissionregistration.k8s.io/v1"
    for kind in ("mutating", "validating"):
        await cluster.ask("DELETE", f"{group}/{kind}webhookconfigurations/gpuledger")
