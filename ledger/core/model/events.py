"""Events: what has happened, in the past tense. A closed union; adding one touches this file,
`evolver.py` and the golden logs.

On the wire an event is a MessagePack array whose first element is its name. Fields are only ever
appended, with a default, so that older logs keep their meaning.
"""

from enum import StrEnum
from typing import Final

import msgspec

from ledger.core.model.accounts import Line
from ledger.core.model.amounts import Amounts
from ledger.core.model.cards import Card, Parts
from ledger.core.model.traits import Reach, Selection, Traits


class Cause(StrEnum):
    """Why a charge ended, or why truth was charged without a hold."""

    SUPERSEDED = "superseded"
    """A later attempt of the same API request took this one's place. Only in logs of versions
    that joined attempts by a stamp: today a hold ends by proof alone."""
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
    """A person said so."""
    UNRESERVED = "unreserved"
    """Seen without a sufficient hold: the webhook was bypassed, or an account is newer."""
    LATE = "late"
    """Seen after its hold had been released: late truth wins."""
    MOVED = "moved"
    """Its root or its labels changed, and other accounts count it now."""
    SEEN = "seen"
    """Somebody else placed the pod."""
    ELAPSED = "elapsed"
    """What was kept for a pod was kept for long enough."""
    PROTECTED = "protected"
    """A PodDisruptionBudget protects one of those who were to leave for the pod."""


GONE: Final = frozenset({Cause.DELETED, Cause.FINISHED})
"""Causes after which a uid never counts again."""


class Event(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """A fact of the ledger; `actor` is who or what made it happen."""


class ClusterRegistered(Event, frozen=True, gc=False):
    """A cluster's name was bound to the uid of its `kube-system` namespace."""

    cluster: str
    uid: str
    actor: str = ""


class LimitSet(Event, frozen=True, gc=False):
    """An account's limits are now these lines, and it covers these qualified namespaces.

    With a `reach` it covers what that selects, and `covers` is empty. Of what it covers it counts
    the objects that `selects` selects by their traits, all of them when that is empty. `labels` are
    the keys of labels that no account has selected by before, with the numbers that they get. With
    `asked_only` an envelope counts as far as it was asked for, and not for what it became without
    review; what pods take counts in full.
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
    """The traits of a cluster or of a qualified namespace are these now; empty: it is forgotten."""

    subject: str
    traits: str
    actor: str = ""
    version: int = 0


class Reserved(Event, frozen=True, gc=False):
    """A hold was opened for the attempt `(uid, base)`.

    `forced` says that policy let it pass whatever the limits say. `stamp` is written empty: it
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
    """An UPDATE at the same base was asked for again: the hold covers the larger body of both.

    Recorded also when the demand stays, because a proof about the earlier request says nothing
    about this one.
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
    """The object was seen persisted; the hold `(uid, base)` ends in it (base -1: no hold did).

    `demand` is what the stored version demands, None when it is exactly what was held.
    A commit never raises a charge and leaves root and traits what they were; an observation that
    changes them is `Observed`.
    """

    namespace: str
    key: str
    uid: str
    version: int
    base: int = -1
    demand: Amounts | None = None
    actor: str = ""
    generation: int = 0


class Observed(Event, frozen=True, gc=False):
    """Truth seen without a sufficient hold: charged all the same, over the limit if need be."""

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
    """A node, `<cluster>/<node>`, announces these cards now; `keeper` is who hands them out.

    `lines` are the numbers of each card's lines, in the order of `cards.LINES`. Cards that it had
    before and that pods still hold can be promised to nobody any more.
    """

    node: str
    keeper: str
    cards: tuple[Card, ...]
    lines: tuple[tuple[int, int, int], ...]
    actor: str = ""
    version: int = 0


class NodeRemoved(Event, frozen=True, gc=False):
    """A node is gone, and its cards with it; what pods hold of them stays charged."""

    node: str
    actor: str = ""
    version: int = 0


class Placed(Event, frozen=True, gc=False):
    """A pod got these shares of a node's cards.

    `stands` are the amounts, by resource, that are known only with the cards: the pod is charged
    them in the place of what its spec says. The cause is empty when the limits were kept, `seen`
    when somebody else placed the pod and the truth is charged. `version` is the only
    resourceVersion of the pod for which a Binding to these cards is sent, 0 when that is not
    promised.
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
    """A placement came to a later `stage`; `initialised` says that init containers are over.

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
    """A pod gave its cards back and exists on. What stood above its spec still does."""

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
    """Nothing is kept for the pod any more."""

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
