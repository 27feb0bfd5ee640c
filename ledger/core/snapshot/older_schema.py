"""Older schema: reads snapshots of schema 3, which earlier versions wrote.

They list all fields of each key. The first start of this version reads such a snapshot, and so
need not replay the whole log.
"""

from collections import deque
from typing import Final

import msgspec

from ledger.core.evolve.envelope_charges import entry_of
from ledger.core.evolve.quota_coverage import plans
from ledger.core.model.cards import NodeCards, Placement, PreemptionClaim
from ledger.core.model.state import Account, Ended, Hold, Namespace, Object, State
from ledger.core.snapshot.rebuilt_indexes import add_draw, index_cards, open_creations

SCHEMA: Final = 3


class _Kept(msgspec.Struct, frozen=True, array_like=True, gc=False):
    committed: Object | None
    holds: tuple[Hold, ...]


class _Image(msgspec.Struct, frozen=True, array_like=True):
    position: int
    hash: bytes
    time: int
    clusters: dict[str, str]
    accounts: dict[str, Account]
    names: list[tuple[str, str]]
    used: list[int]
    limit: list[int]
    namespaces: dict[str, dict[str, _Kept]]
    ended: list[tuple[str, Ended]]
    described: dict[str, str]
    described_at: dict[str, int]
    nodes: dict[str, NodeCards]
    placed: dict[str, dict[str, Placement]]
    claims: dict[str, tuple[PreemptionClaim, ...]]
    labels: dict[str, int] = {}
    asked_only: list[str] = []


_images: Final = msgspec.msgpack.Decoder(_Image)


def decode(body: bytes | memoryview) -> State:
    """Decode a state. Raises msgspec.MsgspecError, LookupError."""
    image = _images.decode(body)
    state = State()
    state.position, state.hash, state.time = image.position, image.hash, image.time
    state.clusters, state.accounts = image.clusters, image.accounts
    state.labels = image.labels
    for name in image.asked_only:
        state.accounts[name] = msgspec.structs.replace(state.accounts[name], asked_only=True)
    state.names, state.used, state.limit = image.names, image.used, image.limit
    state.described, state.described_at = image.described, image.described_at
    state.claims = image.claims
    state.ended = dict(image.ended)
    state.ended_order = deque(uid for uid, _ in image.ended)
    state.reaching = {
        name: None for name, account in image.accounts.items() if account.reach is not None
    }
    state.namespaces = _covered_namespaces(image.accounts, image.labels)
    for name, keys in image.namespaces.items():
        space = state.namespaces.get(name)
        if space is None:
            space = state.namespaces[name] = Namespace()
        _fill(space, keys)
    index_cards(state, image.nodes, image.placed)
    for name, placed in image.placed.items():
        state.namespaces[name].placed = placed
    return state


def _covered_namespaces(
    open_accounts: dict[str, Account], labels: dict[str, int]
) -> dict[str, Namespace]:
    """Return an empty namespace for every covered one, with its accounts and plan."""
    covering: dict[str, list[str]] = {}
    for account in sorted(open_accounts):
        for name in open_accounts[account].covers:
            covering.setdefault(name, []).append(account)
    namespaces = {}
    for name, names in covering.items():
        space = namespaces[name] = Namespace()
        space.accounts = tuple(names)
        space.plan, space.selected, space.asked_only = plans(open_accounts, names, labels)
    return namespaces


def _fill(space: Namespace, keys: dict[str, _Kept]) -> None:
    """Put the kept keys into a namespace and index their open CREATE holds."""
    space.owners = open_creations(hold for kept in keys.values() for hold in kept.holds)
    for key, kept in keys.items():
        entry = space.entries[key] = entry_of(kept.committed, kept.holds)
        if entry.root:
            add_draw(space.draws, space.members, key, entry)
