"""Whether ledger and cluster agree about resource claims, by the oracle from plain lists."""

import asyncio
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from support.oracles import device_expressions, resource_claim_oracle
from support.oracles.cluster_oracle import Snapshot
from support.oracles.resource_claim_oracle import DeviceSuppliers

from tests.e2e.harness.agreement import BUILTIN, CLAIM_KEY, ROWS, compare
from tests.e2e.harness.cluster import Manifest
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.service import Row
from tests.e2e.objects.team import SETTLED_SECONDS
from tests.e2e.resource_claims.support.claim_supply import API, SHARED_DRIVER, WHOLE_DRIVER
from tests.e2e.resource_claims.support.claim_team import ClaimTeam

TYPES: Final = ("h100", "a100")
_GPU_DRIVERS: Final = frozenset((SHARED_DRIVER, WHOLE_DRIVER))


async def ledger_is_cluster(*teams: ClaimTeam, later: Collection[str] = ()) -> None:
    """Wait until the ledger agrees with the cluster about these namespaces.

    Quotas over many namespaces have to agree, too.
    No list has which claims of pods were admitted to stand for themselves, so the ledger is asked:
    they are charged as much, and once, either way. It is also asked for envelopes, because no list
    has which allocations have lowered them: no envelope may be more than the spec's. `later` are
    the names of templates that pods used before they existed: their claims were charged when they
    were made, or refused.
    """
    spaces = frozenset(("", *(team.namespace for team in teams)))
    await eventually(
        partial(_differences, teams, spaces, later),
        lambda differences: not differences,
        within=SETTLED_SECONDS,
        what=f"the ledger agrees with the cluster about the claims of {sorted(spaces)}",
    )


async def _differences(
    teams: Sequence[ClaimTeam], spaces: frozenset[str], later: Collection[str]
) -> list[str]:
    seen = await compare(
        teams[0].cluster,
        teams[0].service,
        spaces,
        frozenset(),
        workloads=BUILTIN,
        claimed=partial(_with_claims, teams, later),
    )
    lines = {(line, seen.ledger.get(line), seen.cluster.get(line)) for line in seen.cluster}
    units = {
        uid: (seen.holders.get(uid), seen.objects.get(uid))
        for uid in seen.holders.keys() | seen.objects.keys()
    }
    return [
        *(f"{line}: ledger {has}, cluster {wants}" for line, has, wants in lines if has != wants),
        *(
            f"{uid}: ledger {has}, cluster {wants}"
            for uid, (has, wants) in units.items()
            if has != wants
        ),
        *(f"hold {hold}" for hold in seen.holds),
    ]


async def _with_claims(
    teams: Sequence[ClaimTeam], later: Collection[str], snapshot: Snapshot
) -> Snapshot:
    cluster = teams[0].cluster
    rows = [row for team in teams for row in await _holders(team)]
    apart = frozenset(row["uid"] for row in rows if row["key"].startswith(CLAIM_KEY))
    envelopes = {row["uid"]: row["envelope"] for row in rows}
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
    earlier = [each for each in templates if each["metadata"]["name"] not in later]
    supply = DeviceSuppliers(slices, classes, _GPU_DRIVERS, device_expressions.accepts, TYPES)
    claims = [{**each, "kind": "ResourceClaim"} for each in claims]
    alone = resource_claim_oracle.standing_alone(snapshot.pods, claims, supply, apart)
    for pod in snapshot.pods:
        pod["claimed"] = resource_claim_oracle.of_pod(
            pod, snapshot.pods, claims, earlier, supply, apart
        )
    for workload in snapshot.workloads:
        _claim_of_workload(workload, templates, supply)
        workload["lowered"] = envelopes.get(workload["metadata"]["uid"], {})
    return snapshot._replace(claims=tuple(alone))


async def _holders(team: ClaimTeam) -> list[Row]:
    rows: list[Row] = await team.service.get("/v1/holders", namespace=team.namespace, limit=ROWS)
    return rows


def _claim_of_workload(
    workload: Manifest, templates: list[Manifest], supply: DeviceSuppliers
) -> None:
    template = workload["spec"].get("template")
    if template is not None:
        template["claimed"] = resource_claim_oracle.of_pod_spec(
            workload["metadata"]["namespace"], template["spec"], templates, supply
        )
