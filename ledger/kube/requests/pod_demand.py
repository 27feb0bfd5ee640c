"""Pod demand: the one function that turns a pod into amounts.

Both webhooks, settlement and the recount use it, so that reserved, committed and compared amounts
never differ by interpretation.
"""

import msgspec

from ledger.core.model.amounts import Amounts, largest, most_of, plus, without_zeros
from ledger.core.model.denials import Denial, Reason
from ledger.kube.api.objects import Container, Pod, PodSpec, Resources
from ledger.kube.api.quoting import shown
from ledger.kube.requests.confirmed_card_sizes import with_accepted_sizes
from ledger.kube.requests.container_demand import InvalidRequest, cards_of, managed_of
from ledger.kube.requests.demand import NO_DEMAND, Demand
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.gpu_type_annotation import NONE, NamedTypes, types_named

__all__ = ["Demand", "DemandRules", "demand_of", "without_claims"]


def demand_of(pod: Pod, rules: DemandRules) -> Demand | Denial:
    """Return the demand of a pod, or the denial of an invalid request.

    Limits are read first, then requests. As in Kubernetes, init containers count by their maximum,
    and sidecars add to the app containers and to every later init container. A pod that names
    card types is also charged on the keys of each type. The amounts are sorted by name and hold
    no zeros.
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
    if pod.spec.resource_claims and reading.denial is None:
        peak = reading.with_claims(peak, rules.claims.of_pod(pod))
    if reading.denial is not None:
        return reading.denial
    for resource, amount in peak.items():
        if amount > most_of(resource):
            return _beyond(resource, amount)
    assumed = tuple(name for name in peak if name in reading.assumed)
    demand = Demand(without_zeros(peak), reading.memory_unknown, reading.unknown, assumed)
    return demand if reading.claimed is NO_DEMAND else reading.with_deferred(demand)


def without_claims(pod: Pod) -> Pod:
    """Return the pod without resource claims, so that only its containers request something."""
    spec = msgspec.structs.replace(pod.spec, resource_claims=None)
    return msgspec.structs.replace(pod, spec=spec)


class _Reading:
    """One pass over a pod's containers: their amounts and the first denial."""

    __slots__ = (
        "assumed",
        "card_memory",
        "claimed",
        "denial",
        "memory_unknown",
        "rules",
        "unknown",
    )

    def __init__(self, rules: DemandRules, card_memory: int) -> None:
        self.rules = rules
        self.card_memory = card_memory
        self.claimed = NO_DEMAND
        self.denial: Denial | None = None
        self.memory_unknown = ""
        self.unknown = ""
        self.assumed: set[str] = set()

    def peak(self, spec: PodSpec) -> Amounts:
        """Return the largest amounts that the containers use at the same time."""
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
        """Return the amounts with the pod-level resources and the overhead.

        As in Kubernetes, overhead raises a limit only if the pod has that limit.
        """
        peak = {**peak, **self._managed("spec.resources", spec.resources)}
        overhead = self._managed("spec.overhead", Resources(limits=spec.overhead))
        counted = {key: overhead[key] for key in overhead if key[:7] != "limits." or key in peak}
        return plus(peak, counted)

    def with_types(self, peak: Amounts, types: NamedTypes) -> Amounts:
        """Return the amounts with those of the card types that the pod names."""
        cards = [name for name in peak if name in self.rules.of_cards]
        if not cards:
            return peak
        if types.unknown:
            self.denial = _no_type(types, self.rules)
            return peak
        peak = dict(peak)
        for card_type in types.types:
            names = self.rules.typed[card_type.name]
            peak.update({names[resource]: peak[resource] for resource in cards})
            self.assumed |= {names[resource] for resource in cards if resource in self.assumed}
        return peak

    def with_claims(self, peak: Amounts, claimed: Demand | Denial) -> Amounts:
        """Return the amounts with those of the pod's resource claims, which it holds throughout."""
        if isinstance(claimed, Denial):
            self.denial = claimed
            return peak
        self.claimed = claimed
        self.assumed |= set(claimed.assumed)
        if claimed.unknown:
            self._miss(claimed.memory_unknown, claimed.unknown)
        return plus(peak, claimed.amounts)

    def with_deferred(self, demand: Demand) -> Demand:
        """Return the demand with the part of the claims that do not exist yet."""
        claimed = self.claimed
        return msgspec.structs.replace(
            demand, deferred=claimed.deferred, unresolved=claimed.unresolved
        )

    def _asks(self, kind: str, number: int, container: Container) -> Amounts:
        if container.resources is None:
            return {}
        rules = self.rules
        try:
            requests = cards_of(container, rules, self.card_memory)
            asks = managed_of(container.resources, rules) if rules.besides else {}
        except InvalidRequest as refusal:
            self._refuse(f"spec.{kind}[{number}].resources", f"container {container.name}", refusal)
            return {}
        for cards in requests:
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
        """Record an unknown amount; a second unknown resource is a denial."""
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


def _both_unknown(field: str, first: str, other: str) -> Denial:
    return Denial(
        Reason.CARD_MEMORY_UNKNOWN,
        f"the pod asks for whole cards or percentages of them, and neither how much {first} nor how"
        f" much {other} such a card has is known",
        transient=False,
        remedy=f"Ask for MiB with {other}, or set worst_card_memory to the MiB to assume",
        field=f"{field}[{other}]",
    )


def _no_type(types: NamedTypes, rules: DemandRules) -> Denial:
    return Denial(
        Reason.UNKNOWN_GPU_TYPE,
        f"{shown(types.unknown)} in the annotation {types.annotation} is not a known type of card",
        transient=False,
        remedy=f"Write one of {', '.join(rules.known_types)}, or leave the annotation out; more"
        " types can be made known with the setting gpu_types",
        field=f"metadata.annotations[{types.annotation}]",
        value=shown(types.unknown),
    )
