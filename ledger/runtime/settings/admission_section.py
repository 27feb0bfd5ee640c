"""Admission and settlement: times, sizes, and the users that are trusted."""

from typing import Annotated, Literal

from msgspec import Meta

from ledger.runtime.settings.serving_section import ServingSection

Choice = Literal["deny", "allow"]


class AdmissionSection(ServingSection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Admission and settlement: times, sizes, and the users that are trusted."""

    settle_seconds: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="Age at which a hold or a placement may be proved absent; at least 60,"
            " without the extender 45, less only in tests.",
        ),
    ] = 60.0
    admission_deadline_seconds: Annotated[
        float,
        Meta(gt=0, lt=10, description="Time for one review, below the webhook's own 10 seconds."),
    ] = 9.0
    review_bytes_max: Annotated[
        int, Meta(ge=65_536, le=64 * 1024**2, description="Largest accepted review, bytes.")
    ] = 8 * 1024**2
    on_unavailable: Annotated[
        Choice, Meta(description="Answer to a review while the log cannot be reached.")
    ] = "deny"
    privileged: Annotated[
        Choice, Meta(description="Whether privileged containers may request accelerators.")
    ] = "deny"
    trusted_identities: Annotated[
        tuple[str, ...],
        Meta(
            description="Further user names that may write the ledger's and HAMi's allocation"
            " annotations; `gpuledger import hami --dry-run` finds HAMi's.",
            examples=["system:serviceaccount:gpu-tools:vgpu-hami-device-plugin"],
        ),
    ] = ()
    trust_hami_defaults: Annotated[
        bool,
        Meta(
            description="Whether the accounts of a HAMi that is release hami in kube-system may"
            " write them, too."
        ),
    ] = True
    pseudonym_key_file: Annotated[
        str,
        Meta(
            description="File with the key, 32 bytes or more, of the pseudonyms that are recorded"
            " instead of users' names; the same for all replicas. None: names are recorded."
        ),
    ] = ""
    owner_holds_max: Annotated[
        int,
        Meta(ge=1, le=100_000, description="Unsettled creations of one owner in a namespace."),
    ] = 64
