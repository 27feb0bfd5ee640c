"""Context informers: watches of owners, namespaces, policies and claims for a replica's reviews.

Every replica runs them, because every replica may answer reviews. Discovery is repeated, because an
operator and its definitions may be installed at any time.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final, Protocol, TypeVar

import structlog

from ledger.kube.api.api_resources import (
    CLAIM_TEMPLATES,
    DEVICE_CLASSES,
    NAMESPACES,
    POLICIES,
    RESOURCE_SLICES,
    Resource,
)
from ledger.kube.api.cluster_errors import ClusterError
from ledger.kube.api.cluster_ports import Change, FilteredWatches, PolicyWatches, Workloads
from ledger.kube.api.objects import Workload
from ledger.kube.watch.failed_objects import FailedObjects
from ledger.kube.watch.owner_cache import OwnerCache
from webhook.context.namespace_labels import Namespaces
from webhook.context.namespace_policies import Policies
from webhook.context.resource_claims.claim_store import ClaimStore
from webhook.context.resource_claims.slice_feed import kept_slice
from webhook.kinds.kind_catalog import KindCatalog

DISCOVER_SECONDS: Final = 45.0
"""Interval of discovery: which kinds are served."""

RETRY_SECONDS: Final = 2.0
"""Pause before discovery is repeated after it failed."""

K = TypeVar("K")

_ALL: Final = "as a whole"
_log: Final = structlog.get_logger("webhook")


class ContextSource(Workloads, FilteredWatches, PolicyWatches, Protocol):
    """The objects of a cluster that are watched."""


class ContextInformers:
    """Feeds caches from one cluster."""

    def __init__(
        self,
        cluster: ContextSource,
        *,
        catalog: KindCatalog,
        parents: OwnerCache[bytes],
        namespaces: Namespaces,
        policies: Policies,
        claims: ClaimStore,
    ) -> None:
        """Prepare; `run` does the work."""
        self._cluster = cluster
        self._catalog = catalog
        self._parents = parents
        self._namespaces = namespaces
        self._policies = policies
        self._claims = claims
        self._followed: dict[str, tuple[Resource, asyncio.Task[None]]] = {}
        self._failures = FailedObjects()
        self._problem = "not asked yet which kinds are served"

    def problems(self) -> list[str]:
        """Return the problems with watches; reviews read those objects directly meanwhile."""
        discovery = [f"discovery: {self._problem}"] if self._problem else []
        return [*discovery, *self._claims.problems(), *self._failures.shown()]

    async def run(self) -> None:
        """Follow until cancelled."""
        self._followed.clear()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_namespaces())
            tasks.create_task(self._follow_policies())
            for follow in (self._follow_templates, self._follow_classes, self._follow_slices):
                tasks.create_task(follow())
            while True:
                pause = DISCOVER_SECONDS if await self._discover(tasks) else RETRY_SECONDS
                await asyncio.sleep(pause)

    async def _discover(self, tasks: asyncio.TaskGroup) -> bool:
        """Follow the kinds that are served now; return whether discovery succeeded."""
        try:
            served = await self._cluster.served()
        except ClusterError as error:
            self._problem = str(error)
            _log.warning("discovery_failed", reason=str(error))
            return False
        self._problem = ""
        for resource in served:
            if self._makes_pods(resource):
                await self._follow(tasks, resource)
        return True

    async def _follow(self, tasks: asyncio.TaskGroup, resource: Resource) -> None:
        """Follow a kind in the version that is preferred now, and stop following another one."""
        known, task = self._followed.get(resource.name, (None, None))
        if known == resource:
            return
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        task = tasks.create_task(self._parents.follow(self._cluster, resource))
        self._followed[resource.name] = resource, task

    def _makes_pods(self, resource: Resource) -> bool:
        kind = self._catalog.of_resource(resource.group, resource.plural)
        return kind is not None and kind.root

    async def _follow_namespaces(self) -> None:
        changes: AsyncGenerator[Change[Workload], None]
        async with aclosing(self._cluster.watch_namespaces()) as changes:
            async for change in changes:
                with self._failures.taking(NAMESPACES.plural, _ALL):
                    self._policies.relabelled(self._namespaces.take(change))

    async def _follow_policies(self) -> None:
        changes: AsyncGenerator[Change[Workload], None]
        async with aclosing(self._cluster.watch_policies()) as changes:
            async for change in changes:
                with self._failures.taking(POLICIES.plural, _ALL):
                    self._policies.take(change)

    async def _follow_templates(self) -> None:
        templates = self._claims.templates
        await self._follow_filtered(CLAIM_TEMPLATES, templates.kept, templates.take)

    async def _follow_classes(self) -> None:
        classes = self._claims.classes
        await self._follow_filtered(DEVICE_CLASSES, classes.kept, classes.take)

    async def _follow_slices(self) -> None:
        await self._follow_filtered(RESOURCE_SLICES, kept_slice, self._claims.slices.take)

    async def _follow_filtered(
        self, resource: Resource, keep: Callable[[Workload], K], take: Callable[[Change[K]], None]
    ) -> None:
        changes: AsyncGenerator[Change[K], None]
        async with aclosing(self._cluster.watch_filtered(resource, keep)) as changes:
            async for change in changes:
                with self._failures.taking(resource.plural, _ALL):
                    take(change)
