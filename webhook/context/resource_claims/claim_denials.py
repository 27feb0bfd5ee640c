"""Claim denials: refusals of pods, workloads and claims for their resource claims."""

from collections.abc import Sequence
from typing import Final

import msgspec

from ledger.core.model.denials import Denial, Reason
from ledger.kube.api.quoting import shown
from ledger.kube.resource_claims.device_classes import Unmapped

_DETAIL_MAX: Final = 200
_NAMES_MAX: Final = 3

_TO_EXIST: Final = "Create this DeviceClass, or name one that exists"
_TO_MAP: Final = (
    "Name a class that is mapped. An operator maps it in device_classes_file, lists it in"
    " other_device_classes if it selects no GPUs, or sets unmappedDeviceClasses to warn"
)


def claim_field(number: int) -> str:
    """Return the field of a pod that names the template of one of its claims."""
    return f"spec.resourceClaims[{number}].resourceClaimTemplateName"


def of_template(denial: Denial, number: int, name: str) -> Denial:
    """Return the denial of a claim as that of a pod that names its template."""
    where = f"spec.spec.{denial.field} of ResourceClaimTemplate {shown(name)}"
    return msgspec.structs.replace(
        denial, message=f"{where}: {denial.message}", field=claim_field(number), value=shown(name)
    )


def undecided_denial(what: str, problem: str) -> Denial:
    """Return the denial of a request whose claims cannot be decided now."""
    return Denial(
        Reason.CLAIM_UNDECIDED,
        f"{what} could not be read, so the charge of a resource claim is not known:"
        f" {problem[:_DETAIL_MAX]}",
        transient=True,
        remedy="Try again; if it persists, check that gpuledger may list and watch"
        " resource.k8s.io, and /readyz of gpuledger",
    )


def of_claim_spec(denial: Denial, prefix: str) -> Denial:
    """Return the denial of a claim's spec as that of the object that has the spec at `prefix`."""
    return msgspec.structs.replace(denial, field=f"{prefix}.{denial.field}")


def in_flight_denial(name: str, pod_claim: str) -> Denial:
    """Return the denial of a claim while another one for the same claim of a pod is written."""
    return Denial(
        Reason.CLAIM_UNDECIDED,
        f"ResourceClaim {shown(name)} was allowed for the same claim {shown(pod_claim)} of the pod"
        " a moment ago, and it is not known yet whether it was written",
        transient=True,
        remedy="Try again in a second",
        field="metadata.annotations",
    )


def missing_template_denial(number: int, name: str) -> Denial:
    """Return the denial of a pod whose template does not exist, where the policy requires it."""
    return Denial(
        Reason.CLAIM_TEMPLATE_MISSING,
        f"ResourceClaimTemplate {shown(name)} does not exist, so its claim cannot be charged",
        transient=True,
        remedy="Create the ResourceClaimTemplate first, or have missingClaimTemplates of the"
        " LedgerPolicy set to defer",
        field=claim_field(number),
        value=shown(name),
    )


def unmapped_denial(field: str, classes: Sequence[Unmapped]) -> Denial:
    """Return the denial of a claim whose classes may select GPUs and cannot be charged."""
    return Denial(
        Reason.UNMAPPED_DEVICE_CLASS,
        unmapped_message(classes),
        transient=False,
        remedy=_TO_MAP if classes[0].exists else _TO_EXIST,
        field=field,
        value=shown(classes[0].name),
    )


def unmapped_message(classes: Sequence[Unmapped]) -> str:
    """Return the sentence about classes that cannot be charged, without a full stop."""
    first, *others = classes
    named = ", ".join(shown(each.name) for each in others[:_NAMES_MAX])
    more = f" and {len(others) - _NAMES_MAX} more" if len(others) > _NAMES_MAX else ""
    also = f"; nor can those of {named}{more}" if others else ""
    return f"DeviceClass {shown(first.name)} {first.why}, so its devices cannot be charged{also}"


def other_pod_denial(number: int, name: str, owner: str) -> Denial:
    """Return the denial of a pod that names the generated claim of another pod."""
    return Denial(
        Reason.CLAIM_OF_OTHER_POD,
        f"ResourceClaim {shown(name)} was generated for pod {shown(owner)}, and is charged only as"
        " long as that pod counts",
        transient=False,
        remedy="Use resourceClaimTemplateName, or name a ResourceClaim that you create",
        field=f"spec.resourceClaims[{number}].resourceClaimName",
        value=shown(name),
    )


def both_unknown_denial(field: str, first: str, other: str) -> Denial:
    """Return the denial of claims that take unknown amounts of two resources."""
    return Denial(
        Reason.CARD_MEMORY_UNKNOWN,
        f"the resource claims take cards of which neither {first} nor {other} is known",
        transient=False,
        remedy="Ask for capacities in the claims, or set worst_card_memory to the MiB to assume",
        field=field,
    )
