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
from support.harness.projection_harness import digest_of, log_of, project, random_payloads, viewing

from ledger.core import snapshot_format
from ledger.core.model import accounts
from ledger.core.model.amounts import Amounts
from ledger.core.model.events import OBJECT
from ledger.core.model.state import Entry, Namespace, State
from ledger.core.model.traits import Traits, matches, numbered
from ledger.log import records
from ledger.log.log_port import Snapshot
from projections.queries.holders import holders, holds
from projections.queries.quota_usage import usage
from projections.queries.scopes import EVERYTHING
from projections.queries.universe_shares import UsageBreakdown, UsageShare, shares

SEEDS = st.integers(0, 2**32)
SOURCES = st.sampled_from((random_payloads, placement_payloads))
COMMANDS = 150

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
    found = {}
    for key, entry in space.entries.items():
        if entry.root in space.entries:
            continue
        drawing = [one for one in space.entries.values() if one.root == key]
        bodies = [entry.charge, _sum(one.charge for one in drawing)]
        stored = [_stored(entry), _sum(map(_stored, drawing))]
        let_in = [_admitted(entry), stored[1]]
        asked = [let_in[0], bodies[1], *(hold.demand for hold in entry.holds)]
        found[key] = Charged(
            entry.traits, _most(bodies), _most(stored), _most(asked), _most(let_in)
        )
    return found


def _stored(entry: Entry) -> Amounts:
    return entry.committed.demand if entry.committed is not None else {}


def _admitted(entry: Entry) -> Amounts:
    stored = entry.committed
    return _stored(entry) if stored is None or stored.admitted is None else stored.admitted


def _sum(several: Iterable[Amounts]) -> Amounts:
    total = Counter[str]()
    for one in several:
        total.update(one)
    return dict(total)


def _most(several: list[Amounts]) -> Amounts:
    names = {name for one in several for name in one}
    most = {name: max(one.get(name, 0) for one in several) for name in names}
    return {name: amount for name, amount in most.items() if amount}


def is_unread(state: State, account: str) -> bool:
    """Return whether an account selects by a label that was not read of something it covers."""
    known = state.accounts[account]
    since = max((state.labels.get(one.key, 0) for one in known.selects), default=0)
    return any(
        "!unread" in text or int((text.partition("!read=")[2] or "0").partition(",")[0]) < since
        for namespace in (known.covers if since else ())
        for entry in state.namespaces[namespace].entries.values()
        for text in entry.traits or ("",)
    )


def usage_of(state: State) -> dict[tuple[str, str], tuple[int, int, int]]:
    """Return limit, used and committed of every line of a quota, added up from the entries."""
    found: dict[tuple[str, str], tuple[int, int, int]] = {}
    for (owner, _), lines in shares_of(state).items():
        for resource, used, committed in lines:
            limit, *sums = found.get((owner, resource), (0, 0, 0))
            found[owner, resource] = (limit, sums[0] + used, sums[1] + committed)
    for name, account in state.accounts.items():
        if accounts.kind(name) is accounts.AccountKind.CARD:
            continue
        for key, line in account.lines.items():
            _, used, committed = found.get((name, key), (0, 0, 0))
            found[name, key] = (state.limit[line], used, committed)
    return found


def shares_of(state: State) -> dict[tuple[str, str], list[tuple[str, int, int]]]:
    """Return the usage of every account in every namespace: resource, used, committed."""
    found = {}
    for name, account in state.accounts.items():
        selects = numbered(account.selects, state.labels)
        for namespace in account.covers:
            counted = [
                one
                for one in charged(state.namespaces[namespace]).values()
                if not selects or matches(selects, one.traits)
            ]
            used = [one.asked if account.asked_only else one.charge for one in counted]
            committed = [one.admitted if account.asked_only else one.committed for one in counted]
            found[name, namespace] = [
                (
                    key,
                    sum(one.get(accounts.resource_of(key), 0) for one in used),
                    sum(one.get(accounts.resource_of(key), 0) for one in committed),
                )
                for key in account.lines
            ]
    return found


def universe_shares_of(state: State, by: UsageBreakdown) -> dict[tuple[str, ...], tuple[int, int]]:
    """Return used and committed by quota, cluster, namespace and resource."""
    found: dict[tuple[str, ...], tuple[int, int]] = {}
    for (account, qualified), lines in shares_of(state).items():
        if accounts.kind(account) is not accounts.AccountKind.UNIVERSE:
            continue
        cluster, namespace = qualified.split("/") if by is UsageBreakdown.NAMESPACE else ("c1", "")
        for resource, used, committed in lines:
            name = (accounts.parts(account)[2], cluster, namespace, resource)
            before = found.get(name, (0, 0))
            found[name] = (before[0] + used, before[1] + committed)
    return {name: amounts for name, amounts in found.items() if amounts[0]}


def totals_of(rows: list[UsageShare]) -> dict[tuple[str, ...], tuple[int, int]]:
    assert all(one.reserved == one.used - one.committed >= 0 for one in rows)
    return {
        (one.quota, one.cluster, one.namespace, one.resource): (one.used, one.committed)
        for one in rows
    }


def charges_of(state: State) -> dict[str, dict[str, int]]:
    return {
        f"{namespace}/{key}": one.charge
        for namespace, space in state.namespaces.items()
        for key, one in charged(space).items()
    }


def holds_of(state: State) -> set[tuple[str, str, int]]:
    return {
        (f"{namespace}/{key}", hold.uid, hold.base)
        for namespace, space in state.namespaces.items()
        for key, entry in space.entries.items()
        for hold in entry.holds
    }


@given(SEEDS, SOURCES)
@example(163, random_payloads)  # A pod leaves its root, whose envelope is asked for no more.
@settings(max_examples=25)
async def test_every_position_reads_as_the_state_was(seed: int, make: Source) -> None:
    payloads = make(seed, COMMANDS)
    with scratch() as directory:
        path = directory / "ledger.sqlite"
        await project(path, log_of(payloads))
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
                    _account(one.cluster, one.namespace, one.quota): one.incomplete for one in lines
                }
                assert unread == {name: is_unread(state, name) for name in unread}
                keys, _ = await holders(view, position, EVERYTHING, limit=1_000)
                read = {f"{one.cluster}/{one.namespace}/{one.key}": one.amounts for one in keys}
                assert read == charges_of(state)
                for by in UsageBreakdown:
                    parts, _ = await shares(view, position, EVERYTHING, by, limit=10_000)
                    assert totals_of(parts) == universe_shares_of(state, by)
                open_now, _ = await holds(view, position, EVERYTHING, limit=1_000)
                assert {
                    (f"{one.cluster}/{one.namespace}/{one.key}", one.uid, one.base)
                    for one in open_now
                } == holds_of(state)
                assert all(one.base != OBJECT for one in open_now)


@given(SEEDS, SOURCES)
@settings(max_examples=25)
async def test_interrupted_and_rebuilt_projections_have_equal_digests(
    seed: int, make: Source
) -> None:
    payloads = make(seed, COMMANDS)
    source = random.Random(seed)
    log = log_of(payloads)
    with scratch() as directory:
        rebuilt, interrupted = directory / "rebuilt.sqlite", directory / "interrupted.sqlite"
        await project(rebuilt, log)
        stops = sorted(source.sample(range(1, len(payloads)), 5))
        for stop in stops:
            await project(interrupted, log, stop)
            await log.save_snapshot(_snapshot(payloads, source.randint(1, stop)))
            assert await digest_of(interrupted) == await digest_of(rebuilt, stop)
        await project(interrupted, log)
        for position in (*stops, len(payloads)):
            assert await digest_of(interrupted, position) == await digest_of(rebuilt, position)


def _snapshot(payloads: list[bytes], position: int) -> Snapshot:
    state = State()
    for number, payload in enumerate(payloads[:position], 1):
        records.fold(state, number, payload)
    return Snapshot(position, snapshot_format.encode(state))


def _account(cluster: str, namespace: str, name: str) -> str:
    return accounts.quota(cluster, namespace, name) if namespace else accounts.universe(name)
