"""Pod checks: denials of pods that do not depend on quotas.

A pod is refused for an invalid placement annotation, for a privileged container beside cards, for
spec.nodeName where its scheduler chooses the cards, and for a change of its card types.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from ledger.core.model.amounts import Amounts
from ledger.core.model.denials import Denial, Reason
from ledger.kube.api.objects import Container, Pod, PodSpec
from ledger.kube.api.quoting import shown
from ledger.kube.requests.container_demand import needs_cards
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.device_request_parser import invalid_device_request
from ledger.kube.requests.pod_demand import Demand
from webhook.context.admission_settings import AdmissionSettings
from webhook.context.card_schedulers import CardSchedulers

_KUBELETS: Final = "system:nodes"
"""The group of the kubelets. A pod that a kubelet creates is static and already runs."""


def pod_denial(
    pod: Pod,
    old: Pod | None,
    *,
    rules: DemandRules,
    settings: AdmissionSettings,
    groups: tuple[str, ...] = (),
) -> Denial | None:
    """Return the denial of a pod that a user of these groups may not write, or None."""
    denial = placement_denial(pod, old, rules)
    if denial is None and not settings.allow_privileged:
        denial = privileged_denial(pod, old, rules)
    if denial is None and old is None and _KUBELETS not in groups:
        denial = assigned_node_denial(pod, rules, settings.schedulers)
    return denial


def privileged_denial(pod: Pod, old: Pod | None, rules: DemandRules) -> Denial | None:
    """Return a denial if a pod that requests cards has a privileged container.

    A privileged container sees every card of its node, regardless of the container or resource
    claim that requests one. Privileged containers that the old pod had beside cards may stay;
    otherwise its labels and finalizers could not be written. They are matched by name, which is
    unique in a pod.
    """
    privileged = list(_privileged(pod.spec))
    taking = _what_takes_cards(pod, rules) if privileged else ""
    if not taking:
        return None
    before: frozenset[str] = frozenset()
    if old is not None and _what_takes_cards(old, rules):
        before = frozenset(container.name for _, container in _privileged(old.spec))
    new = ((field, container) for field, container in privileged if container.name not in before)
    first = next(new, None)
    if first is None:
        return None
    asks = needs_cards(first[1], rules)
    return _is_privileged(*first, "and asks for cards" if asks else _beside(taking))


def privileged_owner_denial(pod: Pod, claim: str) -> Denial | None:
    """Return a denial if a claim of cards is made for a pod that has a privileged container."""
    first = next(_privileged(pod.spec), None)
    if first is None:
        return None
    denial = _is_privileged(*first, _beside(f"resource claim {shown(claim)}"))
    return msgspec.structs.replace(
        denial,
        message=f"pod {shown(pod.metadata.name)}: {denial.message}",
        field="metadata.ownerReferences",
        value=shown(pod.metadata.name),
    )


def _beside(taking: str) -> str:
    return f"beside {taking}, which asks for cards"


def _is_privileged(field: str, container: Container, where: str) -> Denial:
    return Denial(
        Reason.PRIVILEGED_CONTAINER,
        f"container {shown(container.name)} is privileged {where}, so no limit on cards would hold",
        transient=False,
        remedy="Remove securityContext.privileged, or have the setting privileged allow it",
        field=f"{field}.securityContext.privileged",
        value="true",
    )


def _privileged(spec: PodSpec) -> Iterator[tuple[str, Container]]:
    """Yield the privileged containers of every kind, each with its field."""
    for field, containers in _containers(spec):
        for number, container in enumerate(containers or ()):
            context = container.security_context
            if context is not None and context.privileged:
                yield f"{field}[{number}]", container


def _what_takes_cards(pod: Pod, rules: DemandRules) -> str:
    """Return the container or resource claim that requests cards, "" if none is known to."""
    container = _taking_cards(pod.spec, rules)
    if container is not None:
        return f"container {shown(container.name)}"
    claim = rules.claims.card_claim(pod)
    return f"resource claim {shown(claim)}" if claim else ""


def _taking_cards(spec: PodSpec, rules: DemandRules) -> Container | None:
    """Return the first container that requests cards, None if there is none."""
    for _, containers in _containers(spec):
        for container in containers or ():
            if needs_cards(container, rules):
                return container
    return None


def _containers(spec: PodSpec) -> tuple[tuple[str, list[Container] | None], ...]:
    return (
        ("spec.initContainers", spec.init_containers),
        ("spec.containers", spec.containers),
        ("spec.ephemeralContainers", spec.ephemeral_containers),
    )


def assigned_node_denial(pod: Pod, rules: DemandRules, schedulers: CardSchedulers) -> Denial | None:
    """Return a denial if a new pod names its node although its scheduler places on cards."""
    spec = pod.spec
    if not spec.node_name or not schedulers.place(pod) or _taking_cards(spec, rules) is None:
        return None
    return Denial(
        Reason.NODE_ASSIGNED,
        f"spec.nodeName is {shown(spec.node_name)}, so {shown(schedulers.of(pod))} could"
        " not choose cards for the pod",
        transient=False,
        remedy="Leave spec.nodeName out, and select the node with spec.nodeSelector or"
        " spec.affinity, for example by the label kubernetes.io/hostname",
        field="spec.nodeName",
        value=shown(spec.node_name),
    )


def placement_denial(pod: Pod, old: Pod | None, rules: DemandRules) -> Denial | None:
    """Return a denial if an annotation of a pod has an invalid placement.

    An invalid annotation that the old pod had may stay; otherwise its labels could not be written.
    """
    if not pod.metadata.annotations:
        return None
    denial = invalid_device_request(pod, rules)
    if denial is None or old is None:
        return denial
    return None if invalid_device_request(old, rules) == denial else denial


def type_change_denial(
    new: tuple[Pod, Demand], old: tuple[Pod, Demand | Denial], rules: DemandRules
) -> Denial | None:
    """Return a denial if an update changes the card types for which a pod is charged.

    The pod may already have a card of its type, and a new annotation does not release that card.
    """
    (pod, now), (stored, before) = new, old
    if isinstance(before, Denial):
        return None
    types, other = _types(before.amounts, rules), _types(now.amounts, rules)
    if types == other:
        return None
    annotation, text = _changed_type(pod, stored, rules)
    return Denial(
        Reason.GPU_TYPE_CHANGED,
        f"the pod counts as one for {types} cards and would count as one for {other} cards; the"
        " type is settled when a pod is created",
        transient=False,
        remedy="Create another pod with the other type, or change the template of what made it",
        field=f"metadata.annotations[{annotation}]",
        value=shown(text),
    )


def _types(amounts: Amounts, rules: DemandRules) -> str:
    """Return the card types whose keys have amounts, as text for messages."""
    types = (
        card_type
        for card_type, names in rules.typed.items()
        if not amounts.keys().isdisjoint(names.values())
    )
    return " or ".join(sorted(types)) or "any"


def _changed_type(pod: Pod, stored: Pod, rules: DemandRules) -> tuple[str, str]:
    """Return the annotation that changed the types, and its present value."""
    now, before = pod.metadata.annotations or {}, stored.metadata.annotations or {}
    changed = (key for key in rules.type_annotations if now.get(key) != before.get(key))
    key = next(changed, rules.type_annotations[0])
    return key, now.get(key, "")
