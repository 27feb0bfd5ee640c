"""State: what the fold of all events so far amounts to.

State is changed in place, by `evolution.evolve` alone, because a copy per event would cost more
than everything else together. To decide ahead of an acknowledgement and take it back on a
conflict, the writer gives the state a `journal`: every change then first notes how to undo it.
"""

from collections import deque
from typing import Any, Final

import msgspec

from ledger.core.amounts import Amounts
from ledger.core.traits import Reach, Selection, Traits

ENDED_MAX: Final = 16_384
"""How many ended attempts and objects are remembered, to know late truth and stale news."""

NOT_THERE: Final = object()
"""In the journal: the mapping had no such key."""

POSTINGS: Final = object()
"""In the journal, as a key of `used`: the old value is the postings to subtract again."""


class Hold(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An open attempt `(uid, base)` and what it reserves.

    `time` is when it was asked for last, in µs of Unix time; `raises` how often after the first.
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
    """A persisted object: its uid, the resourceVersion seen last, what it demands, since when.

    `generation` is that of its spec, 0 when it does not matter.
    """

    uid: str
    version: int
    demand: Amounts
    time: int
    root: str = ""
    traits: Traits = ()
    generation: int = 0


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one storage key holds. `charge` is the largest of committed and holds per resource."""

    committed: Object | None
    holds: tuple[Hold, ...]
    charge: Amounts


class Account(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An open account: the qualified namespaces it covers and its line numbers by quota key."""

    covers: tuple[str, ...]
    lines: dict[str, int]


class Ended(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How the charge of a uid ended, and at which version if that is known."""

    cause: str
    version: int


class Namespace:
    """The keys of one qualified namespace, and what follows from accounts and keys.

    `entries` is the truth; the others are indexes: `accounts` that cover the namespace, `plan`
    with `(resource, line number)` for every line that charges here in order of numbers, `stamps`
    and `owners` of open CREATE holds. A new coverage makes a new value around the same mappings.
    """

    __slots__ = ("accounts", "entries", "owners", "plan", "stamps")

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.stamps: dict[str, tuple[str, str]] = {}
        self.owners: dict[str, int] = {}
        self.accounts: tuple[str, ...] = ()
        self.plan: tuple[tuple[str, int], ...] = ()

    def covered_by(
        self, accounts: tuple[str, ...], plan: tuple[tuple[str, int], ...]
    ) -> "Namespace":
        """Return this namespace as other accounts cover it."""
        covered = Namespace()
        covered.entries, covered.stamps, covered.owners = self.entries, self.stamps, self.owners
        covered.accounts, covered.plan = accounts, plan
        return covered


class State:
    """The whole shard at one position.

    Per line number: `used` and `limit` in the unit of the line's key, `names` as
    `(account, key)`. A closed line keeps its number, with used and limit 0.
    """

    __slots__ = (
        "accounts",
        "clusters",
        "ended",
        "ended_order",
        "hash",
        "journal",
        "limit",
        "names",
        "namespaces",
        "position",
        "time",
        "used",
    )

    def __init__(self) -> None:
        self.position = 0
        self.hash = bytes(32)
        self.time = 0
        self.clusters: dict[str, str] = {}
        self.accounts: dict[str, Account] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.names: list[tuple[str, str]] = []
        self.used: list[int] = []
        self.limit: list[int] = []
        self.ended: dict[str, Ended] = {}
        self.ended_order: deque[str] = deque()
        self.journal: list[tuple[Any, Any, Any]] | None = None

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


def take_back(used: list[int], postings: list[int]) -> None:
    """Subtract postings `[line, delta, used after, …]` from the used amounts again."""
    for index in range(0, len(postings), 3):
        used[postings[index]] -= postings[index + 1]
