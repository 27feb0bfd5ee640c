"""Annotation keys of HAMi, and the names of each vendor's cards in them.

The table holds the vendors whose cards HAMi 2.10 registers in an annotation of the Node. It leaves
out the vendors whose cards HAMi counts by the capacity of the node, because these cards have no
identity before a kubelet allocates them: aws-neuron, cambricon, enflame, kunlun (whole cards),
metax and mthreads. Quotas charge pods with such cards, and the scheduler alone places them.
"""

from typing import Final, NamedTuple

KEEPER: Final = "gpuledger.io/keeper"
"""On a Node: the component that allocates its cards."""

MEMORY_SCALING: Final = "gpuledger.io/memory-scaling"
CORES_SCALING: Final = "gpuledger.io/cores-scaling"
"""On a Node: the percentage by which the memory or cores of its cards are scaled."""

ROOM_FOUND: Final = "gpuledger.io/room-found"
"""On a Node: when a refused pod fitted there. The change wakes kube-scheduler."""

CORDON: Final = "hami.io/device-cordon"
"""On a Node: the uuids, separated by commas, of cordoned cards, which accept no new pod."""
HANDSHAKE: Final = "hami.io/node-handshake"
"""On a Node: whether its NVIDIA device plugin is alive, see `handshake`."""
LOCK: Final = "hami.io/mutex.lock"
"""On a Node: the pod that is receiving cards, see `node_lock_annotation`."""
PAIR_SCORES: Final = "hami.io/node-nvidia-score"
"""On a Node: the link score of each pair of its cards, see `link_scores`."""

NODE: Final = "hami.io/vgpu-node"
"""On a pod, as annotation and as label: the node of its cards."""
TIME: Final = "hami.io/vgpu-time"
"""On a pod: the time of its placement, in seconds of Unix time."""
BIND_TIME: Final = "hami.io/bind-time"
"""On a pod: the time of its binding, in seconds of Unix time."""
BIND_PHASE: Final = "hami.io/bind-phase"
"""On a pod: the phase of the allocation of its cards."""
INSTANCES: Final = "hami.io/vgpu-mig-allocations"
"""On a pod: the positions of its MIG instances, see `mig_instances`."""

ALLOCATING: Final = "allocating"
"""The phase of a pod whose cards are not allocated yet."""
SUCCESS: Final = "success"
"""The phase of a pod that has its cards."""


class VendorAnnotations(NamedTuple):
    """The names of one vendor in HAMi annotations.

    `word` is the vendor's name in device lists. `register` is the Node's annotation with its
    cards. `to_allocate` and `allocated` are the pod's annotations with device lists: the cards that
    the node has still to allocate, and all cards of the pod.
    """

    word: str
    register: str
    to_allocate: str
    allocated: str


def _words(word: str, register: str, lists: str) -> VendorAnnotations:
    return VendorAnnotations(
        word,
        f"hami.io/{register}",
        f"hami.io/{lists}-devices-to-allocate",
        f"hami.io/{lists}-devices-allocated",
    )


def _ascend(chip: str) -> VendorAnnotations:
    word = f"Ascend{chip}"
    return _words(word, f"node-register-{word}", word)


def _iluvatar(chip: str) -> VendorAnnotations:
    return _words(chip, f"node-{chip}-register", chip)


VENDOR_ANNOTATIONS: Final = {
    "nvidia": _words("NVIDIA", "node-nvidia-register", "vgpu"),
    "amd": _words("AMD", "node-amd-register", "amd"),
    "ascend-310p": _ascend("310P"),
    "ascend-910a": _ascend("910A"),
    "ascend-910b2": _ascend("910B2"),
    "ascend-910b3": _ascend("910B3"),
    "ascend-910b4": _ascend("910B4"),
    "ascend-910b4-1": _ascend("910B4-1"),
    "ascend-910c": _ascend("910C"),
    "biren": _words("Biren", "node-biren-register", "Biren"),
    "hygon": _words("DCU", "node-dcu-register", "dcu"),
    "iluvatar-bi-v100": _iluvatar("BI-V100"),
    "iluvatar-bi-v150": _iluvatar("BI-V150"),
    "iluvatar-mr-v100": _iluvatar("MR-V100"),
    "iluvatar-mr-v50": _iluvatar("MR-V50"),
    "kunlun-vxpu": _words("XPU", "node-register-xpu", "xpu"),
    "vastai": _words("Vastai", "node-va-register", "Vastai"),
}
"""By the name of the vendor in `ledger.kube.vendors.vendors`."""
