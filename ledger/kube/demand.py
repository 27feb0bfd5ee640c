"""What a pod asks for: the one function that turns a pod into amounts.

Both webhooks, settlement and the recount use it, so that what is reserved, what is committed and
what is compared can never differ by interpretation.
"""

import msgspec

from ledger.core.amounts import Amounts
from ledger.core.denials import Denial
from ledger.kube.objects import Pod
from ledger.kube.rules import DemandRules

__all__ = ["Demand", "DemandRules", "demand_of"]


class Demand(msgspec.Struct, frozen=True):
    """What a pod asks for: cards, MiB and percent of a card, each multiplied out over its cards.

    `memory_unknown` names the field of a container that asks for a share of a card whose size is
    not known (a percentage or a whole card without `DemandRules.worst_card_memory`); the amounts
    then leave that memory out, so whoever limits memory must refuse. It is empty otherwise.
    """

    amounts: Amounts
    memory_unknown: str = ""


def demand_of(pod: Pod, rules: DemandRules) -> Demand | Denial:
    """Return what a pod asks for, or why its request cannot be understood.

    Limits are read first, then requests. Init containers count by their maximum, sidecars add to
    the app containers and to every later init container, as Kubernetes does it. The amounts are
    sorted by name and hold no zeros.
    """
    raise NotImplementedError
