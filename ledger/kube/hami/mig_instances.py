"""Instances: where on cards that are cut into instances those of a pod lie.

JSON of the pod: `[{"containerIndex":0,"deviceIndex":0,"gpuUUID":"GPU-a","profile":"1g.10gb",
"placement":{"start":2,"size":1}}]`. Indexes count slots, and cards in a slot, of the NVIDIA device
list. Once the node has cut the card it adds the names of the instance, which nobody needs here.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta, structs

from ledger.core.model.cards import Share
from ledger.kube.hami.node_devices import SLICES_MAX, TEXT_MAX
from ledger.kube.hami.pod_devices import BadDeviceList, Slots

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
    """Return the JSON of the instances among shares, an empty text when there are none."""
    found = [
        _Instance(container, device, share.uuid, share.profile, _Placement(share.size, share.start))
        for container, shares in enumerate(slots)
        for device, share in enumerate(shares)
        if share.profile
    ]
    return msgspec.json.encode(found).decode() if found else ""


def cut(slots: Slots, text: str) -> None:
    """Say in `slots` which shares are the instances that a text tells of. Raises BadDeviceList.

    Each must be a share of the slots, of the same card, and told of once.
    """
    told: set[tuple[int, int]] = set()
    for one in _read(text):
        place = (one.container_index, one.device_index)
        if place in told:
            raise BadDeviceList(f"slot {place[0]}, card {place[1]} is told to be cut twice")
        told.add(place)
        share = _share(slots, *place)
        if share is None or share.uuid != one.uuid:
            has = share.uuid if share is not None else "nothing"
            raise BadDeviceList(
                f"an instance of {one.uuid} is told of at slot {place[0]}, card {place[1]}, where"
                f" the device list has {has}"
            )
        slots[place[0]][place[1]] = structs.replace(
            share, profile=one.profile, start=one.placement.start, size=one.placement.size
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
