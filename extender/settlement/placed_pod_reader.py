"""Placed pod reader: a pod's cards by its annotations, and its stage. Pure.

The annotations decide for pods that another scheduler has placed. Users cannot write them.
"""

from typing import Final

import msgspec

from extender.settlement.placement_stages import is_initialised, stage_of
from ledger.core.evolve import envelope_charges
from ledger.core.model.cards import Parts, Stage
from ledger.core.model.qualified_names import qualified
from ledger.kube.api.objects import Pod
from ledger.kube.hami import annotation_keys
from ledger.kube.hami.placement_annotation_reader import parts_of
from ledger.kube.hami.pod_device_annotation import BadDeviceList
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
        stage_of(pod),
        is_initialised(pod),
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
