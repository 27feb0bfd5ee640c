"""Preemption plans: the nodes on which a pod would fit without their victims, the cheapest first.

The cheapest node is that whose highest victim priority is the lowest, then that with the fewest
victims, then that whose oldest victim is the youngest (`victim_choice.eviction_cost`).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from extender.analysis import fit_after_eviction
from extender.fit.inventory_fit import InventoryFit
from extender.preemption import victim_choice
from extender.preemption.eviction_candidates import (
    DisruptionBudgets,
    EvictionCandidates,
    eviction_candidates,
)
from extender.preemption.victim_choice import Candidate, EvictionCost, Subject
from extender.scheduler_api.extender_ports import PreemptionCluster
from extender.scheduler_api.scheduling_request import SchedulingRequest
from ledger.core.model.cards import Parts
from ledger.core.model.state import State


class PreemptionPlan(NamedTuple):
    """The cards that a pod gets on a node, given by its local name, and the victims.

    Pods in `leaving` end without an eviction.
    """

    node: str
    parts: Parts
    evicted: tuple[Candidate, ...]
    leaving: tuple[Subject, ...]

    def cost(self) -> EvictionCost:
        """Return the cost of the evictions."""
        return victim_choice.eviction_cost(self.evicted)


async def preemption_plans(
    cluster: PreemptionCluster,
    fit: InventoryFit,
    state: State,
    request: SchedulingRequest,
    nodes: Iterable[str],
) -> list[PreemptionPlan]:
    """Return the plans for these nodes, the cheapest first. Raises ClusterError."""
    budgets = DisruptionBudgets(cluster)
    plans = []
    for node in nodes:
        there = await eviction_candidates(cluster, state, request, node, budgets)
        plan = _plan(fit, request, node, there)
        if plan is not None:
            plans.append(plan)
    return sorted(plans, key=lambda plan: (plan.cost(), plan.node))


def _plan(
    fit: InventoryFit, request: SchedulingRequest, node: str, there: EvictionCandidates
) -> PreemptionPlan | None:
    """Return the victims on a node and the cards that the pod gets; None if evictions cannot help.

    Assumed placements are ignored: the ledger decides.
    """
    gone = [placed for _, placed in there.leaving]

    def cards(leaving: Sequence[Candidate]) -> Parts | None:
        placed = [*gone, *(candidate.placed for candidate in leaving)]
        return fit_after_eviction.cards_after(fit, request, node, placed)

    def fits(leaving: Sequence[Candidate]) -> bool:
        return cards(leaving) is not None

    with fit.inventory.overlay.without_assumed():
        evicted = victim_choice.choose(there.candidates, there.allowed, fits)
        parts = cards(evicted) if evicted is not None else None
    if evicted is None or parts is None:
        return None
    return PreemptionPlan(node, parts, evicted, tuple(subject for subject, _ in there.leaving))
