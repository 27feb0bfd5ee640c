"""Commands: what may be asked of the ledger. `decisions.decide` answers every one of them.

`namespace` is always qualified, `<cluster>/<namespace>`; `key` is the rest of the API server's
storage key, `<resource.group>/<name>` (`pods/web-0`, `deployments.apps/web`). Together they name
what can exist at most once.

An **attempt** is one possible write of that key: `(uid, base)` with `base` the resourceVersion it
builds on, 0 for a CREATE.
"""

import msgspec

from ledger.core.amounts import Amounts

CREATE = 0
"""The base of an attempt that creates its object."""

ANY_RAISES = -1
"""In a `Refute`: however often the hold was raised."""


class Command(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Something asked of the ledger; `actor` is who asked (a user, a controller, `settlement`)."""


class Reserve(Command, frozen=True, gc=False):
    """Open a hold for one attempt, before its object is persisted.

    `unknown` names a resource of which the object takes an amount that nobody knows yet, if any:
    refused where an account limits it. `stamp` is a verified stamp's nonce or empty. `owner`
    bounds unsettled CREATE holds: at most `owner_holds_max` of one owner in a namespace, 0 for no
    bound. An UPDATE attempt proves that its base exists: whoever reviews one sends `Observe` of
    the old object first.
    """

    namespace: str
    key: str
    uid: str
    demand: Amounts
    base: int = CREATE
    stamp: str = ""
    owner: str = ""
    owner_holds_max: int = 0
    actor: str = ""
    unknown: str = ""


class Observe(Command, frozen=True, gc=False):
    """The object exists with this uid, version and demand: commit what was held for it."""

    namespace: str
    key: str
    uid: str
    version: int
    demand: Amounts
    actor: str = ""


class End(Command, frozen=True, gc=False):
    """The object no longer counts since `version`: `deleted` or `finished`.

    Version 0 says that the version of the end is not known (an operator says so).
    """

    namespace: str
    key: str
    uid: str
    version: int
    cause: str
    actor: str = ""


class Refute(Command, frozen=True, gc=False):
    """An attempt is proved dead: it was not written and can no longer be (cause `absent`).

    The proof is about the hold as it was raised `raises` times: an attempt that was asked for once
    more may still be written. `ANY_RAISES` is for an operator who knows.
    """

    namespace: str
    key: str
    uid: str
    base: int
    cause: str = "absent"
    actor: str = ""
    raises: int = ANY_RAISES


class SetLimits(Command, frozen=True, gc=False):
    """Set all limits of an account, by quota key, and the qualified namespaces it covers."""

    account: str
    covers: tuple[str, ...]
    limits: dict[str, int]
    actor: str = ""


class CloseAccount(Command, frozen=True, gc=False):
    """The quota object is gone: its limits no longer hold."""

    account: str
    actor: str = ""


class RegisterCluster(Command, frozen=True, gc=False):
    """Bind a cluster's name to the uid of its `kube-system` namespace."""

    cluster: str
    uid: str
    actor: str = ""


AnyCommand = Reserve | Observe | End | Refute | SetLimits | CloseAccount | RegisterCluster
