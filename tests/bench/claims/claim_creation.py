"""Pods and resource claims created through a real API server, without and with gpuledger.

Both ways take the same steps, in turn. First pods without a claim, then pods with one claim of a
template, which kube-controller-manager generates. While that is paused, the requests of such a pod
are measured one by one: the pod, the claim as the controller makes it, and a claim without an
owner. Then the claims that the controller made are allocated as kube-scheduler does it. The
processor time of a step ends when all processes are idle again; what they compute while nothing
happens is subtracted.
"""

import asyncio
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.bench.claims import claim_results
from tests.bench.claims.claim_results import (
    ALLOCATED,
    BARE,
    CLAIMED,
    GENERATED,
    LEDGER,
    OWN,
    PARTED,
    PLAIN,
)
from tests.bench.harness import process_tree
from tests.bench.harness.bench_cluster import BenchCluster, bench_cluster
from tests.bench.harness.fresh_process import fresh
from tests.bench.harness.results import Result
from tests.bench.load.pod_clients import NAME, OWNER, post_each
from tests.e2e.harness.authorization import EVERYTHING, grant
from tests.e2e.harness.bootstrap import grant_service, make_canary, webhooks_are_in_effect
from tests.e2e.harness.cluster import Cluster, Manifest
from tests.e2e.harness.controlplane import ADMIN, CONTROLLERS, SERVICE
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.service import Service
from tests.e2e.objects.pods import CARDS, MEMORY, pod
from tests.e2e.objects.rights import RIGHTS
from tests.e2e.resource_claims.support import claim_supply
from tests.e2e.resource_claims.support.claim_manifests import claim, exactly, pod_with, template
from tests.e2e.resource_claims.support.claim_supply import API, H100_NODE, SHARED_DRIVER

UNHURRIED: Final = ("--kube-api-qps=5000", "--kube-api-burst=10000")
"""The controllers are not to wait for their own limit of requests, 20 a second."""

KEY, MEMORY_KEY = f"limits.{CARDS}", f"limits.{MEMORY}"
PLENTY: Final = 1_000_000
WITHIN_SECONDS: Final = 60.0
IDLE_SECONDS: Final = 4.0
LOOK_SECONDS: Final = 0.5
BUSY: Final = 0.12
"""So much of one core for `LOOK_SECONDS` is more than idle processes take."""

REQUEST: Final = exactly(memory="1Gi", cores="5")
TEMPLATE: Final = "part"
PLAIN_MIB: Final = 1_000
BOUND_MIB: Final = 5_120
"""Of the request on the A100, which gives memory in larger steps than the H100."""
CONSUMED_MIB: Final = 1_024


class Sizes(NamedTuple):
    """How many rounds, and objects of each step: to warm up, to be timed."""

    rounds: int
    warm: int
    timed: int


def run(quick: bool) -> list[Result]:
    """Measure both ways in turn, several times."""
    sizes = Sizes(1, 50, 200) if quick else Sizes(3, 100, 500)
    costs: claim_results.Costs = {way: {} for way in (BARE, LEDGER)}
    with (
        tempfile.TemporaryDirectory() as directory,
        bench_cluster(Path(directory, "plane"), UNHURRIED) as on,
    ):
        _open(on, sizes)
        bare = ",".join(_namespace(BARE, number) for number in range(sizes.rounds))
        service = Service(
            Path(directory),
            on.plane.kubeconfig(SERVICE),
            exempt_namespaces=f"kube-system,{bare}",
            settle_seconds="60",
        )
        for number in range(sizes.rounds):
            for way in (BARE, LEDGER) if number % 2 == 0 else (LEDGER, BARE):
                for step, cost in _measured(on, service, way, number, sizes).items():
                    costs[way].setdefault(step, []).append(cost)
    return claim_results.results(costs, f"{sizes.rounds} x {sizes.timed:,} of each")


def _measured(
    on: BenchCluster, service: Service, way: str, number: int, sizes: Sizes
) -> dict[str, Counter[str]]:
    namespace = _namespace(way, number)
    if way == BARE:
        return Steps(on, namespace, sizes).taken()
    with _serving(on, service, namespace):
        costs = Steps(on, namespace, sizes).taken()
        claimed = sizes.warm + 3 * sizes.timed
        most, given = BOUND_MIB * (claimed - sizes.timed), CONSUMED_MIB * sizes.timed
        plain = PLAIN_MIB * (sizes.warm + sizes.timed)
        cards = claimed + sizes.warm + sizes.timed
        asyncio.run(_is_charged(service, namespace, cards, most + given + plain))
    return costs


class Steps:
    """The steps of one way in one namespace."""

    def __init__(self, on: BenchCluster, namespace: str, sizes: Sizes) -> None:
        self._on, self._namespace, self._sizes = on, namespace, sizes
        self._idle = Counter[str]()

    def taken(self) -> dict[str, Counter[str]]:
        """Take all steps and return the processor seconds of each object, by program."""
        warm, timed = self._sizes.warm, self._sizes.timed
        plain, asking = pod(NAME), pod_with(NAME, templates=(TEMPLATE,))
        del asking["spec"]["schedulerName"]
        self._post("pods", plain, _names("warm", warm))
        self._post("pods", asking, _names("warm-claimed", warm))
        _calm()
        self._idle = _spent(lambda: time.sleep(IDLE_SECONDS))
        costs = {
            PLAIN: self._cost("pods", plain, _names("plain", timed)),
            CLAIMED: self._cost("pods", asking, _names("claimed", timed)),
        }
        made = [item["metadata"]["name"] for item in self._listed("resourceclaims")]
        assert len(made) == warm + timed, f"the controller made {len(made)} claims"
        manager = self._on.plane.controller_manager
        assert manager is not None, "the control plane runs"
        manager.pause()
        try:
            costs[PARTED] = self._cost("pods", asking, _names("parted", timed))
            owners = {
                item["metadata"]["name"]: item["metadata"]["uid"]
                for item in self._listed("pods")
                if item["metadata"]["name"].startswith("parted-")
            }
            costs[GENERATED] = self._cost("resourceclaims", _generated(), owners, CONTROLLERS)
            costs[OWN] = self._cost("resourceclaims", claim(NAME, REQUEST), _names("own", timed))
            claimed = dict.fromkeys((name for name in made if name.startswith("claimed-")), "")
            costs[ALLOCATED] = self._cost("resourceclaims", _allocated(), claimed, part="status")
        finally:
            manager.resume()
        _calm()
        return costs

    def _cost(
        self,
        plural: str,
        thing: Manifest,
        objects: dict[str, str],
        user: str = ADMIN,
        part: str = "",
    ) -> Counter[str]:
        started = time.perf_counter()
        spent = _spent(lambda: self._post(plural, thing, objects, user, part))
        share = (time.perf_counter() - started) / IDLE_SECONDS
        return Counter(
            {
                program: (seconds - share * self._idle[program]) / len(objects)
                for program, seconds in spent.items()
            }
        )

    def _post(
        self,
        plural: str,
        thing: Manifest,
        objects: dict[str, str],
        user: str = ADMIN,
        part: str = "",
    ) -> None:
        on = self._on
        which = {"path": self._path(plural), "template": thing, "objects": objects, "part": part}
        token = on.plane.token(user)
        answers = fresh(post_each, address=on.address, ca=on.ca, token=token, **which)
        assert answers["changed" if part else "created"] == len(objects), answers

    def _listed(self, plural: str) -> list[Manifest]:
        return self._on.do(lambda cluster: cluster.items(self._path(plural)))

    def _path(self, plural: str) -> str:
        return f"{'/api/v1' if plural == 'pods' else API}/namespaces/{self._namespace}/{plural}"


def _spent(act: Callable[[], None]) -> Counter[str]:
    """Return the processor seconds of all programs for an act, until they are idle again."""
    before = process_tree.computed_by_program()
    act()
    _calm()
    spent = process_tree.computed_by_program()
    spent.subtract(before)
    return spent


def _calm() -> None:
    """Wait until all processes are idle."""
    until = time.perf_counter() + WITHIN_SECONDS
    before, now = 0.0, process_tree.computed()
    while now - before > BUSY * LOOK_SECONDS:
        assert time.perf_counter() < until, f"still busy after {WITHIN_SECONDS:g} s"
        time.sleep(LOOK_SECONDS)
        before, now = now, process_tree.computed()


def _generated() -> Manifest:
    """Return a claim as the controller makes it for the pod of the same name."""
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": NAME,
        "uid": OWNER,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    use = {"resource.kubernetes.io/pod-claim-name": "t0"}
    return claim(NAME, REQUEST, ownerReferences=[owner], annotations=use)


def _allocated() -> Manifest:
    """Return the change that allocates a claim: it consumes less than it is charged."""
    result = {
        "request": "r0",
        "driver": SHARED_DRIVER,
        "pool": H100_NODE,
        "device": "gpu-0",
        "consumedCapacity": {"memory": "1Gi", "cores": "5"},
        "shareID": str(uuid.uuid4()),
    }
    return {"status": {"allocation": {"devices": {"results": [result]}}}}


def _names(prefix: str, count: int) -> dict[str, str]:
    return {f"{prefix}-{number}": "" for number in range(count)}


def _namespace(way: str, number: int) -> str:
    return f"{way}-{number}"


def _open(on: BenchCluster, sizes: Sizes) -> None:
    """Make namespaces, quotas and templates, and what drivers and their administrators write."""
    on.do(claim_supply.publish)
    namespaces = [
        _namespace(way, number) for way in (BARE, LEDGER) for number in range(sizes.rounds)
    ]
    for namespace in namespaces:
        on.make_namespace(namespace)
        on.limit(namespace, {KEY: PLENTY, MEMORY_KEY: PLENTY * BOUND_MIB})

    async def make_templates(cluster: Cluster) -> None:
        for namespace in namespaces:
            path = f"{API}/namespaces/{namespace}/resourceclaimtemplates"
            await cluster.must("POST", path, template(TEMPLATE, REQUEST))

    on.do(make_templates)
    on.do(lambda cluster: grant(cluster, CONTROLLERS, EVERYTHING))
    on.do(lambda cluster: grant_service(cluster, RIGHTS))
    on.do(make_canary)


@contextmanager
def _serving(on: BenchCluster, service: Service, namespace: str) -> Iterator[None]:
    """Run the service for the block, once it decides with the namespace's limit."""
    service.start()
    try:
        service.wait_ready()
        on.do(webhooks_are_in_effect)
        asyncio.run(_is_charged(service, namespace, 0, 0))
        yield
    finally:
        service.stop()


async def _is_charged(service: Service, namespace: str, cards: int, memory: int) -> None:
    """Wait until the namespace is charged this, for each pod and claim once."""

    async def used() -> dict[str, int]:
        rows = await service.get("/v1/usage", namespace=namespace)
        return {row["resource"]: row["used"] for row in rows}

    await eventually(
        used,
        lambda seen: seen.get(KEY) == cards and seen.get(MEMORY_KEY) == memory,
        within=WITHIN_SECONDS,
        what=f"{namespace} is charged {cards} cards with {memory} MiB",
    )
