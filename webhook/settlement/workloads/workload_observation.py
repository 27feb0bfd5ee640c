"""Workload observation: the part of a workload object that settlement keeps. Pure.

Every object is reduced to its observation while a list is read, so that a list of large objects is
never in memory in full.
"""

import msgspec

from ledger.core.model.denials import Denial, sentence
from ledger.core.model.events import Cause
from ledger.core.model.qualified_names import qualified, split_qualified
from ledger.kube.api.objects import ObjectMeta, OwnerReference, Workload
from ledger.kube.requests.demand_rules import DemandRules
from webhook.context.admitted_demand import awaited_of
from webhook.kinds.kind_schema import WorkloadKind
from webhook.kinds.workload_envelope import envelope_of
from webhook.settlement.observation_commands import ObservedObject
from webhook.settlement.workloads.charging_modes import ChargingMode


class ObservedWorkload(msgspec.Struct, frozen=True, gc=False):
    """A workload and its controller, which may make it part of another root.

    `unreadable` is the error with which its spec could not be read. Its charge then stays.
    """

    seen: ObservedObject
    controller: OwnerReference | None = None
    unreadable: Exception | None = None

    def metadata(self) -> ObjectMeta:
        """Return the metadata by which the owners are looked up."""
        _, _, name = self.seen.key.rpartition("/")
        _, namespace = split_qualified(self.seen.namespace)
        references = [self.controller] if self.controller is not None else None
        return ObjectMeta(
            name=name, namespace=namespace, uid=self.seen.uid, owner_references=references
        )


def unreadable_workload(
    kind: WorkloadKind, workload: Workload, cluster: str, error: Exception
) -> ObservedWorkload:
    """Return the identity of an object whose spec could not be read, and the error."""
    meta = workload.metadata
    namespace = qualified(cluster, meta.namespace)
    seen = ObservedObject(namespace, f"{kind.name}/{meta.name}", meta.uid, 0, {})
    return ObservedWorkload(seen, meta.controller(), error)


def observe_workload(
    kind: WorkloadKind,
    workload: Workload,
    cluster: str,
    rules: DemandRules,
    mode: ChargingMode,
) -> ObservedWorkload:
    """Return the observation of an object of a kind.

    Raises ValueError if its resourceVersion is not a number.
    """
    meta = workload.metadata
    envelope = envelope_of(kind, workload, rules, surge=mode.surge, elastic_max=mode.elastic_max)
    seen = ObservedObject(
        qualified(cluster, meta.namespace),
        f"{kind.name}/{meta.name}",
        meta.uid,
        meta.version(),
        {},
        generation=meta.generation,
    )
    if isinstance(envelope, Denial):
        seen = msgspec.structs.replace(seen, problem=sentence(envelope))
    elif envelope.finished:
        seen = msgspec.structs.replace(seen, cause=Cause.FINISHED)
    elif not envelope.traits:
        # It no longer requests anything. Its existing pods count by themselves.
        seen = msgspec.structs.replace(seen, cause=Cause.MOVED)
    else:
        # Its traits are kept: quotas select its pods by them if it was charged before.
        seen = msgspec.structs.replace(seen, traits=envelope.traits, assumed=envelope.assumed)
        if not mode.pods_only:
            awaited = awaited_of(envelope.deferred, unresolved=envelope.unresolved)
            seen = msgspec.structs.replace(seen, demand=envelope.demand, awaited=awaited)
    return ObservedWorkload(seen, meta.controller())
