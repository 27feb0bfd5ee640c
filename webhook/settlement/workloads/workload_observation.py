"""Sighting roots: what an object of any kind may run, as little of it as has to be remembered.

This is applied to every object while a list is read, so that a list of large objects is never in
memory in full. Pure.
"""

from typing import Final

import msgspec

from ledger.core.model.denials import Denial, sentence
from ledger.core.model.events import Cause
from ledger.core.model.qualified_names import qualified, split_qualified
from ledger.kube.api.objects import ObjectMeta, OwnerReference, Workload
from ledger.kube.requests.demand_rules import DemandRules
from webhook.kinds.envelope import Surge, envelope_of
from webhook.kinds.schema import WorkloadKind, key_of
from webhook.settlement.observation import ObservedObject


class ChargingMode(msgspec.Struct, frozen=True):
    """How the roots of a namespace are charged: `pods_only` means not at all.

    With `elastic_max` the most counts that an autoscaler may make of them.
    """

    surge: Surge = "opportunistic"
    pods_only: bool = False
    elastic_max: bool = False


DEFAULT_MODE: Final = ChargingMode()


class ObservedWorkload(msgspec.Struct, frozen=True, gc=False):
    """A root as the ledger sees it, and the controller that may make it part of another root.

    `unread` is why it could not be read: it then stays charged as it is.
    """

    seen: ObservedObject
    controller: OwnerReference | None = None
    unread: Exception | None = None

    def metadata(self) -> ObjectMeta:
        """Return what the object's ancestors are looked up by."""
        _, _, name = self.seen.key.rpartition("/")
        _, namespace = split_qualified(self.seen.namespace)
        references = [self.controller] if self.controller is not None else None
        return ObjectMeta(
            name=name, namespace=namespace, uid=self.seen.uid, owner_references=references
        )


def unread_root(
    kind: WorkloadKind, workload: Workload, cluster: str, why: Exception
) -> ObservedWorkload:
    """Return what is remembered of an object that could not be read: which one it is, and why."""
    meta = workload.metadata
    namespace = qualified(cluster, meta.namespace)
    seen = ObservedObject(namespace, key_of(kind, meta.name), meta.uid, 0, {})
    return ObservedWorkload(seen, meta.controller(), why)


def observe_workload(
    kind: WorkloadKind,
    workload: Workload,
    cluster: str,
    rules: DemandRules,
    charged: ChargingMode = DEFAULT_MODE,
) -> ObservedWorkload:
    """Read an object of a kind as the ledger sees it.

    Raises ValueError when its resourceVersion is none.
    """
    meta = workload.metadata
    envelope = envelope_of(
        kind, workload, rules, surge=charged.surge, elastic_max=charged.elastic_max
    )
    seen = ObservedObject(
        qualified(cluster, meta.namespace),
        key_of(kind, meta.name),
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
        # It asks for nothing any more; pods that it has made before count by what they are.
        seen = msgspec.structs.replace(seen, cause=Cause.MOVED)
    else:
        # Quotas go on selecting its pods by its traits where the ledger has known it otherwise.
        demand = {} if charged.pods_only else envelope.demand
        seen = msgspec.structs.replace(
            seen, demand=demand, traits=envelope.traits, assumed=envelope.assumed
        )
    return ObservedWorkload(seen, meta.controller())
