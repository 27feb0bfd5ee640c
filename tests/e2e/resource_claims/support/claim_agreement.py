"""Whether ledger and cluster agree about resource claims, by the oracle from plain lists."""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Final

from support.oracles import device_expressions, resource_claim_oracle
from support.oracles.cluster_oracle import Lines, Snapshot
from support.oracles.resource_claim_oracle import DeviceSuppliers

from tests.e2e.harness.agreement import BUILTIN, compare
from tests.e2e.harness.cluster import Cluster, Manifest
from tests.e2e.harness.polling import eventually
from tests.e2e.objects.team import SETTLED_SECONDS
from tests.e2e.resource_claims.support.claim_supply import API, SHARED_DRIVER, WHOLE_DRIVER
from tests.e2e.resource_claims.support.claim_team import ClaimTeam

TYPES: Final = ("h100", "a100")
_GPU_DRIVERS: Final = frozenset((SHARED_DRIVER, WHOLE_DRIVER))


async def ledger_is_cluster(
    *teams: ClaimTeam, apart: Iterable[str] = (), within: float = SETTLED_SECONDS
) -> Lines:
    """Wait until the ledger agrees with the cluster about these namespaces; return the usage.

    `apart` are the names of claims of pods that were admitted to stand for themselves.
    """
    team = teams[0]
    spaces = frozenset(each.namespace for each in teams)
    look = partial(
        compare,
        team.cluster,
        team.service,
        spaces,
        frozenset(),
        workloads=BUILTIN,
        claimed=partial(_with_claims, team.cluster, frozenset(apart)),
    )
    seen = await eventually(
        look,
        lambda comparison: comparison.agrees,
        within=within,
        what=f"the ledger agrees with the cluster about the claims of {sorted(spaces)}",
    )
    return seen.cluster


async def _with_claims(cluster: Cluster, apart: frozenset[str], snapshot: Snapshot) -> Snapshot:
    claims, templates, slices, classes = await asyncio.gather(
        *(
            cluster.items(f"{API}/{resource}")
            for resource in (
                "resourceclaims",
                "resourceclaimtemplates",
                "resourceslices",
                "deviceclasses",
            )
        )
    )
    supply = DeviceSuppliers(slices, classes, _GPU_DRIVERS, device_expressions.accepts, TYPES)
    claims = [{**each, "kind": "ResourceClaim"} for each in claims]
    with_pods = [each for each in claims if each["metadata"]["name"] not in apart]
    alone = [*resource_claim_oracle.standing_alone(snapshot.pods, with_pods, supply)]
    alone += [
        (each, resource_claim_oracle.charge_of(each, supply))
        for each in claims
        if each["metadata"]["name"] in apart
    ]
    for pod in snapshot.pods:
        pod["claimed"] = resource_claim_oracle.of_pod(
            pod, snapshot.pods, claims, templates, supply, apart
        )
    for workload in snapshot.workloads:
        _claim_of_workload(workload, templates, supply)
    return snapshot._replace(claims=tuple(alone))


def _claim_of_workload(
    workload: Manifest, templates: list[Manifest], supply: DeviceSuppliers
) -> None:
    template = workload["spec"].get("template")
    if template is not None:
        template["claimed"] = resource_claim_oracle.of_pod_spec(
            workload["metadata"]["namespace"], template["spec"], templates, supply
        )
