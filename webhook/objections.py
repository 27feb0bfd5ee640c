"""Objections: the webhook's own denials, for what no ledger needs to be asked about."""

from ledger.core.denials import Denial, Reason
from ledger.kube.containers import asks_for_cards, shown
from ledger.kube.objects import Pod
from ledger.kube.rules import DemandRules


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


def too_late(seconds: float) -> Denial:
    """Return the denial of a request that the ledger did not answer in time."""
    return Denial(
        Reason.LEDGER_UNAVAILABLE,
        f"the ledger did not answer within {seconds:g} s",
        transient=True,
        remedy="Try again; if it persists, /readyz of gpuledger says what is wrong",
    )
