"""Card selector annotations: those by which pods select cards of a vendor.

The keys of most vendors begin with the domain of their resources. A table holds the keys that HAMi
named otherwise. The keys of vendors that HAMi supports do not change when `vendors_file`
renames the resources.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from ledger.core.model.denials import Denial, Reason
from ledger.kube.requests.device_requests import DeviceSelector
from ledger.kube.vendors.vendors import BUILT_IN, Vendor

ITEMS_MAX: Final = 1_024
"""Most items of one list; no node has more cards."""


class SelectorAnnotations(msgspec.Struct, frozen=True):
    """The annotations of one vendor; all but `mode` are lists. An empty key does not exist."""

    use_types: str = ""
    nouse_types: str = ""
    use_uuids: str = ""
    nouse_uuids: str = ""
    mode: str = ""

    def names(self) -> tuple[str, ...]:
        """Return the annotations that exist."""
        every = self.use_types, self.nouse_types, self.use_uuids, self.nouse_uuids, self.mode
        return tuple(key for key in every if key)


def selector_of(annotations: Mapping[str, str], vendor: Vendor) -> DeviceSelector | Denial:
    """Return the selector of a pod for a vendor's cards, or the denial of an invalid selector."""
    keys = selector_annotations(vendor)
    of_lists = (keys.use_types, keys.nouse_types, keys.use_uuids, keys.nouse_uuids)
    for key in of_lists:
        if annotations.get(key, "").count(",") >= ITEMS_MAX:
            return _too_many(key)
    use_types, nouse_types, use_uuids, nouse_uuids = (
        items_of(annotations.get(key, "")) for key in of_lists
    )
    mode = annotations.get(keys.mode, "").strip()
    return DeviceSelector(use_types, nouse_types, use_uuids, nouse_uuids, mode)


def items_of(text: str) -> tuple[str, ...]:
    """Return the items of a list in their order, each once."""
    items = (item.strip() for item in text.split(","))
    return tuple(dict.fromkeys(item for item in items if item))


@lru_cache(maxsize=256)
def selector_annotations(vendor: Vendor) -> SelectorAnnotations:
    """Return the annotations that select cards of a vendor."""
    return _HAMIS.get(vendor.name) or _by_domain(_domain_of(vendor))


def _by_domain(domain: str) -> SelectorAnnotations:
    return SelectorAnnotations(
        f"{domain}/use-gputype",
        f"{domain}/nouse-gputype",
        f"{domain}/use-gpuuuid",
        f"{domain}/nouse-gpuuuid",
        f"{domain}/vgpu-mode",
    )


def _domain_of(vendor: Vendor) -> str:
    return vendor.names()[0].partition("/")[0]


def _by_word(word: str) -> SelectorAnnotations:
    return SelectorAnnotations(
        use_uuids=f"hami.io/use-{word}-uuid", nouse_uuids=f"hami.io/no-use-{word}-uuid"
    )


def _word_of(vendor: Vendor) -> str:
    """Return the chip as HAMi names it: `Ascend910B4-1`, `MR-V100`."""
    return vendor.count.partition("/")[2].removesuffix("-vgpu")


_NEURON: Final = SelectorAnnotations(
    use_uuids="aws.amazon.com/use-neuron-uuid", nouse_uuids="aws.amazon.com/nouse-neuron-uuid"
)

_HAMIS: Final[dict[str, SelectorAnnotations]] = {
    **{vendor.name: _by_domain(_domain_of(vendor)) for vendor in BUILT_IN},
    "amd": SelectorAnnotations(
        "amd.com/use-gputype",
        "amd.com/nouse-gputype",
        "amd.com/use-gpu-uuid",
        "amd.com/nouse-gpu-uuid",
    ),
    "aws-neuron": _NEURON,
    "aws-neuroncore": _NEURON,
    "cambricon": SelectorAnnotations(
        "cambricon.com/use-mlutype",
        "cambricon.com/nouse-mlutype",
        "cambricon.com/use-gpuuuid",
        "cambricon.com/nouse-gpuuuid",
    ),
    "hygon": SelectorAnnotations(
        "hygon.com/use-dcutype",
        "hygon.com/nouse-dcutype",
        "hygon.com/use-gpuuuid",
        "hygon.com/nouse-gpuuuid",
    ),
    "kunlun": _by_word("xpu"),
    "kunlun-vxpu": _by_word("xpu"),
    **{
        vendor.name: _by_word(_word_of(vendor))
        for vendor in BUILT_IN
        if vendor.name.startswith(("ascend-", "iluvatar-"))
    },
}


def _too_many(key: str) -> Denial:
    return Denial(
        Reason.INVALID_POLICY,
        f"the annotation {key} lists more than {ITEMS_MAX} items",
        transient=False,
        remedy=f"Name at most {ITEMS_MAX}, separated by commas",
        field=f"metadata.annotations[{key}]",
    )
