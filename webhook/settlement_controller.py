"""Settlement: what Kubernetes says exists becomes commits and releases.

While this replica is the active one it follows the cluster's pods, workloads and quotas, proves
attempts dead that were never written, and recounts everything after each list. All of it is told as
commands, so the ledger stays the only judge, and telling twice, or from two replicas, does no harm.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from ledger.core.model.commands import RegisterCluster
from ledger.core.model.denials import Denial, Reason, sentence
from ledger.kube.api.errors import ClusterError
from ledger.log.command_queue import CommandQueue
from ledger.log.ledger import Ledger, StateView
from ledger.log.records import Record
from ledger.runtime.counter_protocol import Count, uncounted
from webhook.context.pod_listener import StartListener
from webhook.settlement.settlement_session import (
    WATCHED,
    SettlementSession,
    SettlementSettings,
    Site,
)
from webhook.settlement.settlement_tasks import SettlementTasks

TURN_SECONDS: Final = 0.2
"""How often this replica looks whether it is the active one."""

REGISTER_SECONDS: Final = 2.0
"""Pause before the cluster is registered again after that failed."""

_log: Final = logging.getLogger(__name__)


class ClusterNameTaken(Exception):
    """Another cluster is known to the ledger under this name; the message says what to do."""


class _Passive(Exception):
    """This replica is no longer the active one."""


class Settlement:
    """Settles one cluster. Read `problems` for readiness.

    `registered` is set once the ledger knows the cluster under its name.

    Counted as drift, by cause, is truth that the ledger did not expect: see
    `webhook.settlement.drift_counter`.
    """

    def __init__(
        self,
        ledger: Ledger,
        view: StateView,
        site: Site,
        *,
        now: Callable[[], int],
        is_active: Callable[[], bool],
        settings: SettlementSettings | None = None,
        count: Count = uncounted,
        beside: StartListener | None = None,
    ) -> None:
        """`now` tells µs of Unix time; `beside` begins what else is settled in each tenure."""
        self._beside = beside
        self._counted = count
        self._ledger = ledger
        self._view = view
        self._site = site
        self._now = now
        self._is_active = is_active
        self._settings = settings or SettlementSettings()
        self._duties: SettlementTasks | None = None
        self._unregistered = "the ledger has not been told of this cluster yet"
        self.registered = asyncio.Event()
        view.subscribe(self._follow)

    @property
    def open_attempts(self) -> int:
        """How many attempts this replica waits for; 0 while it is not the active one."""
        return len(self._duties.ages) if self._duties is not None else 0

    @property
    def listed(self) -> bool:
        """Whether this replica is active and has told the ledger everything that exists."""
        return self._duties is not None and not self._duties.watches.waiting

    @property
    def puzzling(self) -> int:
        """How many objects exist whose request cannot be understood."""
        return len(self._duties.puzzling) if self._duties is not None else 0

    @property
    def odd_quotas(self) -> int:
        """How many quotas exist in which something does not hold as it is written."""
        duties = self._duties
        return sum(map(len, duties.odd_quotas())) if duties is not None else 0

    @property
    def waiting(self) -> int:
        """How many pods wait behind the gate."""
        gates = self._duties.gates if self._duties is not None else None
        return gates.waiting if gates is not None else 0

    @property
    def waiting_seconds_max(self) -> float:
        """For how long the oldest of these pods exists."""
        gates = self._duties.gates if self._duties is not None else None
        return gates.waiting_seconds_max() if gates is not None else 0.0

    def problems(self) -> list[str]:
        """Return what keeps the ledger from knowing the cluster; empty on a passive replica."""
        found = self._duties.watches.problems() if self._duties is not None else []
        return [f"registration: {self._unregistered}", *found] if self._unregistered else found

    def warnings(self) -> list[str]:
        """Return what the ledger does not hear of or understand; empty on a passive replica."""
        if self._duties is None:
            return []
        odd = [line for one in self._duties.odd_quotas() for line in one.shown()]
        return [*self._duties.watches.warnings(), *odd]

    async def register(self) -> None:
        """Bind the cluster's name to its identity.

        Raises ClusterNameTaken when the name belongs to another cluster, and ClusterError when
        the API server or the ledger does not answer.
        """
        uid = await self._site.cluster.kube_system_uid()
        if self._view.state.clusters.get(self._site.name) == uid:
            return  # for good: after a restart nobody waits for a preferred writer that is gone
        answer = await self._ledger.submit(RegisterCluster(self._site.name, uid, WATCHED))
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
            _log.info("settlement_begins", extra={"cluster": self._site.name})
            await self._serve_tenure()
            _log.info("settlement_ends", extra={"cluster": self._site.name})

    async def _register(self) -> None:
        while True:
            try:
                await self.register()
                self._unregistered = ""
                self.registered.set()
                return
            except ClusterError as error:
                self._unregistered = str(error)
                _log.warning("cluster_not_registered", extra={"reason": str(error)})
            await asyncio.sleep(REGISTER_SECONDS)

    async def _serve_tenure(self) -> None:
        courier = CommandQueue(self._ledger)
        tenure = SettlementSession(
            self._view,
            self._site,
            self._settings,
            self._now,
            courier,
            self._counted,
        )
        beside = self._beside(courier) if self._beside is not None else None
        duties = self._duties = SettlementTasks(tenure, self._ledger, beside)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(duties.run())
                tasks.create_task(self._step_down())
        except* _Passive:
            pass
        finally:
            self._duties = None

    async def _step_down(self) -> None:
        await self._turn(active=False)
        raise _Passive

    async def _turn(self, *, active: bool) -> None:
        """Wait until this replica is, or is no longer, the active one."""
        while self._is_active() is not active:  # noqa: ASYNC110 - a lease lapses without an event
            await asyncio.sleep(TURN_SECONDS)

    def _follow(self, record: Record) -> None:
        """Take note of a record's events, while this replica is the active one."""
        if self._duties is not None:
            self._duties.follow(record, asyncio.get_running_loop().time())
