"""What a pod asks for: the one function that turns a pod into amounts.

Both webhooks, settlement and the recount use it, so that what is reserved, what is committed and
what is compared can never differ by interpretation.
"""

import msgspec

from ledger.core.amounts import AMOUNT_MAX, Amounts, largest, without_zeros
from ledger.core.denials import Denial, Reason
from ledger.kube.containers import Refusal, cards_of, managed_of, shown
from ledger.kube.objects import Container, Pod, PodSpec, Resources
from ledger.kube.rules import DemandRules

__all__ = ["Demand", "DemandRules", "demand_of"]


class Demand(msgspec.Struct, frozen=True):
    """What a pod asks for: cards, MiB and percent of a card, each multiplied out over its cards.

    `memory_unknown` names the container that asks for a share of a card whose size is not known
    (a percentage or a whole card without `DemandRules.worst_card_memory`); the amounts then leave
    that memory out, so whoever limits memory must refuse. It is empty otherwise.
    """

    amounts: Amounts
    memory_unknown: str = ""


def demand_of(pod: Pod, rules: DemandRules) -> Demand | Denial:
    """Return what a pod asks for, or why its request cannot be understood.

    Limits are read first, then requests. Init containers count by their maximum, sidecars add to
    the app containers and to every later init container, as Kubernetes does it. The amounts are
    sorted by name and hold no zeros.
    """
    reading = _Reading(rules)
    peak = reading.peak(pod.spec)
    if rules.managed and reading.denial is None:
        peak = reading.with_pod_level(peak, pod.spec)
    if reading.denial is not None:
        return reading.denial
    for resource, amount in peak.items():
        if amount > AMOUNT_MAX:
            return _beyond(resource, amount)
    return Demand(without_zeros(peak), reading.memory_unknown)


class _Reading:
    """One walk over a pod's containers: what they add up to and what was wrong first."""

    __slots__ = ("denial", "memory_unknown", "rules")

    def __init__(self, rules: DemandRules) -> None:
        self.rules = rules
        self.denial: Denial | None = None
        self.memory_unknown = ""

    def peak(self, spec: PodSpec) -> Amounts:
        """Return the most that runs at once, from the first init container to the last app."""
        running: Amounts = {}
        peak: Amounts = {}
        for number, container in enumerate(spec.init_containers or ()):
            beside = _plus(running, self._asks("initContainers", number, container))
            if container.restart_policy == "Always":
                running = beside
            peak = largest(peak, beside)
        for number, container in enumerate(spec.containers or ()):
            running = _plus(running, self._asks("containers", number, container))
        return largest(peak, running)

    def with_pod_level(self, peak: Amounts, spec: PodSpec) -> Amounts:
        """Return the amounts with what the pod as a whole says: its resources and its overhead.

        Overhead raises limits only where there is one, as in Kubernetes.
        """
        peak = {**peak, **self._managed("spec.resources", spec.resources)}
        overhead = self._managed("spec.overhead", Resources(limits=spec.overhead))
        counted = {key: overhead[key] for key in overhead if key[:7] != "limits." or key in peak}
        return _plus(peak, counted)

    def _asks(self, kind: str, number: int, container: Container) -> Amounts:
        if container.resources is None:
            return {}
        rules = self.rules
        try:
            cards = cards_of(container, rules)
            asks = managed_of(container.resources, rules) if rules.managed else {}
        except Refusal as refusal:
            self._refuse(f"spec.{kind}[{number}].resources", f"container {container.name}", refusal)
            return {}
        if cards is None:
            return asks
        asks[rules.count] = cards.count
        asks[rules.cores] = cards.count * cards.cores
        if cards.memory is not None:
            asks[rules.memory] = cards.count * cards.memory
        elif not self.memory_unknown:
            self.memory_unknown = f"spec.{kind}[{number}].resources"
        return asks

    def _managed(self, field: str, resources: Resources | None) -> Amounts:
        try:
            return managed_of(resources, self.rules)
        except Refusal as refusal:
            self._refuse(field, "the pod", refusal)
            return {}

    def _refuse(self, field: str, who: str, refusal: Refusal) -> None:
        if self.denial is None:
            self.denial = Denial(
                refusal.reason,
                f"{refusal.resource} of {shown(who)} is {refusal.value}, which {refusal.why}",
                transient=False,
                remedy=refusal.remedy,
                field=f"{field}[{refusal.resource}]",
                value=refusal.value,
            )


def _plus(left: Amounts, right: Amounts) -> Amounts:
    """Return the sum per resource."""
    if not left or not right:
        return left or right
    total = dict(left)
    for resource, amount in right.items():
        total[resource] = total.get(resource, 0) + amount
    return total


def _beyond(resource: str, amount: int) -> Denial:
    return Denial(
        Reason.INVALID_QUANTITY,
        f"{resource} of the whole pod comes to {shown(amount)}, which is beyond 2^53",
        transient=False,
        remedy="Ask for less: no cluster has that much",
        field="spec",
        value=shown(amount),
    )
