"""Objections: the webhook's own denials, for what no ledger needs to be asked about."""

from collections.abc import Iterator

from ledger.core.model.amounts import Amounts
from ledger.core.model.denials import Denial, Reason
from ledger.kube.api.objects import Container, Pod, PodSpec
from ledger.kube.requests.container_requests import needs_cards, shown
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.device_request_parser import invalid_device_request
from ledger.kube.requests.pod_demand import Demand
from webhook.api.card_schedulers import CardSchedulers


def privileged_denial(pod: Pod, old: Pod | None, rules: DemandRules) -> Denial | None:
    """Return a denial when a pod that takes cards has a privileged container.

    A privileged container sees every card of its node, whichever container asks for one. Those that
    the old pod had beside cards stay, or its labels and finalizers could not be written; they are
    known by their names, which are unique in a pod.
    """
    found = list(_privileged(pod.spec))
    taking = _taking_cards(pod.spec, rules) if found else None
    if taking is None:
        return None
    before: frozenset[str] = frozenset()
    if old is not None and _taking_cards(old.spec, rules) is not None:
        before = frozenset(container.name for _, container in _privileged(old.spec))
    new = ((field, one) for field, one in found if one.name not in before)
    first = next(new, None)
    return None if first is None else _is_privileged(*first, taking, rules)


def _is_privileged(
    field: str, container: Container, taking: Container, rules: DemandRules
) -> Denial:
    if needs_cards(container, rules):
        where = "and asks for cards"
    else:
        where = f"beside container {shown(taking.name)}, which asks for cards"
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


def _taking_cards(spec: PodSpec, rules: DemandRules) -> Container | None:
    """Return the first container that takes cards, None where none does."""
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
    """Return a denial when a new pod names its node, and its scheduler would place it on cards."""
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
    """Return a denial when a pod says how it is to be placed in words that nobody knows.

    What it said before already is let be, or nobody could write its labels and finalizers.
    """
    denial = invalid_device_request(pod, rules)
    if denial is None or old is None:
        return denial
    return None if invalid_device_request(old, rules) == denial else denial


def type_change_denial(
    new: tuple[Pod, Demand], old: tuple[Pod, Demand | Denial], rules: DemandRules
) -> Denial | None:
    """Return a denial when a pod would count as of other types of cards than it does.

    It may have a card of its type by now, which another word in an annotation does not give back.
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
    """Return the types of cards on whose keys these amounts count."""
    found = (
        one for one, names in rules.typed.items() if not amounts.keys().isdisjoint(names.values())
    )
    return " or ".join(sorted(found)) or "any"


def _changed_type(pod: Pod, stored: Pod, rules: DemandRules) -> tuple[str, str]:
    """Return the annotation by which the types became others, and what it says now."""
    now, before = pod.metadata.annotations or {}, stored.metadata.annotations or {}
    changed = (key for key in rules.type_annotations if now.get(key) != before.get(key))
    key = next(changed, rules.type_annotations[0])
    return key, now.get(key, "")


def unusable_name_denial(field: str, text: str) -> Denial:
    """Return the denial of an object that lacks what names its attempt."""
    return Denial(
        Reason.INVALID_REVIEW,
        f"{field} is {'not a usable name' if text else 'missing'}, so the attempt to write this"
        " object cannot be told from others",
        transient=False,
        remedy="kube-apiserver sets it before validating admission; is this webhook registered as"
        " a validating one?",
        field=field,
        value=shown(text),
    )


def missing_uid_denial(key: str) -> Denial:
    """Return the denial of a creation that cannot be told from others of the same name.

    A hold for its key alone could end only by a guess: an object of that name that is there, or is
    not, proves nothing about this request.
    """
    return Denial(
        Reason.UID_MISSING,
        f"the creation of {shown(key)} was sent without metadata.uid, so nothing could prove what"
        " became of it",
        transient=False,
        remedy="Register /admission/validate in a ValidatingWebhookConfiguration, as `gpuledger"
        " webhook print` shows it: kube-apiserver sets the uid before it asks those. An aggregated"
        " API server has to set it as well, or name its namespaces in exempt_namespaces",
        field="metadata.uid",
    )


def deadline_denial(seconds: float) -> Denial:
    """Return the denial of a request that the ledger did not answer in time."""
    return Denial(
        Reason.LEDGER_UNAVAILABLE,
        f"the ledger did not answer within {seconds:g} s",
        transient=True,
        remedy="Try again; if it persists, /readyz of gpuledger says what is wrong",
    )
