"""Card announcement: which cards the node offers, and how the annotations of the Node list them.

A card is announced with the memory it has. Overcommitment is a percentage beside it, which the
ledger applies, so that overcommitted memory is never taken for existing memory.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal

import msgspec

from ledger.core.model.cards import OWN, WHOLE, Card
from ledger.kube.hami import annotation_keys, link_scores, node_device_annotation
from ledger.kube.hami.link_scores import PairScores
from vgpu_native.nvml.nvml_port import Gpu
from vgpu_native.shared.limits_page import MEBIBYTE

MODE: Final = "hami-core"
"""The mode of cards that are shared through a library in each container."""

_MAKER: Final = "NVIDIA"
_SEPARATORS: Final = str.maketrans({",": " ", ":": " ", ";": " "})
_WORDS: Final = annotation_keys.VENDOR_ANNOTATIONS["nvidia"]

AnnouncementForm = Literal["json", "colons"]


class CardOffer(msgspec.Struct, frozen=True):
    """The offer of each card: how many containers may share it, and percent of its amounts."""

    slots: int = 10
    memory_scaling: int = WHOLE
    cores_scaling: int = WHOLE


def cards_of(
    gpus: Iterable[Gpu], offer: CardOffer, unhealthy: Mapping[str, str]
) -> tuple[Card, ...]:
    """Return the cards that can be shared; those in `unhealthy` are not healthy.

    A card in MIG mode is left out, because the agent makes no instances.
    """
    return tuple(
        Card(
            uuid=device.uuid,
            index=device.index,
            type=_type(device.name),
            memory=device.memory // MEBIBYTE,
            cores=WHOLE,
            slots=offer.slots,
            numa=device.numa,
            mode=MODE,
            healthy=device.uuid not in unhealthy,
        )
        for device in sorted(gpus, key=lambda gpu: (gpu.index, gpu.uuid))
        if not device.cut
    )


def annotations(
    cards: Sequence[Card], scores: PairScores, offer: CardOffer, form: AnnouncementForm
) -> dict[str, str | None]:
    """Return the annotations by which a node announces its cards; None removes one."""
    write = (
        node_device_annotation.announcement
        if form == "json"
        else node_device_annotation.colon_announcement
    )
    return {
        annotation_keys.KEEPER: OWN,
        _WORDS.register: write(cards),
        annotation_keys.PAIR_SCORES: link_scores.announcement(scores) if scores else None,
        annotation_keys.MEMORY_SCALING: _percent(offer.memory_scaling),
        annotation_keys.CORES_SCALING: _percent(offer.cores_scaling),
    }


def answer(handshake: str | None, now: datetime) -> str | None:
    """Return the answer to a handshake, None without a request. `now` is in UTC."""
    if handshake is None or "Requesting" not in handshake:
        return None
    return f"Reported {now:%Y-%m-%d %H:%M:%S}"


def changes(wanted: Mapping[str, str | None], present: Mapping[str, str]) -> dict[str, str | None]:
    """Return the wanted annotations that are missing from a node or have another value there."""
    return {key: value for key, value in wanted.items() if present.get(key) != value}


def _percent(scaling: int) -> str | None:
    return None if scaling == WHOLE else str(scaling)


def _type(name: str) -> str:
    """Return the model of a card as HAMi writes it, without commas, colons and semicolons."""
    plain = " ".join(name.translate(_SEPARATORS).split())
    return plain if plain.startswith(_MAKER) else f"{_MAKER}-{plain}"
