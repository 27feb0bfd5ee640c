"""What a pod asks for: the one function that turns a pod into amounts.

Both webhooks, settlement and the recount use it, so that what is reserved, what is committed and
what is compared can never differ by interpretation.
"""

import msgspec

from ledger.core.model.amounts import Amounts, largest, most_of, plus, without_zeros
from ledger.core.model.denials import Denial, Reason
from ledger.kube.api.objects import Container, Pod, PodSpec, Resources
from ledger.kube.api.quoting import shown
from ledger.kube.requests.card_sizes import with_accepted_sizes
from ledger.kube.requests.container_demand import InvalidRequest, cards_of, managed_of
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.gpu_types import NONE, NamedTypes, types_named

__all__ = ["Demand", "DemandRules", "demand_of"]


class Demand(msgspec.Struct, frozen=True):
    """What a pod asks for: cards, MiB and shares of a card, each multiplied out over its cards.

    `memory_unknown` is the field that asks for a share of a card whose size is not known (a
    percentage or a whole card without `DemandRules.worst_card_memory`), and `unknown` the resource
    that it asks for; the amounts then leave that memory out, so whoever limits this resource, of
    all cards or of one type of them, must refuse. Both are empty otherwise. `assumed` are the
    resources whose amounts rest on which cards there are now.
    """

    amounts: Amounts
    memory_unknown: str = ""
    unknown: str = ""
    assumed: tuple[str, ...] = ()


def demand_of(pod: Pod, rules: DemandRules) -> Demand | Denial:
    """Return what a pod asks for, or why its request cannot be understood.

    Limits are read first, then requests. Init containers count by their maximum, sidecars add to
    the app containers and to every later init container, as Kubernetes does it. A pod that names
    types of cards is charged on the keys of each of them as well. The amounts are sorted by name
    and hold no zeros.
    """
    types = NONE
    if rules.types:
        types = types_named(pod.metadata.annotations, rules.type_annotations, rules.known_types)
    if rules.sizes and pod.metadata.annotations:
        rules = with_accepted_sizes(rules, pod.metadata.annotations)
    reading = _Reading(rules, types.memory if types.types else 0)
    peak = reading.peak(pod.spec)
    if rules.besides and reading.denial is None:
        peak = reading.with_pod_level(peak, pod.spec)
    if types is not NONE and reading.denial is None:
        peak = reading.with_types(peak, types)
    if reading.denial is not None:
        return reading.denial
    for resource, amount in peak.items():
        if amount > most_of(resource):
            return _beyond(resource, amount)
    assumed = tuple(name for name in peak if name in reading.assumed)
    return Demand(without_zeros(peak), reading.memory_unknown, reading.unknown, assumed)


class _Reading:
    """One walk over a pod's containers: what they add up to and what was wrong first."""

    __slots__ = ("assumed", "card_memory", "denial", "memory_unknown", "rules", "unknown")

    def __init__(self, rules: DemandRules, card_memory: int) -> None:
        self.rules = rules
        self.card_memory = card_memory
        self.denial: Denial | None = None
        self.memory_unknown = ""
        self.unknown = ""
        self.assumed: set[str] = set()

    def peak(self, spec: PodSpec) -> Amounts:
        """Return the most that runs at once, from the first init container to the last app."""
        running: Amounts = {}
        peak: Amounts = {}
        for number, container in enumerate(spec.init_containers or ()):
            beside = plus(running, self._asks("initContainers", number, container))
            if container.is_sidecar():
                running = beside
            peak = largest(peak, beside)
        for number, container in enumerate(spec.containers or ()):
            running = plus(running, self._asks("containers", number, container))
        return largest(peak, running)

    def with_pod_level(self, peak: Amounts, spec: PodSpec) -> Amounts:
        """Return the amounts with what the pod as a whole says: its resources and its overhead.

        Overhead raises limits only where there is one, as in Kubernetes.
        """
        peak = {**peak, **self._managed("spec.resources", spec.resources)}
        overhead = self._managed("spec.overhead", Resources(limits=spec.overhead))
        counted = {key: overhead[key] for key in overhead if key[:7] != "limits." or key in peak}
        return plus(peak, counted)

    def with_types(self, peak: Amounts, types: NamedTypes) -> Amounts:
        """Return the amounts with those of the types of cards that the pod names."""
        cards = [name for name in peak if name in self.rules.of_cards]
        if not cards:
            return peak
        if types.unknown:
            self.denial = _no_type(types, self.rules)
            return peak
        peak = dict(peak)
        for one in types.types:
            names = self.rules.typed[one.name]
            peak.update({names[resource]: peak[resource] for resource in cards})
            self.assumed |= {names[resource] for resource in cards if resource in self.assumed}
        return peak

    def _asks(self, kind: str, number: int, container: Container) -> Amounts:
        if container.resources is None:
            return {}
        rules = self.rules
        try:
            found = cards_of(container, rules, self.card_memory)
            asks = managed_of(container.resources, rules) if rules.besides else {}
        except InvalidRequest as refusal:
            self._refuse(f"spec.{kind}[{number}].resources", f"container {container.name}", refusal)
            return {}
        for cards in found:
            vendor, count = cards.vendor, cards.count
            if vendor.count:
                asks[vendor.count] = count
            if vendor.cores:
                asks[vendor.cores] = count * cards.cores
            if vendor.memory and cards.memory is not None:
                asks[vendor.memory] = count * cards.memory
                if cards.assumed:
                    self.assumed.add(vendor.memory)
            elif vendor.memory:
                self._miss(f"spec.{kind}[{number}].resources", vendor.memory)
        return asks

    def _miss(self, field: str, resource: str) -> None:
        """Note an amount that is not known; there is room for one resource of which that is so."""
        if not self.unknown:
            self.memory_unknown, self.unknown = field, resource
        elif resource != self.unknown and self.denial is None:
            self.denial = _both_unknown(field, self.unknown, resource)

    def _managed(self, field: str, resources: Resources | None) -> Amounts:
        try:
            return managed_of(resources, self.rules)
        except InvalidRequest as refusal:
            self._refuse(field, "the pod", refusal)
            return {}

    def _refuse(self, field: str, who: str, refusal: InvalidRequest) -> None:
        if self.denial is None:
            self.denial = refusal.denial(field, who)


def _beyond(resource: str, amount: int) -> Denial:
    return Denial(
        Reason.INVALID_QUANTITY,
        f"{resource} of the whole pod comes to {shown(amount)}, which is beyond"
        f" {most_of(resource)}",
        transient=False,
        remedy="Ask for less: no cluster has that much",
        field="spec",
        value=shown(amount),
    )


def _both_unknown(field: str, one: str, other: str) -> Denial:
    return Denial(
        Reason.CARD_MEMORY_UNKNOWN,
        f"the pod asks for whole cards or percentages of them, and neither how much {one} nor how"
        f" much {other} such a card has is known",
        transient=False,
        remedy=f"Ask for MiB with {other}, or have the setting worst_card_memory say how many MiB"
        " to assume",
        field=f"{field}[{other}]",
    )


def _no_type(types: NamedTypes, rules: DemandRules) -> Denial:
    return Denial(
        Reason.UNKNOWN_GPU_TYPE,
        f"{shown(types.unknown)} in the annotation {types.annotation} is no known type of card",
        transient=False,
        remedy=f"Write one of {', '.join(rules.known_types)}, or leave the annotation out; more"
        " types can be made known with the setting gpu_types",
        field=f"metadata.annotations[{types.annotation}]",
        value=shown(types.unknown),
    )
