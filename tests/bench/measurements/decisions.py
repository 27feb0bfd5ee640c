"""Decisions about workloads and their pods: what they cost with much in the state and with little.

In process, through `ValidatingWebhook.decide`, with a writer on the log in memory: no HTTP and no
disk. The benchmark counts processor time and decodes reviews beforehand, so that nothing but the
decision counts, from the object's JSON to the reservation in a record.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from support.builders.cluster_contexts import cluster_context

from ledger.core.model import accounts, commands
from ledger.core.model.commands import AnyCommand
from ledger.kube.api.api_resources import Resource
from ledger.kube.api.cluster_ports import Listed
from ledger.log.memory_log import MemoryLog, MemoryStore
from ledger.log.writer.writer import Writer
from ledger.runtime import gc_tuning
from tests.bench.harness import ledgers
from tests.bench.harness.fresh_process import fresh, median
from tests.bench.harness.results import Goal, Result, result
from tests.bench.objects import fleet_commands, fleet_reviews
from tests.bench.objects.fleet import Fleet, workload
from webhook.admission.validating_webhook import ValidatingWebhook
from webhook.api.admission_review import AdmissionRequest
from webhook.context.admission_settings import AdmissionSettings

NAMESPACES: Final = 100
AT_ONCE: Final = 64
"""Reviews that wait for their answers together; they share a record."""

FEW: Final = Fleet(NAMESPACES, roots=500, pods=0, replicas=20)
"""Enough for every scale and pod to have a Deployment of its own."""
MANY: Final = Fleet(NAMESPACES, roots=10_000, pods=10, replicas=20)
UNIVERSE_LIMIT: Final = 2**33
"""Of every resource in all namespaces together: above what the fleet may run."""
TOO_MANY: Final = 2_000_000
"""Replicas of a Deployment that is refused."""

CASES: Final = {
    "created": "a Deployment is created",
    "scaled": "a Deployment is scaled",
    "drawn": "a pod below a Deployment is created",
    "alone": "a pod of its own is created",
    "refused": "a Deployment is refused",
}
"""The cases, and their names in the results."""

_SETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet")
_DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")


def run(quick: bool) -> list[Result]:
    """Measure the same decisions with few Deployments in the state and with many."""
    rounds, count = (1, 320) if quick else (5, 480)
    many = msgspec.structs.replace(MANY, roots=1_000) if quick else MANY
    small, large = (
        median([fresh(measure, fleet=_told(fleet), count=count) for _ in range(rounds)])
        for fleet in (FEW, many)
    )
    size = f"{many.roots:,} Deployments with {many.roots * many.pods:,} pods"
    results = [
        result(
            f"decision: {words}",
            large[case],
            "µs",
            baseline=small[case],
            goal=Goal(1.5, "most", "ratio"),
        )
        for case, words in CASES.items()
    ]
    note = (
        f"{size} in {NAMESPACES} namespaces, each below two quotas; processor time,"
        f" {AT_ONCE} at a time on the log in memory, without HTTP; baseline: {FEW.roots}"
        " Deployments without pods"
    )
    return [msgspec.structs.replace(results[0], note=note), *results[1:]]


async def measure(fleet: dict[str, int], count: int) -> dict[str, float]:
    """Return the microseconds of processor time per decision, by case."""
    known = Fleet(**fleet)
    log = MemoryLog(MemoryStore())
    await log.open(create=True)
    async with ledgers.writer_on(log) as writer:
        await _fill(writer, known)
        judge = await _judging(writer, known)
        gc_tuning.freeze_existing()
        return {
            case: await _measured(judge, requests(known, count))
            for case, requests in _REQUESTS.items()
        }


async def _fill(writer: Writer, fleet: Fleet) -> None:
    await ledgers.set_limits(writer, fleet.namespaces)
    names = tuple(ledgers.namespace(number) for number in range(fleet.namespaces))
    limits = dict.fromkeys(ledgers.KEYS, UNIVERSE_LIMIT)
    await writer.submit(commands.SetLimits(accounts.universe("all"), names, limits))
    await _tell(writer, fleet_commands.roots(fleet))
    await _tell(writer, fleet_commands.pods(fleet))


async def _tell(writer: Writer, told: Iterator[AnyCommand]) -> None:
    many = []
    for command in told:
        many.append(writer.submit(command))
        if len(many) == 1_000:
            await asyncio.gather(*many)
            many.clear()
    await asyncio.gather(*many)


async def _judging(writer: Writer, fleet: Fleet) -> ValidatingWebhook:
    """Return the webhook of a replica that has seen all Deployments and ReplicaSets."""
    catalog, rules = fleet_commands.CATALOG, fleet_commands.RULES
    around = cluster_context(ledgers.CLUSTER, writer, catalog=catalog, rules=rules)
    for resource, make in ((_DEPLOYMENTS, fleet.deployment), (_SETS, fleet.replica_set)):
        seen = [
            around.parents.parent_of(resource, workload(make(root))) for root in range(fleet.roots)
        ]
        await around.parents.feed(resource, Listed(1, seen))
    policy = AdmissionSettings(owner_holds_max=0)  # nothing here settles what was created
    return ValidatingWebhook(writer, settings=policy, context=around)


async def _measured(
    judge: ValidatingWebhook, requests: list[tuple[AdmissionRequest, bool]]
) -> float:
    computed = time.process_time()
    for first in range(0, len(requests), AT_ONCE):
        until = asyncio.get_running_loop().time() + 60.0
        group = requests[first : first + AT_ONCE]
        verdicts = await asyncio.gather(*(judge.decide(admission, until) for admission, _ in group))
        for verdict, (request, allowed) in zip(verdicts, group, strict=True):
            assert (verdict.denial is None) is allowed, (request.name, verdict)
            assert verdict.decision, f"nobody asked the ledger about {request.name}"
    return (time.process_time() - computed) / len(requests) * 1e6


def _spread(fleet: Fleet, number: int) -> int:
    """Return the Deployment that the nth review is about, neighbours far apart."""
    return number * 7_919 % fleet.roots


def _created(fleet: Fleet, count: int) -> list[tuple[AdmissionRequest, bool]]:
    new = range(fleet.roots, fleet.roots + count)
    return [(fleet_reviews.deployment_created(fleet, root), True) for root in new]


def _scaled(fleet: Fleet, count: int) -> list[tuple[AdmissionRequest, bool]]:
    return [
        (fleet_reviews.deployment_scaled(fleet, _spread(fleet, number)), True)
        for number in range(count)
    ]


def _drawn(fleet: Fleet, count: int) -> list[tuple[AdmissionRequest, bool]]:
    return [
        (fleet_reviews.pod_created(fleet, _spread(fleet, number), number), True)
        for number in range(count)
    ]


def _alone(fleet: Fleet, count: int) -> list[tuple[AdmissionRequest, bool]]:
    return [
        (fleet_reviews.lone_pod_created(fleet, _spread(fleet, number), number), True)
        for number in range(count)
    ]


def _refused(fleet: Fleet, count: int) -> list[tuple[AdmissionRequest, bool]]:
    greedy = msgspec.structs.replace(fleet, replicas=TOO_MANY)
    new = range(fleet.roots + count, fleet.roots + 2 * count)
    return [(fleet_reviews.deployment_created(greedy, root), False) for root in new]


_REQUESTS: Final[dict[str, Callable[[Fleet, int], list[tuple[AdmissionRequest, bool]]]]] = {
    "created": _created,
    "scaled": _scaled,
    "drawn": _drawn,
    "alone": _alone,
    "refused": _refused,
}


def _told(fleet: Fleet) -> dict[str, int]:
    """Return a fleet as the arguments of a measuring process."""
    return msgspec.structs.asdict(fleet)
