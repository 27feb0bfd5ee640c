"""HAMi's words: the keys of its annotations, and what each maker's cards are called in them.

The table holds whom HAMi, as of its release 2.10, registers cards of in an annotation of the Node.
Not in it are those whose cards HAMi counts by the capacity of the node, because these have no
identity before a kubelet hands them out: aws-neuron, cambricon, enflame, kunlun (whole cards),
metax and mthreads. Their pods are charged on quotas, and placed by the scheduler alone.
"""

from typing import Final, NamedTuple

KEEPER: Final = "gpuledger.io/keeper"
"""On a Node: who hands its cards out."""

MEMORY_SCALING: Final = "gpuledger.io/memory-scaling"
CORES_SCALING: Final = "gpuledger.io/cores-scaling"
"""On a Node: the percentage at which its cards' memory or cores count."""

CORDON: Final = "hami.io/device-cordon"
"""On a Node: the uuids, separated by commas, of the cards on which nothing new may be placed."""
HANDSHAKE: Final = "hami.io/node-handshake"
"""On a Node: whether somebody answers for its NVIDIA cards, see `handshake`."""
LOCK: Final = "hami.io/mutex.lock"
"""On a Node: the pod that is being handed cards, see `node_lock_annotation`."""
PAIR_SCORES: Final = "hami.io/node-nvidia-score"
"""On a Node: how well each two of its cards are linked, see `link_scores`."""

NODE: Final = "hami.io/vgpu-node"
"""On a pod, as annotation and as label: the node its cards are on."""
TIME: Final = "hami.io/vgpu-time"
"""On a pod: when its cards were chosen, in seconds of Unix time."""
BIND_TIME: Final = "hami.io/bind-time"
"""On a pod: when it was bound, in seconds of Unix time."""
BIND_PHASE: Final = "hami.io/bind-phase"
"""On a pod: how far the handing out of its cards has come."""
INSTANCES: Final = "hami.io/vgpu-mig-allocations"
"""On a pod: where the instances of cards that are cut lie, see `mig_instances`."""

ALLOCATING: Final = "allocating"
"""The phase of a pod whose cards are not handed out yet."""
SUCCESS: Final = "success"
"""The phase of a pod that has its cards."""


class VendorAnnotations(NamedTuple):
    """What one maker's cards are called.

    `word` stands for the maker in device lists, `register` is the Node's annotation with its cards,
    `to_allocate` and `allocated` are the pod's annotations with device lists: what the node has yet
    to hand out, and all that the pod was given.
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
