"""The validating webhook: the place where pods are charged.

Here, and only here, the uid and the name of a new pod are the ones that will be persisted. An
answer "allowed" is given after the reservation is durable, and before the deadline: a ledger that
does not answer in time is an unavailable ledger.

* CREATE reserves for the attempt `(uid, 0)`.
* UPDATE, also of `pods/resize`, reserves for `(uid, base)` when it asks for more than the old
  object accounts for. A change that asks for no more passes without asking the ledger, so labels
  and finalizers can be written whatever the ledger's state.
* Everything else (DELETE, binding, status, eviction, other kinds) passes untouched.
"""

import asyncio
from typing import Final

import msgspec
import structlog

from ledger.core.amounts import covers
from ledger.core.commands import Observe, Reserve
from ledger.core.denials import Denial, Reason
from ledger.kube.containers import shown
from ledger.kube.demand import Demand, demand_of
from ledger.kube.objects import Pod
from ledger.kube.rules import DemandRules
from ledger.log.submission import Accepted, Ledger
from webhook import objections
from webhook.attempts import Attempts, observation
from webhook.policy import Policy
from webhook.reserved import changed_reserved, refusal
from webhook.review import Request, Response, audit, denied, required_pod, warning
from webhook.stamps import ANNOTATION, Stamps
from webhook.verdict import UNTOUCHED, Verdict

_UNAVAILABLE: Final = (Reason.LEDGER_UNAVAILABLE, Reason.LEDGER_STOPPED, Reason.OVERLOADED)
_NO_DEMAND: Final = Demand({})

_log: Final = structlog.get_logger("webhook")


class Validating:
    """Judges pods."""

    def __init__(
        self,
        ledger: Ledger,
        cluster: str,
        rules: DemandRules,
        policy: Policy,
        stamps: Stamps,
    ) -> None:
        """Judge for `cluster`."""
        self._ledger = ledger
        self._rules = rules
        self._policy = policy
        self._attempts = Attempts(cluster, stamps, policy.owner_holds_max)

    async def answer(self, request: Request, until: float) -> Response:
        """Return the answer to a review, by loop time `until`. Raises BadReview."""
        verdict = await self.judge(request, until)
        if verdict.denial is not None:
            return denied(request, verdict.denial, verdict.warnings)
        if verdict is UNTOUCHED:
            return Response(request.uid, True)
        warnings = tuple(map(warning, verdict.warnings))
        annotations = audit(verdict.decision, "Reserved")
        return Response(request.uid, True, warnings=warnings, audit_annotations=annotations)

    async def judge(self, request: Request, until: float) -> Verdict:
        """Decide a request; a dry run is decided like the real thing and changes nothing.

        Raises BadReview.
        """
        if request.is_pods():
            if request.operation == "CREATE" and not request.sub_resource:
                return await self._judge(request, required_pod(request, "object"), None, until)
            if request.operation == "UPDATE" and request.sub_resource in ("", "resize"):
                pod = required_pod(request, "object")
                return await self._judge(request, pod, required_pod(request, "oldObject"), until)
        _log.debug(
            "review passed untouched",
            operation=shown(request.operation),
            resource=shown(request.resource.resource),
            subresource=shown(request.sub_resource),
        )
        return UNTOUCHED

    async def _judge(self, request: Request, pod: Pod, old: Pod | None, until: float) -> Verdict:
        demand = demand_of(pod, self._rules)
        before = _NO_DEMAND if old is None else demand_of(old, self._rules)
        if isinstance(demand, Denial) and demand != before:
            return Verdict(demand)
        denial = self._forbidden(request, pod, old)
        if denial is not None:
            return Verdict(denial)
        if isinstance(before, Denial):
            before = _NO_DEMAND
        if isinstance(demand, Denial) or covers(before.amounts, demand.amounts):
            return UNTOUCHED
        if old is None:
            reserve = self._attempts.create(request, pod, demand)
        else:
            reserve = self._attempts.update(request, pod, old, demand)
        if isinstance(reserve, Denial):
            return Verdict(reserve)
        if demand.memory_unknown and not before.memory_unknown:
            reserve = msgspec.structs.replace(reserve, unknown=demand.unknown)
        observe = None if old is None else observation(reserve, before.amounts)
        answer = await self._decided(reserve, observe, bool(request.dry_run), until)
        return self._verdict(reserve, answer, _warnings(pod, reserve) if old is None else ())

    def _forbidden(self, request: Request, pod: Pod, old: Pod | None) -> Denial | None:
        """Return why the pod may not be written, whatever there is room for."""
        username = request.user_info.username
        if username not in self._policy.trusted:
            field = changed_reserved(pod.metadata, None if old is None else old.metadata)
            if field:
                return refusal(field, shown(username))
        if old is None and not self._policy.allow_privileged:
            return objections.privileged(pod, self._rules)
        return None

    async def _decided(
        self, reserve: Reserve, observe: Observe | None, dry_run: bool, until: float
    ) -> Accepted | Denial:
        """Ask the ledger. An update first shows its base, which fences earlier ones."""
        try:
            async with asyncio.timeout_at(until):
                if observe is not None and not dry_run:
                    observed = await self._ledger.submit(observe)
                    if isinstance(observed, Denial):
                        return observed
                return await self._ledger.submit(reserve, dry_run=dry_run)
        except TimeoutError:
            return objections.too_late(self._policy.deadline)

    def _verdict(
        self, reserve: Reserve, answer: Accepted | Denial, warnings: tuple[str, ...]
    ) -> Verdict:
        denial = answer if isinstance(answer, Denial) else None
        if denial is not None and denial.reason in _UNAVAILABLE and self._policy.allow_unavailable:
            _log.warning("admitted uncharged", key=reserve.key, reason=str(denial.reason))
            warnings = (f"{denial.reason}: admitted without being charged by gpuledger", *warnings)
            denial = None
        return Verdict(
            denial, answer.decision, reserve.namespace, reserve.key, reserve.demand, warnings
        )


def _warnings(pod: Pod, reserve: Reserve) -> tuple[str, ...]:
    found = []
    if pod.spec.node_name:
        found.append("spec.nodeName is set: no scheduler chooses the cards; the pod is charged")
    if ANNOTATION in (pod.metadata.annotations or {}) and not reserve.stamp:
        found.append(f"{ANNOTATION} was not made for this request and is not used")
    return tuple(found)
