"""Pods created through a real API server in one namespace, by many clients at once.

Four ways in one run, in turn: no webhook; the native ResourceQuota counts; a mutating and a
validating webhook allow everything, on the service's own HTTP stack; gpuledger counts. First there
is room for all; then more pods are posted than there is room for, and it is looked whether more
were let in. The service runs only while it is measured, for it would follow the others' pods.
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

NOBODY, NATIVE, FLOOR, LEDGER = WAYS = ("nobody", "native", "floor", "ledger")
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
            found = _in_turn(on, service, sizes)
    reviews = 2 * sizes.rounds * (sizes.limit - sizes.crowd // 4 + sizes.crowd)
    assert floor.answered >= reviews, f"the webhooks were asked {floor.answered} times"
    return _results(found, sizes)


def _results(found: dict[str, list[Sample]], sizes: Sizes) -> list[Result]:
    rates = {way: statistics.median(one.per_second for one in found[way]) for way in WAYS}
    native, ours = found[NATIVE], found[LEDGER]
    refused = sum(one.refused for one in native)
    note = (
        f"{CLIENTS} clients, {sizes.rounds} x {sizes.timed:,} pods each, all processes on the same"
        f" cores; no webhook: {rates[NOBODY]:,.0f}, native quota: {rates[NATIVE]:,.0f} with"
        f" {refused} of its pods refused although there was room; baseline: a pair that allows"
    )
    return [
        result("pods created, no webhook", rates[NOBODY], "pods/s"),
        result("pods created, native quota", rates[NATIVE], "pods/s", baseline=rates[NOBODY]),
        result("pods created, a pair that allows", rates[FLOOR], "pods/s", baseline=rates[NOBODY]),
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
            baseline=_computed(found[FLOOR]) * 1e6,
            note="of everything but the clients: API server, etcd, controllers, webhooks, log and"
            f" projection; {_computed(found[NOBODY]) * 1e6:,.0f} µs where nobody is asked",
        ),
        *_conflicts(native, ours),
    ]


def _computed(samples: list[Sample]) -> float:
    return statistics.median(one.computed for one in samples)


def _conflicts(native: list[Sample], ours: list[Sample]) -> list[Result]:
    none = Goal(0, "most")
    return [
        result("conflicts seen by users, native quota", sum(one.conflicts for one in native), ""),
        result(
            "conflicts seen by users, gpuledger",
            sum(one.conflicts for one in ours),
            "",
            goal=none,
        ),
        result(
            "refused with room left, gpuledger", sum(one.refused for one in ours), "", goal=none
        ),
        result("pods above the limit, native quota", max(one.over for one in native), ""),
        result("pods above the limit, gpuledger", max(one.over for one in ours), "", goal=none),
    ]


def _in_turn(on: BenchCluster, service: Service, sizes: Sizes) -> dict[str, list[Sample]]:
    """Measure every way once a round, each round beginning with another one."""
    found: dict[str, list[Sample]] = {way: [] for way in WAYS}
    for number in range(sizes.rounds):
        for way in (*WAYS[number % 4 :], *WAYS[: number % 4]):
            namespace = _namespace(way, number)
            if way == LEDGER:
                with _serving(on, service, namespace):
                    found[way].append(_sample(on, namespace, sizes))
            else:
                found[way].append(_sample(on, namespace, sizes))
    return found


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
