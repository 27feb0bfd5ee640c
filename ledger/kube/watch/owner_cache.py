"""Owner cache: what every replica remembers of the objects that own pods.

Fed from watches, so it may lag behind the API server but never runs ahead of it: each record tells
the version it was read at, and whoever needs another one, or an object that is not here, reads it
from the API server. That is also what happens to objects beyond the bound, so a full cache is
slower and never wrong.

However large its spec is, an object with four labels costs about 1 KiB besides what the caller
keeps of it (`tests/unit/ledger/kube/watch/test_owner_cache.py` measures).
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from sys import intern
from typing import Final, Generic, TypeVar

import msgspec

from ledger.kube.api.api_resources import Resource
from ledger.kube.api.cluster_ports import Change, Changed, FilteredWatches, Interrupted, Listed
from ledger.kube.api.objects import OwnerReference, Workload

OWNERS_MAX: Final = 200_000
"""Objects remembered at most, of all resources together."""

BYTES_MAX: Final = 512 * 1024**2
"""What the remembered objects may amount to, counted as `_size_of` does."""

BASE_BYTES: Final = 1024
"""What an object costs besides the labels that make it larger than others and its digest."""

STRIDE: Final = 64
"""Objects of a list that are taken in before the event loop gets its turn."""

_LABEL_BYTES: Final = 128
"""What two texts and their place in a table take besides their letters."""

D = TypeVar("D")


class CachedOwner(msgspec.Struct, Generic[D], frozen=True, gc=False):
    """What is remembered of one object; `digest` is what the cache's owner made of it."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    version: int
    generation: int
    controller: OwnerReference | None
    labels: dict[str, str]
    digest: D


class OwnerCache(Generic[D]):
    """The objects of several resources, by uid and by name. One watch feeds each resource."""

    def __init__(
        self,
        digest: Callable[[Resource, Workload], D],
        *,
        parents_max: int = OWNERS_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        """`digest` says what to keep of an object besides its metadata; it must not raise.

        At most `parents_max` objects of at most `bytes_max` bytes are remembered, all together.
        """
        self.when_turned_away: Callable[[], None] = _ignored
        """What to do whenever an object finds no room: count it, for the metrics."""
        self._digest = digest
        self._parents_max, self._bytes_max = parents_max, bytes_max
        self._bytes = 0
        self._by_uid: dict[str, CachedOwner[D]] = {}
        self._by_address: dict[str, dict[str, CachedOwner[D]]] = {}
        self._current: set[str] = set()
        self.get: Final[Callable[[str], CachedOwner[D] | None]] = self._by_uid.get
        """Returns the object of a uid; None when it has to be read from the API server."""

    def __len__(self) -> int:
        """Return how many objects are remembered."""
        return len(self._by_uid)

    def by_name(self, resource: Resource, namespace: str, name: str) -> CachedOwner[D] | None:
        """Return the object of this name; None when it has to be read from the API server."""
        return self._of(resource).get(f"{namespace}/{name}")

    def is_current(self, resource: Resource) -> bool:
        """Return whether the resource was listed and its watch is not interrupted."""
        return resource.name in self._current

    def parent_of(self, resource: Resource, seen: Workload) -> CachedOwner[D]:
        """Return what would be remembered of an object, for those that are read from elsewhere.

        Raises ValueError when its resourceVersion is none.
        """
        meta = seen.metadata
        return CachedOwner(
            resource,
            intern(meta.namespace),
            meta.name,
            meta.uid,
            meta.version(),
            meta.generation,
            meta.controller(),
            meta.labels or {},
            self._digest(resource, seen),
        )

    async def follow(self, cluster: FilteredWatches, resource: Resource) -> None:
        """Remember a resource's objects as the cluster tells them, until cancelled."""

        def keep(seen: Workload) -> CachedOwner[D]:
            return self.parent_of(resource, seen)

        try:
            async with aclosing(cluster.watch_kept(resource, keep)) as changes:
                async for change in changes:
                    await self.feed(resource, change)
        finally:
            self._current.discard(resource.name)

    async def feed(self, resource: Resource, change: Change[CachedOwner[D]]) -> None:
        """Take in what a watch tells. A long list lets others have their turn."""
        if isinstance(change, Interrupted):
            self._current.discard(resource.name)
            return
        if isinstance(change, Listed):
            await self._replace(resource, change.objects)
        elif isinstance(change, Changed):
            self._take(change)
        self._current.add(resource.name)

    async def _replace(self, resource: Resource, listed: list[CachedOwner[D]]) -> None:
        """Remember what is listed and forget everything else of the resource."""
        left = {parent.uid for parent in self._of(resource).values()}
        left.difference_update(parent.uid for parent in listed)
        for count, uid in enumerate(left):
            self._forget(self._by_uid[uid])
            await _turn(count)
        for count, parent in enumerate(listed):
            self._remember(parent)
            await _turn(count)

    def _take(self, change: Changed[CachedOwner[D]]) -> None:
        if not change.deleted:
            self._remember(change.object)
        elif held := self._by_uid.get(change.object.uid):
            self._forget(held)

    def _remember(self, parent: CachedOwner[D]) -> None:
        """Keep an object unless a newer version is known or there is no room."""
        held = self._by_uid.get(parent.uid)
        if held is not None and held.version > parent.version:
            return
        size = _size_of(parent)
        if held is not None:
            self._forget(held)  # what was known of it is old, whether or not the new finds room
        if len(self._by_uid) >= self._parents_max or self._bytes + size > self._bytes_max:
            self.when_turned_away()
            return
        self._bytes += size
        self._by_uid[parent.uid] = parent
        self._of(parent.resource)[f"{parent.namespace}/{parent.name}"] = parent

    def _forget(self, parent: CachedOwner[D]) -> None:
        del self._by_uid[parent.uid]
        self._bytes -= _size_of(parent)
        names, address = self._of(parent.resource), f"{parent.namespace}/{parent.name}"
        if names.get(address) is parent:  # else the name is another object's by now
            del names[address]

    def _of(self, resource: Resource) -> dict[str, CachedOwner[D]]:
        return self._by_address.setdefault(resource.name, {})


def _size_of(parent: CachedOwner[D]) -> int:
    """Return about how many bytes an object takes."""
    digest = len(parent.digest) if isinstance(parent.digest, bytes) else 0
    return (
        BASE_BYTES + digest + sum(_LABEL_BYTES + len(k) + len(v) for k, v in parent.labels.items())
    )


def _ignored() -> None:
    """Count nothing, for whoever keeps no metrics."""


async def _turn(count: int) -> None:
    if not (count + 1) % STRIDE:
        await asyncio.sleep(0)
