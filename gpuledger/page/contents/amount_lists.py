"""Amount lists: the amounts of several resources in one text."""

from typing import Final

from gpuledger.page.quantity_texts import amount_text
from ledger.core.model.amounts import Amounts
from ledger.core.model.display_names import measure

RESOURCES_MAX: Final = 8
"""Resources of a text; the rest is counted."""


def amounts_text(amounts: Amounts) -> str:
    """Return amounts such as `1 GPU, 16 GiB`, "nothing" without one.

    Amounts of all cards come before those of types. An amount that its unit does not explain has
    the name of its resource.
    """
    names = sorted(amounts, key=lambda name: (_is_of_type(name, amounts), name))
    texts = [_one(name, amounts[name]) for name in names if amounts[name]]
    more = len(texts) - RESOURCES_MAX
    if more > 0:
        texts[RESOURCES_MAX:] = [f"{more} more resource{'s' if more > 1 else ''}"]
    return ", ".join(texts) or "nothing"


def _is_of_type(resource: str, amounts: Amounts) -> bool:
    """Return whether a resource is of a type of cards, such as `h100.nvidia.com/gpu`."""
    return resource.partition(".")[2] in amounts


def _one(resource: str, value: int) -> str:
    text, unit = amount_text(value, resource), measure(resource)
    if not unit.singular:
        return f"{text} {resource}"
    if unit.singular.startswith("%"):
        text = f"{text} of a card"
    return text if unit.noun in _PLAIN else f"{text} ({resource})"


_PLAIN: Final = ("GPUs", "GPU memory", "GPU cores")
"""The nouns of resources that their units explain."""
