"""Vendors: under which resource names each maker's cards are asked for, and in which units.

The table holds what HAMi knows, as of its release 2.10. A product that is asked for under names of
its own is an entry of its own. Only nvidia is on by default: the setting `vendors` switches others
on, `vendors_file` adds what is not here.
"""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from ledger.core.model.amounts import AMOUNT_MAX

WHOLE: Final = 100
"""All of a card, in percent of its memory or of its cores."""

ResourceName = Annotated[str, Meta(max_length=317, pattern=r"^([-.a-z0-9]+/[-._A-Za-z0-9]+)?$")]
"""An extended resource, `domain/name`, or nothing."""

MiB = Annotated[int, Meta(ge=0, le=2**24)]
Units = Annotated[int, Meta(ge=0, le=AMOUNT_MAX)]


class Vendor(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", gc=False
):
    """How one maker's cards are asked for. A resource name that is empty does not exist.

    `count` counts cards; without it a container asks for a share of one card. `memory` is per card,
    `memory_factor` MiB a unit, and rounded up to one of `memory_steps` (MiB, ascending) where cards
    are cut in fixed sizes. `cores` is per card, in units of which a whole card has `whole_cores`,
    0 when that differs between cards. `card_memory` is the MiB of the largest card, 0 when it is
    not known. The defaults apply per card to what a container leaves out: `default_memory` in MiB,
    0 for the whole card; `default_count` 0 refuses who names memory or cores alone.

    `priority` ranks a container's tasks on its card. It is charged nowhere, and no node offers it.

    `several_whole` says that only a single card can be shared. `completed` says that the mutating
    webhook writes count and cores that are left out into the pod, as HAMi does for nvidia; for
    others that could ask for a resource that no node has.
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
        """Return the resources that are charged: cards, memory and cores."""
        return tuple(name for name in (self.count, self.memory, self.cores) if name)

    def names(self) -> tuple[str, ...]:
        """Return all resources that ask for this maker's cards or for shares of them."""
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
    """Return the named vendors and all of one's `own`, which replace others of their name.

    A maker's name stands for all its products: `ascend` for every `ascend-…`. Raises ValueError
    when a name is not known, or when two vendors claim one resource.
    """
    found = {one.name: one for name in names for one in _named(name)}
    found |= {one.name: one for one in own}
    _check(tuple(found.values()))
    return tuple(found.values())


def _named(name: str) -> tuple[Vendor, ...]:
    found = tuple(one for one in BUILT_IN if f"{one.name}-".startswith(f"{name}-"))
    if not found:
        known = ", ".join(one.name for one in BUILT_IN)
        raise ValueError(f"{name!r} is not a known vendor: use some of {known}")
    return found


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
