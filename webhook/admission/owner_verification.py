"""Owner verification: which pods and objects may draw from the envelope of a root.

Any user may write an ownerReference. The demand of an object is drawn from a root's envelope only
where the controller of that kind has written the object. Every other object counts by itself, and
an update by which it could count otherwise later is refused.
"""

from typing import Final

import msgspec

from ledger.core.model.commands import BARRED, Reserve
from ledger.core.model.denials import Denial, Reason
from ledger.kube.api.objects import ObjectMeta, OwnerReference
from ledger.kube.api.quoting import shown
from webhook.admission.attempt_identity import ACTOR_CHARACTERS_MAX
from webhook.api.admission_review import AdmissionRequest, UserInfo
from webhook.context.owner_chain import OwnerChains, OwningRoot
from webhook.kinds.kind_schema import WorkloadKind

OWNER_FIELD: Final = "metadata.ownerReferences"


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
