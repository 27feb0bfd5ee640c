"""Settings that the whole simulated world shares."""

from typing import Final

from ledger.core.model.amounts import Amounts
from ledger.core.model.denials import Denial
from ledger.kube.api.objects import Pod
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.pod_demand import demand_of

CLUSTERS: Final = ("c1", "c2")
"""The universe quotas of the first cluster are the ledger's."""

NODES: Final = ("n1", "n2", "n3")

RULES: Final = DemandRules()

SETTLE_SECONDS: Final = 16.0
"""The bound after which an attempt can be proved dead; longer than any request here can last."""


OWNER_HOLDS_MAX: Final = 6
"""Unsettled creations of one owner in a namespace."""

USERS: Final = "user-"
"""How the names begin of users that are not controllers."""


def demand(pod: Pod) -> Amounts:
    """Return the demand of a simulated pod."""
    outcome = demand_of(pod, RULES)
    assert not isinstance(outcome, Denial), "the simulation writes pods that can be understood"
    return outcome.amounts
