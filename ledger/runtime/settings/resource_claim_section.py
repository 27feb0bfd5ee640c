"""Resource claims of Dynamic Resource Allocation: device classes, and trusted identities."""

from typing import Annotated, Final

from msgspec import Meta

from ledger.runtime.settings.policy_section import PolicySection

OTHER_CLASSES_MAX: Final = 256
"""Most classes without GPUs, because each claim is compared with all of them."""

_CLASS: Final = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"


class ResourceClaimSection(PolicySection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Resource claims of Dynamic Resource Allocation: device classes, and trusted identities."""

    device_classes_file: Annotated[
        str,
        Meta(
            description="YAML file with drivers and DeviceClasses of GPUs, besides the built-in"
            " drivers."
        ),
    ] = ""
    other_device_classes: Annotated[
        tuple[Annotated[str, Meta(pattern=_CLASS)], ...],
        Meta(
            description="DeviceClasses without GPUs, at most 256: the API server sends no review of"
            " ResourceClaims that name only these.",
            examples=["fpga.example.com"],
        ),
    ] = ()
    claim_controllers: Annotated[
        tuple[str, ...],
        Meta(
            description="Users that create the ResourceClaims of pods from templates; such a claim"
            " is charged with its pod, that of another user by itself."
        ),
    ] = (
        "system:kube-controller-manager",
        "system:serviceaccount:kube-system:resource-claim-controller",
    )
    claim_schedulers: Annotated[
        tuple[str, ...],
        Meta(
            description="Users that create the ResourceClaims of extended resources; such a claim"
            " is charged with its pod, that of another user by itself.",
        ),
    ] = ("system:kube-scheduler",)
    review_claim_status: Annotated[
        bool,
        Meta(
            description="Whether allocations are reviewed before they are stored; the scheduler"
            " waits for each review."
        ),
    ] = False
