"""Whether ledger and cluster agree, by the oracle: it reads only what the API server lists."""

import asyncio
from collections import ChainMap
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from support.oracles import cluster_oracle
from support.oracles.cluster_oracle import ClusterLabels, Lines, Ownership, Snapshot

from tests.e2e.harness.cluster import Cluster, Manifest
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.service import CLUSTER, Row
from tests.e2e.objects.fake_operators import KINDS
from tests.e2e.objects.pods import CARDS
from tests.e2e.objects.team import QUOTA, SETTLED_SECONDS, Team

REGION: Final = "eu-west"
PRODUCT: Final = "/apis/gpuledger.io/v1alpha1"
ROWS: Final = "5000"
CLAIM_KEY: Final = "resourceclaims.resource.k8s.io/"

BUILTIN: Final = {
    "Deployment": "/apis/apps/v1/deployments",
    "ReplicaSet": "/apis/apps/v1/replicasets",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "DaemonSet": "/apis/apps/v1/daemonsets",
    "Job": "/apis/batch/v1/jobs",
}
"""Where the kinds are listed that every cluster has."""

_HERE: Final = ClusterLabels(CLUSTER, REGION)
_WORKLOADS: Final = BUILTIN | {
    kind.kind: f"/apis/{kind.group}/{kind.version}/{kind.resource}" for kind in KINDS
}

Standings = dict[str, Ownership]
"""By uid."""


Claimed = Callable[[Snapshot], Awaitable[Snapshot]]
"""Adds the charges of resource claims to a snapshot."""


class LedgerReader(Protocol):
    """The HTTP API of a running service."""

    async def get(self, path: str, **query: str) -> Any:
        """Read from the API."""


class Comparison(NamedTuple):
    """Usage by ledger and oracle, of every quota and of every object, and open attempts."""

    ledger: Lines
    cluster: Lines
    holders: Standings
    objects: Standings
    reserved: int
    holds: list[str]

    @property
    def agrees(self) -> bool:
        """Return whether both agree and nothing is open."""
        same = self.ledger == self.cluster and self.holders == self.objects
        return same and not self.reserved and not self.holds


async def assert_ledger_is_cluster(*teams: Team, barred: Iterable[str] = ()) -> Lines:
    """Wait until the ledger agrees with the cluster about these namespaces; return the usage.

    Quotas over many namespaces have to agree too. `barred` names objects, `Kind/name`, that were
    made by another user than the controller they name.
    """
    spaces = frozenset(("", *(team.namespace for team in teams)))
    team = teams[0]
    seen = await eventually(
        lambda: compare(team.cluster, team.service, spaces, frozenset(barred)),
        lambda comparison: comparison.agrees,
        within=SETTLED_SECONDS,
        what=f"the ledger says what the cluster says about {sorted(spaces)}",
    )
    return seen.cluster


async def cards_used(team: Team, *barred: str) -> int:
    """Return how many cards the quota of a namespace counts, once ledger and cluster agree."""
    lines: Lines = await assert_ledger_is_cluster(team, barred=barred)
    return lines[team.namespace, QUOTA, f"limits.{CARDS}"]


async def compare(
    cluster: Cluster,
    service: LedgerReader,
    spaces: frozenset[str],
    barred: frozenset[str],
    *,
    place: ClusterLabels = _HERE,
    workloads: Mapping[str, str] = _WORKLOADS,
    claimed: Claimed | None = None,
) -> Comparison:
    """Read the ledger and the cluster beside each other; `claimed` adds what claims charge."""
    snapshot, usage, holds, *holders = await asyncio.gather(
        snapshot_of(cluster, barred, place=place, workloads=workloads),
        service.get("/v1/usage", limit=ROWS),
        service.get("/v1/holds", limit=ROWS),
        *(
            service.get("/v1/holders", namespace=name, pods="true", limit=ROWS)
            for name in spaces
            if name
        ),
    )
    if claimed is not None:
        snapshot = await claimed(snapshot)
    expected = cluster_oracle.lines_of(snapshot)
    objects = [cluster_oracle.ownership_of(snapshot, name) for name in spaces]
    return Comparison(
        _used(usage, spaces),
        {line: used for line, used in expected.items() if line[0] in spaces},
        dict(ChainMap(*map(_standings, holders))),
        dict(ChainMap(*objects)),
        sum(row["reserved"] for row in usage if row["namespace"] in spaces),
        [f"{row['namespace']}/{row['key']}" for row in holds if row["namespace"] in spaces],
    )


async def snapshot_of(
    cluster: Cluster,
    barred: frozenset[str] = frozenset(),
    *,
    place: ClusterLabels = _HERE,
    workloads: Mapping[str, str] = _WORKLOADS,
) -> Snapshot:
    """List everything that matters by linearizable reads."""
    spaces, pods, quotas, universe, policies, *lists = await asyncio.gather(
        cluster.items("/api/v1/namespaces"),
        _listed(cluster, "Pod", "/api/v1/pods"),
        cluster.items("/api/v1/resourcequotas"),
        cluster.items(f"{PRODUCT}/universeresourcequotas"),
        cluster.items(f"{PRODUCT}/ledgerpolicies"),
        *(_listed(cluster, kind, path) for kind, path in workloads.items()),
    )
    objects = [manifest for listed in lists for manifest in listed]
    return Snapshot(place, spaces, pods, objects, quotas, universe, policies, barred)


async def _listed(cluster: Cluster, kind: str, path: str) -> list[Manifest]:
    """List objects with their kind, which those of a list lack."""
    return [{**manifest, "kind": kind} for manifest in await cluster.items(path)]


def _standings(rows: list[Row]) -> Standings:
    """Return the ownership of the holders, by uid. A root without an envelope is left out."""
    keys = {row["key"] for row in rows if row["envelope"]}
    standings: Standings = {}
    for row in rows:
        is_root = not row["key"].startswith(("pods/", CLAIM_KEY))
        amounts = row["envelope"] if is_root else row["amounts"]
        root = row["root"].rpartition("/")[2] if row["root"] in keys else ""
        if amounts:
            standings[row["uid"]] = Ownership(amounts, root)
    return standings


def _used(rows: list[Row], spaces: frozenset[str]) -> Lines:
    return {
        (row["namespace"], row["quota"], row["resource"]): row["used"]
        for row in rows
        if row["namespace"] in spaces
    }
