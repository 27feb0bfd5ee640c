"""State: the result of all events so far, and how changes of it are undone.

`evolver.evolve` alone changes the state. It does so in place, because a copy per event would cost
more than all other work together. The writer gives the state a `journal`, in which every change
first records its undo. So the writer can decide ahead of an acknowledgement and undo on a
conflict.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import msgspec

from ledger.core.model.amounts import Amounts
from ledger.core.model.cards import NodeCards, Placement, PreemptionClaim
from ledger.core.model.devices import Devices
from ledger.core.model.traits import Reach, Selection, Traits

ENDED_MAX: Final = 16_384
"""How many ended attempts and objects are kept, to recognise late and stale observations."""

NOT_THERE: Final = object()
"""In the journal: the mapping had no such key."""

POSTINGS: Final = object()
"""In the journal, as a key of `used`: the old value is the postings to subtract again."""


class Hold(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An open attempt `(uid, base)` and its reserved demand.

    `time` is that of the last request, in µs of Unix time; `raises` counts the requests after the
    first. `stamp` decides nothing: it comes from events of earlier versions, and is kept so that
    snapshots of their logs stay the same bytes.
    """

    uid: str
    base: int
    demand: Amounts
    time: int
    stamp: str
    owner: str
    actor: str
    raises: int = 0
    root: str = ""
    traits: Traits = ()


class Object(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A persisted object: its uid, its last seen resourceVersion and its demand.

    `time` is that of its last commit or observation, in µs of Unix time. `generation` is that of
    its spec, 0 when it does not matter. `admitted` is the reviewed part of a root's envelope, None
    when all of it was reviewed. Pods may not draw from the other part, although it is charged.
    `devices` are those that resource claims have given to the object. `bound` is what was charged
    for the object before it had devices, None while it has none. Of a root, `bound` is the envelope
    of its spec while the devices of its pods have lowered `demand` below it, else None.
    """

    uid: str
    version: int
    demand: Amounts
    time: int
    root: str = ""
    traits: Traits = ()
    generation: int = 0
    admitted: Amounts | None = None
    devices: Devices = ()
    bound: Amounts | None = None


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The object and the holds of one storage key.

    `charge` is the largest of committed and holds per resource, `traits` are those of all of them.
    `root` is the key of the root that is drawn from, empty when there is none.
    """

    committed: Object | None
    holds: tuple[Hold, ...]
    charge: Amounts
    root: str = ""
    traits: Traits = ()

    def bodies(self) -> "tuple[Object | Hold, ...]":
        """Return all possible objects of the key: the committed one, then the holds."""
        return self.holds if self.committed is None else (self.committed, *self.holds)

    def holds_uid(self, uid: str) -> bool:
        """Return whether the committed object or any hold of the key has this uid."""
        return any(body.uid == uid for body in self.bodies())

    def root_of(self, uid: str) -> str:
        """Return the root that is recorded for the object of this uid, empty when it has none."""
        return next((body.root for body in self.bodies() if body.uid == uid), "")


class Draw(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The sum of the charges of one root's pods, and the committed part of it.

    `saved` is by how much the bounds of those with devices are more than their charges.
    """

    charge: Amounts
    committed: Amounts
    saved: Amounts = {}


class Account(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An open account: the qualified namespaces it covers and its line numbers by quota key.

    With a `reach`, `covers` follows from the traits of namespaces and clusters. With `asked_only`
    it counts only the reviewed part of envelopes.
    """

    covers: tuple[str, ...]
    lines: dict[str, int]
    version: int = 0
    reach: Reach | None = None
    selects: Selection = ()
    asked_only: bool = False


class Ended(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The cause by which the charge of a uid ended, and the version, 0 when unknown."""

    cause: str
    version: int


class Plan(NamedTuple):
    """The lines that count all objects of a namespace: resources and line numbers, in one order.

    Two tuples take half the memory of pairs, because namespaces with equal resources share them.
    """

    resources: tuple[str, ...] = ()
    lines: tuple[int, ...] = ()

    def pairs(self) -> "zip[tuple[str, int]]":
        """Return `(resource, line number)` of each line."""
        return zip(self.resources, self.lines, strict=True)


SelectingPlan = tuple[tuple[str, int, Selection], ...]


class Namespace:
    """The keys of one qualified namespace, and indexes of accounts and keys.

    `entries` and `placed`, the placements of pods by key, are data. The others are indexes:
    `accounts` that cover the namespace, `plan` with the lines that count all objects here,
    `selected` with `(resource, line number, selection)` for lines that select, both in order of
    numbers, `asked_only` with the numbers of the lines that count only reviewed demand, `owners`
    with their numbers of open CREATE holds, `draws` and `members` with the sum and the keys of each
    root's pods. A new coverage makes a new value around the same mappings.
    """

    __slots__ = (
        "accounts",
        "asked_only",
        "draws",
        "entries",
        "members",
        "owners",
        "placed",
        "plan",
        "selected",
        "unread",
    )

    unread: "tuple[ReadNamespace, int]"

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.owners: dict[str, int] = {}
        self.accounts: tuple[str, ...] = ()
        self.plan = Plan()
        self.selected: SelectingPlan = ()
        self.asked_only: frozenset[int] = frozenset()
        self.draws: dict[str, Draw] = {}
        self.members: dict[str, dict[str, None]] = {}
        self.placed: dict[str, Placement] = {}

    def covered_by(
        self,
        accounts: tuple[str, ...],
        plan: Plan,
        selected: SelectingPlan,
        asked_only: frozenset[int],
    ) -> "Namespace":
        """Return this namespace as other accounts cover it."""
        covered = Namespace.__new__(Namespace)
        covered.entries, covered.owners = self.entries, self.owners
        covered.draws, covered.members = self.draws, self.members
        covered.placed = self.placed
        covered.accounts, covered.plan, covered.selected = accounts, plan, selected
        covered.asked_only = asked_only
        return covered


ReadNamespace = Callable[[Namespace, int], None]
"""Sets all mappings and indexes of a namespace from a row of a snapshot."""


class UnreadNamespace(Namespace):
    """A namespace of a snapshot that was not used yet; at its first use it becomes a `Namespace`.

    Any access to its data or indexes reads all of them. So no code sees a part of a namespace, and
    a namespace that was read costs no more than one that was folded. Only one thread may use it.
    """

    __slots__ = ()

    def __init__(self, read: ReadNamespace, row: int) -> None:
        """`read` must give the same result at any later time."""
        self.unread = read, row

    def __getattr__(self, name: str) -> Any:
        if name not in Namespace.__slots__:
            raise AttributeError(name)
        read, row = self.unread
        read(self, row)
        del self.unread
        self.__class__ = Namespace  # type: ignore[assignment]
        return getattr(self, name)


class State:
    """The whole shard at one position.

    Per line number: `used` and `limit` in the unit of the line's key, `names` as
    `(account, key)`. A closed line keeps its number, with used and limit 0. `described` has the
    traits of described clusters and qualified namespaces, and `described_at` the resourceVersions
    of the descriptions. `labels` numbers the keys of labels that accounts select by; under
    `traits.READ` it has the highest number that was ever given. `nodes` have cards, which are
    accounts that cover no namespace; `claims` are those of preemptors, by node. Indexes are
    `reaching`, the accounts that have a reach, `residents`, the `(namespace, key)` of the pods
    that are placed on each node, and `card_lines`, the line numbers of a card by node and uuid, in
    the order of `cards.LINES`. `schema` is that of the last record, 0 before the first: decisions
    leave out what it does not have.
    """

    __slots__ = (
        "accounts",
        "card_lines",
        "claims",
        "clusters",
        "described",
        "described_at",
        "ended",
        "ended_order",
        "hash",
        "journal",
        "labels",
        "limit",
        "names",
        "namespaces",
        "nodes",
        "position",
        "reaching",
        "residents",
        "schema",
        "time",
        "used",
    )

    def __init__(self) -> None:
        self.position = 0
        self.hash = bytes(32)
        self.schema = 0
        self.time = 0
        self.clusters: dict[str, str] = {}
        self.described: dict[str, str] = {}
        self.described_at: dict[str, int] = {}
        self.accounts: dict[str, Account] = {}
        self.labels: dict[str, int] = {}
        self.reaching: dict[str, None] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.nodes: dict[str, NodeCards] = {}
        self.card_lines: dict[tuple[str, str], tuple[int, int, int]] = {}
        self.residents: dict[str, dict[tuple[str, str], None]] = {}
        self.claims: dict[str, tuple[PreemptionClaim, ...]] = {}
        self.names: list[tuple[str, str]] = []
        self.used: list[int] = []
        self.limit: list[int] = []
        self.ended: dict[str, Ended] = {}
        self.ended_order: deque[str] = deque()
        self.journal: list[tuple[Any, Any, Any]] | None = None

    def entry(self, namespace: str, key: str) -> Entry | None:
        """Return the entry of a key of a qualified namespace, None when there is none."""
        space = self.namespaces.get(namespace)
        return space.entries.get(key) if space is not None else None

    def placement(self, namespace: str, key: str) -> Placement | None:
        """Return the placement of a pod by qualified namespace and key, None when there is none.

        The placement of a pod that gave its cards back has no node.
        """
        space = self.namespaces.get(namespace)
        return space.placed.get(key) if space is not None else None

    def cards_held(self, namespace: str, key: str, uid: str) -> Placement | None:
        """Return the placement of the pod of this uid, None while it has no cards."""
        placed = self.placement(namespace, key)
        return placed if placed is not None and placed.uid == uid and placed.node else None

    def seal(self, position: int, record_hash: bytes, time: int) -> None:
        """Mark the end of a record: its events are stored and can no longer be taken back."""
        self.position = position
        self.hash = record_hash
        self.time = time
        if self.journal:
            self.journal.clear()
        while len(self.ended_order) > ENDED_MAX:
            del self.ended[self.ended_order.popleft()]

    def undo(self, mark: int = 0) -> None:
        """Take back the changes noted in the journal after `mark`, the newest first."""
        journal = self.journal
        if journal is None:
            return
        while len(journal) > mark:
            container, key, old = journal.pop()
            if key is POSTINGS:
                take_back(container, old)
            elif old is NOT_THERE:
                del container[key]
            else:
                container[key] = old

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Take back, at the end of the block, every change that was made in it."""
        journal = self.journal
        if journal is None:
            self.journal = []
        mark = len(self.journal or ())
        try:
            yield
        finally:
            self.undo(mark)
            self.journal = journal


def put(state: State, container: dict[Any, Any], key: Any, value: Any) -> None:
    """Set a value of a mapping of the state."""
    if state.journal is not None:
        state.journal.append((container, key, container.get(key, NOT_THERE)))
    container[key] = value


def put_line(state: State, column: list[int], line: int, value: int) -> None:
    """Set the used amount or the limit of a line."""
    if state.journal is not None:
        state.journal.append((column, line, column[line]))
    column[line] = value


def drop(state: State, container: dict[Any, Any], key: Any) -> None:
    """Remove a key, if it is there, from a mapping of the state."""
    old = container.pop(key, NOT_THERE)
    if state.journal is not None and old is not NOT_THERE:
        state.journal.append((container, key, old))


def take_back(used: list[int], postings: list[int]) -> None:
    """Subtract postings `[line, delta, used after, …]` from the used amounts again."""
    for index in range(0, len(postings), 3):
        used[postings[index]] -= postings[index + 1]
