"""The validating webhook: the place where pods are charged.

Here, and only here, the uid and the name of a new pod are the ones that will be persisted. An
answer "allowed" is given after the reservation is durable, and within the deadline of the policy:
a ledger that does not answer in time is an unavailable ledger.

* CREATE reserves for the attempt `(uid, 0)`.
* UPDATE, and UPDATE of `pods/resize`, reserves for `(uid, base)` only what the old object does not
  already account for. A change that asks for no more passes without asking the ledger, so labels
  and finalizers can be written whatever the ledger's state.
* Everything else (DELETE, binding, status, eviction, other kinds) passes untouched.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from ledger.core import accounts
from ledger.core.amounts import Amounts, covers
from ledger.core.commands import CREATE, Observe, Reserve
from ledger.core.denials import Denial, Reason
from ledger.kube.containers import asks_for_cards, shown
from ledger.kube.demand import Demand, demand_of
from ledger.kube.objects import Pod
from ledger.kube.rules import DemandRules
from ledger.log.submission import Accepted, Ledger
from webhook.policy import Policy
from webhook.reserved import changed_reserved, refusal
from webhook.review import BadReview, Request, Response, audit, decode_pod, denied, warning
from webhook.stamps import ANNOTATION, Stamps, Subject
from webhook.verdict import UNTOUCHED, Verdict

ACTOR_CHARACTERS_MAX: Final = 256
"""How much of a user name, or of an owner's, is recorded: names may be of any length."""

_UNAVAILABLE: Final = (Reason.LEDGER_UNAVAILABLE, Reason.LEDGER_STOPPED, Reason.OVERLOADED)
_FINISHED: Final = ("Succeeded", "Failed")
_UID_CHARACTERS_MAX: Final = 128
_NOTHING: Final[Amounts] = {}

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
        limits_memory: Callable[[str], bool],
    ) -> None:
        """Judge for `cluster`; `limits_memory` tells whether an account of a qualified namespace
        limits the memory of cards."""
        self._ledger = ledger
        self._cluster = cluster
        self._rules = rules
        self._policy = policy
        self._stamps = stamps
        self._limits_memory = limits_memory

    async def answer(self, request: Request) -> Response:
        """Return the answer to a review. Raises BadReview."""
        verdict = await self.judge(request)
        if verdict.denial is not None:
            return denied(request, verdict.denial, verdict.warnings)
        if verdict is UNTOUCHED:
            return Response(request.uid, True)
        warnings = tuple(map(warning, verdict.warnings))
        annotations = audit(verdict.decision, "Reserved")
        return Response(request.uid, True, warnings=warnings, audit_annotations=annotations)

    async def judge(self, request: Request) -> Verdict:
        """Decide a request; a dry run is decided like the real thing and changes nothing.

        Raises BadReview.
        """
        if not request.is_pods() or request.sub_resource not in ("", "resize"):
            return self._passed(request)
        if request.operation == "CREATE" and not request.sub_resource:
            return await self._create(request, _object(request))
        if request.operation == "UPDATE":
            return await self._update(request, _object(request), _old_object(request))
        return self._passed(request)

    def _passed(self, request: Request) -> Verdict:
        _log.debug(
            "review passed untouched",
            operation=request.operation[:32],
            resource=request.resource.resource[:64],
            subresource=request.sub_resource[:64],
        )
        return UNTOUCHED

    async def _create(self, request: Request, pod: Pod) -> Verdict:
        demand = demand_of(pod, self._rules)
        denial = self._forbidden(request, pod, None)
        if denial is None and isinstance(demand, Denial):
            denial = demand
        if denial is not None or isinstance(demand, Denial):
            return Verdict(denial)
        if not demand.amounts:
            return UNTOUCHED
        reserve = self._reserve(request, pod, demand, CREATE)
        if isinstance(reserve, Denial):
            return Verdict(reserve)
        if demand.memory_unknown and self._limits_memory(reserve.namespace):
            return Verdict(_card_memory_unknown(demand))
        return await self._decided(request, reserve, None, _warnings(pod, reserve))

    async def _update(self, request: Request, pod: Pod, old: Pod) -> Verdict:
        denial = self._forbidden(request, pod, old)
        if denial is not None:
            return Verdict(denial)
        demand, before = demand_of(pod, self._rules), demand_of(old, self._rules)
        if demand == before or pod.status.phase in _FINISHED:
            return UNTOUCHED
        if isinstance(demand, Denial):
            return Verdict(demand)
        known = _NOTHING if isinstance(before, Denial) else before.amounts
        if covers(known, demand.amounts):
            return UNTOUCHED
        reserve = self._reserve(request, pod, demand, _base(old))
        if isinstance(reserve, Denial):
            return Verdict(reserve)
        newly_unknown = demand.memory_unknown and (
            isinstance(before, Denial) or not before.memory_unknown
        )
        if newly_unknown and self._limits_memory(reserve.namespace):
            return Verdict(_card_memory_unknown(demand))
        observe = Observe(
            reserve.namespace, reserve.key, reserve.uid, reserve.base, known, reserve.actor
        )
        return await self._decided(request, reserve, observe, ())

    def _forbidden(self, request: Request, pod: Pod, old: Pod | None) -> Denial | None:
        """Return why the pod may not be written, whatever there is room for."""
        username = request.user_info.username
        if username not in self._policy.trusted:
            field = changed_reserved(pod.metadata, None if old is None else old.metadata)
            if field:
                return refusal(field, shown(username))
        if old is None and not self._policy.allow_privileged:
            return _privileged(pod, self._rules)
        return None

    def _reserve(self, request: Request, pod: Pod, demand: Demand, base: int) -> Reserve | Denial:
        """Return the command for an attempt, or why it cannot be named."""
        meta = pod.metadata
        name = request.name or meta.name
        namespace = request.namespace or meta.namespace
        stamp = self._stamp(request, pod, demand) if base == CREATE else ""
        uid = meta.uid or (f"stamp-{stamp}" if stamp else "")
        for field, text in (("name", name), ("namespace", namespace), ("uid", uid)):
            if not text or len(text) > _UID_CHARACTERS_MAX * 2 or "/" in text:
                return _unnamed(field, text)
        actor = request.user_info.username[:ACTOR_CHARACTERS_MAX]
        return Reserve(
            namespace=accounts.qualified(self._cluster, namespace),
            key=f"pods/{name}",
            uid=uid,
            demand=demand.amounts,
            base=base,
            stamp=stamp,
            owner=_owner(pod) or actor,
            owner_holds_max=self._policy.owner_holds_max,
            actor=actor,
        )

    def _stamp(self, request: Request, pod: Pod, demand: Demand) -> str:
        """Return the nonce of a stamp that verifies; any other stamp is as good as none."""
        stamp = (pod.metadata.annotations or {}).get(ANNOTATION)
        if not stamp:
            return ""
        user = request.user_info.username
        namespace = request.namespace
        subject = Subject(self._cluster, "pods", namespace, user, demand.amounts)
        return self._stamps.nonce_of(stamp, subject)

    async def _decided(
        self,
        request: Request,
        reserve: Reserve,
        observe: Observe | None,
        warnings: tuple[str, ...],
    ) -> Verdict:
        """Ask the ledger, within the deadline."""
        dry_run = bool(request.dry_run)
        try:
            async with asyncio.timeout(self._policy.deadline):
                if observe is not None and not dry_run:
                    observed = await self._ledger.submit(observe)
                    if isinstance(observed, Denial):
                        return self._judged(reserve, observed, warnings)
                answer = await self._ledger.submit(reserve, dry_run=dry_run)
        except TimeoutError:
            answer = _too_late(self._policy.deadline)
        return self._judged(reserve, answer, warnings)

    def _judged(
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


def _object(request: Request) -> Pod:
    pod = decode_pod(request.object, "object")
    if pod is None:
        raise BadReview("$.request.object", "is missing")
    return pod


def _old_object(request: Request) -> Pod:
    pod = decode_pod(request.old_object, "oldObject")
    if pod is None:
        raise BadReview("$.request.oldObject", "is missing")
    return pod


def _base(old: Pod) -> int:
    """Return the version an update builds on. Raises BadReview."""
    field = "$.request.oldObject.metadata.resourceVersion"
    try:
        version = old.metadata.version()
    except ValueError as error:
        raise BadReview(field, str(error)) from error
    if not version:
        raise BadReview(field, "is missing")
    return version


def _owner(pod: Pod) -> str:
    controller = pod.metadata.controller()
    if controller is None:
        return ""
    return f"{controller.kind}/{controller.name}/{controller.uid}"[:ACTOR_CHARACTERS_MAX]


def _warnings(pod: Pod, reserve: Reserve) -> tuple[str, ...]:
    found = []
    if pod.spec.node_name:
        found.append("spec.nodeName is set: no scheduler chooses the cards; the pod is charged")
    if ANNOTATION in (pod.metadata.annotations or {}) and not reserve.stamp:
        found.append(f"{ANNOTATION} was not made for this request and is not used")
    return tuple(found)


def _privileged(pod: Pod, rules: DemandRules) -> Denial | None:
    for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ())):
        context = container.security_context
        if context is not None and context.privileged and asks_for_cards(container, rules):
            return Denial(
                Reason.PRIVILEGED_CONTAINER,
                f"container {shown(container.name)} asks for cards and is privileged, so no limit"
                " on them could be enforced",
                transient=False,
                remedy="Remove securityContext.privileged, or have the policy allow it",
                field="securityContext.privileged",
                value="true",
            )
    return None


def _card_memory_unknown(demand: Demand) -> Denial:
    return Denial(
        Reason.CARD_MEMORY_UNKNOWN,
        f"{demand.memory_unknown} asks for a whole card or a percentage of one, the memory of"
        " cards is limited here, and how much memory a card has is not known",
        transient=False,
        remedy="Ask for MiB with nvidia.com/gpumem, or have the setting worst_card_memory say"
        " how many MiB to assume",
        field=demand.memory_unknown,
    )


def _unnamed(field: str, text: str) -> Denial:
    return Denial(
        Reason.INVALID_REVIEW,
        f"the object has no usable metadata.{field} here, so its attempt cannot be named",
        transient=False,
        remedy="Register the validating webhook with an API server that sets it before validating"
        " admission, as every kube-apiserver does",
        field=f"metadata.{field}",
        value=shown(text),
    )


def _too_late(deadline: float) -> Denial:
    return Denial(
        Reason.LEDGER_UNAVAILABLE,
        f"the ledger did not answer within {deadline:g} s",
        transient=True,
        remedy="Try again; if it persists, /readyz of gpuledger says what is wrong",
    )
