"""Vendors: the resource names by which pods request each vendor's cards, and their units.

The table holds the vendors of HAMi 2.10. A product with its own resource names has its own entry.
Only nvidia is enabled by default: the setting `vendors` enables others, and `vendors_file` adds
further vendors.
"""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from ledger.core.model.amounts import AMOUNT_MAX

WHOLE: Final = 100
"""All of a card, in percent of its memory or of its cores."""

ResourceName = Annotated[str, Meta(max_length=317, pattern=r"^([-.a-z0-9]+/[-._A-Za-z0-9]+)?$")]
"""An extended resource, `domain/name`, or an empty text."""

MiB = Annotated[int, Meta(ge=0, le=2**24)]
Units = Annotated[int, Meta(ge=0, le=AMOUNT_MAX)]


class Vendor(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", gc=False
):
    """The resources that request one vendor's cards. An empty resource name does not exist.

    `count` counts cards; without it a container requests a share of one card. `memory` is per card,
    in units of `memory_factor` MiB, and rounded up to one of `memory_steps` (MiB, ascending) for
    cards with fixed partitions. `cores` is per card, and a whole card has `whole_cores` units, 0 if
    the number differs between cards. `card_memory` is the MiB of the largest card, 0 if unknown.
    The defaults apply per card to omitted values: `default_memory` in MiB, 0 for the whole card.
    With `default_count` 0, a request for memory or cores without a count is refused.

    `priority` ranks a container's tasks on its card. It is not charged, and no node offers it.

    If `several_whole` is set, only a single card can be shared. If `completed` is set, the mutating
    webhook writes omitted counts and cores into the pod, as HAMi does for nvidia. For other vendors
    that could request a resource that no node has.
    """

    name: Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
    count: ResourceName = ""
    memory: ResourceName = ""
    percentage: ResourceName = ""
    cores: ResourceName = ""
    priority: ResourceName = ""
    memory_factor: Annotated[int, Meta(ge=1, le=2**20)] = 1
    memory_steps: Annotated[tuple[MiB, ...], Meta(max_length=64)] = ()
    card_memory: MiB = 0
    whole_cores: Units = WHOLE
    default_memory: MiB = 0
    default_cores: Units = 0
    default_count: Annotated[int, Meta(ge=0, le=64)] = 1
    several_whole: bool = False
    completed: bool = False

    def charged(self) -> tuple[str, ...]:
        """Return the charged resources: cards, memory and cores."""
        return tuple(name for name in (self.count, self.memory, self.cores) if name)

    def names(self) -> tuple[str, ...]:
        """Return all resources that request this vendor's cards or shares of them."""
        return (*self.charged(), self.percentage) if self.percentage else self.charged()


NVIDIA: Final = Vendor(
    name="nvidia",
    count="nvidia.com/gpu",
    memory="nvidia.com/gpumem",
    percentage="nvidia.com/gpumem-percentage",
    cores="nvidia.com/gpucores",
    priority="nvidia.com/priority",
    completed=True,
)


def _iluvatar(chip: str) -> Vendor:
    domain = f"iluvatar.ai/{chip}"
    return Vendor(
        name=f"iluvatar-{chip.lower()}",
        count=f"{domain}-vgpu",
        memory=f"{domain}.vMem",
        cores=f"{domain}.vCore",
        memory_factor=256,
    )


def _ascend(chip: str, card_memory: int, *memory_steps: int) -> Vendor:
    domain = f"huawei.com/Ascend{chip}"
    return Vendor(
        name=f"ascend-{chip.lower()}",
        count=domain,
        memory=f"{domain}-memory",
        cores=f"{domain}-core",
        card_memory=card_memory,
        memory_steps=memory_steps,
        whole_cores=0,
    )


BUILT_IN: Final = (
    NVIDIA,
    Vendor(
        name="amd",
        count="amd.com/gpu",
        memory="amd.com/gpumem",
        cores="amd.com/gpucores",
        default_cores=WHOLE,
    ),
    _ascend("310P", 21_527, 3_072, 6_144, 12_288),
    _ascend("910A", 32_768, 2_184, 4_369, 8_738, 17_476),
    _ascend("910B2", 65_536, 8_192, 16_384, 32_768),
    _ascend("910B3", 65_536, 16_384, 32_768),
    _ascend("910B4", 32_768, 8_192, 16_384),
    _ascend("910B4-1", 65_536, 16_384, 32_768),
    _ascend("910C", 65_536, 16_384, 32_768),
    Vendor(name="aws-neuron", count="aws.amazon.com/neuron"),
    Vendor(name="aws-neuroncore", count="aws.amazon.com/neuroncore"),
    Vendor(name="biren", count="birentech.com/gpu"),
    Vendor(
        name="cambricon",
        count="cambricon.com/vmlu",
        memory="cambricon.com/mlu.smlu.vmemory",
        cores="cambricon.com/mlu.smlu.vcore",
        memory_factor=256,
        default_cores=WHOLE,
    ),
    Vendor(name="enflame", count="enflame.com/gcu"),
    Vendor(name="enflame-drs", count="enflame.com/drs-gcu"),
    Vendor(
        name="enflame-shared",
        memory="enflame.com/gcu-memory",
        cores="enflame.com/gcu-core",
        whole_cores=0,
    ),
    Vendor(
        name="hygon",
        count="hygon.com/dcunum",
        memory="hygon.com/dcumem",
        cores="hygon.com/dcucores",
        default_cores=WHOLE,
    ),
    _iluvatar("BI-V100"),
    _iluvatar("BI-V150"),
    _iluvatar("MR-V100"),
    _iluvatar("MR-V50"),
    Vendor(name="kunlun", count="kunlunxin.com/xpu"),
    Vendor(
        name="kunlun-vxpu",
        count="kunlunxin.com/vxpu",
        memory="kunlunxin.com/vxpu-memory",
        card_memory=98_304,
        memory_steps=(24_576, 49_152),
    ),
    Vendor(name="metax", count="metax-tech.com/gpu"),
    Vendor(
        name="metax-sgpu",
        count="metax-tech.com/sgpu",
        memory="metax-tech.com/vmemory",
        cores="metax-tech.com/vcore",
        memory_factor=1024,
        default_cores=WHOLE,
    ),
    Vendor(
        name="mthreads",
        count="mthreads.com/vgpu",
        memory="mthreads.com/sgpu-memory",
        cores="mthreads.com/sgpu-core",
        memory_factor=512,
        card_memory=96 * 512,
        whole_cores=16,
        several_whole=True,
    ),
    Vendor(name="vastai", count="vastaitech.com/va"),
)


def select_vendors(names: Sequence[str], own: Sequence[Vendor] = ()) -> tuple[Vendor, ...]:
    """Return the named built-in vendors and all of `own`, which replace vendors of the same name.

    A name selects all products with that prefix: `ascend` selects every `ascend-…`. Raises
    ValueError if a name is unknown, or if two vendors use the same resource.
    """
    vendors = {vendor.name: vendor for name in names for vendor in _named(name)}
    vendors |= {vendor.name: vendor for vendor in own}
    _check(tuple(vendors.values()))
    return tuple(vendors.values())


def _named(name: str) -> tuple[Vendor, ...]:
    vendors = tuple(vendor for vendor in BUILT_IN if f"{vendor.name}-".startswith(f"{name}-"))
    if not vendors:
        known = ", ".join(vendor.name for vendor in BUILT_IN)
        raise ValueError(f"{name!r} is not a known vendor: use some of {known}")
    return vendors


def _check(vendors: tuple[Vendor, ...]) -> None:
    claimed: dict[str, str] = {}
    for vendor in vendors:
        for resource in vendor.names():
            if resource in claimed:
                raise ValueError(
                    f"{resource} belongs to both {claimed[resource]} and {vendor.name}: name it"
                    " in one of them only"
                )
            claimed[resource] = vendor.name
    for vendor in vendors:
        if vendor.priority in claimed:
            raise ValueError(
                f"{vendor.priority} is the priority of {vendor.name} and belongs to"
                f" {claimed[vendor.priority]}: give the priority a name of its own"
            )
