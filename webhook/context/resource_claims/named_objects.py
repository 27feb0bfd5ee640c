"""Named objects: the objects of one resource by name, from a watch, with reads of those it lacks.

A watch fills the cache, so it may lag behind the API server. A review reads an object that is not
cached, because the user may have created it a moment before. The cache and the read objects are
bounded. A full cache is not complete, so that the absence of an object proves nothing.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final, Generic, TypeVar

from ledger.kube.api.api_resources import Resource
from ledger.kube.api.cluster_errors import NotServed
from ledger.kube.api.cluster_ports import Change, Changed, Interrupted, Listed, Workloads
from ledger.kube.api.objects import ObjectMeta, Workload
from webhook.context.resource_claims.claim_index import loop_time

READ_MAX: Final = 1_024
"""Most objects that were read and are not cached."""

READ_SECONDS: Final = 10.0
"""Seconds for which a read object is used. The watch shows it within milliseconds."""

NOT_LISTED: Final = "not listed yet"

T = TypeVar("T")

Kept = tuple[ObjectMeta, T | None, int]
"""An object by its metadata, the part that is kept (None if it cannot be read), and its bytes."""

Name = tuple[str, str]


class NamedObjects(Generic[T]):
    """The objects of one resource by namespace and name."""

    def __init__(
        self,
        resource: Resource,
        keep: Callable[[Workload], tuple[T, int]],
        *,
        objects_max: int,
        bytes_max: int,
    ) -> None:
        """`keep` returns the kept part of an object and its bytes, or raises ValueError."""
        self.resource: Final = resource
        self.version = 0
        """Rises at each change."""
        self.listed: Final = asyncio.Event()
        """Set once all objects were listed, or the resource is not served."""
        self.problem = NOT_LISTED
        """Why the cache is not current, empty if it is."""
        self.is_served = True
        self._keep = keep
        self._objects_max, self._bytes_max = objects_max, bytes_max
        self._bytes = 0
        self._rejected = False
        self._cached: dict[Name, Kept[T]] = {}
        self._read: dict[Name, tuple[float, T]] = {}

    def __len__(self) -> int:
        """Return the number of cached objects."""
        return len(self._cached)

    @property
    def is_complete(self) -> bool:
        """Whether an object that is not here did not exist a moment ago."""
        return not self.problem and not self._rejected

    def get(self, namespace: str, name: str) -> T | None:
        """Return an object, None if it is neither cached nor was read a moment ago."""
        cached = self._cached.get((namespace, name))
        if cached is not None:
            return cached[1]
        since, read = self._read.get((namespace, name), (0.0, None))
        return read if read is not None and loop_time() - since < READ_SECONDS else None

    def created(self, namespace: str, name: str) -> datetime | None:
        """Return when a cached object was created, None if it is not cached."""
        cached = self._cached.get((namespace, name))
        return cached[0].creation_timestamp if cached is not None else None

    def items(self) -> dict[str, T]:
        """Return the readable objects by name, also those that were read a moment ago."""
        oldest = loop_time() - READ_SECONDS
        read = {name: item for (_, name), (since, item) in self._read.items() if since > oldest}
        cached = {name: item for (_, name), (_, item, _) in self._cached.items() if item}
        return {**read, **cached}

    async def ensure(
        self, cluster: Workloads | None, namespace: str, name: str, deadline: float
    ) -> bool:
        """Return whether an object exists, after a read if it is not cached.

        Raises ClusterError, TimeoutError after loop time `deadline`, and ValueError for an object
        that cannot be read.
        """
        if self.get(namespace, name) is not None:
            return True
        if cluster is None:
            return False
        try:
            async with asyncio.timeout_at(deadline):
                seen = await cluster.get_object(self.resource, namespace, name)
        except NotServed:
            return False
        if seen is None:
            self._read.pop((namespace, name), None)
            return False
        item, _ = self._keep(seen)
        self._read.pop((namespace, name), None)
        if len(self._read) >= READ_MAX:
            del self._read[next(iter(self._read))]
        self._read[namespace, name] = loop_time(), item
        self.version += 1
        return True

    def kept(self, seen: Workload) -> Kept[T]:
        """Return the kept form of a watched object; its part is None if it cannot be read."""
        try:
            return (seen.metadata, *self._keep(seen))
        except ValueError:
            return seen.metadata, None, 0

    def take(self, change: Change[Kept[T]]) -> None:
        """Apply a change of the watch."""
        if isinstance(change, Interrupted):
            self.problem = "" if change.absent else change.reason
            self.is_served = not change.absent
            if change.absent:
                self._replace([])
                self.listed.set()
            return
        if isinstance(change, Listed):
            self._replace(change.objects)
            self.is_served = True
        elif isinstance(change, Changed) and change.deleted:
            self._forget(_name(change.object))
        elif isinstance(change, Changed):
            self._forget(_name(change.object))
            self._put(change.object)
        self.problem = ""
        self.listed.set()

    def _replace(self, listed: list[Kept[T]]) -> None:
        self._cached.clear()
        self._bytes, self._rejected = 0, False
        for kept in listed:
            self._put(kept)
        self.version += 1

    def _put(self, kept: Kept[T]) -> None:
        full = self._bytes + kept[2] > self._bytes_max
        if full or len(self._cached) >= self._objects_max:
            self._rejected = True
            return
        self._bytes += kept[2]
        self._cached[_name(kept)] = kept
        self._read.pop(_name(kept), None)
        self.version += 1

    def _forget(self, name: Name) -> None:
        self._read.pop(name, None)
        held = self._cached.pop(name, None)
        if held is not None:
            self._bytes -= held[2]
            self.version += 1


def _name(kept: Kept[T]) -> Name:
    return kept[0].namespace, kept[0].name
