"""Commands: the requests to the ledger. `decider.decide` decides each of them.

`namespace` is always qualified, `<cluster>/<namespace>`; `key` is the rest of the API server's
storage key, `<resource.group>/<name>` (`pods/web-0`, `deployments.apps/web`). Together they name
an object that exists at most once.

An **attempt** is one possible write of that key: `(uid, base)` with `base` the resourceVersion it
builds on, 0 for a CREATE.

The object behind any key but a pod's or a resource claim's is a **root**: its demand is its
envelope, what its spec may run at once. A pod names the key of its root in the same namespace and
draws from that envelope. A resource claim has no root and no pods that draw from it.
"""

import msgspec

from ledger.core.model.amounts import Amounts
from ledger.core.model.cards import Card, Parts
from ledger.core.model.devices import Devices
from ledger.core.model.traits import Reach, Selection, Traits

CREATE = 0
"""The base of an attempt that creates its object."""

ANY_RAISES = -1
"""In a `Refute`: any number of raises."""


class Command(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """A request to the ledger; `actor` is its sender (a user, a controller, `settlement`)."""


class Asker(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The description of a reservation's object in a denial; decides nothing.

    `kind` is its Kubernetes kind, empty where that is unknown. Its demand is that of `pods` like
    pods, 0 where its pods differ or are unknown; with `replicas` its user sets that number as its
    replicas. `rollout` is set when the demand includes the extra pods of a roll-out. `cards` is the
    number of cards of a pod with equal amounts of each, 0 where they differ or are unknown.
    """

    kind: str = ""
    pods: int = 0
    replicas: bool = False
    rollout: bool = False
    cards: int = 0


NO_ASKER = Asker()


class Reserve(Command, frozen=True, gc=False):
    """Open a hold for one attempt, before its object is persisted.

    `unknown` names a resource whose demanded amount is unknown, if any: the attempt is refused
    where an account limits it. `owner` bounds unsettled CREATE holds: at most
    `owner_holds_max` of one owner in a namespace, 0 for no bound. An UPDATE attempt proves that
    its base exists: the webhook that reviews one sends `Observe` of the old object first.

    `root` is the key of the root whose envelope the object draws from, empty when it has none,
    `BARRED` when it may not draw from the one it names. Quotas select the object by `traits`.
    `forced` reserves even above the limits, because the policy refuses no request here.
    With `own_holders` a denial names no other namespace, not even by its share. `asker` describes
    the object in denials.
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
    """The object exists with this uid, version and demand: commit its hold.

    `generation` is the object's `metadata.generation`, 0 when it does not matter: of two versions
    of one generation the spec is the same, so a status may lower the demand but never raise it.
    `root` and `traits` are as in `Reserve`. `devices` are those that resource claims have given to
    the object, and the demand has their amounts; None when the sender does not read allocations.
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
    devices: Devices | None = None


class End(Command, frozen=True, gc=False):
    """The object no longer counts since `version`: `deleted` or `finished`.

    Version 0 means that the version of the end is unknown (an operator sent the command).
    """

    namespace: str
    key: str
    uid: str
    version: int
    cause: str
    actor: str = ""


class Refute(Command, frozen=True, gc=False):
    """An attempt is proved dead: it was not written and can no longer be (cause `absent`).

    The proof is about the hold as it was raised `raises` times: an attempt that was requested again
    may still be written. `ANY_RAISES` is for operators who checked that themselves.
    """

    namespace: str
    key: str
    uid: str
    base: int
    cause: str = "absent"
    actor: str = ""
    raises: int = ANY_RAISES


class SetLimits(Command, frozen=True, gc=False):
    """Set all limits of an account, by quota key, and its coverage.

    It covers the qualified namespaces `covers`, or with a `reach` every namespace that this
    selects, and of these the objects that `selects` selects by their traits. `version` is the
    resourceVersion of the quota object, 0 when it has none; an older version changes nothing.
    With `asked_only` an envelope counts only its reviewed part, and its pods in full.
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
    """Set the traits of a cluster (`<cluster>`) or of a namespace (`<cluster>/<namespace>`).

    Accounts with a reach select by them; `traits` is one text, see `ledger.core.model.traits`.
    Without a description a subject has its name and no labels; empty `traits` mean that the subject
    is gone. `version` is the resourceVersion of the described object, 0 when it has none; an older
    version changes nothing.
    """

    subject: str
    traits: str
    actor: str = ""
    version: int = 0


class RegisterCards(Command, frozen=True, gc=False):
    """A node, `<cluster>/<node>`, announces these cards; `keeper` allocates them.

    `version` is the node's resourceVersion, 0 when it has none; an older version changes nothing.
    """

    node: str
    keeper: str
    cards: tuple[Card, ...]
    actor: str = ""
    version: int = 0


class RemoveNode(Command, frozen=True, gc=False):
    """The node does not exist any more since `version`, 0 when that is unknown."""

    node: str
    actor: str = ""
    version: int = 0


class Place(Command, frozen=True, gc=False):
    """Give a pod these shares of a node's cards, if there is room for them and on its quotas.

    `stands` are the amounts, by resource, that the cards decide. `alone` requires unused cards
    (HAMi's policy `mutex`). `seen` is set when another scheduler placed the pod there already, and
    the placement is charged in any case. `version` is the only resourceVersion of the pod for which
    a Binding to these cards is ever sent; 0 when that is not promised.
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
    """A placement has come to a stage; `initialised` when the init containers have ended.

    `stands` replaces the amounts that the cards decided, where it is less. `node` is the node of
    the observed pod: a placement on another node is a later one and stays as it is. An empty `node`
    means any node.
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
    """Release a pod's cards on `node`: no Binding to them was stored, and none will be.

    A pod that was observed bound keeps its cards, unless it was observed on another node: `bound`.
    With a `version`, only the placement of that version is released (see `Place`), because the pod
    may have been placed again since, and its Binding to the same node may follow. None is any
    version.
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
    """Keep these shares of a node's cards for a preemptor of `victims`: `(namespace, key, uid)`.

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
    """End the claim of the pod."""

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
"""The root of an object that is charged on its own although it names a controller."""
