"""Objections: the webhook's own denials, for what no ledger needs to be asked about."""

from ledger.core.amounts import Amounts
from ledger.core.denials import Denial, Reason
from ledger.kube.containers import asks_for_cards, shown
from ledger.kube.demand import Demand
from ledger.kube.objects import Pod
from ledger.kube.rules import DemandRules
from ledger.kube.wishing import unclear


def privileged(pod: Pod, rules: DemandRules) -> Denial | None:
    """Return a denial when a container that asks for cards is privileged."""
    for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ())):
        context = container.security_context
        if context is not None and context.privileged and asks_for_cards(container, rules):
            return Denial(
                Reason.PRIVILEGED_CONTAINER,
                f"container {shown(container.name)} asks for cards and is privileged, so no limit"
                " on them could be enforced",
                transient=False,
                remedy="Remove securityContext.privileged, or have the policy allow it",
                field="securityContext.privileged",
                value="true",
            )
    return None


def misplaced(pod: Pod, old: Pod | None, rules: DemandRules) -> Denial | None:
    """Return a denial when a pod says how it is to be placed in words that nobody knows.

    What it said before already is let be, or nobody could write its labels and finalizers.
    """
    denial = unclear(pod, rules)
    if denial is None or old is None:
        return denial
    return None if unclear(old, rules) == denial else denial


def retyped(
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


def unnamed(field: str, text: str) -> Denial:
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


def uid_missing(key: str) -> Denial:
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


def too_late(seconds: float) -> Denial:
    """Return the denial of a request that the ledger did not answer in time."""
    return Denial(
        Reason.LEDGER_UNAVAILABLE,
        f"the ledger did not answer within {seconds:g} s",
        transient=True,
        remedy="Try again; if it persists, /readyz of gpuledger says what is wrong",
    )
