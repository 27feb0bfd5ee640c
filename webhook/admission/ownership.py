"""Standing: whether an object belongs to the root that its ownerReferences lead to.

Anybody may write an ownerReference. What an object asks for is drawn from a root's envelope only
where the controller of that kind has written it; everything else counts by itself, and what could
change sides afterwards is refused.
"""

import msgspec

from ledger.core.model.commands import BARRED
from ledger.core.model.denials import Denial, Reason
from ledger.kube.api.objects import ObjectMeta
from ledger.kube.requests.container_requests import shown
from webhook.api.admission_review import UserInfo
from webhook.context.owner_chain import OwnerChains, OwningRoot
from webhook.kinds.schema import WorkloadKind

FIELD = "metadata.ownerReferences"


class Ownership(msgspec.Struct, frozen=True):
    """The root that an object leads to, None without one or when it cannot be read.

    `trusted`: the user that writes the object is the controller that it names, if it names one;
    `controlled` that it is one, of a kind that is known.
    """

    root: OwningRoot | None = None
    trusted: bool = True
    controlled: bool = False

    @property
    def key(self) -> str:
        """The root as commands name it.

        Who is not trusted is barred also from a root that was not found: it may be found later.
        """
        if not self.trusted:
            return BARRED
        return self.root.key if self.root is not None else ""


async def ownership_of(
    owner_chains: OwnerChains, namespace: str, meta: ObjectMeta, user: UserInfo, *, deadline: float
) -> Ownership:
    """Return where an object stands that a user writes; owners are read until `deadline`."""
    root = await owner_chains.root_of(namespace, meta, deadline=deadline)
    kind = owner_chains.controller_kind(meta)
    if kind is None and root is not None:
        kind = root.kind  # a pod that owns others acts for the controller of its own root
    controlled = kind is not None and is_controller(kind, user)
    if kind is not None and root is not None and not controlled:
        owner_chains.unrecognized_controllers.note(kind.name, user.username)
    return Ownership(root, kind is None or controlled, controlled)


def is_controller(kind: WorkloadKind, user: UserInfo) -> bool:
    """Return whether a user is expected to create what objects of a kind control."""
    return user.username in kind.controllers or not set(kind.controllers).isdisjoint(user.groups)


def forged(
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
        f"{FIELD} names {shown(name)} as the controller, and {shown(user.username)} is not who"
        f" controls for a {owner.kind}",
        transient=False,
        remedy="Leave the reference out; who may act for a kind is said by controller_identities",
        field=FIELD,
        value=shown(name),
    )
