"""Events: the facts of the ledger, in the past tense. They are a closed union.

A new event needs a class here, its application in `evolver.py`, and golden logs.

On the wire an event is a MessagePack array whose first element is its name. Fields are only ever
appended, with a default, so that older logs keep their meaning.
"""

from enum import StrEnum
from typing import Final

import msgspec

from ledger.core.model.accounts import Line
from ledger.core.model.amounts import Amounts
from ledger.core.model.cards import Card, Parts
from ledger.core.model.devices import Devices
from ledger.core.model.traits import Reach, Selection, Traits


class Cause(StrEnum):
    """Why a charge ended, or why truth was charged without a hold."""

    SUPERSEDED = "superseded"
    """A later attempt of the same API request replaced this one. Only in logs of versions that
    joined attempts by a stamp: today a hold ends by proof alone."""
    FENCED = "fenced"
    """A newer version exists: an attempt on an older one can no longer be written."""
    ABSENT = "absent"
    """A linearizable read after the bound showed that the attempt was never written."""
    DELETED = "deleted"
    """The object was deleted."""
    FINISHED = "finished"
    """The object reached a terminal phase, or its grace period elapsed."""
    UNBOUND = "unbound"
    """A bind failed and the cards were given back."""
    OPERATOR = "operator"
    """An operator sent the command."""
    UNRESERVED = "unreserved"
    """Seen without a sufficient hold: the webhook was bypassed, or an account is newer."""
    LATE = "late"
    """Seen after its hold had been released; the object is charged again."""
    MOVED = "moved"
    """Its root or its labels changed, and other accounts count it now."""
    SEEN = "seen"
    """Another scheduler placed the pod."""
    ELAPSED = "elapsed"
    """A claim reached its longest duration."""
    PROTECTED = "protected"
    """A PodDisruptionBudget protects one of the preemptor's victims."""
    ALLOCATED = "allocated"
    """Resource claims gave the object devices that take more than was reserved."""
    UNALLOCATED = "unallocated"
    """An allocation of a resource claim ended or changed: up to what was reserved before it."""


GONE: Final = frozenset({Cause.DELETED, Cause.FINISHED})
"""Causes after which a uid never counts again."""


class Event(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """A fact of the ledger; `actor` is the user or component that caused it."""


class ClusterRegistered(Event, frozen=True, gc=False):
    """A cluster's name was bound to the uid of its `kube-system` namespace."""

    cluster: str
    uid: str
    actor: str = ""


class LimitSet(Event, frozen=True, gc=False):
    """An account's limits are now these lines, and it covers these qualified namespaces.

    With a `reach` it covers the namespaces that this selects, and `covers` is empty. It counts the
    objects that `selects` selects by their traits, all when `selects` is empty. `labels` are the
    keys of labels that no account has selected by before, with their new numbers. With `asked_only`
    only the reviewed part of an envelope counts; draws of pods count in full.
    """

    account: str
    covers: tuple[str, ...]
    lines: tuple[Line, ...]
    actor: str = ""
    version: int = 0
    reach: Reach | None = None
    selects: Selection = ()
    labels: tuple[tuple[str, int], ...] = ()
    asked_only: bool = False


class AccountClosed(Event, frozen=True, gc=False):
    """An account's limits no longer hold."""

    account: str
    actor: str = ""


class Described(Event, frozen=True, gc=False):
    """A cluster or a qualified namespace has these traits now; empty: it has no description."""

    subject: str
    traits: str
    actor: str = ""
    version: int = 0


class Reserved(Event, frozen=True, gc=False):
    """A hold was opened for the attempt `(uid, base)`.

    `forced` is set when the policy admitted it regardless of limits. `stamp` is written empty: it
    named the API request in logs of earlier versions.
    """

    namespace: str
    key: str
    uid: str
    base: int
    demand: Amounts
    stamp: str = ""
    owner: str = ""
    actor: str = ""
    root: str = ""
    traits: Traits = ()
    forced: bool = False


class Raised(Event, frozen=True, gc=False):
    """An UPDATE at the same base was requested again: the hold covers the larger body of both.

    Recorded also when the demand stays, because a proof about the earlier request does not cover
    this one.
    """

    namespace: str
    key: str
    uid: str
    base: int
    demand: Amounts
    actor: str = ""
    traits: Traits = ()
    forced: bool = False


class Committed(Event, frozen=True, gc=False):
    """The object was seen persisted; its hold `(uid, base)` ends (base -1: no hold ended).

    `demand` is that of the stored version, None when it equals the hold. A commit never raises a
    charge and changes neither root nor traits; an observation that changes them is `Observed`.
    `devices` are those that resource claims have given to the object.
    """

    namespace: str
    key: str
    uid: str
    version: int
    base: int = -1
    demand: Amounts | None = None
    actor: str = ""
    generation: int = 0
    devices: Devices = ()


class Observed(Event, frozen=True, gc=False):
    """A persisted object was seen without a sufficient hold: charged even over the limit.

    `devices` are as in `Committed`.
    """

    namespace: str
    key: str
    uid: str
    version: int
    demand: Amounts
    cause: str
    base: int = -1
    actor: str = ""
    root: str = ""
    traits: Traits = ()
    generation: int = 0
    devices: Devices = ()


class Released(Event, frozen=True, gc=False):
    """A charge ended: the hold `(uid, base)`, or with base -1 the committed object."""

    namespace: str
    key: str
    uid: str
    base: int
    cause: str
    version: int = 0
    actor: str = ""


class CardsRegistered(Event, frozen=True, gc=False):
    """A node, `<cluster>/<node>`, announces these cards now; `keeper` allocates them.

    `lines` are the numbers of each card's lines, in the order of `cards.LINES`. Earlier cards that
    pods still hold are not promised to any other pod.
    """

    node: str
    keeper: str
    cards: tuple[Card, ...]
    lines: tuple[tuple[int, int, int], ...]
    actor: str = ""
    version: int = 0


class NodeRemoved(Event, frozen=True, gc=False):
    """A node is gone with its cards; pods that hold them stay charged."""

    node: str
    actor: str = ""
    version: int = 0


class Placed(Event, frozen=True, gc=False):
    """A pod got these shares of a node's cards.

    `stands` are the amounts, by resource, that the cards decide: the pod is charged them instead of
    those of its spec. The cause is empty when the limits were kept, `seen` when another scheduler
    placed the pod and the placement is charged in any case. `version` is the only resourceVersion
    of the pod for which a Binding to these cards is sent, 0 when that is not promised.
    """

    namespace: str
    key: str
    uid: str
    node: str
    parts: Parts
    stands: Amounts
    cause: str = ""
    actor: str = ""
    version: int = 0


class Advanced(Event, frozen=True, gc=False):
    """A placement came to a later `stage`; `initialised` when the init containers have ended.

    `stands` are as in `Placed`, and never more than they were.
    """

    namespace: str
    key: str
    uid: str
    stage: int
    initialised: bool
    stands: Amounts
    actor: str = ""


class Unplaced(Event, frozen=True, gc=False):
    """A pod gave its cards back and still exists. The amounts that the cards decided stay."""

    namespace: str
    key: str
    uid: str
    cause: str
    actor: str = ""


class Resized(Event, frozen=True, gc=False):
    """A pod has these shares of the same cards now; `stands` are as in `Placed`."""

    namespace: str
    key: str
    uid: str
    parts: Parts
    stands: Amounts
    actor: str = ""


class Claimed(Event, frozen=True, gc=False):
    """These shares of a node's cards are kept for a pod, while `victims` are evicted for it."""

    namespace: str
    key: str
    uid: str
    node: str
    parts: Parts
    victims: tuple[tuple[str, str, str], ...]
    actor: str = ""


class Withdrawn(Event, frozen=True, gc=False):
    """The claim of the pod ended."""

    namespace: str
    key: str
    uid: str
    cause: str
    actor: str = ""


AnyEvent = (
    ClusterRegistered
    | LimitSet
    | AccountClosed
    | Reserved
    | Raised
    | Committed
    | Observed
    | Released
    | Described
    | CardsRegistered
    | NodeRemoved
    | Placed
    | Advanced
    | Unplaced
    | Resized
    | Claimed
    | Withdrawn
)

OBJECT = -1
"""As the base of a `Released`: the committed object, not a hold."""

NO_HOLD = -1
"""As the base of a `Committed` or `Observed`: no hold ended in it."""
