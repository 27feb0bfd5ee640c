"""The cluster: its name, its API server, and the registration of the webhooks."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from ledger.runtime.settings.log_section import LogSection
from ledger.runtime.settings.setting_patterns import (
    LABEL_VALUE_PATTERN,
    NAME_PATTERN,
    OPTIONAL_NAME_PATTERN,
    POD_NAME_PATTERN,
    WEBHOOK_URL_PATTERN,
)

_LABEL: Final = (
    r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
    r"=([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"
)


class ClusterSection(LogSection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cluster: its name, its API server, and the registration of the webhooks."""

    cluster: Annotated[
        str,
        Meta(
            pattern=NAME_PATTERN,
            description="This cluster's name in the ledger, bound to its kube-system namespace.",
            examples=["east-1"],
        ),
    ] = "local"
    region: Annotated[
        str,
        Meta(
            pattern=LABEL_VALUE_PATTERN,
            description="Region of this cluster, for the quotas that select by region.",
            examples=["eu-west"],
        ),
    ] = ""
    cluster_labels: Annotated[
        tuple[Annotated[str, Meta(pattern=_LABEL)], ...],
        Meta(
            description="Labels of this cluster, KEY=VALUE, for the quotas that select by them.",
            examples=["tier=prod"],
        ),
    ] = ()
    universe_authority: Annotated[
        bool,
        Meta(
            description="Whether the UniverseResourceQuotas of this cluster apply; set it in"
            " exactly one of the clusters on one log."
        ),
    ] = True
    write_quota_status: Annotated[
        bool,
        Meta(
            description="Write used amounts into the status of ResourceQuotas, for the limits.*"
            " keys that Kubernetes does not count."
        ),
    ] = True
    kubernetes: Annotated[
        bool,
        Meta(description="Watch a cluster; without one, quotas come from `gpuledger quota set`."),
    ] = True
    kubeconfig: Annotated[
        str,
        Meta(
            description="kubeconfig file; none: the service account of the pod, for reading"
            " commands $KUBECONFIG or ~/.kube/config."
        ),
    ] = ""
    namespace: Annotated[
        str,
        Meta(
            pattern=NAME_PATTERN,
            description="Namespace gpuledger runs in; always exempt from admission.",
        ),
    ] = "gpuledger-system"
    exempt_namespaces: Annotated[
        tuple[str, ...],
        Meta(
            description="Further namespaces that the webhooks exempt.",
            examples=["monitoring"],
        ),
    ] = ("kube-system",)
    register_webhook: Annotated[
        str,
        Meta(
            pattern=WEBHOOK_URL_PATTERN,
            description="Base URL under which the API server reaches this service; registers it.",
            examples=["https://gpuledger.example:8443"],
        ),
    ] = ""
    register_service: Annotated[
        str,
        Meta(
            pattern=OPTIONAL_NAME_PATTERN,
            description="Service of the own namespace, port 443, under which the API server reaches"
            " this service; registers it, and keeps its address and CA registered.",
            examples=["gpuledger"],
        ),
    ] = ""
    pod_name: Annotated[
        str,
        Meta(
            pattern=POD_NAME_PATTERN,
            description="Name of the own pod, on which this replica keeps the label"
            " gpuledger.io/role=reviewer while it is to answer reviews; none: no label is written.",
        ),
    ] = ""
    webhook_name: Annotated[
        str,
        Meta(
            pattern=NAME_PATTERN,
            description="Name of both webhook configurations; another one for each installation in"
            " one API server.",
        ),
    ] = "gpuledger"
    webhook_failure_policy: Annotated[
        Literal["Fail", "Ignore"],
        Meta(
            description="Whether the API server refuses pods and workloads that request cards while"
            " no replica answers. Ignore enforces nothing then; the pods are charged later."
        ),
    ] = "Fail"
