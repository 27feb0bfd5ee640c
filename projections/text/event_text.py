"""Events as people and other programs read them: one flat shape for every kind of event."""

from collections.abc import Callable
from typing import Final

import msgspec

from ledger.core.evolve.evolver import Postings
from ledger.core.model import events
from ledger.core.model.amounts import Amounts
from ledger.core.model.commands import BARRED
from ledger.core.model.qualified_names import cluster_of, split_qualified
from ledger.core.model.traits import Traits
from projections.tables.event_tables import namespace_of
from projections.text.card_text import cards_in_words
from projections.text.device_text import devices_in_words
from projections.text.selector_text import account_in_words, text_in_words


class Description(msgspec.Struct, frozen=True):
    """One flat shape for all events. `key` of an event about an account or cluster is its name.

    `amounts` are the demand, the limits by quota key, or what cards decided that a pod is charged;
    `cause` is empty where there is none. `root` is the key of the root that the object draws from,
    `traits` are what quotas select it by, and `note` is a text about the envelope that it draws
    from, which cards or devices it has, and what the other fields do not.
    """

    type: str
    cause: str
    cluster: str
    namespace: str
    key: str
    uid: str
    amounts: Amounts
    actor: str
    root: str
    traits: Traits
    note: str


class Posting(msgspec.Struct, frozen=True):
    """How an event changed the used amount of one line; `resource` is the key in the quota."""

    account: str
    resource: str
    delta: int
    used_after: int


def describe(event: events.AnyEvent) -> Description:
    """Describe an event."""
    cluster, namespace = split_qualified(namespace_of(event))
    key, uid, cause, amounts = "", "", "", dict[str, int]()
    match event:
        case events.ClusterRegistered():
            cluster, key, uid = event.cluster, event.cluster, event.uid
        case events.LimitSet():
            key, amounts = event.account, {line.key: line.limit for line in event.lines}
        case events.AccountClosed():
            key = event.account
        case events.Described():
            cluster, key = cluster_of(event.subject), event.subject
        case events.CardsRegistered() | events.NodeRemoved():
            cluster, key = cluster_of(event.node), event.node
        case _:
            key, uid, cause, amounts = event.key, event.uid, _cause(event), _amounts(event)
    columns = (type(event).__name__, cause, cluster, namespace, key, uid, amounts, event.actor)
    return Description(*columns, *_root_and_traits(event), _note(event))


def _cause(event: events.AnyEvent) -> str:
    match event:
        case events.Released() | events.Observed():
            return str(event.cause)
        case events.Placed() | events.Unplaced() | events.Withdrawn():
            return str(event.cause)
    return ""


def _amounts(event: events.AnyEvent) -> Amounts:
    match event:
        case events.Reserved() | events.Raised() | events.Committed() | events.Observed():
            return event.demand or {}
        case events.Placed() | events.Advanced() | events.Resized():
            return event.stands
    return {}


def _root_and_traits(event: events.AnyEvent) -> tuple[str, Traits]:
    match event:
        case events.Reserved() | events.Observed():
            return "" if event.root == BARRED else event.root, event.traits
        case events.Raised():
            return "", event.traits
        case events.Described():
            return "", (event.traits,) if event.traits else ()
    return "", ()


def _note(event: events.AnyEvent) -> str:
    match event:
        case events.LimitSet():
            return account_in_words(event.reach, event.selects)
        case events.Described():
            return f"is {text_in_words(event.traits) or 'gone'}"
        case events.Reserved() | events.Raised():
            root = "" if isinstance(event, events.Raised) else _drawing(event.root)
            return "; ".join(filter(None, (root, _FORCED if event.forced else "")))
        case events.Observed():
            return "; ".join(filter(None, (_drawing(event.root), devices_in_words(event.devices))))
        case events.Committed():
            return devices_in_words(event.devices)
    return cards_in_words(event)


def _drawing(root: str) -> str:
    if root == BARRED:
        return "may not draw from the controller it names, is charged on its own"
    return f"draws from {root}" if root else ""


_FORCED: Final = "not refused, by policy"


def postings(flat: Postings, name: Callable[[int], tuple[str, str]]) -> list[Posting]:
    """Unfold postings; `name` returns the account and the quota key of a line."""
    values = iter(flat)
    return [
        Posting(*name(line), delta, used)
        for line, delta, used in zip(values, values, values, strict=True)
    ]
