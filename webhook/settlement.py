"""Settlement: what Kubernetes says exists becomes commits and releases.

While this replica is the active one it follows the cluster's pods and quotas, proves attempts dead
that were never written, and recounts everything after each list. All of it is told as commands, so
the ledger stays the only judge, and telling twice, or from two replicas, does no harm.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Final, TypeVar

from ledger.core.commands import RegisterCluster
from ledger.core.denials import Denial, Reason, sentence
from ledger.core.events import AnyEvent, Observed, Released
from ledger.kube.errors import ClusterError
from ledger.kube.port import Change, Cluster, Interrupted
from ledger.log.records import Record
from ledger.log.submission import Ledger
from webhook.ages import Ages
from webhook.barrier import Barrier
from webhook.courier import Courier
from webhook.pods import Pods, find_open
from webhook.quota_accounts import QuotaAccounts
from webhook.sighting import POD_KEYS
from webhook.tenure import (
    RECOUNTED,
    WATCHED,
    Count,
    SettlementSettings,
    Tenure,
    View,
    uncounted,
)

TICK_SECONDS: Final = 1.0
"""How often grace periods and open attempts are looked at, less when the bound is short."""

TURN_SECONDS: Final = 0.2
"""How often this replica looks whether it is the active one."""

REGISTER_SECONDS: Final = 2.0
"""Pause before the cluster is registered again after that failed."""

_log: Final = logging.getLogger(__name__)
T = TypeVar("T")


class ClusterNameTaken(Exception):
    """Another cluster is known to the ledger under this name; the message says what to do."""


class _Passive(Exception):
    """This replica is no longer the active one."""


class Settlement:
    """Settles one cluster. Read `problems` for readiness.

    Counted as drift, by cause, is truth that the ledger did not expect: pods seen without a hold,
    and charges that only a recount found to be over.
    """

    def __init__(
        self,
        ledger: Ledger,
        view: View,
        cluster: Cluster,
        name: str,
        *,
        now: Callable[[], int],
        is_active: Callable[[], bool],
        settings: SettlementSettings | None = None,
        count: Count = uncounted,
    ) -> None:
        """`name` is the cluster's in the ledger; `now` tells µs of Unix time."""
        self._counted = count
        self._ledger = ledger
        self._view = view
        self._cluster = cluster
        self._name = name
        self._now = now
        self._is_active = is_active
        self._settings = settings or SettlementSettings()
        self._ages: Ages | None = None
        self._pods: Pods | None = None
        self._waiting: dict[str, str] = {}
        view.subscribe(self._follow)

    @property
    def open_attempts(self) -> int:
        """How many attempts this replica waits for; 0 while it is not the active one."""
        return len(self._ages) if self._ages is not None else 0

    @property
    def listed(self) -> bool:
        """Whether this replica is active and has told the ledger everything that exists."""
        return self._ages is not None and not self._waiting

    @property
    def puzzling_pods(self) -> int:
        """How many pods exist whose request cannot be understood."""
        return self._pods.puzzling if self._pods is not None else 0

    def problems(self) -> list[str]:
        """Return what keeps the ledger from knowing the cluster; empty on a passive replica."""
        return [f"{what}: {reason}" for what, reason in self._waiting.items()]

    async def register(self) -> None:
        """Bind the cluster's name to its identity.

        Raises ClusterNameTaken when the name belongs to another cluster, and ClusterError when
        the API server or the ledger does not answer.
        """
        uid = await self._cluster.kube_system_uid()
        answer = await self._ledger.submit(RegisterCluster(self._name, uid, WATCHED))
        if not isinstance(answer, Denial):
            return
        if answer.reason is Reason.CLUSTER_NAME_TAKEN:
            raise ClusterNameTaken(sentence(answer))
        raise ClusterError(sentence(answer))

    async def run(self) -> None:
        """Settle whenever this replica is the active one, until cancelled.

        Raises ClusterNameTaken.
        """
        await self._register()
        while True:
            await self._turn(active=True)
            _log.info("settlement_begins", extra={"cluster": self._name})
            await self._serve_tenure()
            _log.info("settlement_ends", extra={"cluster": self._name})

    async def _register(self) -> None:
        while True:
            try:
                await self.register()
                self._waiting.pop("registration", None)
                return
            except ClusterError as error:
                self._waiting["registration"] = str(error)
                _log.warning("cluster_not_registered", extra={"reason": str(error)})
            await asyncio.sleep(REGISTER_SECONDS)

    async def _serve_tenure(self) -> None:
        courier = Courier(self._ledger)
        tenure = Tenure(
            self._view,
            self._cluster,
            self._name,
            self._settings,
            self._now,
            courier,
            self._counted,
        )
        ages = self._ages = Ages()
        pods = self._pods = Pods(tenure, ages)
        quotas, barrier = QuotaAccounts(tenure), Barrier(tenure, ages)
        tick = min(TICK_SECONDS, self._settings.settle_seconds / 4)
        self._waiting = dict.fromkeys(("pods", "quotas"), "not listed yet")
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(courier.run())
                tasks.create_task(find_open(tenure, ages))
                tasks.create_task(self._watch("quotas", self._cluster.watch_quotas, quotas.take))
                tasks.create_task(self._watch("pods", self._cluster.watch_pods, pods.take))
                tasks.create_task(_every(tick, pods.end_elapsed))
                tasks.create_task(_every(tick, barrier.settle))
                tasks.create_task(self._step_down())
        except* _Passive:
            pass
        finally:
            self._ages = self._pods = None
            self._waiting = {}

    async def _watch(
        self,
        what: str,
        watch: Callable[[], AsyncGenerator[Change[T], None]],
        take: Callable[[Change[T]], Awaitable[None]],
    ) -> None:
        """Take every change, and begin anew with a list when a recount is due."""
        while True:
            with suppress(TimeoutError):
                async with (
                    asyncio.timeout(self._settings.recount_seconds),
                    aclosing(watch()) as changes,
                ):
                    async for change in changes:
                        await take(change)
                        self._note(what, change)

    def _note(self, what: str, change: Change[T]) -> None:
        """Remember whether the cluster tells us anything."""
        if isinstance(change, Interrupted):
            self._waiting[what] = change.reason
        else:
            self._waiting.pop(what, None)

    async def _step_down(self) -> None:
        await self._turn(active=False)
        raise _Passive

    async def _turn(self, *, active: bool) -> None:
        """Wait until this replica is, or is no longer, the active one."""
        while self._is_active() is not active:  # noqa: ASYNC110 - a lease lapses without an event
            await asyncio.sleep(TURN_SECONDS)

    def _follow(self, record: Record) -> None:
        """Take note of a record's events, while this replica is the active one."""
        ages = self._ages
        if ages is None:
            return
        now, mine = asyncio.get_running_loop().time(), f"{self._name}/"
        for item in record.items:
            event = item.event
            namespace = getattr(event, "namespace", "")
            if namespace.startswith(mine) and getattr(event, "key", "").startswith(POD_KEYS):
                ages.follow(event, now)
                self._count(event)

    def _count(self, event: AnyEvent) -> None:
        if isinstance(event, Observed) or (
            isinstance(event, Released) and event.actor == RECOUNTED
        ):
            self._counted("drift_total", str(event.cause))


async def _every(seconds: float, action: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        await action()
