"""Limits: from a container's shares of cards to what its limits page says. Pure."""

from collections.abc import Sequence
from typing import Final

from ledger.core.cards import Share
from vgpu_native.limits_page import ALL_CORES, MEBIBYTE, Device, Limits, flags_of
from vgpu_native.plugin.placements import Container
from vgpu_native.plugin.settings import PluginSettings

CLOSED: Final = 0
"""Bytes that may be allocated before it is known whose the page is."""


def is_limited(container: Container, settings: PluginSettings) -> bool:
    """Return whether a container runs with the library: not one that has all its cards alone."""
    return settings.limit_whole_cards or not container.exclusive


def limits_of(shares: Sequence[Share], cards: Sequence[str], settings: PluginSettings) -> Limits:
    """Return the limits of shares of these cards, in the order in which the container sees them.

    A share without cores has as much time as it can get. Raises KeyError for a card without share.
    """
    by_uuid = {share.uuid: share for share in shares}
    return Limits(tuple(_device(by_uuid[uuid]) for uuid in cards), _flags(settings))


def closed(cards: Sequence[str], settings: PluginSettings) -> Limits:
    """Return limits under which nothing can be allocated."""
    return Limits(tuple(Device(uuid, CLOSED) for uuid in cards), _flags(settings))


def _device(share: Share) -> Device:
    return Device(share.uuid, share.memory * MEBIBYTE, share.cores or ALL_CORES)


def _flags(settings: PluginSettings) -> int:
    return flags_of(
        may_disable=settings.may_disable,
        oversubscribe=settings.oversubscribe,
        cores_off=settings.cores_off,
    )
