"""Fleet commands: they fill a state with a fleet, as after an observation of all its objects."""

from collections.abc import Iterator
from typing import Final

from ledger.core.model.commands import Observe
from ledger.core.model.denials import Denial
from ledger.core.model.qualified_names import qualified
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.pod_demand import demand_of
from ledger.kube.requests.pod_traits import recorded_traits
from tests.bench.harness.ledgers import CLUSTER
from tests.bench.objects.fleet import VERSION, Fleet, pod, workload
from webhook.kinds.kind_catalog import KindCatalog
from webhook.kinds.workload_envelope import envelope_of
from webhook.settlement.pod_observation import POD_KEYS

RULES: Final = DemandRules()
CATALOG: Final = KindCatalog.load()
ACTOR: Final = "bench"


def roots(fleet: Fleet) -> Iterator[Observe]:
    """Yield an observation of every Deployment."""
    kind = CATALOG.of_resource("apps", "deployments")
    assert kind is not None
    envelope = envelope_of(kind, workload(fleet.deployment(0)), RULES)
    assert not isinstance(envelope, Denial), envelope
    for root in range(fleet.roots):
        meta = workload(fleet.deployment(root)).metadata
        yield Observe(
            qualified(CLUSTER, meta.namespace),
            root_key(root),
            meta.uid,
            VERSION,
            dict(envelope.demand),
            ACTOR,
            traits=envelope.traits,
            generation=meta.generation,
        )


def pods(fleet: Fleet) -> Iterator[Observe]:
    """Yield an observation of every pod, each drawing from its Deployment."""
    for root, number in fleet.members():
        seen = pod(fleet.pod(root, number))
        demand = demand_of(seen, RULES)
        assert not isinstance(demand, Denial), demand
        yield Observe(
            qualified(CLUSTER, seen.metadata.namespace),
            POD_KEYS + seen.metadata.name,
            seen.metadata.uid,
            VERSION,
            demand.amounts,
            ACTOR,
            root=root_key(root),
            traits=recorded_traits(seen, RULES.labels),
        )


def root_key(root: int) -> str:
    """Return the key of a Deployment."""
    return f"deployments.apps/web-{root}"
