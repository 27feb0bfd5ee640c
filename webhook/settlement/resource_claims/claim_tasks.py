"""Claim tasks: the informer of resource claims and the checks of their settlement.

Claims are listed after the templates, classes and slices that their amounts depend on, and before
the pods that they belong to. Each wait has a bound: without claims the charge of a pod stays.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Final

from ledger.kube.api.api_resources import CLAIMS
from ledger.kube.api.cluster_ports import Change
from ledger.kube.watch.informers import Informers
from ledger.tasks.periodic import run_periodically
from webhook.settlement.charge_settlement_session import SettlementSession
from webhook.settlement.invalid_objects import InvalidObjects
from webhook.settlement.open_attempt_ages import AttemptAges
from webhook.settlement.resource_claims.resource_claim_reconciler import (
    RESOURCE_CLAIMS,
    ResourceClaimReconciler,
)
from webhook.settlement.resource_claims.seen_claims import SeenClaim, seen_claim
from webhook.settlement.root_lookup import loop_time_after

SUPPLY_SECONDS: Final = 10.0
"""How long the first list of claims waits for templates, classes and slices."""

LISTED_SECONDS: Final = 30.0
"""How long the first list of pods waits for that of claims."""

POLL_SECONDS: Final = 0.1
"""Period of the check whether claims are listed, until they are."""


class ResourceClaimTasks:
    """The tasks that settle resource claims in one session."""

    def __init__(
        self,
        session: SettlementSession,
        informers: Informers,
        *,
        ages: AttemptAges,
        invalid_objects: InvalidObjects,
        pods: str,
    ) -> None:
        """Prepare; `start` begins the tasks. `pods` is the name of the informer of pods."""
        self.reconciler = ResourceClaimReconciler(
            session, session.context.resource_claims, ages=ages, invalid_objects=invalid_objects
        )
        self._session = session
        self._informers = informers
        self._pods = pods
        informers.expect(RESOURCE_CLAIMS)

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Begin to follow the claims."""
        tasks.create_task(self._follow())
        tasks.create_task(run_periodically(self._session.tick_seconds, self._settle))

    async def listed(self) -> None:
        """Wait until claims are listed, or cannot be, up to a bound."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LISTED_SECONDS):
                while not self._informers.has_synced(RESOURCE_CLAIMS):  # noqa: ASYNC110 - a bound
                    await asyncio.sleep(POLL_SECONDS)

    def warnings(self) -> list[str]:
        """Return the claims without any use."""
        return self.reconciler.unused.warnings(self._session.now())

    async def _follow(self) -> None:
        def watch() -> AsyncGenerator[Change[SeenClaim], None]:
            return self._session.cluster.watch_filtered(CLAIMS, seen_claim)

        await self._session.context.resource_claims.wait_listed(loop_time_after(SUPPLY_SECONDS))
        await self._informers.follow(RESOURCE_CLAIMS, watch, self.reconciler.take)

    async def _settle(self) -> None:
        pods_current = self._pods not in self._informers.waiting
        await self.reconciler.settle(pods_current=pods_current)
