"""Snapshots: the state at a position as bytes, the same bytes for the same state.

A snapshot holds what cannot be derived: positions, accounts, lines, keys with their objects and
holds, and the memory of what ended. Charges and indexes are worked out again when it is read. It
carries its own hash and is disposable: a wrong one is refused and an older one, or the whole log,
takes its place.
"""

import hashlib
from collections import deque
from operator import itemgetter
from typing import Final

import msgspec

from ledger.core import accounts
from ledger.core.evolution import charge_of
from ledger.core.state import Account, Ended, Entry, Hold, Namespace, Object, State

SCHEMA: Final = 1


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


_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")
_envelopes: Final = msgspec.msgpack.Decoder(tuple[int, bytes, bytes])
_images: Final = msgspec.msgpack.Decoder(_Image)


def encode(state: State) -> bytes:
    """Encode a state at the end of a record."""
    assert not state.journal, "a state with events that may be taken back is nobody's truth"
    image = _Image(
        state.position,
        state.hash,
        state.time,
        state.clusters,
        state.accounts,
        state.names,
        state.used,
        state.limit,
        {
            name: {key: _Kept(entry.committed, entry.holds) for key, entry in keys.items()}
            for name, keys in ((name, one.entries) for name, one in state.namespaces.items())
            if keys
        },
        [(uid, state.ended[uid]) for uid in state.ended_order],
    )
    body = _encoder.encode(image)
    return _encoder.encode((SCHEMA, hashlib.sha256(body).digest(), body))


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
    state.names, state.used, state.limit = image.names, image.used, image.limit
    state.ended = dict(image.ended)
    state.ended_order = deque(uid for uid, _ in image.ended)
    state.namespaces = _covered_namespaces(image.accounts)
    for name, keys in image.namespaces.items():
        space = state.namespaces.get(name)
        if space is None:
            space = state.namespaces[name] = Namespace()
        _fill(space, keys)
    return state


def _covered_namespaces(open_accounts: dict[str, Account]) -> dict[str, Namespace]:
    """Return an empty namespace for every covered one, with its accounts and plan."""
    covering: dict[str, list[str]] = {}
    for account in sorted(open_accounts):
        for name in open_accounts[account].covers:
            covering.setdefault(name, []).append(account)
    namespaces = {}
    for name, names in covering.items():
        plan = [
            (accounts.resource_of(key), number)
            for account in names
            for key, number in open_accounts[account].lines.items()
        ]
        plan.sort(key=itemgetter(1))
        space = namespaces[name] = Namespace()
        space.accounts, space.plan = tuple(names), tuple(plan)
    return namespaces


def _fill(space: Namespace, keys: dict[str, _Kept]) -> None:
    """Put the kept keys into a namespace and index their open CREATE holds."""
    entries, stamps, owners = space.entries, space.stamps, space.owners
    for key, kept in keys.items():
        holds = kept.holds
        entries[key] = Entry(kept.committed, holds, charge_of(kept.committed, holds))
        for hold in holds:
            if hold.base == 0:
                if hold.stamp:
                    stamps[hold.stamp] = (key, hold.uid)
                if hold.owner:
                    owners[hold.owner] = owners.get(hold.owner, 0) + 1
