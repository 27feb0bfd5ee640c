"""Lowered limits: how long a container keeps its earlier, larger limit. Pure.

A container may use more than its new limit when its limit is lowered. So its earlier limit stays on
the limits page as `granted`, and usage up to the earlier limit does not count as a bypass. The
earlier limit is dropped when the pod, by the driver, uses at most its new limits.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence

import msgspec

from vgpu_native.shared.limits_page import ContainerLimits, DeviceLimits


def with_earlier_limit(before: DeviceLimits, after: DeviceLimits) -> DeviceLimits:
    """Return the new limits of a device, with the earlier limit if that was larger."""
    return msgspec.structs.replace(after, granted=before.most if before.most > after.memory else 0)


def cards_within_limits(
    pages: Sequence[tuple[str, str, ContainerLimits]], usage: Callable[[str, str], int | None]
) -> dict[str, tuple[int, tuple[str, ...]]]:
    """Return by limits page the cards of which a pod uses at most its present limits.

    `pages` has the pod's uid, the path and the content of each page. `usage` returns the bytes that
    a pod uses of a card, None if unknown. The result has the generation of each page, too.
    """
    limits: Counter[tuple[str, str]] = Counter()
    for uid, _, page in pages:
        for device in page.devices:
            limits[uid, device.uuid] += device.memory
    within = {}
    for uid, path, page in pages:
        used = {device.uuid: usage(uid, device.uuid) for device in page.devices}
        cards = [
            card
            for card, amount in used.items()
            if amount is not None and amount <= limits[uid, card]
        ]
        within[path] = page.generation, tuple(cards)
    return within


def without_earlier_limits(
    limits: ContainerLimits, generation: int, cards: Collection[str]
) -> ContainerLimits:
    """Return limits without the earlier limits of these cards.

    Limits that have changed since `generation` are returned as they are, because the usage was
    compared with others.
    """
    if limits.generation != generation:
        return limits
    devices = tuple(
        msgspec.structs.replace(device, granted=0) if device.uuid in cards else device
        for device in limits.devices
    )
    return msgspec.structs.replace(limits, devices=devices)
