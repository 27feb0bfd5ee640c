"""The projection agrees with the core, at every position, however it was made."""

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.generators.placement_records import placement_payloads
from support.harness.projection_harness import (
    allocated_payloads,
    digest_of,
    log_of,
    project,
    random_payloads,
    viewing,
)

from ledger.core import snapshot_format
from ledger.core.model import accounts
from ledger.core.model.amounts import Amounts
from ledger.core.model.events import OBJECT
from ledger.core.model.state import Entry, Namespace, State
from ledger.core.model.traits import Traits, matches, numbered
from ledger.log import records
from ledger.log.log_port import Snapshot
from projections.projector.projector import EVENTS_PER_TRANSACTION
from projections.queries.holders import holders, holds
from projections.queries.query_scope import EVERYTHING
from projections.queries.quota_usage import usage
from projections.queries.universe_shares import UsageBreakdown, UsageShare, shares

SEEDS = st.integers(0, 2**32)
SOURCES = st.sampled_from((random_payloads, placement_payloads, allocated_payloads))
COMMANDS = 150
AT_ONCE = st.sampled_from((1, 7, 60, EVENTS_PER_TRANSACTION))
"""Events of a transaction: rows close in the one that opened them, or in a later one."""

Source = Callable[[int, int], list[bytes]]
"""Makes records from a seed and a number of commands."""


@contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


class Charged(NamedTuple):
    """One charged unit, computed slowly: a root with its pods, or anything alone.

    `asked` and `admitted` are what accounts count of it that count what was asked for alone.
    """

    traits: Traits
    charge: Amounts
    committed: Amounts
    asked: Amounts
    admitted: Amounts


def charged(space: Namespace) -> dict[str, Charged]:
    """Return the charges of a namespace, from its entries alone."""
    charges = {}
    for key, entry in space.entries.items():
        if entry.root in space.entries:
            continue
        drawing = [pod for pod in space.entries.values() if pod.root == key]
        bodies = [entry.charge, _sum(pod.charge for pod in drawing)]
        stored = [_stored(entry), _sum(map(_stored, drawing))]
        let_in = [_admitted(entry), stored[1]]
        asked = [let_in[0], bodies[1], *(hold.demand for hold in entry.holds)]
        charges[key] = Charged(
            entry.traits, _most(bodies), _most(stored), _most(asked), _most(let_in)
        )
    return charges


def _stored(entry: Entry) -> Amounts:
    return entry.committed.demand if entry.committed is not None else {}


def _admitted(entry: Entry) -> Amounts:
    stored = entry.committed
    return _stored(entry) if stored is None or stored.admitted is None else stored.admitted


def _sum(several: Iterable[Amounts]) -> Amounts:
    total = Counter[str]()
    for amounts in several:
        total.update(amounts)
    return dict(total)


def _most(several: list[Amounts]) -> Amounts:
    names = {name for amounts in several for name in amounts}
    most = {name: max(amounts.get(name, 0) for amounts in several) for name in names}
    return {name: amount for name, amount in most.items() if amount}


def is_unread(state: State, account: str) -> bool:
    """Return whether an account selects by a label that was not read of something it covers."""
    known = state.accounts[account]
    since = max((state.labels.get(requirement.key, 0) for requirement in known.selects), default=0)
    return any(
        "!unread" in text or int((text.partition("!read=")[2] or "0").partition(",")[0]) < since
        for namespace in (known.covers if since else ())
        for entry in state.namespaces[namespace].entries.values()
        for text in entry.traits or ("",)
    )


def usage_of(state: State) -> dict[tuple[str, str], tuple[int, int, int]]:
    """Return limit, used and committed of every line of a quota, added up from the entries."""
    totals: dict[tuple[str, str], tuple[int, int, int]] = {}
    for (owner, _), lines in shares_of(state).items():
        for resource, used, committed in lines:
            limit, *sums = totals.get((owner, resource), (0, 0, 0))
            totals[owner, resource] = (limit, sums[0] + used, sums[1] + committed)
    for name, account in state.accounts.items():
        if accounts.kind(name) is accounts.AccountKind.CARD:
            continue
        for key, line in account.lines.items():
            _, used, committed = totals.get((name, key), (0, 0, 0))
            totals[name, key] = (state.limit[line], used, committed)
    return totals


def shares_of(state: State) -> dict[tuple[str, str], list[tuple[str, int, int]]]:
    """Return the usage of every account in every namespace: resource, used, committed."""
    by_account = {}
    for name, account in state.accounts.items():
        selects = numbered(account.selects, state.labels)
        for namespace in account.covers:
            counted = [
                unit
                for unit in charged(state.namespaces[namespace]).values()
                if not selects or matches(selects, unit.traits)
            ]
            used = [unit.asked if account.asked_only else unit.charge for unit in counted]
            committed = [
                unit.admitted if account.asked_only else unit.committed for unit in counted
            ]
            by_account[name, namespace] = [
                (
                    key,
                    sum(amounts.get(accounts.resource_of(key), 0) for amounts in used),
                    sum(amounts.get(accounts.resource_of(key), 0) for amounts in committed),
                )
                for key in account.lines
            ]
    return by_account


def universe_shares_of(state: State, by: UsageBreakdown) -> dict[tuple[str, ...], tuple[int, int]]:
    """Return used and committed by quota, cluster, namespace and resource."""
    totals: dict[tuple[str, ...], tuple[int, int]] = {}
    for (account, qualified), lines in shares_of(state).items():
        if accounts.kind(account) is not accounts.AccountKind.UNIVERSE:
            continue
        cluster, namespace = qualified.split("/") if by is UsageBreakdown.NAMESPACE else ("c1", "")
        for resource, used, committed in lines:
            name = (accounts.parts(account)[2], cluster, namespace, resource)
            before = totals.get(name, (0, 0))
            totals[name] = (before[0] + used, before[1] + committed)
    return {name: amounts for name, amounts in totals.items() if amounts[0]}


def totals_of(rows: list[UsageShare]) -> dict[tuple[str, ...], tuple[int, int]]:
    assert all(share.reserved == share.used - share.committed >= 0 for share in rows)
    return {
        (share.quota, share.cluster, share.namespace, share.resource): (share.used, share.committed)
        for share in rows
    }


def charges_of(state: State) -> dict[str, dict[str, int]]:
    return {
        f"{namespace}/{key}": unit.charge
        for namespace, space in state.namespaces.items()
        for key, unit in charged(space).items()
    }


def holds_of(state: State) -> set[tuple[str, str, int]]:
    return {
        (f"{namespace}/{key}", hold.uid, hold.base)
        for namespace, space in state.namespaces.items()
        for key, entry in space.entries.items()
        for hold in entry.holds
    }


@given(SEEDS, SOURCES, AT_ONCE, st.booleans())
# A pod leaves its root, whose envelope is asked for no more.
@example(163, random_payloads, 7, False)
# Devices of pods lower the envelope of their root, which no event of the record names.
@example(1, allocated_payloads, 7, False)
@settings(max_examples=25)
async def test_every_position_reads_as_the_state_was(
    seed: int, make: Source, at_once: int, is_rebuilt: bool
) -> None:
    payloads = make(seed, COMMANDS)
    with scratch() as directory:
        path = directory / "ledger.sqlite"
        await project(path, log_of(payloads), at_once=at_once, scratch=is_rebuilt)
        state = State()
        async with viewing(path) as view:
            assert view.head.position == len(payloads)
            for position, payload in enumerate(payloads, 1):
                records.fold(state, position, payload)
                lines, _ = await usage(view, position, EVERYTHING, limit=100)
                assert {
                    (_account(line.cluster, line.namespace, line.quota), line.resource): (
                        line.limit,
                        line.used,
                        line.committed,
                    )
                    for line in lines
                } == usage_of(state)
                assert all(line.reserved == line.used - line.committed >= 0 for line in lines)
                unread = {
                    _account(line.cluster, line.namespace, line.quota): line.incomplete
                    for line in lines
                }
                assert unread == {name: is_unread(state, name) for name in unread}
                keys, _ = await holders(view, position, EVERYTHING, limit=1_000)
                read = {
                    f"{holder.cluster}/{holder.namespace}/{holder.key}": holder.amounts
                    for holder in keys
                }
                assert read == charges_of(state)
                for by in UsageBreakdown:
                    parts, _ = await shares(view, position, EVERYTHING, by, limit=10_000)
                    assert totals_of(parts) == universe_shares_of(state, by)
                open_now, _ = await holds(view, position, EVERYTHING, limit=1_000)
                assert {
                    (f"{hold.cluster}/{hold.namespace}/{hold.key}", hold.uid, hold.base)
                    for hold in open_now
                } == holds_of(state)
                assert all(hold.base != OBJECT for hold in open_now)


@given(SEEDS, SOURCES, AT_ONCE)
@settings(max_examples=25)
async def test_interrupted_and_rebuilt_projections_have_equal_digests(
    seed: int, make: Source, at_once: int
) -> None:
    payloads = make(seed, COMMANDS)
    source = random.Random(seed)
    log = log_of(payloads)
    with scratch() as directory:
        rebuilt, interrupted = directory / "rebuilt.sqlite", directory / "interrupted.sqlite"
        await project(rebuilt, log, at_once=source.choice((7, 60)), scratch=True)
        stops = sorted(source.sample(range(1, len(payloads)), 5))
        for stop in stops:
            await project(interrupted, log, stop, at_once=at_once)
            await log.save_snapshot(_snapshot(payloads, source.randint(1, stop)))
            assert await digest_of(interrupted) == await digest_of(rebuilt, stop)
        await project(interrupted, log, at_once=at_once)
        for position in (*stops, len(payloads)):
            assert await digest_of(interrupted, position) == await digest_of(rebuilt, position)


def _snapshot(payloads: list[bytes], position: int) -> Snapshot:
    state = State()
    for number, payload in enumerate(payloads[:position], 1):
        records.fold(state, number, payload)
    return Snapshot(position, snapshot_format.encode(state))


def _account(cluster: str, namespace: str, name: str) -> str:
    return accounts.quota(cluster, namespace, name) if namespace else accounts.universe(name)
