"""Asking the ledger: within the deadline, as the policy of the namespace wants it."""

import asyncio
from typing import Final

import msgspec
import structlog

from ledger.core.model.commands import AnyCommand, Describe, Observe, Reserve
from ledger.core.model.denials import Denial, Reason, brief
from ledger.core.model.qualified_names import local_name
from ledger.log.ledger import Accepted, Ledger
from webhook.admission import admission_denials
from webhook.admission.verdict import UNTOUCHED, Verdict
from webhook.api.admission_settings import AdmissionSettings
from webhook.context.cluster_context import ClusterContext

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

    `yielding` says that nobody is to be refused for want of room.
    """

    reserve: Reserve
    until: float
    shown: tuple[Observe, ...] = ()
    dry_run: bool = False
    may_exceed_limits: bool = False
    warnings: tuple[str, ...] = ()


class ReservationClient:
    """Asks one ledger for one cluster."""

    def __init__(self, ledger: Ledger, policy: AdmissionSettings, context: ClusterContext) -> None:
        self._ledger = ledger
        self._policy = policy
        self._context = context

    async def ask(self, question: ReservationRequest) -> Verdict:
        """Ask for a reservation. An update first shows its base, which fences earlier ones."""
        question = msgspec.structs.replace(question, reserve=self._told(question.reserve))
        try:
            async with asyncio.timeout_at(question.until):
                answer = await self._decided(question)
        except TimeoutError:
            answer = admission_denials.deadline_denial(self._policy.deadline)
        if not isinstance(answer, Denial):
            return _verdict(question, answer)
        if question.may_exceed_limits and answer.reason in NO_ROOM:
            return await self._forced(question, answer)
        if answer.reason in UNAVAILABLE and self._policy.allow_unavailable:
            key = question.reserve.key
            _log.warning("admitted uncharged", key=key, reason=str(answer.reason))
            warning = f"{answer.reason}: admitted without being charged by gpuledger"
            admitted = _verdict(question, answer, None, warning)
            return msgspec.structs.replace(admitted, outcome=str(answer.reason))
        return _verdict(question, answer, answer)

    async def dry_run(self, reserve: Reserve, until: float) -> Denial | None:
        """Return why a reservation would be refused now; nothing is reserved."""
        try:
            async with asyncio.timeout_at(until):
                answer = await self._ledger.submit(self._told(reserve), dry_run=True)
        except TimeoutError:
            return admission_denials.deadline_denial(self._policy.deadline)
        return answer if isinstance(answer, Denial) else None

    def _told(self, reserve: Reserve) -> Reserve:
        """Return a reservation whose denial names who holds as far as policy lets it."""
        policy = self._context.policies.of(local_name(reserve.namespace))
        return msgspec.structs.replace(reserve, own_holders=policy.foreign_holders == "none")

    async def share(self, reserve: Reserve, until: float) -> Verdict:
        """Refuse a change that asks for nothing while the log is to hold nothing new about it.

        It is recorded all the same once it is stored, so it may not be made again and again: not
        beyond its namespace's share of the log, and not out of the reserve. What quotas lack is no
        reason here, nor does it hide one.
        """
        forced = msgspec.structs.replace(reserve, forced=True)
        denial = await self.dry_run(forced, until)
        if denial is None or denial.reason not in _UNRECORDED:
            return UNTOUCHED
        if denial.reason in UNAVAILABLE and self._policy.allow_unavailable:
            return UNTOUCHED
        return Verdict(denial)

    async def _decided(self, question: ReservationRequest) -> Accepted | Denial:
        reserve = question.reserve
        if not question.dry_run:
            described = await self._described(reserve.namespace, question.until)
            first: list[AnyCommand] = [*described, *question.shown]
            for command in first:
                told = await self._ledger.submit(command)
                if isinstance(told, Denial):
                    return told
        return await self._ledger.submit(reserve, dry_run=question.dry_run)

    async def _forced(self, question: ReservationRequest, denial: Denial) -> Verdict:
        """Charge what there is no room for, and say so."""
        forced = msgspec.structs.replace(question.reserve, forced=True)
        once_more = msgspec.structs.replace(
            question,
            reserve=forced,
            shown=(),
            may_exceed_limits=False,
            warnings=(*question.warnings, f"over the limit: {brief(denial, overruled=True)}"),
        )
        return await self.ask(once_more)

    async def _described(self, namespace: str, until: float) -> tuple[Describe, ...]:
        """Return what quotas that select namespaces have to know of one they do not know."""
        state = self._context.view.state
        if namespace in state.described or not state.reaching:
            return ()
        traits = await self._context.traits_of(local_name(namespace), until)
        return () if traits is None else (Describe(namespace, traits, _ACTOR),)


def _verdict(
    question: ReservationRequest,
    answer: Accepted | Denial,
    denial: Denial | None = None,
    *warnings: str,
) -> Verdict:
    reserve = question.reserve
    return Verdict(
        denial,
        answer.decision,
        reserve.namespace,
        reserve.key,
        reserve.demand,
        warnings=(*warnings, *question.warnings),
    )
