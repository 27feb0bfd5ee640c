"""Defaults of policies, where no LedgerPolicy selects a namespace, and kinds of workloads."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from ledger.runtime.settings.admission_section import AdmissionSection

_CONTROLLER: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?=\S+$"


class PolicySection(AdmissionSection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults of policies, where no LedgerPolicy selects a namespace, and kinds of workloads."""

    mode: Annotated[
        Literal["enforce", "warn", "off"],
        Meta(description="Whether limits hold, in namespaces that no LedgerPolicy selects."),
    ] = "enforce"
    on_exceeded: Annotated[
        Literal["deny", "pending"],
        Meta(description="Whether pods beyond a limit are refused or wait, where none selects."),
    ] = "deny"
    surge: Annotated[
        Literal["opportunistic", "reserve", "strict"],
        Meta(description="Use of a roll-out beyond its replicas, where none selects."),
    ] = "opportunistic"
    elastic: Annotated[
        Literal["current", "max"],
        Meta(
            description="Whether what an autoscaler enlarges is charged as it is, or at the most"
            " that it may become; where none selects."
        ),
    ] = "current"
    foreign_holders: Annotated[
        Literal["namespace", "none"],
        Meta(
            description="Other namespaces in the denial of a shared quota: each"
            " namespace with its share, or nothing; where no policy selects."
        ),
    ] = "namespace"
    pods_only: Annotated[
        bool,
        Meta(description="Charge pods alone and workloads nothing, where no policy selects."),
    ] = False
    exempt_users: Annotated[
        tuple[str, ...],
        Meta(
            description="Users that may exceed limits, and are charged; where none selects.",
            examples=["system:serviceaccount:ops:rescuer"],
        ),
    ] = ()
    exempt_groups: Annotated[
        tuple[str, ...],
        Meta(description="Groups that may exceed limits, and are charged; where none selects."),
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
            description="Further users or groups that create what a kind controls, KIND=IDENTITY;"
            " what they create draws from its envelope.",
            examples=["jobs.batch=system:serviceaccount:volcano-system:volcano-controllers"],
        ),
    ] = ()
