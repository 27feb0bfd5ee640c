"""Amount lists: the amounts of several resources in one text."""

from typing import Final

from gpuledger.page.quantity_texts import amount_text
from ledger.core.model.amounts import Amounts
from ledger.core.model.display_names import measure

RESOURCES_MAX: Final = 8
"""Resources of a text; the rest is counted."""


def amounts_text(amounts: Amounts) -> str:
    """Return amounts such as `1 GPU, 16 GiB`, "nothing" without one.

    An amount without a unit, or in percent, has the name of its resource.
    """
    texts = [_one(resource, value) for resource, value in sorted(amounts.items()) if value]
    if len(texts) > RESOURCES_MAX:
        texts[RESOURCES_MAX:] = [f"{len(texts) - RESOURCES_MAX} more resources"]
    return ", ".join(texts) or "nothing"


def _one(resource: str, value: int) -> str:
    text, unit = amount_text(value, resource), measure(resource)
    if unit.singular.startswith("%") or not unit.singular:
        return f"{text} {resource}" if not unit.singular else f"{text} of a card"
    return text if unit.noun in _PLAIN else f"{text} ({resource})"


_PLAIN: Final = ("GPUs", "GPU memory")
"""The nouns of resources that their units explain."""
