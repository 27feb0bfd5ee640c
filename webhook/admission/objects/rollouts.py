"""Rollouts: whether the quotas have headroom for the additional pods of a rollout.

A change of a template replaces the pods, and the surge pods need headroom beyond the envelope.
Without it the rollout stalls. The check runs at admission, because only the user who begins the
rollout can be warned in time.
"""

import asyncio
from typing import Final

import msgspec
import structlog

from ledger.core.model import amounts
from ledger.core.model.amounts import Amounts
from ledger.core.model.commands import Asker, Reserve
from ledger.core.model.denials import Denial, Reason, brief
from ledger.kube.api.objects import Workload
from ledger.kube.requests.demand_rules import DemandRules
from webhook.admission.reservation_client import ReservationClient
from webhook.context.cluster_context import ClusterContext
from webhook.kinds.kind_schema import WorkloadKind
from webhook.kinds.workload_envelope import surge_demand

_NO_ROOM: Final = (Reason.EXCEEDS_LIMIT, Reason.UNIVERSE_EXCEEDED, Reason.QUOTA_EXCEEDED)
_log: Final = structlog.get_logger("webhook")


class Rollout(msgspec.Struct, frozen=True):
    """A change of an object of a kind.

    `before` is the demand of its present pods without those that the change removes; `reserve` is
    its charge after the change.
    """

    kind: WorkloadKind
    old: Workload
    new: Workload
    before: Amounts
    reserve: Reserve


class Rollouts:
    """Checks rollouts of all kinds."""

    def __init__(self, reservations: ReservationClient, context: ClusterContext) -> None:
        self._reservations = reservations
        self._context = context

    async def stuck(self, change: Rollout, until: float) -> Denial | None:
        """Return the denial of a rollout that could not end now, or None; by loop time `until`.

        If the ledger does not answer in time, the denial names that reason.
        """
        most = _most(change, self._context.rules)
        if most is None or isinstance(most, Denial):
            return most
        asker = Asker(change.kind.kind, rollout=True)
        rolling = msgspec.structs.replace(change.reserve, demand=most, asker=asker)
        return await self._reservations.dry_run(rolling, until)

    async def warnings(
        self, change: Rollout, until: float, *, never: bool = False
    ) -> tuple[str, ...]:
        """Return the warnings for a rollout that could not end; they refuse nothing.

        The check takes at most half of the time until loop time `until`, and returns no warning
        after that. With `never`, it warns only of rollouts that could not end even if all other
        objects released their amounts.
        """
        now = asyncio.get_running_loop().time()
        try:
            denial = await self.stuck(change, now + max(0.0, until - now) / 2)
        except Exception as error:  # noqa: BLE001 - a warning may not cost the write
            _log.error("rollout_not_checked", key=change.reserve.key, exc_info=error)
            return ()
        if denial is None or denial.reason not in _NO_ROOM:
            return ()
        if not denial.transient:
            return (f"this rollout can never end: {brief(denial)}",)
        return () if never else (f"this rollout stalls until there is room: {brief(denial)}",)


def _most(change: Rollout, rules: DemandRules) -> Amounts | Denial | None:
    """Return the peak demand of the object during its rollout, None if it needs no surge.

    The peak is all old pods with the first new ones, or all new pods with the last old ones.
    """
    kind, old, new = change.kind, change.old, change.new
    first: Amounts | Denial = surge_demand(kind, old, new, rules)
    if isinstance(first, Denial):
        return first
    if not first:
        return None
    last: Amounts | Denial = surge_demand(kind, new, old, rules)
    demand = change.reserve.demand
    begin = amounts.plus(change.before, first)
    end = amounts.plus(demand, first if isinstance(last, Denial) else last)
    most = amounts.largest(begin, end)
    return None if amounts.covers(demand, most) else amounts.largest(most, demand)
