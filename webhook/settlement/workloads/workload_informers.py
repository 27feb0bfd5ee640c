"""Watching every kind of roots that the cluster serves, as definitions come, change and go.

A kind that is not served is watched all the same as long as the ledger counts objects of it: only
the proof that its definition is gone ends them, never a list that failed.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Final

from ledger.kube.api.errors import ClusterError
from ledger.kube.api.ports import Change
from ledger.kube.api.resources import Resource
from ledger.kube.watch.informers import Watches
from ledger.tasks.periodic import CooperativeYield
from webhook.context.cluster_and_context import Beyond
from webhook.kinds.schema import WorkloadKind
from webhook.settlement.settlement_session import SettlementSession
from webhook.settlement.workloads.charging_modes import ChargingModes
from webhook.settlement.workloads.workload_observation import ObservedWorkload
from webhook.settlement.workloads.workload_reconciler import WorkloadReconciler

DISCOVER_SECONDS: Final = 45.0
"""How often it is asked which kinds are served."""

RETRY_SECONDS: Final = 2.0
"""Pause before that is asked again after it failed."""

GUESSED_VERSION: Final = "v1"
"""The version under which a kind is looked for that is not served in any."""

DISCOVERY: Final = "kinds"
"""What discovery is called among that which is waited for."""

LOOK_SECONDS: Final = 0.1
"""How often it is looked whether everything was listed, until it was."""

POLICIES_SECONDS: Final = 10.0
"""How long the first list of workloads waits for the policies of their namespaces."""

OWNERS_SECONDS: Final = 30.0
"""How long the recount of pods waits for what owns them."""

ReconcilerFactory = Callable[[WorkloadKind, Resource], WorkloadReconciler]

_log: Final = logging.getLogger(__name__)


class WorkloadInformers:
    """Keeps one watch per kind."""

    def __init__(
        self,
        tenure: SettlementSession,
        beyond: Beyond,
        watches: Watches,
        charging_modes: ChargingModes,
        make: ReconcilerFactory,
    ) -> None:
        """`make` makes what takes in a kind as it is served."""
        self._tenure = tenure
        self._cluster = beyond.cluster
        self._kinds = beyond.context.catalog.roots
        self._around = beyond.context
        self._watches = watches
        self._charging_modes = charging_modes
        self._make = make
        self._watched: dict[str, WorkloadReconciler] = {}
        self._served: frozenset[str] = frozenset()
        watches.expect(DISCOVERY)

    def of(self, name: str) -> WorkloadReconciler | None:
        """Return what takes in the kind of a name, such as `jobs.batch`; None without a watch."""
        return self._watched.get(name)

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._policies_told()
        async with asyncio.TaskGroup() as tasks:
            while True:
                pause = DISCOVER_SECONDS if await self._discover(tasks) else RETRY_SECONDS
                await asyncio.sleep(pause)

    async def listed(self) -> None:
        """Wait until every kind was listed, and what owns pods is remembered, up to a bound.

        So that pods, which are told next, find their roots without asking for each of them.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(OWNERS_SECONDS):
                while not self._is_listed():  # noqa: ASYNC110 - two caches have no common event
                    await asyncio.sleep(LOOK_SECONDS)

    async def follow_policies(self) -> None:
        """List every kind anew if a namespace is charged in another manner now."""
        if self._charging_modes.changed():
            self._charging_modes.forget()
            self.begin_anew()

    def begin_anew(self) -> None:
        """List every kind anew."""
        for name in self._watched:
            self._watches.begin_anew(name)

    async def _policies_told(self) -> None:
        """Wait until it is known how namespaces are treated, up to a bound.

        Else everything would be charged as usual first, and counted as drift where it is not.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(POLICIES_SECONDS):
                await self._around.namespaces.listed.wait()
                await self._around.policies.listed.wait()

    def _is_listed(self) -> bool:
        if not self._watches.was_told(DISCOVERY):
            return False
        return all(self._is_told(name, roots) for name, roots in self._watched.items())

    def _is_told(self, name: str, roots: WorkloadReconciler) -> bool:
        """Return whether a kind was listed here and for the owners, if it can be listed at all."""
        if not self._watches.was_told(name):
            return False
        if name in self._watches.waiting or name not in self._served:
            return True
        return self._around.parents.is_current(roots.resource)

    async def _discover(self, tasks: asyncio.TaskGroup) -> bool:
        """Watch what is served by now; return whether that could be told."""
        try:
            served = {one.name: one for one in await self._cluster.served()}
        except ClusterError as error:
            self._watches.waiting[DISCOVERY] = str(error)
            _log.warning("discovery_failed", extra={"reason": str(error)})
            return False
        self._served = frozenset(served)
        charged = await self._charged()
        for kind in self._kinds:
            resource = served.get(kind.name)
            if resource is None and kind.name not in self._watched and kind.name in charged:
                resource = Resource(kind.group, GUESSED_VERSION, kind.resource, kind.kind)
            if resource is not None:
                self._watch(tasks, kind, resource)
        self._watches.waiting.pop(DISCOVERY, None)
        return True

    def _watch(self, tasks: asyncio.TaskGroup, kind: WorkloadKind, resource: Resource) -> None:
        """Watch a kind in this version, and no longer in another one."""
        roots = self._watched.get(kind.name)
        if roots is None:
            roots = self._watched[kind.name] = self._make(kind, resource)
            self._watches.expect(kind.name)
            tasks.create_task(self._follow(kind.name, roots))
        elif roots.resource != resource:
            roots.resource = resource
            self._watches.begin_anew(kind.name)

    async def _follow(self, name: str, roots: WorkloadReconciler) -> None:
        def watch() -> AsyncGenerator[Change[ObservedWorkload], None]:
            return self._cluster.watch_kept(roots.resource, roots.keep)

        await self._watches.follow(name, watch, roots.take)

    async def _charged(self) -> set[str]:
        """Return the kinds of which the ledger counts objects."""
        stride, found = CooperativeYield(), set[str]()
        for namespace in self._tenure.namespaces():
            for key in self._tenure.keys(namespace):
                await stride.step()
                found.add(key.partition("/")[0])
        return found
