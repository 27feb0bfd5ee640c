"""Pods created through a real API server in one namespace, by many clients at once.

One run measures four ways in turn: no webhook; the native ResourceQuota; a mutating and a
validating webhook that allow everything, on the service's own HTTP stack; gpuledger. First all pods
fit. Then more pods are posted than fit, and the run checks that no more were admitted. The service
runs only while it is measured, because it would follow the pods of the other ways.
"""

import asyncio
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tests.bench.harness import process_tree
from tests.bench.harness.bench_cluster import BenchCluster, bench_cluster
from tests.bench.harness.fresh_process import fresh
from tests.bench.harness.results import Goal, Result, result
from tests.bench.load.permissive_webhook import permissive_webhook
from tests.bench.load.pod_clients import CLIENTS, post
from tests.e2e.harness.bootstrap import grant_service, make_canary, webhooks_are_in_effect
from tests.e2e.harness.controlplane import SERVICE
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.service import Service
from tests.e2e.objects.pods import CARDS
from tests.e2e.objects.rights import RIGHTS

BARE, NATIVE, FLOOR, LEDGER = WAYS = ("bare", "native", "floor", "ledger")
KEYS: Final = {NATIVE: f"requests.{CARDS}", LEDGER: f"limits.{CARDS}"}
"""The quota's key, where there is one; of extended resources, each counts only its own."""


class Sizes(NamedTuple):
    """How many rounds, and pods of each: to warm up, to be timed, to be posted where few fit."""

    rounds: int
    warm: int
    timed: int
    crowd: int

    @property
    def limit(self) -> int:
        """The quota: room for a quarter of the crowd."""
        return self.warm + self.timed + self.crowd // 4


class Sample(msgspec.Struct, frozen=True):
    """The outcome of one namespace's pods, and the processor seconds of each pod."""

    per_second: float
    computed: float
    refused: int
    conflicts: int
    over: int


def run(quick: bool) -> list[Result]:
    """Measure all four in turn, several times."""
    sizes = Sizes(1, 50, 300, 80) if quick else Sizes(3, 200, 1_500, 400)
    with tempfile.TemporaryDirectory() as directory, bench_cluster(Path(directory, "plane")) as on:
        folder = Path(directory, "floor")
        with permissive_webhook(folder) as floor:
            _open(on, sizes, floor.address, folder)
            service = _service(on, Path(directory), sizes)
            samples = _in_turn(on, service, sizes)
    reviews = 2 * sizes.rounds * (sizes.limit - sizes.crowd // 4 + sizes.crowd)
    assert floor.answered >= reviews, f"the webhooks were asked {floor.answered} times"
    return _results(samples, sizes)


def _results(samples: dict[str, list[Sample]], sizes: Sizes) -> list[Result]:
    rates = {way: statistics.median(sample.per_second for sample in samples[way]) for way in WAYS}
    native, ours = samples[NATIVE], samples[LEDGER]
    refused = sum(sample.refused for sample in native)
    note = (
        f"{CLIENTS} clients, {sizes.rounds} x {sizes.timed:,} pods each, all processes on the same"
        f" cores; no webhook: {rates[BARE]:,.0f}, native quota: {rates[NATIVE]:,.0f} with"
        f" {refused} of its pods refused although there was room; baseline: a pair that allows"
    )
    return [
        result("pods created, no webhook", rates[BARE], "pods/s"),
        result("pods created, native quota", rates[NATIVE], "pods/s", baseline=rates[BARE]),
        result("pods created, a pair that allows", rates[FLOOR], "pods/s", baseline=rates[BARE]),
        result(
            "pods created, gpuledger",
            rates[LEDGER],
            "pods/s",
            baseline=rates[FLOOR],
            goal=Goal(0.9, "least", "ratio"),
            note=note,
        ),
        result(
            "processor time of a pod, gpuledger",
            _computed(ours) * 1e6,
            "µs",
            baseline=_computed(samples[FLOOR]) * 1e6,
            note="of everything but the clients: API server, etcd, controllers, webhooks, log and"
            f" projection; {_computed(samples[BARE]) * 1e6:,.0f} µs without a webhook",
        ),
        *_conflicts(native, ours),
    ]


def _computed(samples: list[Sample]) -> float:
    return statistics.median(sample.computed for sample in samples)


def _conflicts(native: list[Sample], ours: list[Sample]) -> list[Result]:
    none = Goal(0, "most")
    return [
        result(
            "conflicts seen by users, native quota", sum(sample.conflicts for sample in native), ""
        ),
        result(
            "conflicts seen by users, gpuledger",
            sum(sample.conflicts for sample in ours),
            "",
            goal=none,
        ),
        result(
            "refused with room left, gpuledger",
            sum(sample.refused for sample in ours),
            "",
            goal=none,
        ),
        result("pods above the limit, native quota", max(sample.over for sample in native), ""),
        result(
            "pods above the limit, gpuledger", max(sample.over for sample in ours), "", goal=none
        ),
    ]


def _in_turn(on: BenchCluster, service: Service, sizes: Sizes) -> dict[str, list[Sample]]:
    """Measure every way once a round, each round beginning with another one."""
    samples: dict[str, list[Sample]] = {way: [] for way in WAYS}
    for number in range(sizes.rounds):
        for way in (*WAYS[number % 4 :], *WAYS[: number % 4]):
            namespace = _namespace(way, number)
            if way == LEDGER:
                with _serving(on, service, namespace):
                    samples[way].append(_sample(on, namespace, sizes))
            else:
                samples[way].append(_sample(on, namespace, sizes))
    return samples


def _sample(on: BenchCluster, namespace: str, sizes: Sizes) -> Sample:
    warm = _post(on, namespace, 0, sizes.warm)
    before = process_tree.computed()
    timed = _post(on, namespace, sizes.warm, sizes.timed)
    computed = process_tree.computed() - before
    crowd = _post(on, namespace, sizes.warm + sizes.timed, sizes.crowd)
    stored = on.count(namespace)
    on.clear(namespace)
    return Sample(
        timed["created"] / timed["seconds"],
        computed / sizes.timed,
        int(warm["forbidden"] + timed["forbidden"]),
        int(warm["conflicts"] + timed["conflicts"] + crowd["conflicts"]),
        max(0, stored - sizes.limit),
    )


def _post(on: BenchCluster, namespace: str, first: int, count: int) -> dict[str, float]:
    where = {"host": on.host, "port": on.port, "ca": on.ca, "token": on.token}
    return fresh(post, **where, namespace=namespace, first=first, count=count)


def _namespace(way: str, number: int) -> str:
    return f"{way}-{number}"


def _open(on: BenchCluster, sizes: Sizes, address: str, folder: Path) -> None:
    """Make all namespaces and quotas, and register the floor."""
    for way in WAYS:
        for number in range(sizes.rounds):
            namespace = _namespace(way, number)
            on.make_namespace(namespace)
            if way in KEYS:
                on.limit(namespace, KEYS[way], sizes.limit)
    reviewed = [_namespace(FLOOR, number) for number in range(sizes.rounds)]
    on.register("floor", address, folder / "tls" / "ca.crt", reviewed)
    on.do(lambda cluster: grant_service(cluster, RIGHTS))
    on.do(make_canary)


def _service(on: BenchCluster, folder: Path, sizes: Sizes) -> Service:
    """Return the service as it is shipped, but for the namespaces that others are measured in."""
    others = [
        _namespace(way, number) for way in WAYS if way != LEDGER for number in range(sizes.rounds)
    ]
    return Service(
        folder,
        on.plane.kubeconfig(SERVICE),
        exempt_namespaces=",".join(("kube-system", *others)),
        settle_seconds="60",
    )


@contextmanager
def _serving(on: BenchCluster, service: Service, namespace: str) -> Iterator[None]:
    """Run the service for the block, once it decides with the namespace's limit."""

    async def limits() -> list[str]:
        return [row["resource"] for row in await service.get("/v1/usage", namespace=namespace)]

    service.start()
    try:
        service.wait_ready()
        on.do(webhooks_are_in_effect)
        asyncio.run(
            eventually(
                limits,
                lambda known: KEYS[LEDGER] in known,
                within=30.0,
                what=f"the limit of {namespace} is known",
            )
        )
        yield
    finally:
        service.stop()
