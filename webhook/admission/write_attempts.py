"""Write attempts: the identity of a reviewed write, so that no write is charged twice.

A creation is identified by the object's uid, an update by the uid and the version on which it is
based. A review without such an identity is refused.
"""

from collections.abc import Callable
from typing import Final

from ledger.core.model.amounts import Amounts
from ledger.core.model.commands import CREATE, Observe, Reserve
from ledger.core.model.denials import Denial, Reason
from ledger.core.model.qualified_names import qualified
from ledger.core.model.traits import Traits
from ledger.kube.api.objects import ObjectMeta
from ledger.kube.api.quoting import shown
from webhook.api.admission_review import (
    NAME_CHARACTERS_MAX,
    AdmissionRequest,
    BadReview,
)

ACTOR_CHARACTERS_MAX: Final = 256
"""Characters of a user's or owner's name that are recorded, because user names have no bound."""


_VERSION: Final = "$.request.oldObject.metadata.resourceVersion"


class WriteAttempts:
    """Names the attempts of one cluster."""

    def __init__(
        self, cluster: str, *, owner_holds_max: int, recorded: Callable[[str], str]
    ) -> None:
        """Name attempts in `cluster`, with at most `owner_holds_max` open creations per owner.

        The owner is the user of the request, or a controller (`with_controller_as_owner`).
        `recorded` returns the recorded form of a user's name.
        """
        self._prefix = qualified(cluster, "")
        self._owner_holds_max = owner_holds_max
        self._recorded = recorded

    def create(
        self, request: AdmissionRequest, resource: str, meta: ObjectMeta, demand: Amounts
    ) -> Reserve | Denial:
        """Return the reservation of a new object of a resource, such as `deployments.apps`."""
        return self._reserve(request, resource, meta, demand, meta.uid, CREATE)

    def update(
        self,
        request: AdmissionRequest,
        resource: str,
        meta: ObjectMeta,
        old: ObjectMeta,
        demand: Amounts,
    ) -> Reserve | Denial:
        """Return the reservation of a change on top of `old`. Raises BadReview."""
        try:
            base = old.version()
        except ValueError as error:
            raise BadReview(_VERSION, str(error)) from error
        if not base:
            raise BadReview(_VERSION, "is missing")
        return self._reserve(request, resource, meta, demand, old.uid, base)

    def _reserve(
        self,
        request: AdmissionRequest,
        resource: str,
        meta: ObjectMeta,
        demand: Amounts,
        uid: str,
        base: int,
    ) -> Reserve | Denial:
        name = request.name or meta.name
        namespace = request.namespace or meta.namespace
        if base == CREATE and not uid:
            return _missing_uid_denial(f"{resource}/{name}")
        for field, text in (("name", name), ("namespace", namespace), ("uid", uid)):
            if not text or len(text) > NAME_CHARACTERS_MAX or "/" in text:
                return _unusable_name_denial(f"metadata.{field}", text)
        actor = self._recorded(request.user_info.username)[:ACTOR_CHARACTERS_MAX]
        return Reserve(
            namespace=self._prefix + namespace,
            key=f"{resource}/{name}",
            uid=uid,
            demand=demand,
            base=base,
            owner=actor,
            owner_holds_max=self._owner_holds_max,
            actor=actor,
        )


def base_observation(
    reserve: Reserve, known: Amounts, traits: Traits = (), generation: int = 0
) -> Observe:
    """Return the observation that an update proves: its base version with demand and traits."""
    return Observe(
        reserve.namespace,
        reserve.key,
        reserve.uid,
        reserve.base,
        known,
        reserve.actor,
        reserve.root,
        traits,
        generation,
    )


def _unusable_name_denial(field: str, text: str) -> Denial:
    """Return the denial of an object whose name, namespace or uid cannot identify an attempt."""
    return Denial(
        Reason.INVALID_REVIEW,
        f"{field} is {'not a usable name' if text else 'missing'}, so the attempt to write this"
        " object cannot be distinguished from others",
        transient=False,
        remedy=f"Give it at most {NAME_CHARACTERS_MAX} characters and no slash"
        if text
        else "kube-apiserver sets it before validating admission: register this webhook as a"
        " validating one",
        field=field,
        value=shown(text),
    )


def _missing_uid_denial(key: str) -> Denial:
    """Return the denial of a creation that cannot be distinguished from others of the same name.

    No proof could end a hold without a uid, because an object of that name may come from another
    request.
    """
    return Denial(
        Reason.UID_MISSING,
        f"the creation of {shown(key)} was sent without metadata.uid, so nothing could prove what"
        " became of it",
        transient=False,
        remedy="Register /admission/validate in a ValidatingWebhookConfiguration, as `gpuledger"
        " webhook print` shows it: kube-apiserver sets the uid before it asks those. An aggregated"
        " API server has to set it as well, or name its namespaces in exempt_namespaces",
        field="metadata.uid",
    )
