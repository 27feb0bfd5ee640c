"""Defaults for namespaces without a LedgerPolicy, and kinds of workloads."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from ledger.runtime.settings.admission_section import AdmissionSection

_CONTROLLER: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?=\S+$"


class PolicySection(AdmissionSection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults of policies, where no LedgerPolicy selects a namespace, and kinds of workloads."""

    mode: Annotated[
        Literal["enforce", "warn", "off"],
        Meta(
            description="Whether limits are enforced (default for namespaces without a"
            " LedgerPolicy)."
        ),
    ] = "enforce"
    on_exceeded: Annotated[
        Literal["deny", "pending"],
        Meta(
            description="Whether pods beyond a limit are refused or wait (default for namespaces"
            " without a LedgerPolicy)."
        ),
    ] = "deny"
    surge: Annotated[
        Literal["opportunistic", "reserve", "strict"],
        Meta(
            description="Use of a roll-out beyond its replicas (default for namespaces without a"
            " LedgerPolicy)."
        ),
    ] = "opportunistic"
    elastic: Annotated[
        Literal["current", "max"],
        Meta(
            description="Charge autoscaled workloads at current or maximum size (default for"
            " namespaces without a LedgerPolicy)."
        ),
    ] = "current"
    foreign_holders: Annotated[
        Literal["namespace", "none"],
        Meta(
            description="Other namespaces in the denial of a shared quota: each namespace with its"
            " share, or nothing (default for namespaces without a LedgerPolicy)."
        ),
    ] = "namespace"
    missing_claim_templates: Annotated[
        Literal["defer", "deny"],
        Meta(
            description="Whether a pod or workload may name a ResourceClaimTemplate that does not"
            " exist; its claims are charged when they are created (default for namespaces without a"
            " LedgerPolicy)."
        ),
    ] = "defer"
    unmapped_device_classes: Annotated[
        Literal["deny", "warn"],
        Meta(
            description="Whether requests of a DeviceClass are refused that may select GPUs of an"
            " unknown driver, or allowed uncharged with a warning (default for namespaces without a"
            " LedgerPolicy)."
        ),
    ] = "deny"
    pods_only: Annotated[
        bool,
        Meta(
            description="Charge pods only, not workloads (default for namespaces without a"
            " LedgerPolicy)."
        ),
    ] = False
    exempt_users: Annotated[
        tuple[str, ...],
        Meta(
            description="Users that may exceed limits, and are charged (default for namespaces"
            " without a LedgerPolicy).",
            examples=["system:serviceaccount:ops:rescuer"],
        ),
    ] = ()
    exempt_groups: Annotated[
        tuple[str, ...],
        Meta(
            description="Groups that may exceed limits, and are charged (default for namespaces"
            " without a LedgerPolicy)."
        ),
    ] = ()
    workload_kinds: Annotated[
        tuple[str, ...],
        Meta(
            description="YAML files, or folders of them, that describe further kinds of workloads.",
            examples=["/etc/gpuledger/kinds"],
        ),
    ] = ()
    controller_identities: Annotated[
        tuple[Annotated[str, Meta(pattern=_CONTROLLER)], ...],
        Meta(
            description="Further users or groups that create the pods of a kind, KIND=IDENTITY;"
            " these pods draw from its envelope.",
            examples=["jobs.batch=system:serviceaccount:volcano-system:volcano-controllers"],
        ),
    ] = ()
