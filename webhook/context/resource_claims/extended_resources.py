"""Extended resources: the demand of a pod whose extended resources a resource claim serves. Pure.

The scheduler makes that claim when a DeviceClass serves the resources. It takes the place of the
containers' requests, so that nothing is charged twice.
"""

from typing import Final

import msgspec

from ledger.core.model.amounts import Amounts, minus, plus, without_zeros
from ledger.core.model.denials import Denial
from ledger.kube.api.objects import Pod
from ledger.kube.requests.demand import Demand
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.pod_demand import demand_of, without_claims

_NOTHING: Final[Amounts] = {}


class ServedResources(msgspec.Struct, frozen=True):
    """The names of extended resources that a claim serves, and the amounts that it took."""

    names: frozenset[str]
    amounts: Amounts


NOT_SERVED: Final = ServedResources(frozenset(), _NOTHING)


def with_served(pod: Pod, demand: Demand, rules: DemandRules, served: ServedResources) -> Demand:
    """Return the demand of a pod with what a claim took for its extended resources.

    The claim replaces what the containers ask of the vendors of these resources. A resource of no
    vendor, such as that of a device class, is charged for the claim alone.
    """
    asked = demand_of(without_claims(pod), rules) if served.names else None
    if asked is None or isinstance(asked, Denial):
        return demand
    replaced = _of_vendors(rules, served.names, asked.amounts)
    own = {name: asked.amounts[name] for name in replaced}
    amounts = without_zeros(plus(minus(demand.amounts, own), served.amounts))
    assumed = tuple(name for name in demand.assumed if name not in replaced)
    return msgspec.structs.replace(demand, amounts=amounts, assumed=assumed)


def _of_vendors(rules: DemandRules, served: frozenset[str], amounts: Amounts) -> frozenset[str]:
    """Return the resources of the vendors of served ones, those of card types included."""
    vendors = {rules.vendor_of[name].name for name in served if name in rules.vendor_of}
    charged = {name for vendor in vendors for name in rules.by_name[vendor].charged()}
    typed = {names[name] for names in rules.typed.values() for name in charged if name in names}
    return frozenset(name for name in amounts if name in charged or name in typed)
