"""Slice feed: the supply of devices, kept up to date by the watch of ResourceSlices."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from ledger.kube.api.cluster_ports import Change, Changed, Interrupted, Listed
from ledger.kube.api.objects import ObjectMeta, Workload
from ledger.kube.resource_claims.device_supply import DeviceSupply
from ledger.kube.resource_claims.dra_objects import ResourceSlice, slice_of
from webhook.context.resource_claims.named_objects import NOT_LISTED

SLICES_MAX: Final = 50_000
"""Most slices that are kept; one node has one slice for each 128 devices of a driver."""

KeptSlice = tuple[ObjectMeta, ResourceSlice | None]
"""A slice by its metadata, None if it cannot be read."""


def kept_slice(seen: Workload) -> KeptSlice:
    """Return the kept form of a watched slice."""
    try:
        return seen.metadata, slice_of(seen)
    except ValueError:
        return seen.metadata, None


SetOffered = Callable[[str, Mapping[str, str]], None]
"""Receives the name of a node, "" for devices of several nodes, and the drivers of its cards by
uuid."""


def _ignore_offered(_: str, __: Mapping[str, str]) -> None:
    """Ignore the cards."""


class SliceFeed:
    """Feeds a supply. `listed` is set once all slices were listed, or they are not served.

    `set_offered` receives the cards that slices have, after each change of a node's.
    """

    def __init__(self, supply: DeviceSupply) -> None:
        self.supply: Final = supply
        self.set_offered: SetOffered = _ignore_offered
        self.listed: Final = asyncio.Event()
        self._interrupted = NOT_LISTED
        self._kept: set[str] = set()
        self._left: dict[str, bool] = {}

    @property
    def problem(self) -> str:
        """Why the supply is not current, empty if it is."""
        if self._interrupted or not self._left:
            return self._interrupted
        unreadable = [name for name, is_unreadable in self._left.items() if is_unreadable]
        if unreadable:
            return f"{len(unreadable)} slices cannot be read, such as {unreadable[0]}"
        return f"only {SLICES_MAX} of {SLICES_MAX + len(self._left)} slices are kept"

    def take(self, change: Change[KeptSlice]) -> None:
        """Apply a change of the watch."""
        if isinstance(change, Interrupted):
            self._interrupted = "" if change.absent else change.reason
            if not change.absent:
                return
            change = Listed(0, [])
        self._interrupted = ""
        if isinstance(change, Listed):
            self._relist(change.objects)
        elif isinstance(change, Changed):
            self._change(change.object, deleted=change.deleted)
        for node in self.supply.take_changed_nodes():
            self.set_offered(node, self.supply.cards(node))
        self.listed.set()

    def _relist(self, slices: list[KeptSlice]) -> None:
        read = [item for _, item in slices if item is not None]
        kept, surplus = read[:SLICES_MAX], read[SLICES_MAX:]
        # True for a slice that cannot be read, False for one that there is no room for.
        self._left = {meta.name: True for meta, item in slices if item is None}
        self._left |= {item.metadata.name: False for item in surplus}
        self._kept = {item.metadata.name for item in kept}
        self.supply.relist(kept)

    def _change(self, seen: KeptSlice, *, deleted: bool) -> None:
        meta, item = seen
        self._left.pop(meta.name, None)
        if deleted or item is None:
            self._kept.discard(meta.name)
            self.supply.drop_slice(meta.name)
            if not deleted:
                self._left[meta.name] = True
        elif meta.name in self._kept or len(self._kept) < SLICES_MAX:
            self._kept.add(meta.name)
            self.supply.take_slice(item)
        else:
            self._left[meta.name] = False
