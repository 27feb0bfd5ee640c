"""Slice feed: the supply of devices, kept up to date by the watch of ResourceSlices."""

import asyncio
from collections.abc import Callable
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


SetOffered = Callable[[str, frozenset[str]], None]
"""Receives the name of a node, empty for devices of several nodes, and the uuids of its cards."""


def _ignore_offered(_: str, __: frozenset[str]) -> None:
    """Ignore the cards."""


class SliceFeed:
    """Feeds a supply. `listed` is set once all slices were listed, or they are not served.

    `set_offered` receives the cards that slices have, after each change of a node's.
    """

    def __init__(self, supply: DeviceSupply) -> None:
        self.supply: Final = supply
        self.set_offered: SetOffered = _ignore_offered
        self.listed: Final = asyncio.Event()
        self.problem = NOT_LISTED
        """Why the supply is not current, empty if it is."""
        self._names: set[str] = set()

    def take(self, change: Change[KeptSlice]) -> None:
        """Apply a change of the watch."""
        if isinstance(change, Interrupted):
            self.problem = "" if change.absent else change.reason
            if change.absent:
                self._relist([])
                self._pass_on()
                self.listed.set()
            return
        self.problem = ""
        if isinstance(change, Listed):
            self._relist(change.objects)
        elif isinstance(change, Changed):
            self._change(change.object, deleted=change.deleted)
        self._pass_on()
        self.listed.set()

    def _pass_on(self) -> None:
        for node in self.supply.take_changed_nodes():
            self.set_offered(node, self.supply.uuids(node))

    def _relist(self, slices: list[KeptSlice]) -> None:
        read = [item for _, item in slices if item is not None]
        if len(read) < len(slices):
            self.problem = f"{len(slices) - len(read)} slices cannot be read"
        elif len(read) > SLICES_MAX:
            self.problem = f"only {SLICES_MAX} of {len(read)} slices are kept"
        self._names = {item.metadata.name for item in read[:SLICES_MAX]}
        self.supply.relist(read[:SLICES_MAX])

    def _change(self, kept: KeptSlice, *, deleted: bool) -> None:
        meta, item = kept
        if deleted or item is None:
            self._names.discard(meta.name)
            self.supply.drop_slice(meta.name)
            if item is None:
                self.problem = f"slice {meta.name} cannot be read"
        elif meta.name in self._names or len(self._names) < SLICES_MAX:
            self._names.add(meta.name)
            self.supply.take_slice(item)
        else:
            self.problem = f"only {SLICES_MAX} slices are kept"
