"""Placement annotation reader: the cards of a pod's containers, from the pod's annotations.

A device list has one slot per container. The pod's spec gives the container of each slot, and the
phase in which it runs.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import structs

from ledger.core.model.cards import Part, Parts, Phase, Share
from ledger.kube.api.objects import Container, Pod
from ledger.kube.hami import annotation_keys, mig_instances, pod_device_annotation
from ledger.kube.hami.pod_device_annotation import BadDeviceList, Slots
from ledger.kube.vendors.vendors import BUILT_IN, Vendor

_NVIDIA: Final = "nvidia"

Phased = list[tuple[Container, Phase]]


def phased(pod: Pod) -> Phased:
    """Return a pod's containers and their phases: init containers and sidecars, then the others.

    Both are in order of the spec, which is the order of slots and of `Parts`.
    """
    init = [
        (container, Phase.SIDECAR if container.is_sidecar() else Phase.INIT)
        for container in pod.spec.init_containers or ()
    ]
    return init + [(container, Phase.APP) for container in pod.spec.containers or ()]


def parts_of(
    annotations: Mapping[str, str], pod: Pod, vendors: Sequence[Vendor] = BUILT_IN
) -> Parts | None:
    """Return the placement of a pod, None if its annotations name no card.

    A share of all cores of a card is exclusive. Raises BadDeviceList, which names the annotation.
    """
    containers = phased(pod)
    shares: list[list[Share]] = [[] for _ in containers]
    for vendor in vendors:
        words = annotation_keys.VENDOR_ANNOTATIONS.get(vendor.name)
        if words is None or words.allocated not in annotations:
            continue
        slots = _slots(annotations, vendor.name, words.allocated)
        for number, slot in _aligned(slots, containers, vendor, words.allocated):
            shares[number] += [_whole(share, vendor) for share in slot]
    if not any(shares):
        return None
    return tuple(
        Part(container.name, phase, tuple(given))
        for (container, phase), given in zip(containers, shares, strict=True)
    )


def _slots(annotations: Mapping[str, str], vendor: str, key: str) -> Slots:
    try:
        slots = pod_device_annotation.read(annotations[key])
        if vendor == _NVIDIA and annotations.get(annotation_keys.INSTANCES):
            key = annotation_keys.INSTANCES
            mig_instances.cut(slots, annotations[key])
    except BadDeviceList as error:
        raise BadDeviceList(f"annotation {key}: {error}") from error
    return slots


def _aligned(
    slots: Slots, containers: Phased, vendor: Vendor, key: str
) -> list[tuple[int, list[Share]]]:
    """Return the slots with cards, each with the number of its container. Raises BadDeviceList.

    HAMi 2.10.0 loses empty slots, and older releases wrote no slots for init containers. Then the
    remaining slots belong, in order, to the containers that request such cards.
    """
    while len(slots) > len(containers) and not slots[-1]:
        slots.pop()
    given = [(number, slot) for number, slot in enumerate(slots) if slot]
    if not given or len(slots) == len(containers):
        return given
    asking = [at for at, (container, _) in enumerate(containers) if _asks(container, vendor)]
    if len(slots) > len(containers) or len(given) != len(asking):
        raise BadDeviceList(
            f"annotation {key} has {len(slots)} slots, {len(given)} of them with cards, for"
            f" {len(containers)} containers, of which {len(asking)} ask for {vendor.name} cards"
        )
    return [(at, slot) for at, (_, slot) in zip(asking, given, strict=True)]


def _asks(container: Container, vendor: Vendor) -> bool:
    resources = container.resources
    if resources is None:
        return False
    named = {*(resources.limits or ()), *(resources.requests or ())}
    return not named.isdisjoint(vendor.names())


def _whole(share: Share, vendor: Vendor) -> Share:
    if share.profile or not 0 < vendor.whole_cores <= share.cores:
        return share
    return structs.replace(share, exclusive=True)
