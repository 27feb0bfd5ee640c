"""Owner reference trust: only the controller of a kind may create objects that its owners pay for.

Any user may write an ownerReference. The demand of an object is drawn from the envelope of a root
only if the controller of that kind has written the object. Other objects count by themselves, and
no update may name a controller that does not control the object.
"""

from typing import Final

import msgspec

from ledger.core.model.commands import BARRED, Reserve
from ledger.core.model.denials import Denial, Reason
from ledger.kube.api.objects import ObjectMeta, OwnerReference
from ledger.kube.api.quoting import shown
from webhook.admission.write_attempts import ACTOR_CHARACTERS_MAX
from webhook.api.admission_review import AdmissionRequest, UserInfo
from webhook.context.owner_chain import OwnerChains, OwningRoot
from webhook.kinds.kind_schema import WorkloadKind

OWNER_FIELD: Final = "metadata.ownerReferences"


class Ownership(msgspec.Struct, frozen=True):
    """The root that an object leads to, None without one or when it cannot be read.

    `key` is the key of the root in commands. It is empty without a root, and `BARRED` if the user
    who writes the object is not the controller that the object names. Such a user is barred from a
    root that was not found as well, because it may be found later. `controller` is the controller
    that the object names, None if its kind is unknown or the user does not act for it.
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


def with_controller_as_owner(reserve: Reserve, controller: OwnerReference | None) -> Reserve:
    """Return the reservation with the controller as its owner, if there is one.

    The bound of open creations applies per owner. Creations of other users count for the user,
    because a user could write a new controller name for each object and so have a new bound.
    """
    if controller is None:
        return reserve
    owner = f"{controller.kind}/{controller.name}/{controller.uid}"[:ACTOR_CHARACTERS_MAX]
    return msgspec.structs.replace(reserve, owner=owner)


def is_controller(kind: WorkloadKind, user: UserInfo) -> bool:
    """Return whether a user may create the objects that objects of a kind control."""
    return user.username in kind.controllers or not set(kind.controllers).isdisjoint(user.groups)


def forged_owner_denial(
    owner_chains: OwnerChains, new: ObjectMeta, old: ObjectMeta, user: UserInfo
) -> Denial | None:
    """Return the denial of an update that names a new controller without its trust, or None."""
    now, before = new.controller(), old.controller()
    if now is None or (before is not None and before.uid == now.uid):
        return None
    kind = owner_chains.controller_kind(new)
    if kind is None or is_controller(kind, user):
        return None
    return wrong_creator_denial(new, user)


def wrong_creator_denial(meta: ObjectMeta, user: UserInfo) -> Denial:
    """Return the denial of an object that names a controller which did not write it."""
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
