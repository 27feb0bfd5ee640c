"""Eviction candidates: the pods of a node that could be evicted for another pod.

The ledger has the cards of the pods. Their priority, deletion and disruption budgets are read from
the API server.
"""

from collections.abc import Iterator
from typing import NamedTuple

from extender.preemption.victim_choice import Candidate, Subject
from extender.scheduler_api.extender_ports import PreemptionCluster
from extender.scheduler_api.scheduling_request import SchedulingRequest
from ledger.core.decide.cards.card_checks import residents
from ledger.core.model.cards import Placement
from ledger.core.model.state import State
from ledger.kube.api.disruption_budgets import Budget
from ledger.kube.api.objects import Pod


class EvictionCandidates(NamedTuple):
    """The candidates of a node, and the pods that leave already, with their placements.

    `allowed` is how many pods each budget allows to be evicted.
    """

    candidates: list[Candidate]
    leaving: list[tuple[Subject, Placement]]
    allowed: dict[str, int]


class DisruptionBudgets:
    """The PodDisruptionBudgets of the namespaces seen so far, each read once."""

    def __init__(self, cluster: PreemptionCluster) -> None:
        """Read budgets from a cluster."""
        self._cluster = cluster
        self._known: dict[str, list[Budget]] = {}
        self.allowed: dict[str, int] = {}

    async def of(self, pod: Pod) -> tuple[str, ...]:
        """Return the names of the budgets that protect a pod. Raises ClusterError."""
        namespace = pod.metadata.namespace
        if namespace not in self._known:
            self._known[namespace] = (await self._cluster.list_budgets(namespace)).objects
            for budget in self._known[namespace]:
                self.allowed[_name(budget)] = budget.status.disruptions_allowed
        return tuple(_name(budget) for budget in self._known[namespace] if budget.covers(pod))


async def eviction_candidates(
    cluster: PreemptionCluster,
    state: State,
    request: SchedulingRequest,
    node: str,
    budgets: DisruptionBudgets,
) -> EvictionCandidates:
    """Read the pods of a node, named without its cluster. Raises ClusterError.

    Pods that another scheduler has placed are not candidates, because the ledger does not have
    their requests. Victims of another claim are left out, because their cards are kept for it.
    """
    listed = await cluster.list_pods_on(node)
    pods = {pod.metadata.uid: pod for pod in listed.objects}
    there = EvictionCandidates([], [], budgets.allowed)
    for subject, placed in list(_theirs(state, request, f"{request.cluster}/{node}")):
        pod = pods.get(placed.uid)
        if pod is None:
            continue
        if is_leaving(pod):
            there.leaving.append((subject, placed))
        elif not placed.observed and priority_of(pod) < priority_of(request.pod):
            protecting = await budgets.of(pod)
            there.candidates.append(Candidate(subject, placed, priority_of(pod), protecting))
    return there


def priority_of(pod: Pod) -> int:
    """Return the priority of a pod, which the API server sets from its priority class."""
    return pod.spec.priority or 0


def is_leaving(pod: Pod) -> bool:
    """Return whether a pod is ending, and frees its cards without an eviction."""
    return pod.metadata.deletion_timestamp is not None or pod.status.has_ended()


def _theirs(
    state: State, request: SchedulingRequest, node: str
) -> Iterator[tuple[Subject, Placement]]:
    """Yield the placements on a node, except for victims of other claims."""
    promised = {
        victim
        for claim in state.claims.get(node, ())
        if claim.uid != request.uid
        for victim in claim.victims
    }
    for namespace, key, placed in residents(state, node):
        subject = namespace, key, placed.uid
        if subject not in promised and placed.uid != request.uid:
            yield subject, placed


def _name(budget: Budget) -> str:
    return f"{budget.metadata.namespace}/{budget.metadata.name}"
