"""Reservation client: asks the ledger, within the deadline and by the policy of the namespace."""

import asyncio
from typing import Final

import msgspec
import structlog

from ledger.core.model.commands import AnyCommand, Describe, Observe, Reserve
from ledger.core.model.denials import Denial, Reason, brief
from ledger.core.model.qualified_names import local_name
from ledger.log.ledger import Accepted, Ledger
from webhook.admission.verdict import UNTOUCHED, Verdict
from webhook.api.admission_review import AdmissionRequest
from webhook.api.admission_settings import AdmissionSettings
from webhook.context.cluster_context import ClusterContext
from webhook.context.namespace_policies import NamespacePolicy

UNAVAILABLE: Final = frozenset(
    (
        Reason.LOG_FULL,
        Reason.LEDGER_UNAVAILABLE,
        Reason.LEDGER_STOPPED,
        Reason.OVERLOADED,
        Reason.INTERNAL_ERROR,
    )
)
"""Reasons of a ledger that cannot decide now."""

NO_ROOM: Final = frozenset(
    (
        Reason.CARD_MEMORY_UNKNOWN,
        Reason.EXCEEDS_LIMIT,
        Reason.UNIVERSE_EXCEEDED,
        Reason.QUOTA_EXCEEDED,
        Reason.CARD_EXCEEDED,
        Reason.TOO_MANY_UNSETTLED,
    )
)
"""Reasons that policy may overrule: what is charged all the same is still counted."""

_UNRECORDED: Final = frozenset((Reason.LOG_SHARE_EXCEEDED, Reason.LOG_FULL))
"""Reasons of a ledger that records nothing new, of a namespace or at all."""

_ACTOR: Final = "webhook"
_log: Final = structlog.get_logger("webhook")


class ReservationRequest(msgspec.Struct, frozen=True):
    """A reservation to ask for by loop time `until`, after what `shown` proves.

    `policy` is that of the namespace of the admission request that asks.
    """

    request: AdmissionRequest
    policy: NamespacePolicy
    reserve: Reserve
    until: float
    shown: tuple[Observe, ...] = ()
    warnings: tuple[str, ...] = ()


class ReservationClient:
    """Asks one ledger for one cluster."""

    def __init__(
        self, ledger: Ledger, *, settings: AdmissionSettings, context: ClusterContext
    ) -> None:
        self._ledger = ledger
        self._settings = settings
        self._context = context

    async def ask(self, question: ReservationRequest) -> Verdict:
        """Ask for a reservation. An update first shows its base, which fences earlier ones."""
        reserve = question.reserve
        try:
            async with asyncio.timeout_at(question.until):
                answer = await self._submitted(question)
        except TimeoutError:
            answer = _deadline_denial(self._settings.deadline)
        verdict = Verdict(
            None,
            answer.decision,
            reserve.namespace,
            reserve.key,
            reserve.demand,
            warnings=question.warnings,
        )
        if not isinstance(answer, Denial):
            return verdict
        user = question.request.user_info
        is_over = answer.reason in NO_ROOM and not reserve.forced
        if is_over and question.policy.may_exceed_limits(user):
            return await self._forced(question, answer)
        if answer.reason in UNAVAILABLE and self._settings.allow_unavailable:
            reason = str(answer.reason)
            _log.warning("admitted_uncharged", key=reserve.key, reason=reason)
            warning = f"{reason}: admitted without being charged by gpuledger"
            warnings = (warning, *question.warnings)
            return msgspec.structs.replace(verdict, warnings=warnings, outcome=reason)
        return msgspec.structs.replace(verdict, denial=answer)

    async def dry_run(self, reserve: Reserve, until: float) -> Denial | None:
        """Return why a reservation would be refused now; nothing is reserved."""
        try:
            async with asyncio.timeout_at(until):
                answer = await self._ledger.submit(reserve, dry_run=True)
        except TimeoutError:
            return _deadline_denial(self._settings.deadline)
        return answer if isinstance(answer, Denial) else None

    async def share(self, reserve: Reserve, until: float) -> Verdict:
        """Refuse a change that asks for nothing while the log may record nothing new about it.

        It is recorded all the same once it is stored, so it may not be made again and again: not
        beyond its namespace's share of the log, and not out of the reserve. A quota without room is
        not a reason here, and does not hide one.
        """
        forced = msgspec.structs.replace(reserve, forced=True)
        denial = await self.dry_run(forced, until)
        if denial is None or denial.reason not in _UNRECORDED:
            return UNTOUCHED
        if denial.reason in UNAVAILABLE and self._settings.allow_unavailable:
            return UNTOUCHED
        return Verdict(denial)

    async def _submitted(self, question: ReservationRequest) -> Accepted | Denial:
        """Submit descriptions and observations, then the reservation; return its answer."""
        reserve, dry_run = question.reserve, bool(question.request.dry_run)
        if not dry_run:
            described = await self._described(reserve.namespace, question.until)
            first: list[AnyCommand] = [*described, *question.shown]
            for command in first:
                answer = await self._ledger.submit(command)
                if isinstance(answer, Denial):
                    return answer
        return await self._ledger.submit(reserve, dry_run=dry_run)

    async def _forced(self, question: ReservationRequest, denial: Denial) -> Verdict:
        """Charge what there is no room for, with a warning."""
        warning = f"over the limit: {brief(denial, overruled=True)}"
        once_more = msgspec.structs.replace(
            question,
            reserve=msgspec.structs.replace(question.reserve, forced=True),
            shown=(),
            warnings=(*question.warnings, warning),
        )
        return await self.ask(once_more)

    async def _described(self, namespace: str, until: float) -> tuple[Describe, ...]:
        """Return the description of a namespace that the ledger lacks and quotas select by."""
        state = self._context.view.state
        if namespace in state.described or not state.reaching:
            return ()
        traits = await self._context.traits_of(local_name(namespace), until)
        return () if traits is None else (Describe(namespace, traits, _ACTOR),)


def _deadline_denial(seconds: float) -> Denial:
    """Return the denial of a request that the ledger did not answer in time."""
    return Denial(
        Reason.LEDGER_UNAVAILABLE,
        f"the ledger did not answer within {seconds:g} s",
        transient=True,
        remedy="Try again; if it persists, /readyz of gpuledger names the problem",
    )
