"""Ancestry: the root whose envelope a pod draws from, found by walking up ownerReferences.

The walk follows controllers, each matched by uid, as far as their kinds are known. Kinds that are
no roots, such as CronJob, end it below themselves. So does a reference whose uid is not that of the
object at its name: it leads nowhere, whoever wrote it. Whoever the ledger charges as a root ends
the walk at once: what is charged there is what its pods draw from.

What cannot be read ends the walk as well. A pod that then counts by itself is at worst counted
beside an envelope that has room for it, until settlement finds the root.
"""

import asyncio
import logging
from collections.abc import Generator
from typing import Final, Protocol

import msgspec

from ledger.core.evolve import envelope_charges
from ledger.core.model.qualified_names import qualified
from ledger.core.model.state import Entry, State
from ledger.kube.api import resources
from ledger.kube.api.errors import ClusterError
from ledger.kube.api.objects import ObjectMeta, OwnerReference
from ledger.kube.api.ports import Workloads
from ledger.kube.api.resources import Resource
from ledger.kube.watch.owner_cache import CachedOwner, OwnerCache
from webhook.context.unrecognized_controllers import UnrecognizedControllers
from webhook.kinds.catalog import KindCatalog
from webhook.kinds.schema import WorkloadKind, key_of
from webhook.settlement.observation import holds_uid

DEPTH_MAX: Final = 8
"""Owners above an object that are followed; the deepest known chain has five."""

_log: Final = logging.getLogger(__name__)


class StateSource(Protocol):
    """The state that the ledger has reached; read it, never change it."""

    @property
    def state(self) -> State:
        """The state at the newest position this replica has applied."""
        ...


class OwningRoot(msgspec.Struct, frozen=True):
    """The object that a pod draws from.

    `seen` is what is known of it beyond the ledger, None where the ledger's word was enough.
    """

    kind: WorkloadKind
    key: str
    uid: str
    seen: CachedOwner[bytes] | None = None


class _Wanted(msgspec.Struct, frozen=True):
    """An owner that has to be read from the API server."""

    resource: Resource
    owner: OwnerReference


_Walk = Generator[_Wanted, CachedOwner[bytes] | None, OwningRoot | None]


class OwnerChains:
    """Finds roots in one cluster. Without a `cluster` only the ledger and the cache are asked."""

    def __init__(
        self,
        catalog: KindCatalog,
        parents: OwnerCache[bytes],
        cluster: Workloads | None,
        view: StateSource,
        name: str,
    ) -> None:
        """`name` is the cluster's in the ledger."""
        self.unrecognized_controllers = UnrecognizedControllers()
        self._catalog = catalog
        self._parents = parents
        self._cluster = cluster
        self._view = view
        self._name = name

    async def root_of(
        self, namespace: str, meta: ObjectMeta, *, deadline: float
    ) -> OwningRoot | None:
        """Return the root of an object, None when it stands on its own.

        Owners that are not remembered are read until loop time `deadline`.
        """
        walk = self._walk(namespace, meta)
        try:
            wanted = next(walk)
            while True:
                wanted = walk.send(await self._read(wanted, namespace, deadline))
        except StopIteration as end:
            root: OwningRoot | None = end.value
            return root

    def known_root_of(self, namespace: str, meta: ObjectMeta) -> OwningRoot | None:
        """Return the root of an object as far as it is known without asking anybody."""
        walk = self._walk(namespace, meta)
        try:
            next(walk)
            while True:
                walk.send(None)
        except StopIteration as end:
            root: OwningRoot | None = end.value
            return root

    def controller_kind(self, meta: ObjectMeta) -> WorkloadKind | None:
        """Return the kind that an object's controller says to be of, if that kind has roots."""
        owner = meta.controller()
        kind = self._kind_of(owner) if owner is not None else None
        return kind if kind is not None and kind.root else None

    def _kind_of(self, owner: OwnerReference) -> WorkloadKind | None:
        return self._catalog.of_owner(owner.api_version, owner.kind)

    def _walk(self, namespace: str, meta: ObjectMeta) -> _Walk:
        """Yield the owners that are not known, and return the root."""
        root, owner = None, meta.controller()
        for _ in range(DEPTH_MAX):
            if owner is None:
                break
            charged = self._charged(namespace, owner)
            if charged is not None:
                return charged
            resource = self._resource(owner)
            if resource is None:
                break
            seen = self._remembered(resource, namespace, owner)
            if seen is None:
                seen = yield _Wanted(resource, owner)
            if seen is None:
                break
            kind = self._kind_of(owner)
            if kind is not None:
                root = OwningRoot(kind, key_of(kind, owner.name), owner.uid, seen)
            owner = seen.controller
        return root

    def _charged(self, namespace: str, owner: OwnerReference) -> OwningRoot | None:
        """Return the root that the ledger has for an owner: itself, or that of an owning pod."""
        space = self._view.state.namespaces.get(qualified(self._name, namespace))
        if space is None:
            return None
        kind = self._kind_of(owner)
        if kind is not None:
            key = key_of(kind, owner.name)
            is_charged = holds_uid(space.entries.get(key), owner.uid)
            return OwningRoot(kind, key, owner.uid) if is_charged else None
        pod = space.entries.get(envelope_charges.PODS + owner.name) if _is_pod(owner) else None
        if pod is None or not holds_uid(pod, owner.uid):
            return None
        return self._of_key(envelope_charges.drawn_from(pod), space.entries)

    def _of_key(self, key: str, entries: dict[str, Entry]) -> OwningRoot | None:
        """Return the root at a key, if it is known."""
        resource, _, group = key.partition("/")[0].partition(".")
        kind, entry = self._catalog.of_resource(group, resource), entries.get(key)
        if kind is None or entry is None:
            return None
        return OwningRoot(kind, key, entry.committed.uid if entry.committed else entry.holds[0].uid)

    def _resource(self, owner: OwnerReference) -> Resource | None:
        """Return where an owner can be read, None when the walk ends below it."""
        if _is_pod(owner):
            return resources.PODS
        kind = self._kind_of(owner)
        if kind is None or not kind.root:
            return None
        version = owner.api_version.rpartition("/")[2]
        return Resource(kind.group, version, kind.resource, kind.kind)

    def _remembered(
        self, resource: Resource, namespace: str, owner: OwnerReference
    ) -> CachedOwner[bytes] | None:
        seen = self._parents.get(owner.uid)
        if seen is None or (seen.namespace, seen.name) != (namespace, owner.name):
            return None
        return seen if seen.resource.name == resource.name else None

    async def _read(
        self, wanted: _Wanted, namespace: str, deadline: float
    ) -> CachedOwner[bytes] | None:
        """Read an owner, None when it is not there or cannot be read in time."""
        if self._cluster is None:
            return None
        resource, owner = wanted.resource, wanted.owner
        try:
            async with asyncio.timeout_at(deadline):
                seen = await self._cluster.get_object(resource, namespace, owner.name)
            parent = self._parents.parent_of(resource, seen) if seen is not None else None
        except (ClusterError, TimeoutError, ValueError) as error:
            _log.warning(
                "owner_not_read",
                extra={
                    "namespace": namespace,
                    "key": f"{resource.name}/{owner.name}",
                    "reason": str(error) or "no answer in time",
                },
            )
            return None
        return parent if parent is not None and parent.uid == owner.uid else None


def _is_pod(owner: OwnerReference) -> bool:
    # The leader of a LeaderWorkerSet's group owns the StatefulSet of its workers.
    return owner.kind == "Pod" and owner.api_version == "v1"
