"""Attempts: naming what a review is about, so that the same write is never charged twice."""

from typing import Final

from ledger.core import accounts
from ledger.core.amounts import Amounts
from ledger.core.commands import CREATE, Observe, Reserve
from ledger.core.denials import Denial
from ledger.kube.demand import Demand
from ledger.kube.objects import Pod
from webhook.objections import unnamed
from webhook.review import NAME_CHARACTERS_MAX, BadReview, Request
from webhook.stamps import ANNOTATION, Stamps, Subject

ACTOR_CHARACTERS_MAX: Final = 256
"""How much of a user's or an owner's name is recorded: user names may be of any length."""

_VERSION: Final = "$.request.oldObject.metadata.resourceVersion"


class Attempts:
    """Names the attempts of one cluster."""

    def __init__(self, cluster: str, stamps: Stamps, owner_holds_max: int) -> None:
        """Name attempts in `cluster`, with at most so many unsettled creations per owner."""
        self._cluster = cluster
        self._stamps = stamps
        self._owner_holds_max = owner_holds_max

    def create(self, request: Request, pod: Pod, demand: Demand) -> Reserve | Denial:
        """Return the reservation of a new pod.

        An API server that hides the uid (an aggregated one may) is served by the stamp: it names
        the request, and one request creates at most one object.
        """
        stamp = self._stamp(request, pod, demand)
        uid = pod.metadata.uid or (f"stamp-{stamp}" if stamp else "")
        return self._reserve(request, pod, demand, uid, CREATE, stamp)

    def update(self, request: Request, pod: Pod, old: Pod, demand: Demand) -> Reserve | Denial:
        """Return the reservation of a change on top of `old`. Raises BadReview."""
        try:
            base = old.metadata.version()
        except ValueError as error:
            raise BadReview(_VERSION, str(error)) from error
        if not base:
            raise BadReview(_VERSION, "is missing")
        return self._reserve(request, pod, demand, old.metadata.uid, base, "")

    def _reserve(
        self, request: Request, pod: Pod, demand: Demand, uid: str, base: int, stamp: str
    ) -> Reserve | Denial:
        name = request.name or pod.metadata.name
        namespace = request.namespace or pod.metadata.namespace
        for field, text in (("name", name), ("namespace", namespace), ("uid", uid)):
            if not text or len(text) > NAME_CHARACTERS_MAX or "/" in text:
                return unnamed(f"metadata.{field}", text)
        actor = request.user_info.username[:ACTOR_CHARACTERS_MAX]
        return Reserve(
            namespace=accounts.qualified(self._cluster, namespace),
            key=f"pods/{name}",
            uid=uid,
            demand=demand.amounts,
            base=base,
            stamp=stamp,
            owner=_owner(pod) or actor,
            owner_holds_max=self._owner_holds_max,
            actor=actor,
        )

    def _stamp(self, request: Request, pod: Pod, demand: Demand) -> str:
        """Return the nonce of a stamp that verifies; any other stamp is as good as none."""
        stamp = (pod.metadata.annotations or {}).get(ANNOTATION)
        if not stamp:
            return ""
        username = request.user_info.username
        subject = Subject(self._cluster, "pods", request.namespace, username, demand.amounts)
        return self._stamps.nonce_of(stamp, subject)


def observation(reserve: Reserve, known: Amounts) -> Observe:
    """Return what an update proves: its base exists, with this demand."""
    return Observe(reserve.namespace, reserve.key, reserve.uid, reserve.base, known, reserve.actor)


def _owner(pod: Pod) -> str:
    controller = pod.metadata.controller()
    if controller is None:
        return ""
    return f"{controller.kind}/{controller.name}/{controller.uid}"[:ACTOR_CHARACTERS_MAX]
