"""Device lists: the text in which a pod carries the cards of one maker that it was given.

A card is `uuid,WORD,MiB,cores:` and each container, init containers first, a slot of cards that
ends with `;`. A container without such a card has an empty slot, whatever its neighbours have: the
node finds what to hand out by counting slots. `;GPU-a,NVIDIA,4000,30:;` gives the second of two
containers a share of one card.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from ledger.core.model.cards import Parts, Share
from ledger.kube.api.quoting import shown
from ledger.kube.hami.int32 import INT32_MAX, int32_of
from ledger.kube.hami.node_devices import TEXT_MAX

_SLOT_END: Final = ";"
_CARD_END: Final = ":"
_FIELDS_LEAST: Final = 4
_INSTANCE: Final = re.compile(r"\[[0-9]+-[0-9]+\]$", re.ASCII)
"""How releases before 2.10 named an instance of a card behind its uuid: by numbers in a table."""

Slots = list[list[Share]]
"""Shares of one maker's cards, by container."""


class BadDeviceList(ValueError):
    """What a pod was given cannot be read; the text says what is wrong and where."""


def slots_of(parts: Parts, vendors: Mapping[str, str]) -> dict[str, Slots]:
    """Return the slots of each vendor that gives any card; `vendors` are by uuid of the card.

    Raises ValueError when it lacks a card.
    """
    found: dict[str, Slots] = {}
    for number, part in enumerate(parts):
        for share in part.shares:
            vendor = vendors.get(share.uuid)
            if vendor is None:
                raise ValueError(f"{part.container} has a card that is not known: {share.uuid}")
            found.setdefault(vendor, [[] for _ in parts])[number].append(share)
    return found


def write(slots: Slots, word: str) -> str:
    """Return the text of the slots of the maker that `word` stands for."""
    return "".join(_slot(shares, word) + _SLOT_END for shares in slots)


def read(text: str) -> Slots:
    """Return the slots in a text. Raises BadDeviceList.

    Old releases wrote `,,0,0:` for a container without cards, and each time a node has handed out a
    slot HAMi writes the text again with one empty slot more. An instance of a card that an old
    release cut is read as a share of it.
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
        raise BadDeviceList(f"slot {slot}: {name} {shown(text)!r} is no number up to {INT32_MAX}")
    return number
