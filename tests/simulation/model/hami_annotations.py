"""Annotations in HAMi's format, written and read independently of the product."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from simulation.model.operations import CardSpec

REGISTER: Final = "hami.io/node-nvidia-register"
KEEPER: Final = "gpuledger.io/keeper"
CORDON: Final = "hami.io/device-cordon"
LOCK: Final = "hami.io/mutex.lock"
ALLOCATED: Final = "hami.io/vgpu-devices-allocated"
NODE: Final = "hami.io/vgpu-node"
PHASE: Final = "hami.io/bind-phase"
ALLOCATING: Final = "allocating"
SUCCESS: Final = "success"

OWN: Final = "gpuledger"

_TYPE: Final = "NVIDIA-A100"


def announcement(slabs: Sequence[CardSpec], keeper: str) -> dict[str, str]:
    """Return the annotations of a node with these cards; HAMi's older form for its own nodes."""
    closed = ",".join(slab.uuid for slab in slabs if slab.cordoned)
    if keeper != OWN:
        cards = (
            f"{slab.uuid},{slab.slots},{slab.memory},100,{_TYPE},0,{str(slab.healthy).lower()}:"
            for slab in slabs
        )
        return {REGISTER: "".join(cards), CORDON: closed}
    listed = [
        {
            "id": slab.uuid, "index": number, "count": slab.slots, "devmem": slab.memory,
            "devcore": 100, "type": _TYPE, "health": slab.healthy,
        }
        for number, slab in enumerate(slabs)
    ]  # fmt: skip
    return {REGISTER: json.dumps(listed), CORDON: closed, KEEPER: OWN}


def allocation(uuid: str, memory: int, cores: int) -> dict[str, str]:
    """Return the annotation of a pod whose only container has a share of one card."""
    return {ALLOCATED: f"{uuid},NVIDIA,{memory},{cores}:;"}


def cards_in(annotations: Mapping[str, str]) -> list[str]:
    """Return the uuids that the annotations of a pod name, sorted."""
    slots = annotations.get(ALLOCATED, "").split(";")
    return sorted(card.split(",")[0] for slot in slots for card in slot.split(":") if card)


def limits_in(annotations: Mapping[str, str]) -> dict[str, tuple[int, int, int]]:
    """Return the MiB, percent and slots of each card that a node announces, by uuid."""
    text = annotations.get(REGISTER, "[]")
    if text.startswith("["):
        cards = json.loads(text)
        return {card["id"]: (card["devmem"], card["devcore"], card["count"]) for card in cards}
    fields = (card.split(",") for card in text.split(":") if card)
    return {values[0]: (int(values[2]), int(values[3]), int(values[1])) for values in fields}
