"""Sighting pods: what a pod counts, until when, and what quotas select it by. Pure."""

from datetime import UTC, datetime, timedelta
from typing import Final

from ledger.core.model.denials import Denial, sentence
from ledger.core.model.events import Cause
from ledger.core.model.qualified_names import qualified
from ledger.core.model.traits import Traits
from ledger.kube.api.objects import Pod
from ledger.kube.api.pod_gates import is_gated
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.pod_demand import demand_of
from ledger.kube.requests.pod_traits import fitting, traits_of
from webhook.settlement.observation import ObservedObject

POD_KEYS: Final = "pods/"
"""How the keys of pods begin."""

_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def observe_pod(
    pod: Pod, cluster: str, rules: DemandRules, now: int, *, deleted: bool
) -> ObservedObject:
    """Read a pod as the ledger sees it at `now`, in µs of Unix time.

    Its root is left out: that takes looking at its controllers.
    """
    demand = demand_of(pod, rules)
    problem = sentence(demand) if isinstance(demand, Denial) else ""
    amounts = {} if isinstance(demand, Denial) else demand.amounts
    meta = pod.metadata
    grace_ends = _grace_ends(pod)
    finished = pod.status.has_ended() or 0 < grace_ends < now
    return ObservedObject(
        qualified(cluster, meta.namespace),
        POD_KEYS + meta.name,
        meta.uid,
        meta.version(),
        amounts,
        Cause.DELETED if deleted else Cause.FINISHED if finished else "",
        grace_ends,
        problem,
        traits=pod_traits(pod, rules) if amounts else (),
        gated=is_gated(pod.spec),
        assumed=() if isinstance(demand, Denial) else demand.assumed,
    )


def pod_traits(pod: Pod, rules: DemandRules) -> Traits:
    """Return the traits of a pod as the ledger keeps them; none if there is nothing to select."""
    text = traits_of(pod, rules.labels)
    return fitting((text,)) if text else ()


def _grace_ends(pod: Pod) -> int:
    """Return when a terminating pod stops counting: the rule of Kubernetes' own quota.

    A pod whose node is lost is never confirmed as deleted. It counts until its grace period has
    passed after its deletion timestamp.
    """
    meta = pod.metadata
    if meta.deletion_timestamp is None or meta.deletion_grace_period_seconds is None:
        return 0
    grace = timedelta(seconds=meta.deletion_grace_period_seconds)
    return (meta.deletion_timestamp + grace - _EPOCH) // _MICROSECOND
