"""Owner chains: the root whose envelope a pod draws from, found by walking up ownerReferences.

The walk follows controllers, each matched by uid, as long as the catalog has their kinds. Three
owners end the walk, and the owner below, if any, is the root: one of a kind that is not charged,
such as CronJob; one whose uid differs from that of the object of its name; and one that cannot be
read. An owner that the ledger already charges as a root ends the walk as the root, because its pods
draw from that charge.

If an owner cannot be read, a pod may be charged beside the envelope of its root until settlement
finds the root.
"""

import asyncio
from collections.abc import Generator
from typing import Final, Protocol

import msgspec
import structlog

from ledger.core.evolve import envelope_charges
from ledger.core.model.qualified_names import qualified
from ledger.core.model.state import Entry, Namespace, State
from ledger.kube.api import api_resources
from ledger.kube.api.api_resources import Resource
from ledger.kube.api.cluster_errors import ClusterError
from ledger.kube.api.cluster_ports import Workloads
from ledger.kube.api.objects import ObjectMeta, OwnerReference
from ledger.kube.watch.owner_cache import CachedOwner, OwnerCache
from webhook.context.read_deadline import read_deadline
from webhook.context.unrecognized_controllers import UnrecognizedControllers
from webhook.kinds.kind_catalog import KindCatalog
from webhook.kinds.kind_schema import WorkloadKind

DEPTH_MAX: Final = 8
"""Maximum number of owners above an object; the deepest known chain has five."""

_log: Final = structlog.get_logger("webhook")


class StateSource(Protocol):
    """The current state of the ledger, for reading only."""

    @property
    def state(self) -> State:
        """The state at the newest position that this replica has applied."""
        ...


class OwningRoot(msgspec.Struct, frozen=True):
    """The root from which a pod draws.

    `seen` is the cached or read object, None if the ledger's entry was sufficient.
    """

    kind: WorkloadKind
    key: str
    uid: str
    seen: CachedOwner[bytes] | None = None


class OwnerChain(msgspec.Struct, frozen=True):
    """The result of a walk: the `root` of an object, None without one.

    `kind` is the kind of its controller, by the ownerReference; None without a controller of a kind
    whose objects are charged.
    """

    root: OwningRoot | None = None
    kind: WorkloadKind | None = None


class _Unread(msgspec.Struct, frozen=True):
    """An uncached owner, to be read from the API server."""

    resource: Resource
    owner: OwnerReference


_Walk = Generator[_Unread, CachedOwner[bytes] | None, OwnerChain]


class OwnerChains:
    """Finds roots in one cluster; without a `cluster`, by the ledger and the cache alone."""

    def __init__(
        self,
        name: str,
        *,
        catalog: KindCatalog,
        parents: OwnerCache[bytes],
        cluster: Workloads | None,
        view: StateSource,
    ) -> None:
        """`name` is the name of the cluster in the ledger."""
        self.unrecognized_controllers = UnrecognizedControllers()
        self._catalog = catalog
        self._parents = parents
        self._cluster = cluster
        self._view = view
        self._prefix = qualified(name, "")

    async def chain_of(
        self, namespace: str, owner: OwnerReference | None, *, until: float
    ) -> OwnerChain:
        """Return the chain from an object's controller upwards, for a review.

        Owners that are not cached are read until loop time `until`, `REVIEW_READ_SECONDS` at most.
        """
        walk = self._walk(namespace, owner)
        try:
            unread = next(walk)
            deadline = read_deadline(until)
            while True:
                unread = walk.send(await self._read(unread, namespace, deadline))
        except StopIteration as end:
            chain: OwnerChain = end.value
            return chain

    async def root_of(
        self, namespace: str, meta: ObjectMeta, *, deadline: float
    ) -> OwningRoot | None:
        """Return the root of an object, None without one.

        Owners that are not cached are read until loop time `deadline`.
        """
        walk = self._walk(namespace, meta.controller())
        try:
            unread = next(walk)
            while True:
                unread = walk.send(await self._read(unread, namespace, deadline))
        except StopIteration as end:
            chain: OwnerChain = end.value
            return chain.root

    def known_root_of(self, namespace: str, meta: ObjectMeta) -> OwningRoot | None:
        """Return the root of an object by the ledger and the cache alone."""
        walk = self._walk(namespace, meta.controller())
        try:
            next(walk)
            while True:
                walk.send(None)
        except StopIteration as end:
            chain: OwnerChain = end.value
            return chain.root

    def controller_kind(self, meta: ObjectMeta) -> WorkloadKind | None:
        """Return the kind of an object's controller, by its reference; None for uncharged kinds."""
        owner = meta.controller()
        kind = self._catalog.of_owner(owner.api_version, owner.kind) if owner is not None else None
        return kind if kind is not None and kind.root else None

    def _walk(self, namespace: str, owner: OwnerReference | None) -> _Walk:
        """Yield the owners that are not cached, and return the chain."""
        root = controller = None
        depth = 0
        while owner is not None and depth < DEPTH_MAX:
            kind = self._catalog.of_owner(owner.api_version, owner.kind)
            space = self._view.state.namespaces.get(self._prefix + namespace)
            if kind is not None:
                controller = kind if depth == 0 and kind.root else controller
                resource, key = kind.name, f"{kind.name}/{owner.name}"
                entry = space.entries.get(key) if space is not None else None
                if entry is not None and entry.holds_uid(owner.uid):
                    return OwnerChain(OwningRoot(kind, key, owner.uid), controller)
                if not kind.root:
                    break
            elif _is_pod(owner):
                resource = api_resources.PODS.plural
                drawn = self._root_of_pod(space, owner) if space is not None else None
                if drawn is not None:
                    return OwnerChain(drawn, controller)
            else:
                break
            seen = self._parents.get(owner.uid)
            identity = seen and (seen.namespace, seen.name, seen.resource.name)
            if identity != (namespace, owner.name, resource):
                seen = yield _Unread(_resource(kind, owner), owner)
            if seen is None:
                break
            if kind is not None:
                root = OwningRoot(kind, key, owner.uid, seen)
            owner, depth = seen.controller, depth + 1
        return OwnerChain(root, controller)

    def _root_of_pod(self, space: Namespace, owner: OwnerReference) -> OwningRoot | None:
        """Return the root from which a charged pod draws, None if the pod is not charged."""
        pod = space.entries.get(envelope_charges.PODS + owner.name)
        if pod is None or not pod.holds_uid(owner.uid):
            return None
        return self._of_key(envelope_charges.drawn_from(pod), space.entries)

    def _of_key(self, key: str, entries: dict[str, Entry]) -> OwningRoot | None:
        """Return the root with this key, None if it is not known."""
        resource, _, group = key.partition("/")[0].partition(".")
        kind, entry = self._catalog.of_resource(group, resource), entries.get(key)
        if kind is None or entry is None:
            return None
        return OwningRoot(kind, key, entry.committed.uid if entry.committed else entry.holds[0].uid)

    async def _read(
        self, unread: _Unread, namespace: str, deadline: float
    ) -> CachedOwner[bytes] | None:
        """Read an owner; None if it does not exist or cannot be read in time."""
        if self._cluster is None:
            return None
        resource, owner = unread.resource, unread.owner
        try:
            async with asyncio.timeout_at(deadline):
                seen = await self._cluster.get_object(resource, namespace, owner.name)
            parent = self._parents.parent_of(resource, seen) if seen is not None else None
        except (ClusterError, TimeoutError, ValueError) as error:
            _log.warning(
                "owner_not_read",
                namespace=namespace,
                key=f"{resource.name}/{owner.name}",
                reason=str(error) or "no answer in time",
            )
            return None
        return parent if parent is not None and parent.uid == owner.uid else None


def _is_pod(owner: OwnerReference) -> bool:
    # The leader of a LeaderWorkerSet's group owns the StatefulSet of its workers.
    return owner.kind == "Pod" and owner.api_version == "v1"


def _resource(kind: WorkloadKind | None, owner: OwnerReference) -> Resource:
    """Return the resource of an owner, which is a pod if `kind` is None."""
    if kind is None:
        return api_resources.PODS
    version = owner.api_version.rpartition("/")[2]
    return Resource(kind.group, version, kind.resource, kind.kind)
