"""The reader of placed pods: a pod's cards by its annotations, and its stage. Pure.

The annotations decide for pods that another scheduler has placed. Users cannot write them.
"""

from typing import Final

import msgspec

from ledger.core.evolve import envelope_charges
from ledger.core.model.cards import Parts, Phase, Stage
from ledger.core.model.qualified_names import qualified
from ledger.kube.api.objects import ContainerStatus, Pod
from ledger.kube.hami import annotation_keys
from ledger.kube.hami.placement_reader import parts_of, phased
from ledger.kube.hami.pod_devices import BadDeviceList
from ledger.kube.requests.demand_rules import DemandRules

_ALLOCATED: Final = frozenset(
    words.allocated for words in annotation_keys.VENDOR_ANNOTATIONS.values()
)


class PodReading(msgspec.Struct, frozen=True):
    """The node of a pod and its shares of the node's cards.

    `namespace` and `node` are qualified; `node` is empty while the pod is not bound. `parts` are
    None if the annotations name no cards, or have a `problem`. A pod that is `over`
    uses no card any more; `initialised` means that all its init containers have succeeded.
    """

    namespace: str
    key: str
    uid: str
    version: int
    node: str
    parts: Parts | None
    problem: str
    stage: Stage
    initialised: bool
    over: bool


def names_cards(pod: Pod) -> bool:
    """Return whether the annotations of a pod name its cards."""
    annotations = pod.metadata.annotations
    return bool(annotations) and not _ALLOCATED.isdisjoint(annotations or ())


def read(pod: Pod, cluster: str, rules: DemandRules) -> PodReading:
    """Read a pod of a cluster."""
    meta, spec = pod.metadata, pod.spec
    parts, problem = _given(pod, rules)
    return PodReading(
        qualified(cluster, meta.namespace),
        envelope_charges.PODS + meta.name,
        meta.uid,
        meta.version(),
        qualified(cluster, spec.node_name) if spec.node_name else "",
        parts,
        problem,
        _stage(pod),
        _is_initialised(pod),
        pod.status.has_ended(),
    )


def _given(pod: Pod, rules: DemandRules) -> tuple[Parts | None, str]:
    """Return the parts in the annotations, and why they cannot be used."""
    annotations = pod.metadata.annotations or {}
    node = annotations.get(annotation_keys.NODE, "")
    if pod.spec.node_name and node and node != pod.spec.node_name:
        return None, (
            f"annotation {annotation_keys.NODE} is {node}, but the pod runs on"
            f" {pod.spec.node_name}: its"
            " cards are those of an earlier choice"
        )
    try:
        return parts_of(annotations, pod, rules.vendors), ""
    except BadDeviceList as error:
        return None, str(error)


def _stage(pod: Pod) -> Stage:
    """Return the stage of a pod; its cards are handed out at the latest when a container runs."""
    if not pod.spec.node_name:
        return Stage.PROPOSED
    phase = (pod.metadata.annotations or {}).get(annotation_keys.BIND_PHASE)
    if phase == annotation_keys.SUCCESS or pod.status.phase == "Running" or pod.status.has_ended():
        return Stage.ALLOCATED
    return Stage.ALLOCATED if any(one.has_begun() for one in _statuses(pod)) else Stage.BOUND


def _is_initialised(pod: Pod) -> bool:
    """Return whether a pod has init containers other than sidecars, all of which have succeeded."""
    init = {one.name for one, phase in phased(pod) if phase == Phase.INIT}
    succeeded = {
        one.name for one in pod.status.init_container_statuses or () if one.has_succeeded()
    }
    return bool(init) and init <= succeeded


def _statuses(pod: Pod) -> list[ContainerStatus]:
    status = pod.status
    return [*(status.init_container_statuses or ()), *(status.container_statuses or ())]
