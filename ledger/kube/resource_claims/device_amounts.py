"""Device amounts: the amounts of the ledger for one device, shared or whole.

Memory is in MiB, rounded up. Cores are in the vendor's unit, percent of a card for most.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Final

import msgspec

from ledger.core.model.amounts import Amounts
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.quantities import MEBIBYTE
from ledger.kube.resource_claims.consumed_capacity import UNIT, up
from ledger.kube.resource_claims.device_shapes import DeviceShape
from ledger.kube.vendors.vendors import Vendor

_WORD: Final = re.compile(r"[a-z0-9]+")


class DeviceAmounts(msgspec.Struct, frozen=True, gc=False):
    """The amounts of one device; `memory` is None if the size of the card is unknown."""

    memory: int | None
    cores: int


def amounts_of_device(
    shape: DeviceShape,
    consumed: Mapping[str, int] | None,
    vendor: Vendor,
    rules: DemandRules,
    *,
    memory_max: int,
) -> DeviceAmounts:
    """Return the amounts of a device of which `consumed` is used, None for a whole device.

    `consumed` is in billionths, by capacity. No memory counts above `memory_max` MiB.
    """
    capacity = shape.memory
    memory: int | None = None
    # Drivers announce 0 for memory that they cannot read.
    if capacity is not None and capacity.value:
        used = capacity.value if consumed is None else consumed.get(capacity.name, capacity.value)
        memory = min(up(used, UNIT * MEBIBYTE), memory_max)
    if memory is None:
        memory = size_of_card(vendor, rules, types_of(shape.product, rules))
    return DeviceAmounts(memory, _cores(shape, consumed, vendor))


def _cores(shape: DeviceShape, consumed: Mapping[str, int] | None, vendor: Vendor) -> int:
    capacity = shape.cores
    if capacity is None or not capacity.value:
        return vendor.whole_cores if consumed is None else vendor.default_cores
    used = capacity.value if consumed is None else consumed.get(capacity.name, capacity.value)
    if not vendor.whole_cores:
        return up(used, UNIT)
    return min(up(used * vendor.whole_cores, capacity.value), vendor.whole_cores)


def size_of_card(vendor: Vendor, rules: DemandRules, types: tuple[str, ...]) -> int | None:
    """Return the MiB by which a card of unknown size is charged, None if no size is known.

    If all known types of the card have sizes, the largest counts. Otherwise the order is that of
    containers.
    """
    sizes = [rules.known_types[name].memory for name in types]
    known = (max(sizes) if sizes and all(sizes) else 0) or vendor.card_memory
    if known:
        return known
    if rules.worst_card_memory is not None:
        return rules.worst_card_memory
    return rules.largest.get(vendor.name)


def types_of(product: str, rules: DemandRules) -> tuple[str, ...]:
    """Return the known types of a card by the name of its product, in the order of the rules.

    A type matches if the product's name has all its words: `a100-40gb` matches `NVIDIA
    A100-SXM4-40GB`, and `rtx4090` matches `NVIDIA GeForce RTX 4090`.
    """
    if not rules.types or not product:
        return ()
    words = _words(product)
    return tuple(
        card_type.name for card_type in rules.types if words.issuperset(card_type.name.split("-"))
    )


@lru_cache(maxsize=1024)
def _words(product: str) -> frozenset[str]:
    """Return the words of a name, and each two adjacent words as one."""
    words = _WORD.findall(product.lower())
    return frozenset(words) | {first + second for first, second in pairwise(words)}


def resources_of_device(
    amounts: DeviceAmounts,
    count: int,
    vendor: Vendor,
    rules: DemandRules,
    types: tuple[str, ...],
) -> Amounts:
    """Return the amounts of `count` equal devices, by resource and by resource of each type."""
    charged: Amounts = {}
    if vendor.count:
        charged[vendor.count] = count
    if vendor.memory and amounts.memory is not None:
        charged[vendor.memory] = count * amounts.memory
    if vendor.cores:
        charged[vendor.cores] = count * amounts.cores
    for card_type in types:
        charged |= _of_type(charged, vendor, rules, card_type)
    return charged


def resources_of_type(
    amounts: DeviceAmounts, count: int, vendor: Vendor, rules: DemandRules, card_type: str
) -> Amounts:
    """Return the amounts of `count` equal devices, only by resource of the type."""
    plain = resources_of_device(amounts, count, vendor, rules, ())
    return _of_type(plain, vendor, rules, card_type)


def _of_type(charged: Amounts, vendor: Vendor, rules: DemandRules, card_type: str) -> Amounts:
    names = rules.typed[card_type]
    return {names[name]: charged[name] for name in vendor.charged() if name in charged}
