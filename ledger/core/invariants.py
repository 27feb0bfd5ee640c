"""Invariants of a state, as one function that tests, simulation and audit share.

The numbers are those of docs/explanation/invariants.md. The fold asserts what it can check while it
applies an event. The checks here need the whole state.
"""

import itertools
from collections.abc import Iterator

from ledger.core.decide.cards import card_checks
from ledger.core.evolve import device_bounds
from ledger.core.evolve.announced_and_lost_cards import account_of
from ledger.core.evolve.envelope_charges import (
    NO_DRAW,
    PODS,
    drawn_from,
    entry_of,
    is_root,
    terms,
    units,
    with_pod,
)
from ledger.core.evolve.placement_charges import bookings_of
from ledger.core.evolve.quota_coverage import reached
from ledger.core.model import accounts, card_bookings, cards
from ledger.core.model.accounts import AccountKind
from ledger.core.model.amounts import covers, without_zeros
from ledger.core.model.devices import DEVICES_MAX
from ledger.core.model.state import Account, Draw, Namespace, Object, State
from ledger.core.model.traits import matches, numbered


def violations(state: State) -> Iterator[str]:
    """Yield one sentence per violated invariant; nothing when all hold."""
    yield from _usage_is_the_sum_of_charges(state)
    yield from _charges_are_the_largest_body(state)
    yield from _attempts_are_open_once(state)
    yield from _indexes_match_the_entries(state)
    yield from _draws_are_what_pods_take(state)
    yield from _reaches_select_what_is_covered(state)
    yield from _cards_are_what_placements_book(state)
    yield from _placements_are_of_known_pods(state)
    yield from _no_exclusive_card_is_shared(state)
    yield from _claims_are_of_pods_that_wait(state)
    yield from _bounds_belong_to_devices(state)


def excesses(state: State) -> dict[int, int]:
    """Return by how much each line is over its limit: `{line: used - limit}`."""
    return {
        line: used - limit
        for line, (used, limit) in enumerate(zip(state.used, state.limit, strict=True))
        if used > limit
    }


def _usage_is_the_sum_of_charges(state: State) -> Iterator[str]:
    expected = [0] * len(state.names)
    for account, details in state.accounts.items():
        for key, line in details.lines.items():
            resource = accounts.resource_of(key)
            if accounts.kind(account) is not AccountKind.CARD:
                expected[line] = sum(
                    _counted(state, state.namespaces[name], details, resource)
                    for name in details.covers
                )
            if state.names[line] != (account, key):
                yield f"line {line} is {state.names[line]}, not {key} of {account}"
    for line, (used, total) in enumerate(zip(state.used, expected, strict=True)):
        if used != total and accounts.kind(state.names[line][0]) is not AccountKind.CARD:
            yield f"line {line} {state.names[line]}: used {used} is not the sum of charges {total}"


def _counted(state: State, space: Namespace, account: Account, resource: str) -> int:
    selects = numbered(account.selects, state.labels)
    return sum(
        term.on(asked_only=account.asked_only).get(resource, 0)
        for unit in units(space)
        for term in terms(space, unit)
        if matches(selects, term.traits)
    )


def _charges_are_the_largest_body(state: State) -> Iterator[str]:
    for name, space in state.namespaces.items():
        for key, entry in space.entries.items():
            if entry.committed is None and not entry.holds:
                yield f"{name}/{key} is kept although nothing is charged"
            if entry != entry_of(entry.committed, entry.holds):
                yield f"{name}/{key} is charged {entry.charge}, not the largest of its bodies"


def _attempts_are_open_once(state: State) -> Iterator[str]:
    for name, space in state.namespaces.items():
        for key, entry in space.entries.items():
            attempts = [(hold.uid, hold.base) for hold in entry.holds]
            if len(set(attempts)) != len(attempts):
                yield f"{name}/{key} holds one attempt twice: {attempts}"
            if entry.committed is not None and (entry.committed.uid, 0) in attempts:
                yield f"{name}/{key} still holds the CREATE of what is committed"


def _indexes_match_the_entries(state: State) -> Iterator[str]:
    for name, space in state.namespaces.items():
        owners: dict[str, int] = {}
        for entry in space.entries.values():
            for hold in entry.holds:
                if hold.base == 0 and hold.owner:
                    owners[hold.owner] = owners.get(hold.owner, 0) + 1
        if owners != space.owners:
            yield f"{name}: open creations by owner are {owners}, indexed {space.owners}"
        covering = tuple(
            sorted(a for a, account in state.accounts.items() if name in account.covers)
        )
        if space.accounts != covering:
            yield f"{name}: covered by {covering}, indexed {space.accounts}"


def _draws_are_what_pods_take(state: State) -> Iterator[str]:
    for name, space in state.namespaces.items():
        draws: dict[str, Draw] = {}
        members: dict[str, set[str]] = {}
        for key, entry in space.entries.items():
            root = drawn_from(entry)
            if root:
                draws[root] = with_pod(draws.get(root, NO_DRAW), entry)
                members.setdefault(root, set()).add(key)
        indexed = {root: _without_zeros(draw) for root, draw in space.draws.items()}
        if indexed != {root: _without_zeros(draw) for root, draw in draws.items()}:
            yield f"{name}: the pods of roots take {draws}, indexed {space.draws}"
        if {root: set(keys) for root, keys in space.members.items()} != members:
            yield f"{name}: the pods of roots are {members}, indexed {space.members}"


def _without_zeros(draw: Draw) -> Draw:
    return Draw(
        without_zeros(draw.charge), without_zeros(draw.committed), without_zeros(draw.saved)
    )


def _reaches_select_what_is_covered(state: State) -> Iterator[str]:
    selecting = {
        account for account, details in state.accounts.items() if details.reach is not None
    }
    if set(state.reaching) != selecting:
        yield f"accounts with a reach are {selecting}, indexed {set(state.reaching)}"
    for account, details in state.accounts.items():
        if details.reach is not None and details.covers != reached(state, details.reach):
            yield f"{account} covers {details.covers}, and reaches {reached(state, details.reach)}"


def _cards_are_what_placements_book(state: State) -> Iterator[str]:
    known = {
        (name, card.uuid): tuple(
            state.accounts[account_of(name, card.uuid)].lines[resource] for resource in cards.LINES
        )
        for name, node in state.nodes.items()
        for card in (*node.cards, *node.lost)
    }
    if state.card_lines != known:
        yield f"the lines of cards are {known}, indexed {state.card_lines}"
    expected = [0] * len(state.names)
    for node in state.residents:
        for _, key, placed in card_checks.residents(state, node):
            for uuid, booking in bookings_of(placed).items():
                account = state.accounts.get(account_of(node, uuid))
                if account is None:
                    yield f"{key} is on card {uuid} of {node}, which has no account"
                    continue
                for resource, amount in zip(cards.LINES, booking, strict=True):
                    expected[account.lines[resource]] += amount
    for line, (name, key) in enumerate(state.names):
        if accounts.kind(name) is AccountKind.CARD and state.used[line] != expected[line]:
            yield f"line {line} {key} of {name}: used {state.used[line]}, not {expected[line]}"


def _placements_are_of_known_pods(state: State) -> Iterator[str]:
    expected: dict[str, set[tuple[str, str]]] = {node: set() for node in state.residents}
    for name, space in state.namespaces.items():
        for key, placed in space.placed.items():
            entry = space.entries.get(key)
            if entry is None or placed.uid not in {body.uid for body in entry.bodies()}:
                yield f"{name}/{key} is placed as {placed.uid}, which is not known"
            if not placed.node and not placed.stands:
                yield f"{name}/{key} has a placement without node and amounts"
            if placed.node:
                expected.setdefault(placed.node, set()).add((name, key))
    if expected != {node: set(there) for node, there in state.residents.items()}:
        yield f"pods are placed on {expected}, indexed {state.residents}"
    if set(state.nodes) != set(state.residents):
        yield f"nodes are {sorted(state.nodes)}, indexed {sorted(state.residents)}"


def _no_exclusive_card_is_shared(state: State) -> Iterator[str]:
    """Yield cards that one pod has alone beside others, and instances that overlap.

    Observed placements of other schedulers are not checked.
    """
    for node in state.residents:
        there = [
            resident for resident in card_checks.residents(state, node) if not resident[2].observed
        ]
        for (_, key, placed), (_, other, beside) in itertools.permutations(there, 2):
            shared = bookings_of(placed).keys() & bookings_of(beside).keys()
            alone = card_bookings.exclusive_on(placed.parts, initialised=placed.initialised)
            if shared & alone:
                yield f"{other} is on {sorted(shared & alone)} of {node}, which {key} has alone"
            for uuid in shared:
                if card_checks.clash(placed, beside, uuid):
                    yield f"instances of {key} and {other} overlap on {uuid} of {node}"


def _claims_are_of_pods_that_wait(state: State) -> Iterator[str]:
    claimants = [(claim, node) for node, claims in state.claims.items() for claim in claims]
    if len({(claim.namespace, claim.key) for claim, _ in claimants}) != len(claimants):
        yield f"something is kept twice for one pod: {claimants}"
    for claim, node in claimants:
        space = state.namespaces[claim.namespace]
        entry, placed = space.entries.get(claim.key), space.placed.get(claim.key)
        if node not in state.nodes:
            yield f"something is kept for {claim.key} on {node}, which is gone"
        if entry is None or claim.uid not in {body.uid for body in entry.bodies()}:
            yield f"something is kept for {claim.key} of uid {claim.uid}, which is not known"
        if placed is not None and placed.node and placed.uid == claim.uid:
            yield f"something is kept for {claim.key}, which is placed on {placed.node}"


def _bounds_belong_to_devices(state: State) -> Iterator[str]:
    """Yield objects with a bound and no devices, or the reverse, and objects that wrongly draw.

    A root has a bound while the savings of its pods have lowered its envelope, and no devices.
    """
    for name, space in state.namespaces.items():
        for key, entry in space.entries.items():
            stored = entry.committed
            if stored is not None and is_root(key):
                yield from _savings_are_not_charged(space, key, stored)
            elif stored is not None and bool(stored.devices) != (stored.bound is not None):
                yield f"{name}/{key} has {len(stored.devices)} devices and the bound {stored.bound}"
            if stored is not None and len(stored.devices) > DEVICES_MAX:
                yield f"{name}/{key} has {len(stored.devices)} devices, at most {DEVICES_MAX}"
            if drawn_from(entry) and not key.startswith(PODS):
                yield f"{name}/{key} is not a pod and draws from {entry.root}"


def _savings_are_not_charged(space: Namespace, key: str, stored: Object) -> Iterator[str]:
    if stored.devices:
        yield f"{key} is a root and has {len(stored.devices)} devices"
    if stored.bound is not None and (
        stored.bound == stored.demand or not covers(stored.bound, stored.demand)
    ):
        yield f"{key} is charged {stored.demand} and has the bound {stored.bound}"
    draw = space.draws.get(key)
    if draw is not None and device_bounds.lowered(stored, draw) != stored:
        yield f"{key} is charged {stored.demand}, of which its pods saved {draw.saved}"
