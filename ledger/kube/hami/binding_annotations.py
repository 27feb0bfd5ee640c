"""Binding annotations: the HAMi annotations that a Binding writes on a pod.

They are part of the Binding, so the pod is never bound without them.
"""

from collections.abc import Iterable
from typing import Final

from ledger.core.model.cards import Card, Parts
from ledger.kube.hami import annotation_keys, mig_instances, pod_device_annotation

LABEL_MAX: Final = 63
"""Longest value of a label."""

_NVIDIA: Final = "nvidia"


def annotations_of(parts: Parts, node: str, cards: Iterable[Card], now: float) -> dict[str, str]:
    """Return the annotations of a pod that receives `parts` of a node's `cards`.

    `node` is the name of the Node, `now` in seconds of Unix time. Raises ValueError if a card is
    not among `cards`.
    """
    seconds = str(int(now))
    annotations = {
        annotation_keys.NODE: node,
        annotation_keys.TIME: seconds,
        annotation_keys.BIND_TIME: seconds,
        annotation_keys.BIND_PHASE: annotation_keys.ALLOCATING,
    }
    slots = pod_device_annotation.slots_of(parts, {card.uuid: card.vendor for card in cards})
    for vendor, of_vendor in slots.items():
        words = annotation_keys.VENDOR_ANNOTATIONS[vendor]
        text = pod_device_annotation.write(of_vendor, words.word)
        annotations |= {words.to_allocate: text, words.allocated: text}
    cut = mig_instances.write(slots.get(_NVIDIA, []))
    return annotations | {annotation_keys.INSTANCES: cut} if cut else annotations


def allocated(parts: Parts, cards: Iterable[Card]) -> dict[str, str]:
    """Return the annotations with a pod's current shares of a node's `cards`, after a change.

    The cards that the node has still to allocate are not included. Raises ValueError like
    `annotations_of`.
    """
    words = annotation_keys.VENDOR_ANNOTATIONS
    slots = pod_device_annotation.slots_of(parts, {card.uuid: card.vendor for card in cards})
    return {
        words[vendor].allocated: pod_device_annotation.write(of_vendor, words[vendor].word)
        for vendor, of_vendor in slots.items()
    }


def labels_of(node: str) -> dict[str, str]:
    """Return the labels of a pod that receives cards of this node.

    HAMi's monitoring finds pods by the label. A name too long for a label is left out, because the
    API server would refuse the Binding; the annotation holds the name in any case.
    """
    return {annotation_keys.NODE: node} if len(node) <= LABEL_MAX else {}
