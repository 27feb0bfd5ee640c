"""Events as people and other programs read them: one flat shape for every kind of event."""

from collections.abc import Callable

import msgspec

from ledger.core import events
from ledger.core.amounts import Amounts
from ledger.core.evolution import Postings
from projections.tables.history import namespace_of


class Description(msgspec.Struct, frozen=True):
    """What every event can tell. `key` of an event about an account or cluster is its name.

    `amounts` are the demand, or the limits by quota key; `cause` is empty where there is none.
    """

    type: str
    cause: str
    cluster: str
    namespace: str
    key: str
    uid: str
    amounts: Amounts
    actor: str


class Posting(msgspec.Struct, frozen=True):
    """How an event changed the used amount of one line; `resource` is the key in the quota."""

    account: str
    resource: str
    delta: int
    used_after: int


def describe(event: events.AnyEvent) -> Description:
    """Describe an event."""
    cluster, _, namespace = namespace_of(event).partition("/")
    key, uid, cause, amounts = "", "", "", dict[str, int]()
    match event:
        case events.ClusterRegistered():
            cluster, key, uid = event.cluster, event.cluster, event.uid
        case events.LimitSet():
            key, amounts = event.account, {line.key: line.limit for line in event.lines}
        case events.AccountClosed():
            key = event.account
        case events.Released() | events.Observed():
            key, uid, cause = event.key, event.uid, str(event.cause)
            amounts = event.demand if isinstance(event, events.Observed) else {}
        case _:
            key, uid, amounts = event.key, event.uid, event.demand or {}
    kind = type(event).__name__
    return Description(kind, cause, cluster, namespace, key, uid, amounts, event.actor)


def postings(flat: Postings, name: Callable[[int], tuple[str, str]]) -> list[Posting]:
    """Unfold postings; `name` tells the account and the quota key of a line."""
    values = iter(flat)
    return [
        Posting(*name(line), delta, used)
        for line, delta, used in zip(values, values, values, strict=True)
    ]
