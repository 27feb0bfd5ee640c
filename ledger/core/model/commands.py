"""Commands: what may be asked of the ledger. `decider.decide` answers every one of them.

`namespace` is always qualified, `<cluster>/<namespace>`; `key` is the rest of the API server's
storage key, `<resource.group>/<name>` (`pods/web-0`, `deployments.apps/web`). Together they name
what can exist at most once.

An **attempt** is one possible write of that key: `(uid, base)` with `base` the resourceVersion it
builds on, 0 for a CREATE.

The object behind any key but a pod's is a **root**: its demand is its envelope, what its spec may
run at once. A pod names the key of its root in the same namespace and draws from that envelope.
"""

import msgspec

from ledger.core.model.amounts import Amounts
from ledger.core.model.cards import Card, Parts
from ledger.core.model.traits import Reach, Selection, Traits

CREATE = 0
"""The base of an attempt that creates its object."""

ANY_RAISES = -1
"""In a `Refute`: however often the hold was raised."""


class Command(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Something asked of the ledger; `actor` is who asked (a user, a controller, `settlement`)."""


class Asker(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How a denial speaks of the object that a reservation is for; decides nothing.

    `kind` is its Kubernetes kind, empty where that is not known. Its demand is that of `pods` like
    pods, 0 where its pods differ or are not known; with `replicas` its user sets that number as its
    replicas. `rollout` says that the demand holds what a roll-out runs besides. `cards` is the
    number of cards of a pod that asks for as much of each, 0 where that differs or is not known.
    """

    kind: str = ""
    pods: int = 0
    replicas: bool = False
    rollout: bool = False
    cards: int = 0


NO_ASKER = Asker()


class Reserve(Command, frozen=True, gc=False):
    """Open a hold for one attempt, before its object is persisted.

    `unknown` names a resource of which the object takes an amount that nobody knows yet, if any:
    refused where an account limits it. `owner` bounds unsettled CREATE holds: at most
    `owner_holds_max` of one owner in a namespace, 0 for no bound. An UPDATE attempt proves that
    its base exists: the webhook that reviews one sends `Observe` of the old object first.

    `root` is the key of the root whose envelope the object draws from, empty when it has none,
    `BARRED` when it may not draw from the one it names. `traits` are what quotas select it by.
    `forced` reserves whatever there is room for: the policy refuses no request here.
    With `own_holders` a denial names no other namespace, not even by its share. `asker` is how it
    speaks of the object.
    """

    namespace: str
    key: str
    uid: str
    demand: Amounts
    base: int = CREATE
    owner: str = ""
    owner_holds_max: int = 0
    actor: str = ""
    unknown: str = ""
    root: str = ""
    traits: Traits = ()
    forced: bool = False
    own_holders: bool = False
    asker: Asker = NO_ASKER


class Observe(Command, frozen=True, gc=False):
    """The object exists with this uid, version and demand: commit what was held for it.

    `generation` is the object's `metadata.generation`, 0 when it does not matter: of two versions
    of one generation the spec is the same, so a status may lower the demand but never raise it.
    `root` and `traits` are as in `Reserve`.
    """

    namespace: str
    key: str
    uid: str
    version: int
    demand: Amounts
    actor: str = ""
    root: str = ""
    traits: Traits = ()
    generation: int = 0


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
    """Set all limits of an account, by quota key, and what it covers.

    It covers the qualified namespaces `covers`, or with a `reach` every namespace that this
    selects, and of these the objects that `selects` selects by their traits. `version` is the
    resourceVersion of what says so, 0 when it has none: an older one than is known changes nothing.
    With `asked_only` an envelope counts only as far as it was asked for, and its pods in full.
    """

    account: str
    covers: tuple[str, ...]
    limits: dict[str, int]
    actor: str = ""
    version: int = 0
    reach: Reach | None = None
    selects: Selection = ()
    asked_only: bool = False


class CloseAccount(Command, frozen=True, gc=False):
    """The quota object is gone: its limits no longer hold."""

    account: str
    actor: str = ""


class RegisterCluster(Command, frozen=True, gc=False):
    """Bind a cluster's name to the uid of its `kube-system` namespace."""

    cluster: str
    uid: str
    actor: str = ""


class Describe(Command, frozen=True, gc=False):
    """The traits of a cluster (`<cluster>`) or of a namespace (`<cluster>/<namespace>`) are these.

    Accounts with a reach select by them; `traits` is one text, see `ledger.core.model.traits`. What
    is not described yet has no labels, but has its name; so it is again with empty `traits`, which
    say that the subject is gone. `version` is the resourceVersion of what says so, 0 when it has
    none: an older one than is known changes nothing.
    """

    subject: str
    traits: str
    actor: str = ""
    version: int = 0


class RegisterCards(Command, frozen=True, gc=False):
    """A node, `<cluster>/<node>`, announces these cards; `keeper` is who hands them out.

    `version` is the node's resourceVersion, 0 when it has none: an older one than is known changes
    nothing.
    """

    node: str
    keeper: str
    cards: tuple[Card, ...]
    actor: str = ""
    version: int = 0


class RemoveNode(Command, frozen=True, gc=False):
    """The node does not exist any more since `version`, 0 when that is not known."""

    node: str
    actor: str = ""
    version: int = 0


class Place(Command, frozen=True, gc=False):
    """Give a pod these shares of a node's cards, if there is room for them and on its quotas.

    `stands` are the amounts, by resource, that are known only with the cards. `alone` wants cards
    on which nobody is (HAMi's policy `mutex`). `seen` says that the pod runs there already, placed
    by somebody else: the truth is charged. `version` is the only resourceVersion of the pod for
    which a Binding to these cards is ever sent; 0 when that is not promised.
    """

    namespace: str
    key: str
    uid: str
    node: str
    parts: Parts
    stands: Amounts = {}
    alone: bool = False
    seen: bool = False
    actor: str = ""
    version: int = 0


class Advance(Command, frozen=True, gc=False):
    """A placement has come to a stage; `initialised` when the init containers are over.

    `stands` replaces what stood above the pod's spec, where it is less. `node` is where the pod was
    seen: a placement elsewhere, made since, has not come so far. Empty, it is any node.
    """

    namespace: str
    key: str
    uid: str
    stage: int
    initialised: bool = False
    stands: Amounts = {}
    actor: str = ""
    node: str = ""


class Unplace(Command, frozen=True, gc=False):
    """Give a pod's cards on `node` back: the pod is not bound there and never will be by this.

    Once the pod was seen bound, that is wrong unless somebody has seen it elsewhere: `bound`. With
    a `version`, only the placement of that version is given back (see `Place`): the pod may have
    been placed anew since, and be about to be bound to the same node. None stands for any version.
    """

    namespace: str
    key: str
    uid: str
    node: str
    cause: str
    actor: str = ""
    bound: bool = False
    version: int | None = None


class Resize(Command, frozen=True, gc=False):
    """Give a pod other amounts of the cards that it has; `stands` as in `Place`."""

    namespace: str
    key: str
    uid: str
    parts: Parts
    stands: Amounts
    actor: str = ""


class MakeRoom(Command, frozen=True, gc=False):
    """Keep these shares of a node's cards for a pod, as `victims` leave: `(namespace, key, uid)`.

    Refused when the shares would not be free once they have left.
    """

    namespace: str
    key: str
    uid: str
    node: str
    parts: Parts
    victims: tuple[tuple[str, str, str], ...]
    actor: str = ""


class Withdraw(Command, frozen=True, gc=False):
    """Keep nothing for the pod any more."""

    namespace: str
    key: str
    uid: str
    cause: str
    actor: str = ""


AnyCommand = (
    Reserve
    | Observe
    | End
    | Refute
    | SetLimits
    | CloseAccount
    | RegisterCluster
    | Describe
    | RegisterCards
    | RemoveNode
    | Place
    | Advance
    | Unplace
    | Resize
    | MakeRoom
    | Withdraw
)

BARRED = "-"
"""The root of an object that stands on its own although it names a controller."""
