"""Record changes: the values before and after each record, from which the tables take their rows.

Tables have positions of records and no places inside a record. So a change has the state of every
touched key, unit and account before the whole record and after it.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from ledger.core.evolve import envelope_charges
from ledger.core.evolve.announced_and_lost_cards import account_of
from ledger.core.evolve.envelope_charges import ChargeTerm
from ledger.core.model import events
from ledger.core.model.amounts import Amounts
from ledger.core.model.cards import Card, NodeCards, Placement
from ledger.core.model.commands import BARRED
from ledger.core.model.state import Account, Entry, Namespace, State
from ledger.log import records
from ledger.log.records import Record

QualifiedKey = tuple[str, str]
"""A key in its qualified namespace: `(namespace, key)`."""
Terms = tuple[ChargeTerm, ...]
"""The demand that a unit is charged for, with the traits that lines select by."""

KEYED: Final = (
    events.Reserved,
    events.Committed,
    events.Released,
    events.Observed,
    events.Raised,
)
"""The events that concern one key, the most frequent first."""

PLACING: Final = (
    events.Placed,
    events.Advanced,
    events.Unplaced,
    events.Resized,
    events.Claimed,
    events.Withdrawn,
)
"""The events that concern the cards of one pod."""

_STATING: Final = (events.Placed, events.Advanced, events.Resized)
"""The events that state a pod's demand, which replaces that of its spec."""

KeyedEvent = (
    events.Reserved
    | events.Committed
    | events.Released
    | events.Observed
    | events.Raised
    | events.Placed
    | events.Advanced
    | events.Resized
)

_OWN: Final = ("", BARRED)
"""The roots of entries that draw from no envelope."""


class RootDraw(msgspec.Struct, frozen=True, gc=False):
    """The draw of the `pods` pods that name a root; `live`: the root has an entry.

    While it has one, both are charged as one unit.
    """

    charge: Amounts
    committed: Amounts
    pods: int
    live: bool


class RecordChange(msgspec.Struct, frozen=True, gc=False):
    """The changes of one record. `state` is the state after it, until the next one is folded.

    `keys`, `units`, `draws`, `accounts`, `nodes` and `placed` have the values before it: the entry
    of a key, the committed demand of the unit of a root that pods draw from, the draws of the pods
    that name it, and the placement of the pod at a key. `causes` has the causes of releases by the
    part that they end, `(namespace, key, uid, base)`; `lines` is the number of lines that were
    known before.
    """

    record: Record
    hash: bytes
    payload: bytes
    state: State
    keys: dict[QualifiedKey, Entry | None]
    units: dict[QualifiedKey, Terms]
    draws: dict[QualifiedKey, RootDraw | None]
    accounts: dict[str, Account | None]
    nodes: dict[str, NodeCards | None]
    placed: dict[QualifiedKey, Placement | None]
    causes: dict[tuple[str, str, str, int], str]
    lines: int


def fold_record(state: State, position: int, payload: bytes) -> RecordChange:
    """Fold the record stored at a position and return its changes.

    Verifies what `ledger.log.records.fold` verifies. Raises Lost and NewerSchema.
    """
    record, digest = records.check(state, position, payload)
    change = RecordChange(
        record, digest, payload, state, {}, {}, {}, {}, {}, {}, {}, len(state.names)
    )
    reaching = _before(change)
    records.apply(state, record, position)
    for name, account in reaching.items():
        if state.accounts.get(name) is not account:
            change.accounts.setdefault(name, account)
    state.seal(position, digest, record.time)
    return change


def committed_at(space: Namespace, key: str) -> Terms:
    """Return the committed demand that the unit at a key is charged for now."""
    entry = space.entries.get(key)
    if key in space.draws:
        return tuple(envelope_charges.committed_terms(space, key))
    return own_committed(entry)


def own_committed(entry: Entry | None) -> Terms:
    """Return the committed demand that a unit is charged for which is this entry alone."""
    if entry is None or entry.committed is None or entry.root not in _OWN:
        return ()
    return (ChargeTerm(entry.traits, entry.committed.demand, entry.committed.admitted),)


def draw_at(space: Namespace, root: str) -> RootDraw | None:
    """Return the present draw of the pods that name a root, None when there are none."""
    draw = space.draws.get(root)
    if draw is None:
        return None
    return RootDraw(draw.charge, draw.committed, len(space.members[root]), root in space.entries)


def _before(change: RecordChange) -> dict[str, Account]:
    """Collect all values that the record's events will change.

    Returns the accounts whose covered namespaces may change although no event names them.
    """
    reaching: dict[str, Account] = {}
    selecting = change.state.reaching
    for item in change.record.items:
        event = item.event
        note = _NOTES.get(type(event))
        if note is not None:
            note(change, event)
        if selecting and not reaching and _moves_coverage(change.state, event):
            known = change.state.accounts
            reaching = {name: known[name] for name in selecting}
    if change.draws:
        _note_envelopes(change)
    return reaching


def _note_limits(change: RecordChange, event: events.LimitSet) -> None:
    """Collect an account, and the accounts that select by labels that the record numbers."""
    _note_account(change, event)
    new = dict(event.labels)
    for name, account in change.state.accounts.items() if new else ():
        if any(condition.key in new for condition in account.selects):
            change.accounts.setdefault(name, account)


def _note_account(change: RecordChange, event: events.LimitSet | events.AccountClosed) -> None:
    change.accounts.setdefault(event.account, change.state.accounts.get(event.account))


def _note_key(change: RecordChange, event: KeyedEvent) -> None:
    """Collect the key, and every root that it draws from before the event."""
    namespace, key = place = (event.namespace, event.key)
    if place in change.keys:
        return
    space = change.state.namespaces.get(namespace)
    if space is None:
        change.keys[place] = None
        return
    entry = change.keys[place] = space.entries.get(key)
    if key in space.draws:
        _note_root(change, space, place)
    if entry is not None:
        for body in entry.bodies():
            # Each may become the root of the entry when others end.
            if body.root not in _OWN:
                _note_root(change, space, (namespace, body.root))


def _note_drawing(change: RecordChange, event: events.Reserved | events.Observed) -> None:
    """Collect the key, and every root that it draws from before or after the event."""
    _note_key(change, event)
    if event.root not in _OWN:
        space = change.state.namespaces.get(event.namespace)
        _note_root(change, space, (event.namespace, event.root))


def _note_release(change: RecordChange, event: events.Released) -> None:
    """Collect the key, the cause, and the placement that ends with the pod."""
    _note_key(change, event)
    change.causes[(event.namespace, event.key, event.uid, event.base)] = event.cause
    _note_placement(change, event.namespace, event.key)


def _note_placing(change: RecordChange, event: events.AnyEvent) -> None:
    """Collect the values that an event about the cards of a pod changes."""
    if isinstance(event, _STATING) and event.stands:
        _note_key(change, event)
    if isinstance(event, events.Placed):
        _note_placement(change, event.namespace, event.key, event.node)
    elif isinstance(event, events.Advanced | events.Unplaced | events.Resized):
        _note_placement(change, event.namespace, event.key)


def _note_placement(change: RecordChange, namespace: str, key: str, node: str = "") -> None:
    """Collect the placement of the pod at a key, and its node before or after the event."""
    known = change.state.placement(namespace, key)
    if known is not None or node:
        change.placed.setdefault((namespace, key), known)
        for name in (known.node if known is not None else "", node):
            _note_node(change, name)


def _note_node(change: RecordChange, name: str) -> None:
    """Collect a node whose lost cards are removed when no pod holds them."""
    node = change.state.nodes.get(name)
    if node is not None and (node.lost or node.gone):
        change.nodes.setdefault(name, node)
        _note_cards(change, name, node.lost)


def _note_announcement(
    change: RecordChange, event: events.CardsRegistered | events.NodeRemoved
) -> None:
    """Collect a node, and the accounts of its cards before and after the event."""
    node = change.state.nodes.get(event.node)
    change.nodes.setdefault(event.node, node)
    if node is not None:
        _note_cards(change, event.node, (*node.cards, *node.lost))
    if isinstance(event, events.CardsRegistered):
        _note_cards(change, event.node, event.cards)


def _note_cards(change: RecordChange, node: str, cards: tuple[Card, ...]) -> None:
    for card in cards:
        name = account_of(node, card.uuid)
        change.accounts.setdefault(name, change.state.accounts.get(name))


def _note_envelopes(change: RecordChange) -> None:
    """Collect the entries of roots whose envelopes change with their pods.

    The demand of placed pods, and pods that move to another root, lower an envelope.
    """
    for namespace, key in change.draws:
        space = change.state.namespaces.get(namespace)
        if space is not None and key in space.entries:
            change.keys.setdefault((namespace, key), space.entries[key])


def _note_root(change: RecordChange, space: Namespace | None, place: QualifiedKey) -> None:
    """Collect a root and its draws."""
    if place not in change.draws:
        change.draws[place] = None if space is None else draw_at(space, place[1])
        change.units.setdefault(place, () if space is None else committed_at(space, place[1]))


def _moves_coverage(state: State, event: events.AnyEvent) -> bool:
    """Return whether accounts that select namespaces may cover others after an event."""
    if isinstance(event, KEYED):
        return event.namespace not in state.namespaces
    if isinstance(event, events.LimitSet):
        return any(name not in state.namespaces for name in event.covers)
    return isinstance(event, events.Described)


_NOTES: Final[dict[type[events.AnyEvent], Callable[[RecordChange, Any], None]]] = {
    events.Reserved: _note_drawing,
    events.Committed: _note_key,
    events.Released: _note_release,
    events.Observed: _note_drawing,
    events.Raised: _note_key,
    **dict.fromkeys(PLACING, _note_placing),
    events.CardsRegistered: _note_announcement,
    events.NodeRemoved: _note_announcement,
    events.LimitSet: _note_limits,
    events.AccountClosed: _note_account,
}
