"""Reserved annotations: only trusted users and the service itself may write allocations of cards.

Another user could claim cards that the ledger never gave. So the annotations are checked in every
mode, in every request that can write metadata of a pod: to the pod itself, to its status, and in a
Binding, whose annotations and labels the API server merges into the pod. HAMi's other annotations
express preferences (a policy, a card), and any user may write them.
"""

import re
from typing import Final

from ledger.core.model.denials import Denial, Reason
from ledger.kube.api.objects import ObjectMeta
from ledger.kube.client.access_review import SERVICE_ACCOUNTS
from webhook.api.admission_review import AdmissionRequest

OURS: Final = "gpuledger.io/"

STAMP: Final = "gpuledger.io/stamp"
"""An annotation that earlier versions wrote into new pods. It has no meaning, so copied manifests
with it are accepted."""

_ALLOCATION: Final = re.compile(
    r"hami\.io/("
    r"vgpu-node|vgpu-time|bind-time|bind-phase|vgpu-mig-allocations|kunlun-allocated"
    r"|.+-devices-(to-allocate|allocated)"
    r")"
)
_NODE_LABEL: Final = "hami.io/vgpu-node"
_REMEDY: Final = (
    "Leave it as it is, or out of a new manifest; the setting trusted_identities names who"
    " allocates"
)


def resembles_hami(request: AdmissionRequest, field: str) -> bool:
    """Return whether a service account writes one of HAMi's annotations as HAMi does.

    HAMi changes existing pods. A new pod with such an annotation may come from a tenant's template,
    written by a controller with many rights. A dry run is excluded, because `explain` judges
    requests in which a tenant wrote the user name.
    """
    is_update = request.is_pods and not request.sub_resource and request.operation == "UPDATE"
    return (
        is_update
        and not request.dry_run
        and "hami.io/" in field
        and request.user_info.username.startswith(SERVICE_ACCOUNTS)
    )


def changed_protected_field(new: ObjectMeta, old: ObjectMeta | None) -> str:
    """Return the first reserved annotation or label that differs between `new` and `old`.

    Empty if there is none.
    """
    mine, before = _reserved(new), {} if old is None else _reserved(old)
    return min(
        (field for field in {*mine, *before} if mine.get(field) != before.get(field)), default=""
    )


def protected_field_denial(field: str, username: str, *, may_allocate: bool = False) -> Denial:
    """Return the denial of a user who may not write this field.

    With `may_allocate` the user has HAMi's rights.
    """
    return Denial(
        Reason.RESERVED_ANNOTATION,
        f"{field} records an allocation, and {username or 'an unnamed user'} may not write it",
        transient=False,
        remedy=_hami_remedy(username) if may_allocate else _REMEDY,
        field=field,
        value=username,
    )


def _hami_remedy(username: str) -> str:
    return (
        f"If {username} belongs to HAMi, add it to the setting trusted_identities of"
        " gpuledger; `gpuledger import hami --dry-run` finds HAMi's accounts"
    )


def _reserved(meta: ObjectMeta) -> dict[str, str | None]:
    reserved: dict[str, str | None] = {
        _annotation(name): text
        for name, text in (meta.annotations or {}).items()
        if _is_reserved(name)
    }
    if meta.labels and _NODE_LABEL in meta.labels:
        reserved[f"metadata.labels[{_NODE_LABEL}]"] = meta.labels[_NODE_LABEL]
    return reserved


def _annotation(name: str) -> str:
    return f"metadata.annotations[{name}]"


def _is_reserved(name: str) -> bool:
    return (name.startswith(OURS) and name != STAMP) or (
        name.startswith("hami.io/") and _ALLOCATION.fullmatch(name) is not None
    )
