"""Pod observation: the amounts of a stored pod, and the time until which they count. Pure.

A pod stops counting when it is deleted, when its phase is Succeeded or Failed, or when its grace
period after its deletion timestamp is over.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from ledger.core.model.denials import Denial, sentence
from ledger.core.model.events import Cause
from ledger.core.model.qualified_names import qualified
from ledger.kube.api.objects import Pod
from ledger.kube.api.pod_gates import is_gated
from ledger.kube.requests.demand import NO_DEMAND
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.pod_demand import demand_of
from ledger.kube.requests.pod_traits import recorded_traits
from webhook.context.admitted_demand import awaited_of
from webhook.settlement.observation_commands import ObservedObject

POD_KEYS: Final = "pods/"
"""Prefix of the keys of pods."""

_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def observe_pod(
    pod: Pod, cluster: str, rules: DemandRules, now: int, *, deleted: bool
) -> ObservedObject:
    """Return the observation of a pod at `now`, in µs of Unix time, without its root.

    The root depends on the pod's controllers, which are other objects.
    """
    ended = observe_ended_pod(pod, cluster, now, deleted=deleted)
    return ended if ended is not None else observe_counted_pod(pod, cluster, rules)


def observe_ended_pod(pod: Pod, cluster: str, now: int, *, deleted: bool) -> ObservedObject | None:
    """Return the observation of a pod that no longer counts, without its demand.

    None if the pod counts at `now`, in µs of Unix time.
    """
    grace_ends = _grace_ends(pod)
    has_ended = pod.status.has_ended() or 0 < grace_ends < now
    if not has_ended and not deleted:
        return None
    meta = pod.metadata
    version = meta.version()
    return ObservedObject(
        namespace=qualified(cluster, meta.namespace),
        key=POD_KEYS + meta.name,
        uid=meta.uid,
        version=version,
        demand={},
        cause=Cause.DELETED if deleted else Cause.FINISHED,
        grace_ends=grace_ends,
    )


def observe_counted_pod(pod: Pod, cluster: str, rules: DemandRules) -> ObservedObject:
    """Return the observation of a pod that counts, without its root."""
    demand = demand_of(pod, rules)
    problem = sentence(demand) if isinstance(demand, Denial) else ""
    demand = NO_DEMAND if isinstance(demand, Denial) else demand
    # Claims may have devices for administration, which are recorded and not charged.
    is_asking = bool(demand.amounts or pod.spec.resource_claims) or demand.unresolved
    meta = pod.metadata
    return ObservedObject(
        namespace=qualified(cluster, meta.namespace),
        key=POD_KEYS + meta.name,
        uid=meta.uid,
        version=meta.version(),
        demand=demand.amounts,
        grace_ends=_grace_ends(pod),
        problem=problem,
        traits=recorded_traits(pod, rules.labels) if is_asking else (),
        gated=is_gated(pod.spec),
        assumed=demand.assumed,
        awaited=awaited_of(demand.deferred, unresolved=demand.unresolved),
    )


def _grace_ends(pod: Pod) -> int:
    """Return when a terminating pod stops counting in µs of Unix time, 0 for never.

    This is the rule of Kubernetes' own quota: the deletion of a pod on a lost node is never
    confirmed, so the pod counts until its grace period after its deletion timestamp is over.
    """
    meta = pod.metadata
    if meta.deletion_timestamp is None or meta.deletion_grace_period_seconds is None:
        return 0
    grace = timedelta(seconds=meta.deletion_grace_period_seconds)
    return (meta.deletion_timestamp + grace - _EPOCH) // _MICROSECOND
