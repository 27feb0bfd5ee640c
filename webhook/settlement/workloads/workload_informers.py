"""Workload informers: one for every kind of workload that the cluster serves.

Definitions are installed, changed and deleted at any time. A kind that is not served is still
watched while the ledger counts objects of it: only the proof that its definition is deleted
releases them, never a list that failed.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Final

import structlog

from ledger.kube.api.api_resources import Resource
from ledger.kube.api.cluster_errors import ClusterError
from ledger.kube.api.cluster_ports import Change
from ledger.kube.watch.informers import Informers
from ledger.tasks.periodic import CooperativeYield
from webhook.kinds.kind_schema import WorkloadKind
from webhook.settlement.charge_settlement_session import SettlementSession
from webhook.settlement.root_lookup import loop_time_after
from webhook.settlement.workloads.charging_modes import ChargingModes
from webhook.settlement.workloads.workload_observation import ObservedWorkload
from webhook.settlement.workloads.workload_reconciler import WorkloadReconciler

DISCOVER_SECONDS: Final = 45.0
"""Period of discovery, which returns the served kinds."""

RETRY_SECONDS: Final = 2.0
"""Pause after discovery failed."""

GUESSED_VERSION: Final = "v1"
"""The version of a kind that is watched although it is not served in any."""

DISCOVERY: Final = "kinds"
"""Name of discovery in readiness."""

POLL_SECONDS: Final = 0.1
"""Period of the check whether everything is listed, until it is."""

POLICIES_SECONDS: Final = 10.0
"""How long the first list of workloads waits for the policies of their namespaces."""

CLAIMS_SECONDS: Final = 10.0
"""How long that list waits for the templates, classes and slices of resource claims."""

OWNERS_SECONDS: Final = 30.0
"""How long the recount of pods waits for the cache of owners."""

ReconcilerFactory = Callable[[WorkloadKind, Resource, ChargingModes], WorkloadReconciler]

_log: Final = structlog.get_logger("webhook")


class WorkloadInformers:
    """One informer and one reconciler for each kind."""

    def __init__(
        self, session: SettlementSession, informers: Informers, *, make: ReconcilerFactory
    ) -> None:
        """Prepare; `run` watches. `make` returns the reconciler of a kind as it is served."""
        self._session = session
        self._informers = informers
        self._make = make
        self._charging_modes = ChargingModes(session.context.policies)
        self._watched: dict[str, WorkloadReconciler] = {}
        self._served: frozenset[str] = frozenset()
        informers.expect(DISCOVERY)

    def of(self, name: str) -> WorkloadReconciler | None:
        """Return the reconciler of a kind such as `jobs.batch`, None if it is not watched."""
        return self._watched.get(name)

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._wait_for_policies()
        await self._session.context.resource_claims.wait_listed(loop_time_after(CLAIMS_SECONDS))
        async with asyncio.TaskGroup() as tasks:
            while True:
                pause = DISCOVER_SECONDS if await self._discover(tasks) else RETRY_SECONDS
                await asyncio.sleep(pause)

    async def listed(self) -> None:
        """Wait until every kind is listed and the owners of pods are cached, up to a bound.

        The list of pods comes next, and their roots are then found without reading each of them.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(OWNERS_SECONDS):
                while not self._is_listed():  # noqa: ASYNC110 - two caches have no common event
                    await asyncio.sleep(POLL_SECONDS)

    async def follow_policies(self) -> None:
        """List every kind again if the charging mode of a namespace has changed."""
        if self._charging_modes.changed():
            self._charging_modes.forget()
            self.relist()

    def relist(self) -> None:
        """List every kind again."""
        for name in self._watched:
            self._informers.relist(name)

    async def _wait_for_policies(self) -> None:
        """Wait until the policies of namespaces are listed, up to a bound.

        Without them everything would be charged by the default first, and counted as drift.
        """
        context = self._session.context
        with suppress(TimeoutError):
            async with asyncio.timeout(POLICIES_SECONDS):
                await context.namespaces.listed.wait()
                await context.policies.listed.wait()

    def _is_listed(self) -> bool:
        if not self._informers.has_synced(DISCOVERY):
            return False
        return all(self._has_synced(name, kind) for name, kind in self._watched.items())

    def _has_synced(self, name: str, kind: WorkloadReconciler) -> bool:
        """Return whether a kind is listed, and also cached for the owners; True if it cannot be."""
        if not self._informers.has_synced(name):
            return False
        if name in self._informers.waiting or name not in self._served:
            return True
        return self._session.context.parents.is_current(kind.resource)

    async def _discover(self, tasks: asyncio.TaskGroup) -> bool:
        """Watch the kinds that are served now; return whether discovery succeeded."""
        try:
            served = {offered.name: offered for offered in await self._session.cluster.served()}
        except ClusterError as error:
            self._informers.waiting[DISCOVERY] = str(error)
            _log.warning("discovery_failed", reason=str(error))
            return False
        self._served = frozenset(served)
        charged = await self._charged()
        for kind in self._session.context.catalog.roots:
            resource = served.get(kind.name)
            if resource is None and kind.name not in self._watched and kind.name in charged:
                resource = Resource(kind.group, GUESSED_VERSION, kind.resource, kind.kind)
            if resource is not None:
                self._watch(tasks, kind, resource)
        self._informers.waiting.pop(DISCOVERY, None)
        return True

    def _watch(self, tasks: asyncio.TaskGroup, kind: WorkloadKind, resource: Resource) -> None:
        """Watch a kind in this version, and stop watching it in another one."""
        watched = self._watched.get(kind.name)
        if watched is None:
            watched = self._make(kind, resource, self._charging_modes)
            self._watched[kind.name] = watched
            self._informers.expect(kind.name)
            tasks.create_task(self._follow(kind.name, watched))
        elif watched.resource != resource:
            watched.resource = resource
            self._informers.relist(kind.name)

    async def _follow(self, name: str, kind: WorkloadReconciler) -> None:
        def watch() -> AsyncGenerator[Change[ObservedWorkload], None]:
            return self._session.cluster.watch_filtered(kind.resource, kind.keep)

        await self._informers.follow(name, watch, kind.take)

    async def _charged(self) -> set[str]:
        """Return the kinds of which the ledger counts objects."""
        stride, kinds = CooperativeYield(), set[str]()
        for namespace in self._session.namespaces():
            await stride.step()
            for key in self._session.keys(namespace):
                await stride.step()
                kinds.add(key.partition("/")[0])
        return kinds
