"""Reservation client: asks the ledger for a reservation, and applies the policy to a denial.

Users who may exceed limits are charged beyond them, with a warning. While the ledger is
unavailable, the setting `allow_unavailable` admits requests uncharged. The answer is due before the
deadline.
"""

from typing import Final

import msgspec
import structlog

from ledger.core.model.commands import AnyCommand, Describe, Observe, Reserve
from ledger.core.model.denials import Denial, Reason, brief
from ledger.core.model.qualified_names import local_name
from ledger.log.ledger_port import Accepted, Ledger
from ledger.tasks.shared_timeouts import SharedTimeouts
from webhook.admission.creation_turns import CreationTurns
from webhook.admission.verdict import UNTOUCHED, Verdict
from webhook.api.admission_review import AdmissionRequest
from webhook.context.admission_settings import AdmissionSettings
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
"""Reasons of denials by a ledger that cannot decide now."""

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
"""Reasons that a policy may overrule; the charge is then recorded beyond the limit."""

_UNRECORDED: Final = frozenset((Reason.LOG_SHARE_EXCEEDED, Reason.LOG_FULL))
"""Reasons of denials by a ledger that records nothing new for the namespace, or at all."""

_ACTOR: Final = "webhook"
_log: Final = structlog.get_logger("webhook")


class ReservationRequest(msgspec.Struct, frozen=True):
    """A reservation, with its deadline as loop time `until`.

    The observations `shown` are sent to the ledger first. `policy` applies to the namespace of the
    admission `request`.
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
        self._turns = CreationTurns(ledger, context.view, owner_holds_max=settings.owner_holds_max)
        self._timeouts = SharedTimeouts()

    async def ask(self, question: ReservationRequest) -> Verdict:
        """Ask for a reservation. The base of an update is sent first, which ends older attempts."""
        reserve = question.reserve
        try:
            with self._timeouts.at(question.until):
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
        """Return the denial that a reservation would get now, or None; nothing is reserved."""
        try:
            with self._timeouts.at(until):
                answer = await self._ledger.submit(reserve, dry_run=True)
        except TimeoutError:
            return _deadline_denial(self._settings.deadline)
        return answer if isinstance(answer, Denial) else None

    async def share(self, reserve: Reserve, until: float) -> Verdict:
        """Refuse a change that needs no headroom if the log has no space to record it.

        Settlement records every stored change, so repeated changes could exceed the namespace's
        share of the log, or use up the reserve of the log. Exceeded quotas are ignored here.
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
        reserve = question.reserve
        if not question.request.dry_run:
            described = await self._described(reserve.namespace, question.until)
            first: list[AnyCommand] = [*described, *question.shown]
            for command in first:
                answer = await self._ledger.submit(command)
                if isinstance(answer, Denial):
                    return answer
            return await self._turns.submit(reserve, question.until)
        return await self._ledger.submit(reserve, dry_run=True)

    async def _forced(self, question: ReservationRequest, denial: Denial) -> Verdict:
        """Charge beyond the limits, with a warning."""
        warning = f"over the limit: {brief(denial, overruled=True)}"
        once_more = msgspec.structs.replace(
            question,
            reserve=msgspec.structs.replace(question.reserve, forced=True),
            shown=(),
            warnings=(*question.warnings, warning),
        )
        return await self.ask(once_more)

    async def _described(self, namespace: str, until: float) -> tuple[Describe, ...]:
        """Return the description of a namespace, if quotas select by it and the ledger lacks it."""
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
