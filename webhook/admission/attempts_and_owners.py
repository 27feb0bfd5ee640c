"""Attempts and owners: the identity of each reviewed write, and the root that it may draw from.

By its identity no write is charged twice.

Any user may write an ownerReference. The demand of an object is drawn from a root's envelope only
where the controller of that kind has written the object. Every other object counts by itself, and
an update by which it could count otherwise later is refused.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from ledger.core.model.amounts import Amounts
from ledger.core.model.commands import BARRED, CREATE, Observe, Reserve
from ledger.core.model.denials import Denial, Reason
from ledger.core.model.qualified_names import qualified
from ledger.core.model.traits import Traits
from ledger.kube.api.objects import ObjectMeta, OwnerReference
from ledger.kube.api.quoting import shown
from webhook.api.admission_review import (
    NAME_CHARACTERS_MAX,
    AdmissionRequest,
    BadReview,
    UserInfo,
)
from webhook.context.owner_chain import OwnerChains, OwningRoot
from webhook.kinds.kind_schema import WorkloadKind

ACTOR_CHARACTERS_MAX: Final = 256
"""How much of a user's or an owner's name is recorded: user names may be of any length."""

OWNER_FIELD: Final = "metadata.ownerReferences"

_VERSION: Final = "$.request.oldObject.metadata.resourceVersion"


class Attempts:
    """Names the attempts of one cluster."""

    def __init__(
        self, cluster: str, *, owner_holds_max: int, recorded: Callable[[str], str]
    ) -> None:
        """Name attempts in `cluster`, with at most so many unsettled creations per owner.

        The user of a request is the owner of the object that it creates, see
        `with_controller_as_owner`. `recorded` returns the text that the log holds for the name of a
        user.
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


class Ownership(msgspec.Struct, frozen=True):
    """The root that an object leads to, None without one or when it cannot be read.

    `key` is the root as commands name it: its key, empty without one, or `BARRED` where the user
    that writes the object is not the controller that it names. Such a user is barred also from a
    root that was not found, because it may be found later. `controller` is the controller that the
    object names if its kind is known and the user acts for it, None otherwise.
    """

    root: OwningRoot | None
    key: str
    controller: OwnerReference | None = None


async def ownership_of(
    owner_chains: OwnerChains, request: AdmissionRequest, meta: ObjectMeta, until: float
) -> Ownership:
    """Return the owner of the object of a request; reads owners until loop time `until`."""
    controller, user = meta.controller(), request.user_info
    namespace = request.namespace or meta.namespace
    chain = await owner_chains.chain_of(namespace, controller, until=until)
    root, kind = chain.root, chain.kind
    if kind is None and root is not None:
        kind = root.kind  # a pod that owns others acts for the controller of its own root
    key = root.key if root is not None else ""
    if kind is None:
        return Ownership(root, key)
    if is_controller(kind, user):
        return Ownership(root, key, controller)
    if root is not None:
        owner_chains.unrecognized_controllers.note(kind.name, user.username)
    return Ownership(root, BARRED)


def is_controller(kind: WorkloadKind, user: UserInfo) -> bool:
    """Return whether a user is expected to create what objects of a kind control."""
    return user.username in kind.controllers or not set(kind.controllers).isdisjoint(user.groups)


def with_controller_as_owner(reserve: Reserve, controller: OwnerReference | None) -> Reserve:
    """Return the reservation of what a controller has made for one of its objects.

    Each of these has a bound of its own. A user that is not the controller that the object names
    is bounded as a user: any user may write such a name, and each would be a new bound.
    """
    if controller is None:
        return reserve
    owner = f"{controller.kind}/{controller.name}/{controller.uid}"[:ACTOR_CHARACTERS_MAX]
    return msgspec.structs.replace(reserve, owner=owner)


def base_observation(
    reserve: Reserve, known: Amounts, traits: Traits = (), generation: int = 0
) -> Observe:
    """Return the observation that an update proves: its base, with this demand and these traits."""
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


def forged_owner_denial(
    owner_chains: OwnerChains, new: ObjectMeta, old: ObjectMeta, user: UserInfo
) -> Denial | None:
    """Return why an update may not name another controller than the object had."""
    now, before = new.controller(), old.controller()
    if now is None or (before is not None and before.uid == now.uid):
        return None
    kind = owner_chains.controller_kind(new)
    if kind is None or is_controller(kind, user):
        return None
    return wrong_creator_denial(new, user)


def wrong_creator_denial(meta: ObjectMeta, user: UserInfo) -> Denial:
    """Return the denial of an object whose controller did not make it."""
    owner = meta.controller()
    assert owner is not None, "asked of objects that name a controller"
    name = f"{owner.kind} {owner.name}"
    return Denial(
        Reason.FORGED_OWNER,
        f"{OWNER_FIELD} names {shown(name)} as the controller, and {shown(user.username)} is not"
        f" who controls for a {owner.kind}",
        transient=False,
        remedy="Leave the reference out; controller_identities names who may act for a kind",
        field=OWNER_FIELD,
        value=shown(name),
    )


def _unusable_name_denial(field: str, text: str) -> Denial:
    """Return the denial of an object that lacks what names its attempt."""
    return Denial(
        Reason.INVALID_REVIEW,
        f"{field} is {'not a usable name' if text else 'missing'}, so the attempt to write this"
        " object cannot be distinguished from others",
        transient=False,
        remedy="kube-apiserver sets it before validating admission; is this webhook registered as"
        " a validating one?",
        field=field,
        value=shown(text),
    )


def _missing_uid_denial(key: str) -> Denial:
    """Return the denial of a creation that cannot be distinguished from others of the same name.

    A hold for its key alone could never be ended by a proof: an object of that name that exists, or
    does not, proves nothing about this request.
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
