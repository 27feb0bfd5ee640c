"""Scale admission: reviews of `kubectl scale` and autoscalers, which name replicas and no template.

The template is in the scaled object, at exactly the resourceVersion on which the scale is based.
The object is taken from the cache or read. If it is not available in time, the scale is allowed
unchecked, with a warning, because an autoscaler must not depend on the load of the API server. Each
pod beyond the object's reservation is then checked when it is created.
"""

import asyncio
from enum import Enum, auto
from typing import Final

import msgspec
import structlog

from ledger.kube.api.api_resources import Resource
from ledger.kube.api.cluster_errors import ClusterError
from ledger.kube.api.objects import Workload
from webhook.admission.objects.workload_admission import WorkloadAdmission, WorkloadWrite
from webhook.admission.verdict import UNTOUCHED, Verdict
from webhook.api.admission_review import AdmissionRequest, Scale, required_scale
from webhook.context.cluster_context import ClusterContext
from webhook.context.namespace_policies import NamespacePolicy
from webhook.context.owner_cache_content import cached_workload
from webhook.context.read_deadline import read_deadline
from webhook.kinds.kind_schema import WorkloadKind
from webhook.kinds.object_values import Json

UNCHECKED: Final = "scaled without asking the ledger: {}; its pods are checked one by one"

_log: Final = structlog.get_logger("webhook")


class _Moot(Enum):
    """The reason why the scaled object does not matter."""

    ASKS_NOTHING = auto()
    SUPERSEDED = auto()
    """Another write came first. The API server retries the scale, and it is reviewed again."""


class ScaleAdmission:
    """Decides about changes of scale subresources."""

    def __init__(self, workloads: WorkloadAdmission, context: ClusterContext) -> None:
        self._workloads = workloads
        self._context = context

    async def decide(
        self, request: AdmissionRequest, policy: NamespacePolicy, until: float, kind: WorkloadKind
    ) -> Verdict:
        """Decide about a scale; only an increase needs headroom. Raises BadReview."""
        new, old = required_scale(request, "object"), required_scale(request, "oldObject")
        if new.spec.replicas <= old.spec.replicas:
            return UNTOUCHED
        try:
            parent = await self._parent(request, kind, old, until)
        except (ClusterError, TimeoutError, ValueError) as error:
            reason = str(error) or "the API server did not answer in time"
            _log.warning("scale_unchecked", key=f"{kind.name}/{request.name}", reason=reason)
            return Verdict(warnings=(UNCHECKED.format(reason),))
        if isinstance(parent, _Moot):
            return UNTOUCHED
        write = WorkloadWrite(kind, with_replicas(kind, parent, new.spec.replicas), parent)
        return await self._workloads.decide(request, write, policy, until)

    async def _parent(
        self, request: AdmissionRequest, kind: WorkloadKind, old: Scale, until: float
    ) -> Workload | _Moot:
        """Return the scaled object at the version of the scale.

        Raises ClusterError, TimeoutError, and ValueError for an invalid resourceVersion.
        """
        meta, context = old.metadata, self._context
        base = meta.version()
        seen = context.parents.get(meta.uid)
        if seen is not None and seen.version == base and seen.resource.name == kind.name:
            return cached_workload(seen) or _Moot.ASKS_NOTHING
        if context.cluster is None:
            raise ClusterError(f"no cluster is there to read {kind.name}/{request.name} from")
        resource = Resource(kind.group, request.resource.version, kind.resource, kind.kind)
        async with asyncio.timeout_at(read_deadline(until)):
            parent = await context.cluster.get_object(
                resource, request.namespace, request.name or meta.name
            )
        if parent is None or parent.metadata.uid != meta.uid:
            return _Moot.SUPERSEDED
        version = parent.metadata.version()
        if version < base:
            raise ClusterError(f"read version {version} of what is at {base} already")
        return _Moot.SUPERSEDED if version > base else parent


def with_replicas(kind: WorkloadKind, workload: Workload, replicas: int) -> Workload:
    """Return a copy of the object with this number in the field that its scale changes.

    The generation of the copy is one higher, as after the write. Raises ValueError if the kind has
    no scale.
    """
    if kind.scale is None:
        raise ValueError(f"{kind.name} has no scale: its kind names no field for it")
    spec = _with(workload.spec, kind.scale.before[1:], replicas)
    metadata = msgspec.structs.replace(
        workload.metadata, generation=workload.metadata.generation + 1
    )
    return msgspec.structs.replace(workload, metadata=metadata, spec=spec)


def _with(value: Json, steps: tuple[str, ...], number: int) -> Json:
    """Return a copy of an object with a number in the field at the end of `steps`."""
    if not steps:
        return number
    members = value if isinstance(value, dict) else {}
    return {**members, steps[0]: _with(members.get(steps[0]), steps[1:], number)}
