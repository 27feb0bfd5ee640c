"""Owner cache: the objects that own pods, in the memory of every replica.

Watches fill the cache, so it may lag behind the API server but never runs ahead of it. Each entry
has the version of its object. A caller that needs another version, or an object that is not in the
cache, reads it from the API server. The same applies to objects beyond the bound, so a full cache
is slower and never wrong.

An object with four labels costs about 1 KiB plus its digest, regardless of the size of its spec
(`tests/unit/ledger/kube/watch/test_owner_cache.py` measures it).
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
"""Maximum number of cached objects, of all resources together."""

BYTES_MAX: Final = 512 * 1024**2
"""Maximum size of the cached objects, as `_size_of` estimates it."""

BASE_BYTES: Final = 1024
"""Size of a cached object without its labels and its digest."""

STRIDE: Final = 64
"""Objects of a list that are handled between two yields to the event loop."""

_LABEL_BYTES: Final = 128
"""Size of a label in a dict, without its characters."""

D = TypeVar("D")


class CachedOwner(msgspec.Struct, Generic[D], frozen=True, gc=False):
    """The cached part of one object; `digest` is the result of the cache's digest function."""

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
        owners_max: int = OWNERS_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        """`digest` returns the part of an object to cache besides its metadata; it must not raise.

        The cache holds at most `owners_max` objects, of at most `bytes_max` bytes together.
        """
        self.on_rejected: Callable[[], None] = _ignored
        """Called for each object that the full cache rejects, to count it."""
        self._digest = digest
        self._owners_max, self._bytes_max = owners_max, bytes_max
        self._bytes = 0
        self._by_uid: dict[str, CachedOwner[D]] = {}
        self._by_address: dict[str, dict[str, CachedOwner[D]]] = {}
        self._current: set[str] = set()
        self.get: Final[Callable[[str], CachedOwner[D] | None]] = self._by_uid.get
        """Returns the object of a uid; None if the caller must read it from the API server."""

    def __len__(self) -> int:
        """Return the number of cached objects."""
        return len(self._by_uid)

    def by_name(self, resource: Resource, namespace: str, name: str) -> CachedOwner[D] | None:
        """Return the object of this name; None if the caller must read it from the API server."""
        return self._of(resource).get(f"{namespace}/{name}")

    def is_current(self, resource: Resource) -> bool:
        """Return whether the resource was listed and its watch is not interrupted."""
        return resource.name in self._current

    def parent_of(self, resource: Resource, item: Workload) -> CachedOwner[D]:
        """Return the cached form of an object that was not read by a watch.

        Raises ValueError if its resourceVersion is invalid.
        """
        meta = item.metadata
        return CachedOwner(
            resource,
            intern(meta.namespace),
            meta.name,
            meta.uid,
            meta.version(),
            meta.generation,
            meta.controller(),
            meta.labels or {},
            self._digest(resource, item),
        )

    async def follow(self, cluster: FilteredWatches, resource: Resource) -> None:
        """Cache a resource's objects from a watch, until cancelled."""

        def keep(item: Workload) -> CachedOwner[D]:
            return self.parent_of(resource, item)

        try:
            async with aclosing(cluster.watch_filtered(resource, keep)) as changes:
                async for change in changes:
                    await self.feed(resource, change)
        finally:
            self._current.discard(resource.name)

    async def feed(self, resource: Resource, change: Change[CachedOwner[D]]) -> None:
        """Apply a change of a watch. A long list yields to the event loop."""
        if isinstance(change, Interrupted):
            self._current.discard(resource.name)
            return
        if isinstance(change, Listed):
            await self._replace(resource, change.objects)
        elif isinstance(change, Changed):
            self._take(change)
        self._current.add(resource.name)

    async def _replace(self, resource: Resource, listed: list[CachedOwner[D]]) -> None:
        """Cache the listed objects and forget all others of the resource."""
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
        """Cache an object unless a newer version is cached or the cache is full."""
        held = self._by_uid.get(parent.uid)
        if held is not None and held.version > parent.version:
            return
        size = _size_of(parent)
        if held is not None:
            self._forget(held)  # the old version goes, even if the new one is rejected
        if len(self._by_uid) >= self._owners_max or self._bytes + size > self._bytes_max:
            self.on_rejected()
            return
        self._bytes += size
        self._by_uid[parent.uid] = parent
        self._of(parent.resource)[f"{parent.namespace}/{parent.name}"] = parent

    def _forget(self, parent: CachedOwner[D]) -> None:
        del self._by_uid[parent.uid]
        self._bytes -= _size_of(parent)
        names, address = self._of(parent.resource), f"{parent.namespace}/{parent.name}"
        if names.get(address) is parent:  # otherwise another object has the name now
            del names[address]

    def _of(self, resource: Resource) -> dict[str, CachedOwner[D]]:
        return self._by_address.setdefault(resource.name, {})


def _size_of(parent: CachedOwner[D]) -> int:
    """Return the estimated size of an object in bytes."""
    digest = len(parent.digest) if isinstance(parent.digest, bytes) else 0
    return (
        BASE_BYTES + digest + sum(_LABEL_BYTES + len(k) + len(v) for k, v in parent.labels.items())
    )


def _ignored() -> None:
    """Do nothing: the default of `on_rejected`."""


async def _turn(count: int) -> None:
    if not (count + 1) % STRIDE:
        await asyncio.sleep(0)
