"""Pod device annotation: the text of a pod's annotation with its cards of one vendor.

A card is `uuid,WORD,MiB,cores:`. Each container, init containers first, has a slot of cards that
ends with `;`. A container without such a card has an empty slot, because the node finds the cards
of a container by counting slots. `;GPU-a,NVIDIA,4000,30:;` gives the second of two containers a
share of one card.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from ledger.core.model.cards import Parts, Share
from ledger.kube.api.quoting import shown
from ledger.kube.hami.int32 import INT32_MAX, int32_of
from ledger.kube.hami.node_device_annotation import TEXT_MAX

_SLOT_END: Final = ";"
_CARD_END: Final = ":"
_FIELDS_LEAST: Final = 4
_INSTANCE: Final = re.compile(r"\[[0-9]+-[0-9]+\]$", re.ASCII)
"""Suffix of a uuid with which releases before 2.10 named a MIG instance: its place in a table."""

Slots = list[list[Share]]
"""Shares of one vendor's cards, by container."""


class BadDeviceList(ValueError):
    """A device list of a pod is invalid; the text gives the cause and its place."""


def slots_of(parts: Parts, vendors: Mapping[str, str]) -> dict[str, Slots]:
    """Return the slots of each vendor with a card; `vendors` maps card uuids to vendors.

    Raises ValueError if `vendors` lacks a card.
    """
    slots: dict[str, Slots] = {}
    for number, part in enumerate(parts):
        for share in part.shares:
            vendor = vendors.get(share.uuid)
            if vendor is None:
                raise ValueError(f"{part.container} has a card that is not known: {share.uuid}")
            slots.setdefault(vendor, [[] for _ in parts])[number].append(share)
    return slots


def write(slots: Slots, word: str) -> str:
    """Return the text of the slots of the vendor with the name `word`."""
    return "".join(_slot(shares, word) + _SLOT_END for shares in slots)


def read(text: str) -> Slots:
    """Return the slots in a text. Raises BadDeviceList.

    Old releases wrote `,,0,0:` for a container without cards. Each time a node has allocated a
    slot, HAMi writes the text again with one more empty slot. A MIG instance of an old release is
    read as a share of its card.
    """
    if len(text) > TEXT_MAX:
        raise BadDeviceList(f"it is longer than {TEXT_MAX} characters")
    slots = text.removesuffix(_SLOT_END).split(_SLOT_END)
    return [list(_shares(number, slot.split(_CARD_END))) for number, slot in enumerate(slots)]


def _slot(shares: Iterable[Share], word: str) -> str:
    return "".join(
        f"{share.uuid},{word},{share.memory},{share.cores}{_CARD_END}" for share in shares
    )


def _shares(slot: int, entries: Iterable[str]) -> Iterable[Share]:
    for entry in entries:
        fields = [field.strip() for field in entry.split(",")]
        uuid = _INSTANCE.sub("", fields[0])
        if len(fields) == 1 or not uuid:
            continue
        if len(fields) < _FIELDS_LEAST:
            raise BadDeviceList(
                f"slot {slot}: {shown(entry)!r} has fewer than {_FIELDS_LEAST} fields"
            )
        memory, cores = fields[2:_FIELDS_LEAST]
        yield Share(uuid, _number(slot, "MiB", memory), _number(slot, "cores", cores))


def _number(slot: int, name: str, text: str) -> int:
    number = int32_of(text, least=0)
    if number is None:
        raise BadDeviceList(
            f"slot {slot}: {name} {shown(text)!r} is not a number up to {INT32_MAX}"
        )
    return number
