"""Snapshot format: the state at a position as bytes, the same bytes for the same state.

A snapshot holds what cannot be derived: positions, accounts, lines, known namespaces with their
keys, objects and holds, nodes, placements and claims, and the ended uids. Charges and indexes are
computed when it is read. A snapshot contains its own hash. A damaged one is refused, and an older
one, or the whole log, takes its place.
"""

import hashlib
from collections import deque
from typing import Final

import msgspec

from ledger.core.evolve.announced_and_lost_cards import account_of
from ledger.core.evolve.envelope_charges import NOTHING, drawn_from, entry_of
from ledger.core.evolve.quota_coverage import plans
from ledger.core.model.amounts import plus
from ledger.core.model.cards import CORES, MEMORY, SLOTS, NodeCards, Placement, PreemptionClaim
from ledger.core.model.state import Account, Draw, Ended, Entry, Hold, Namespace, Object, State

SCHEMA: Final = 3


class InvalidSnapshot(Exception):
    """The snapshot is damaged or of another schema; use an older one or replay the log."""


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


_ACCOUNT: Final = ("covers", "lines", "version", "reach", "selects")
"""The stored fields of an account. Accounts with `asked_only` are listed separately, and only if
there are any, so that the snapshot of a state without them keeps its bytes."""

_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")
_envelopes: Final = msgspec.msgpack.Decoder(tuple[int, bytes, bytes])
_images: Final = msgspec.msgpack.Decoder(_Image)


def encode(state: State) -> bytes:
    """Encode a state at the end of a record."""
    assert not state.journal, "a state with events that may be taken back cannot be stored"
    image: tuple[object, ...] = (
        state.position,
        state.hash,
        state.time,
        state.clusters,
        {name: _kept(account) for name, account in state.accounts.items()},
        state.names,
        state.used,
        state.limit,
        {
            name: {key: _Kept(entry.committed, entry.holds) for key, entry in space.entries.items()}
            for name, space in state.namespaces.items()
        },
        [(uid, state.ended[uid]) for uid in state.ended_order],
        state.described,
        state.described_at,
        state.nodes,
        {
            name: {key: _placement(placement) for key, placement in space.placed.items()}
            for name, space in state.namespaces.items()
            if space.placed
        },
        state.claims,
    )
    # Empty parts are left out, so that the snapshot of a state without them keeps its bytes.
    asked_only = sorted(name for name, account in state.accounts.items() if account.asked_only)
    if asked_only:
        image = (*image, state.labels, asked_only)
    elif state.labels:
        image = (*image, state.labels)
    body = _encoder.encode(image)
    return _encoder.encode((SCHEMA, hashlib.sha256(body).digest(), body))


def _kept(account: Account) -> tuple[object, ...]:
    return tuple(getattr(account, field) for field in _ACCOUNT)


def _placement(placed: Placement) -> object:
    """Return the stored form of a placement; without a version it is the older form."""
    return placed if placed.version else msgspec.structs.astuple(placed)[:-1]


def decode(payload: bytes) -> State:
    """Decode a state. Raises InvalidSnapshot."""
    try:
        schema, digest, body = _envelopes.decode(payload)
        if schema != SCHEMA:
            raise InvalidSnapshot(f"the snapshot has schema {schema}, this version reads {SCHEMA}")
        if hashlib.sha256(body).digest() != digest:
            raise InvalidSnapshot("the snapshot does not match its own hash")
        return _restore(_images.decode(body))
    except msgspec.MsgspecError as error:
        raise InvalidSnapshot(f"the snapshot does not decode: {error}") from error


def _restore(image: _Image) -> State:
    state = State()
    state.position, state.hash, state.time = image.position, image.hash, image.time
    state.clusters, state.accounts = image.clusters, image.accounts
    state.labels = image.labels
    for name in image.asked_only:
        state.accounts[name] = msgspec.structs.replace(state.accounts[name], asked_only=True)
    state.names, state.used, state.limit = image.names, image.used, image.limit
    state.described, state.described_at = image.described, image.described_at
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
    _place(state, image)
    return state


def _place(state: State, image: _Image) -> None:
    """Restore nodes and placements, and index cards and pods by node."""
    state.nodes, state.claims = image.nodes, image.claims
    for name, node in image.nodes.items():
        for card in (*node.cards, *node.lost):
            numbers = image.accounts[account_of(name, card.uuid)].lines
            state.card_lines[name, card.uuid] = numbers[MEMORY], numbers[CORES], numbers[SLOTS]
    state.residents = {name: {} for name in image.nodes}
    for name, placed in image.placed.items():
        state.namespaces[name].placed = placed
        for key, placement in placed.items():
            if placement.node:
                state.residents[placement.node][name, key] = None


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
    entries, owners = space.entries, space.owners
    for key, kept in keys.items():
        entry = entries[key] = entry_of(kept.committed, kept.holds)
        if entry.root:
            _draw(space, key, entry)
        for hold in kept.holds:
            if hold.base == 0 and hold.owner:
                owners[hold.owner] = owners.get(hold.owner, 0) + 1


def _draw(space: Namespace, key: str, entry: Entry) -> None:
    """Add a pod to the draw of its root."""
    root = drawn_from(entry)
    if not root:
        return
    before = space.draws.get(root, Draw(NOTHING, NOTHING))
    committed = entry.committed.demand if entry.committed is not None else NOTHING
    space.draws[root] = Draw(plus(before.charge, entry.charge), plus(before.committed, committed))
    space.members.setdefault(root, {})[key] = None
