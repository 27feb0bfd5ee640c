"""Pods created through a real API server in one namespace, by many clients at once.

One run measures these ways in turn: no webhook; the native ResourceQuota; on the frozen stack, a
mutating and a validating webhook that allow everything, and the validating one alone; gpuledger
with pods that need no mutation, and with pods that it has to complete. First all pods fit. Then
more pods are posted than fit, and the run checks that no more were admitted. The service runs only
while it is measured, because it would follow the pods of the other ways.
"""

import asyncio
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tests.bench.frozen.permissive_webhook import PermissiveProcess, permissive_webhook
from tests.bench.harness import process_tree
from tests.bench.harness.bench_cluster import WEBHOOKS, BenchCluster, bench_cluster
from tests.bench.harness.fresh_process import fresh
from tests.bench.harness.results import Goal, Result, result
from tests.bench.load.pod_clients import CLIENTS, post
from tests.e2e.harness.bootstrap import grant_service, make_canary, webhooks_are_in_effect
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.controlplane import SERVICE
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.service import Service
from tests.e2e.objects.pods import CARDS
from tests.e2e.objects.rights import RIGHTS

BARE, NATIVE, PAIR, SINGLE, LEDGER, MUTATED = WAYS = (
    *("bare", "native", "pair", "single", "ledger", "mutated"),
)
OURS: Final = (LEDGER, MUTATED)
KEYS: Final = {NATIVE: f"requests.{CARDS}", LEDGER: f"limits.{CARDS}", MUTATED: f"limits.{CARDS}"}
"""The quota's key, where there is one; of extended resources, each counts only its own."""

WITHIN_SECONDS: Final = 30.0
WIDE: Final = "true"
"""The condition of the mutating webhook until the service has narrowed it."""


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

    def namespaces(self, *ways: str) -> list[str]:
        """Return the namespaces of some ways."""
        return [_namespace(way, number) for way in ways for number in range(self.rounds)]


class Sample(msgspec.Struct, frozen=True):
    """The outcome of one namespace's pods, and the processor seconds of each pod."""

    per_second: float
    computed: float
    refused: int
    conflicts: int
    over: int


Samples = dict[str, list[Sample]]


def run(quick: bool) -> list[Result]:
    """Measure all ways in turn, several times."""
    sizes = Sizes(1, 50, 300, 80) if quick else Sizes(3, 200, 1_500, 400)
    with (
        tempfile.TemporaryDirectory() as directory,
        bench_cluster(Path(directory, "plane")) as on,
        permissive_webhook(Path(directory, "floor")) as floor,
    ):
        _open(on, sizes, floor)
        service = _service(on, Path(directory), sizes)
        samples = _in_turn(on, service, sizes)
    reviews = 3 * sizes.rounds * (sizes.warm + sizes.timed + sizes.crowd)
    assert floor.answered >= reviews, f"the webhooks were asked {floor.answered} times"
    return _results(samples, sizes)


def _results(samples: Samples, sizes: Sizes) -> list[Result]:
    rates = {way: statistics.median(sample.per_second for sample in samples[way]) for way in WAYS}
    costs = {way: statistics.median(sample.computed for sample in samples[way]) for way in WAYS}
    return [
        result("pods created, no webhook", rates[BARE], "pods/s"),
        result("pods created, native quota", rates[NATIVE], "pods/s", baseline=rates[BARE]),
        result("pods created, a pair that allows", rates[PAIR], "pods/s", baseline=rates[BARE]),
        result("pods created, a single webhook", rates[SINGLE], "pods/s", baseline=rates[BARE]),
        result(
            "pods created, gpuledger",
            rates[LEDGER],
            "pods/s",
            baseline=rates[PAIR],
            goal=Goal(0.95, "least", "ratio"),
            note=f"{CLIENTS} clients, {sizes.rounds} x {sizes.timed:,} pods each, all processes on"
            " the same cores; baseline: the frozen pair that allows;"
            f" {rates[LEDGER] / rates[SINGLE]:.2f} of a single webhook that allows",
        ),
        result(
            "pods created and mutated, gpuledger", rates[MUTATED], "pods/s", baseline=rates[PAIR]
        ),
        *_costs(costs),
        *_conflicts(samples[NATIVE], samples[LEDGER] + samples[MUTATED]),
    ]


def _costs(seconds: dict[str, float]) -> list[Result]:
    """Return the processor time of a pod, and how far it is above that of the frozen webhooks."""
    costs = {way: 1e6 * seconds[way] for way in WAYS}
    more = Goal(200, "most")
    return [
        result(
            "processor time of a pod, gpuledger",
            costs[LEDGER],
            "µs",
            baseline=costs[PAIR],
            note="of everything but the clients: API server, etcd, controllers, webhooks, log and"
            f" projection; {costs[BARE]:,.0f} µs without a webhook",
        ),
        result("the same, above the frozen pair", costs[LEDGER] - costs[PAIR], "µs", goal=more),
        result("the same, above a single webhook", costs[LEDGER] - costs[SINGLE], "µs"),
        result("a mutated pod, above the frozen pair", costs[MUTATED] - costs[PAIR], "µs"),
    ]


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


def _in_turn(on: BenchCluster, service: Service, sizes: Sizes) -> Samples:
    """Measure every way once a round, each round beginning with another one."""
    samples: Samples = {way: [] for way in WAYS}
    for number in range(sizes.rounds):
        first = 2 * number % len(WAYS)
        for way in (*WAYS[first:], *WAYS[:first]):
            namespace = _namespace(way, number)
            if way in OURS:
                with _serving(on, service, namespace):
                    samples[way].append(_sample(on, namespace, sizes, complete=way == LEDGER))
            else:
                samples[way].append(_sample(on, namespace, sizes))
    return samples


def _sample(on: BenchCluster, namespace: str, sizes: Sizes, *, complete: bool = True) -> Sample:
    def create(first: int, count: int) -> dict[str, float]:
        which = {"namespace": namespace, "first": first, "count": count, "complete": complete}
        return fresh(post, address=on.address, ca=on.ca, token=on.token, **which)

    warm = create(0, sizes.warm)
    before = process_tree.computed()
    timed = create(sizes.warm, sizes.timed)
    computed = process_tree.computed() - before
    crowd = create(sizes.warm + sizes.timed, sizes.crowd)
    limits = on.any_pod(namespace)["spec"]["containers"][0]["resources"]["limits"]
    assert CARDS in limits, f"a pod of {namespace} was not completed: {limits}"
    stored = on.count(namespace)
    on.clear(namespace)
    return Sample(
        timed["created"] / timed["seconds"],
        computed / sizes.timed,
        int(warm["forbidden"] + timed["forbidden"]),
        int(warm["conflicts"] + timed["conflicts"] + crowd["conflicts"]),
        max(0, stored - sizes.limit),
    )


def _namespace(way: str, number: int) -> str:
    return f"{way}-{number}"


def _open(on: BenchCluster, sizes: Sizes, floor: PermissiveProcess) -> None:
    """Make all namespaces and quotas, and register the frozen webhooks."""
    for way in WAYS:
        for namespace in sizes.namespaces(way):
            on.make_namespace(namespace)
            if way in KEYS:
                on.limit(namespace, {KEYS[way]: sizes.limit})
    on.register(floor.configurations("pair", sizes.namespaces(PAIR)))
    on.register(floor.configurations("single", sizes.namespaces(SINGLE), mutating=False))
    on.do(lambda cluster: grant_service(cluster, RIGHTS))
    on.do(make_canary)


def _service(on: BenchCluster, folder: Path, sizes: Sizes) -> Service:
    """Return the service as it is shipped, but for the namespaces that others are measured in."""
    others = sizes.namespaces(*(way for way in WAYS if way not in OURS))
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
        on.do(_is_narrowed)
        known = eventually(
            limits,
            lambda known: KEYS[LEDGER] in known,
            within=WITHIN_SECONDS,
            what=f"the limit of {namespace} is known",
        )
        asyncio.run(known)
        yield
    finally:
        service.stop()


async def _is_narrowed(cluster: Cluster) -> None:
    """Wait until the mutating webhook is asked only about pods that need it."""
    path = f"{WEBHOOKS}/mutatingwebhookconfigurations/gpuledger"
    await eventually(
        lambda: cluster.must("GET", path),
        lambda seen: seen["webhooks"][0]["matchConditions"][-1]["expression"] != WIDE,
        within=WITHIN_SECONDS,
        what="the mutating webhook is narrowed",
    )
