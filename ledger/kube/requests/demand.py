"""Demand: the amounts that a pod, or a part of one, requests."""

import msgspec

from ledger.core.model.amounts import Amounts


class Demand(msgspec.Struct, frozen=True):
    """The amounts that a pod requests: cards, MiB and cores, multiplied by the number of cards.

    `memory_unknown` is the field that requests a share of a card of unknown size (a percentage or
    a whole card without `DemandRules.worst_card_memory`), and `unknown` is the resource that it
    requests. The amounts then leave that memory out, so a quota that limits this resource, for
    all cards or for one type, must refuse the pod. Both are empty otherwise. `assumed` are the
    resources whose amounts depend on the sizes of the current cards.

    `deferred` is the part of the amounts for resource claims that do not exist yet. The charge of
    an existing object never rises by that part, because each claim is reviewed when it is created.
    With `unresolved`, some templates, classes or devices of claims are unknown, so the amounts may
    be too small.
    """

    amounts: Amounts
    memory_unknown: str = ""
    unknown: str = ""
    assumed: tuple[str, ...] = ()
    deferred: Amounts = {}
    unresolved: bool = False


NO_DEMAND = Demand({})
