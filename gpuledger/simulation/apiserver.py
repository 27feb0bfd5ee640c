"""An API server in memory: objects with compare-and-swap writes, and a history to watch.

It is what the ledger is compared with, so it is kept as plain as possible. Requests with all
their admission are in `requests`; how replicas see it is in `watched`.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, Generic, TypeVar

import msgspec

from ledger.kube.objects import ObjectMeta, Pod, ResourceQuota, ResourceQuotaSpec
from ledger.kube.port import Changed

EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
TERMINAL: Final = ("Succeeded", "Failed")

Name = tuple[str, str]
"""Namespace and name."""

T = TypeVar("T", Pod, ResourceQuota)


class Conflict(Exception):
    """The object is not at the version that the write builds on, or already exists."""


class Collection(Generic[T]):
    """Objects of one kind. `history` holds every change, in order."""

    def __init__(self, clock: "Versions") -> None:
        self.objects: dict[Name, T] = {}
        self.history: list[Changed[T]] = []
        self._clock = clock

    def write(self, item: T, base: int) -> T:
        """Store an object at the version after all others; base 0 creates it. Raises Conflict."""
        name = item.metadata.namespace, item.metadata.name
        stored = self.objects.get(name)
        if (stored.metadata.version() if stored is not None else 0) != base:
            raise Conflict(f"{name} is not at version {base}")
        version = self._clock.next()
        meta = msgspec.structs.replace(item.metadata, resource_version=str(version))
        written = msgspec.structs.replace(item, metadata=meta)
        self.objects[name] = written
        self._tell(Changed(version, written))
        return written

    def remove(self, name: Name, uid: str) -> T | None:
        """Remove an object if it is still this one."""
        stored = self.objects.get(name)
        if stored is None or stored.metadata.uid != uid:
            return None
        del self.objects[name]
        version = self._clock.next()
        meta = msgspec.structs.replace(stored.metadata, resource_version=str(version))
        gone = msgspec.structs.replace(stored, metadata=meta)
        self._tell(Changed(version, gone, deleted=True))
        return gone

    def _tell(self, change: Changed[T]) -> None:
        self.history.append(change)
        self._clock.wake()


class Versions:
    """The resourceVersion that all kinds share, and the wake-up call for watchers."""

    def __init__(self) -> None:
        self.version = 1
        self._news = asyncio.Event()

    def next(self) -> int:
        """Return the next version."""
        self.version += 1
        return self.version

    def wake(self) -> None:
        """Wake whoever waits for news."""
        self._news.set()
        self._news = asyncio.Event()

    async def news(self) -> None:
        """Wait for the next change."""
        await self._news.wait()


class ApiServer:
    """The objects of one cluster.

    `reviewed` holds the uids whose stored demand was admitted by the ledger's webhook: those must
    be charged at every moment. The others are charged when they are seen. `pending` holds the
    attempts `(uid, base)` that were charged, allowed, and may still be written.
    """

    def __init__(self, on_write: Callable[[Name], None]) -> None:
        self.versions = Versions()
        self.pods: Collection[Pod] = Collection(self.versions)
        self.quotas: Collection[ResourceQuota] = Collection(self.versions)
        self.reviewed: set[str] = set()
        self.pending: Counter[tuple[str, int]] = Counter()
        self._on_write = on_write
        self._made = 0

    def fresh_uid(self) -> str:
        """Return a uid that was never used."""
        self._made += 1
        return f"uid-{self._made}"

    def write_pod(self, pod: Pod, base: int, *, reviewed: bool | None = None) -> Pod:
        """Store a pod; `reviewed` says whether its demand was admitted, None: as before."""
        written = self.pods.write(pod, base)
        if reviewed is not None:
            (self.reviewed.add if reviewed else self.reviewed.discard)(pod.metadata.uid)
        self._on_write((pod.metadata.namespace, pod.metadata.name))
        return written

    def remove_pod(self, name: Name, uid: str) -> None:
        """Remove a pod if it is still this one."""
        if self.pods.remove(name, uid) is not None:
            self._on_write(name)

    def set_quota(self, namespace: str, name: str, hard: dict[str, str]) -> None:
        """Create or change a ResourceQuota."""
        stored = self.quotas.objects.get((namespace, name))
        meta = ObjectMeta(name=name, namespace=namespace, uid=self.fresh_uid())
        if stored is not None:
            meta = stored.metadata
        spec = ResourceQuotaSpec(hard={**hard})
        self.quotas.write(ResourceQuota(metadata=meta, spec=spec), meta.version())

    def drop_quota(self, namespace: str, name: str) -> None:
        """Delete a ResourceQuota."""
        stored = self.quotas.objects.get((namespace, name))
        if stored is not None:
            self.quotas.remove((namespace, name), stored.metadata.uid)

    def pick(self, number: int) -> Pod | None:
        """Return one of the pods, None when there is none."""
        pods = self.pods.objects
        return pods[sorted(pods)[number % len(pods)]] if pods else None


def counts(pod: Pod, seconds: float) -> bool:
    """Return whether a pod still counts at a virtual time: neither finished nor given up."""
    if pod.status.phase in TERMINAL:
        return False
    meta = pod.metadata
    if meta.deletion_timestamp is None:
        return True
    grace = timedelta(seconds=meta.deletion_grace_period_seconds or 0)
    return meta.deletion_timestamp + grace >= at(seconds)


def at(seconds: float) -> datetime:
    """Return the true wall-clock time at a virtual time."""
    return EPOCH + timedelta(seconds=seconds)
