"""MIG instances: the positions of a pod's MIG instances on their cards.

JSON of the pod: `[{"containerIndex":0,"deviceIndex":0,"gpuUUID":"GPU-a","profile":"1g.10gb",
"placement":{"start":2,"size":1}}]`. The indexes are those of a slot in the NVIDIA device list, and
of a card in the slot. When the node has created the instance it adds its names, which are ignored.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta, structs

from ledger.core.model.cards import Share
from ledger.kube.hami.node_device_annotation import SLICES_MAX, TEXT_MAX
from ledger.kube.hami.pod_device_annotation import BadDeviceList, Slots

Index = Annotated[int, Meta(ge=0, le=2**16)]
Name = Annotated[str, Meta(min_length=1, max_length=253)]


class _Placement(msgspec.Struct, frozen=True, gc=False):
    size: Annotated[int, Meta(ge=1, le=SLICES_MAX)]
    start: Annotated[int, Meta(ge=0, lt=SLICES_MAX)] = 0


class _Instance(msgspec.Struct, frozen=True, rename="camel", gc=False):
    container_index: Index
    device_index: Index
    uuid: Name = msgspec.field(name="gpuUUID")
    profile: Name
    placement: _Placement


_JSON: Final = msgspec.json.Decoder(list[_Instance])


def write(slots: Slots) -> str:
    """Return the JSON of the instances among shares, "" if there are none."""
    instances = [
        _Instance(container, device, share.uuid, share.profile, _Placement(share.size, share.start))
        for container, shares in enumerate(slots)
        for device, share in enumerate(shares)
        if share.profile
    ]
    return msgspec.json.encode(instances).decode() if instances else ""


def cut(slots: Slots, text: str) -> None:
    """Set profile and position of the shares in `slots` that a text lists. Raises BadDeviceList.

    Each listed instance must be a share of the slots, of the same card, and listed once.
    """
    listed: set[tuple[int, int]] = set()
    for entry in _read(text):
        place = (entry.container_index, entry.device_index)
        if place in listed:
            raise BadDeviceList(f"slot {place[0]}, card {place[1]} is listed twice as an instance")
        listed.add(place)
        share = _share(slots, *place)
        if share is None or share.uuid != entry.uuid:
            has = share.uuid if share is not None else "nothing"
            raise BadDeviceList(
                f"an instance of {entry.uuid} is listed at slot {place[0]}, card {place[1]}, where"
                f" the device list has {has}"
            )
        slots[place[0]][place[1]] = structs.replace(
            share, profile=entry.profile, start=entry.placement.start, size=entry.placement.size
        )


def _read(text: str) -> list[_Instance]:
    if len(text) > TEXT_MAX:
        raise BadDeviceList(f"it is longer than {TEXT_MAX} characters")
    try:
        return _JSON.decode(text)
    except RecursionError as error:
        raise BadDeviceList("its JSON is nested too deeply") from error
    except ValueError as error:
        raise BadDeviceList(f"its JSON does not list instances: {error}") from error


def _share(slots: Slots, container: int, device: int) -> Share | None:
    if container < len(slots) and device < len(slots[container]):
        return slots[container][device]
    return None
