"""Kubernetes objects as far as the ledger reads them, decoded from JSON bytes.

Only the fields that a rule needs are named. The decoder skips all others without building them,
so that a review or a list of 100 k pods is cheap to read. Absent and null are the same where the
API server may send either.
"""

from datetime import datetime
from typing import Any, Final

import msgspec

VERSION_DIGITS_MAX: Final = 18

Quantities = dict[str, str | int]
"""Resource name to quantity, as text (the API server's canonical form) or as a JSON integer."""


class OwnerReference(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One owner of an object; at most one of them is its `controller`."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    api_version: str = ""


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Metadata of an object. `deletion_grace_period_seconds` counts seconds.

    `generation` counts the changes of the spec, 0 for kinds that have none.
    """

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None

    def controller(self) -> OwnerReference | None:
        """Return the owner that controls the object, if one does."""
        for reference in self.owner_references or ():
            if reference.controller:
                return reference
        return None

    def full_name(self) -> str:
        """Return the name, with the namespace before it where there is one."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def version(self) -> int:
        """Return the resourceVersion as an integer, 0 when the object has none yet.

        Raises ValueError unless it is a number below 10^18, as every Kubernetes API server sends.
        """
        text = self.resource_version
        if not text:
            return 0
        if not (text.isascii() and text.isdigit() and len(text) <= VERSION_DIGITS_MAX):
            raise ValueError(f"metadata.resourceVersion {text[:32]!r} is not a version number")
        return int(text)


class Resources(msgspec.Struct, frozen=True, gc=False):
    """Limits and requests of a container, or of a whole pod."""

    limits: Quantities | None = None
    requests: Quantities | None = None


class SecurityContext(msgspec.Struct, frozen=True, gc=False):
    """The privileges of a container on its node."""

    privileged: bool | None = None


class Container(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """An app or init container; an init container that restarts `Always` is a sidecar."""

    name: str = ""
    restart_policy: str | None = None
    resources: Resources | None = None
    security_context: SecurityContext | None = None

    def is_sidecar(self) -> bool:
        """Return whether the container, if it is an init container, runs as long as the pod."""
        return self.restart_policy == "Always"


class AnySelector(msgspec.Struct, frozen=True, gc=False):
    """A label selector whose content is not read: only its presence counts."""


class AffinityTerm(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Pods to run near or away from; without namespaces or a selector, of the pod's namespace."""

    namespaces: list[str] | None = None
    namespace_selector: AnySelector | None = None


class WeightedAffinityTerm(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """An affinity term that is preferred."""

    pod_affinity_term: AffinityTerm = AffinityTerm()


class PodAffinity(msgspec.Struct, frozen=True, gc=False):
    """Affinity terms, or those of an anti-affinity."""

    required: list[AffinityTerm] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WeightedAffinityTerm] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The other pods that a pod is to run near or away from."""

    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class SchedulingGate(msgspec.Struct, frozen=True, gc=False):
    """Something that keeps a pod from being scheduled until it is removed."""

    name: str = ""


class PodResourceClaim(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A ResourceClaim of a pod, by name or generated from a ResourceClaimTemplate.

    `name` is unique in the pod; the API server accepts exactly one of the two others.
    """

    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class PodSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The desired state of a pod. `active_deadline_seconds` counts seconds from its start."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    ephemeral_containers: list[Container] | None = None
    resources: Resources | None = None
    overhead: Quantities | None = None
    node_name: str = ""
    scheduler_name: str = ""
    priority_class_name: str = ""
    priority: int | None = None
    preemption_policy: str | None = None
    active_deadline_seconds: int | None = None
    affinity: Affinity | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    resource_claims: list[PodResourceClaim] | None = None


class Running(msgspec.Struct, frozen=True, gc=False):
    """A running container; the fields of this state are not read."""


class Terminated(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A container has ended, with this exit code."""

    exit_code: int = 0


class ContainerState(msgspec.Struct, frozen=True, gc=False):
    """The state of a container; it is waiting when it neither runs nor has ended."""

    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The status of a container; `started` when its startup probe has passed."""

    name: str = ""
    started: bool | None = None
    state: ContainerState = ContainerState()

    def has_begun(self) -> bool:
        """Return whether the container has run, for however short a time."""
        state = self.state
        return bool(self.started or state.running or state.terminated)

    def has_succeeded(self) -> bool:
        """Return whether the container has ended with exit code 0."""
        ended = self.state.terminated
        return ended is not None and ended.exit_code == 0


class PodResourceClaimStatus(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The name of the claim that was generated for `name` of `spec.resourceClaims`."""

    name: str = ""
    resource_claim_name: str = ""


class ExtendedResourceRequest(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The request of a claim that serves an extended resource of a container."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class ExtendedResourceClaimStatus(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The claim by which DeviceClasses serve the extended resources of a pod."""

    resource_claim_name: str = ""
    request_mappings: list[ExtendedResourceRequest] | None = None


class PodStatus(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The status of a pod; `phase` is Pending, Running, Succeeded, Failed or Unknown."""

    phase: str = ""
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resource_claim_statuses: list[PodResourceClaimStatus] | None = None
    extended_resource_claim_status: ExtendedResourceClaimStatus | None = None

    def has_ended(self) -> bool:
        """Return whether all containers of the pod have ended for good."""
        return self.phase in ("Succeeded", "Failed")


class Pod(msgspec.Struct, frozen=True, gc=False):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Workload(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """An object of any kind that makes pods; `webhook.kinds` describes its fields."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class WorkloadList(msgspec.Struct, frozen=True, gc=False):
    """One page of workloads."""

    metadata: "ListMeta"
    items: list[Workload] | None = None


class ScopeRequirement(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One condition of a scope selector: In, NotIn, Exists or DoesNotExist."""

    scope_name: str
    operator: str
    values: list[str] | None = None


class ScopeSelector(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Conditions that must all hold for a quota to count a pod."""

    match_expressions: list[ScopeRequirement] | None = None


class ResourceQuotaSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Limits by quota key, and which pods they count."""

    hard: Quantities | None = None
    scopes: list[str] | None = None
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(msgspec.Struct, frozen=True, gc=False):
    """The published usage of a quota, by quota key."""

    used: Quantities | None = None


class ResourceQuota(msgspec.Struct, frozen=True, gc=False):
    """A ResourceQuota."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class NodeCondition(msgspec.Struct, frozen=True, gc=False):
    """One condition of a node, such as Ready: True, False or Unknown."""

    type: str = ""
    status: str = ""


class NodeStatus(msgspec.Struct, frozen=True, gc=False):
    """The allocatable resources of a node, and its conditions."""

    allocatable: Quantities | None = None
    conditions: list[NodeCondition] | None = None


class ApiNode(msgspec.Struct, frozen=True, gc=False):
    """A node; its annotations may announce cards."""

    metadata: ObjectMeta = ObjectMeta()
    status: NodeStatus = NodeStatus()

    def is_ready(self) -> bool:
        """Return whether the node's Ready condition is True: its kubelet reports, and recently."""
        conditions = self.status.conditions or ()
        return any(
            condition.type == "Ready" and condition.status == "True" for condition in conditions
        )


class ListMeta(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Metadata of a list; a non-empty `continue_` asks for the next page."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class PodList(msgspec.Struct, frozen=True, gc=False):
    """One page of pods."""

    metadata: ListMeta = ListMeta()
    items: list[Pod] | None = None


class NodeList(msgspec.Struct, frozen=True, gc=False):
    """One page of nodes."""

    metadata: ListMeta = ListMeta()
    items: list[ApiNode] | None = None


class ResourceQuotaList(msgspec.Struct, frozen=True, gc=False):
    """One page of ResourceQuotas."""

    metadata: ListMeta = ListMeta()
    items: list[ResourceQuota] | None = None


class WatchEvent(msgspec.Struct, frozen=True, gc=False):
    """One line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK, or ERROR with a `ApiStatus`."""

    type: str
    object: msgspec.Raw


class Bookmark(msgspec.Struct, frozen=True, gc=False):
    """The object of a BOOKMARK: only the version that the watch has reached."""

    metadata: ObjectMeta = ObjectMeta()


class StatusCause(msgspec.Struct, frozen=True, gc=False):
    """One reason, in a word and in a sentence, of a `ApiStatus`."""

    reason: str = ""
    message: str = ""


class StatusDetails(msgspec.Struct, frozen=True, gc=False):
    """The subject of an `ApiStatus`; `name` is empty when the subject is not an object."""

    name: str = ""
    causes: list[StatusCause] | None = None


class ApiStatus(msgspec.Struct, frozen=True, gc=False):
    """The API server's answer to a failed request, alone or inside an ERROR of a watch."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None

    def names_an_object(self) -> bool:
        """Return whether it is about an object, and not about an API or a whole request."""
        return self.details is not None and bool(self.details.name)

    def cause(self, reason: str) -> StatusCause | None:
        """Return the cause of this reason, if it is one of those given."""
        causes = self.details.causes if self.details is not None else None
        return next((cause for cause in causes or () if cause.reason == reason), None)
