"""Usage over time, events on a quota and changes of holders, compared with the folded states."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from support.harness.projection_harness import log_of, project, random_payloads, viewing

from ledger.core.evolve.envelope_charges import drawn_from
from ledger.core.model.amounts import Amounts
from ledger.core.model.events import AccountClosed, LimitSet
from ledger.core.model.state import State
from ledger.log import records
from projections.queries.query_scope import NumberedNamespace
from projections.queries.tenants.namespace_search import namespace_named
from projections.queries.timeline import account_events as paging
from projections.queries.timeline.account_events import account_events
from projections.queries.timeline.holder_changes import HolderChanges, holder_changes
from projections.queries.timeline.usage_steps import QuotaAccount, account_named, usage_steps
from projections.store.readers import ProjectionView

PAYLOADS = random_payloads(25, 240)
LAST = len(PAYLOADS)
QUOTAS = ("quota/c1/red/main", "quota/c1/blue/other", "universe/all", "universe/some")

Touched = list[tuple[int, int]]
"""Position and number of events, newest first."""


@pytest.fixture
async def view(tmp_path: Path) -> AsyncIterator[ProjectionView]:
    await project(tmp_path / "p.sqlite", log_of(PAYLOADS))
    async with viewing(tmp_path / "p.sqlite") as opened:
        yield opened


def states() -> list[State]:
    """Return the state at every position, from 0 on."""
    copies, state = [State()], State()
    for position, payload in enumerate(PAYLOADS, 1):
        records.fold(state, position, payload)
        copy = State()
        for earlier in range(position):
            records.fold(copy, earlier + 1, PAYLOADS[earlier])
        copies.append(copy)
    return copies


STATES = states()


def lines_of(state: State, name: str) -> dict[str, tuple[int, int]]:
    """Return limit and usage of the lines of an account by key."""
    account = state.accounts.get(name)
    lines = {} if account is None else account.lines
    return {key: (state.limit[line], state.used[line]) for key, line in lines.items()}


def touching(name: str, namespace: str = "") -> Touched:
    """Return the events that set an account or changed its usage."""
    places = []
    names = STATES[-1].names
    for payload in PAYLOADS:
        record, _ = records.decode(payload)
        for number, item in enumerate(record.items):
            event = item.event
            of_account = any(names[line][0] == name for line in item.postings[::3])
            if isinstance(event, LimitSet | AccountClosed):
                of_account = event.account == name
            where = (
                getattr(event, "namespace", "")
                or getattr(event, "subject", "")
                or _place(getattr(event, "account", ""))
            )
            if of_account and (not namespace or where == namespace):
                places.append((record.position, number))
    return places[::-1]


def _place(account: str) -> str:
    return "/".join(account.split("/")[1:3]) if account.startswith("quota/") else ""


async def numbered(view: ProjectionView, name: str) -> QuotaAccount:
    account = await account_named(view, LAST, name)
    assert account is not None
    return account


@pytest.mark.parametrize("name", QUOTAS)
@pytest.mark.parametrize("points", [5, 500])
async def test_each_point_is_the_usage_of_its_state(
    view: ProjectionView, name: str, points: int
) -> None:
    steps = await usage_steps(view, await numbered(view, name), 0, LAST, points=points)
    read: dict[int, dict[str, tuple[int, int]]] = {}
    for key, line in steps.lines.items():
        assert len(line) <= points + 2
        for point in line:
            read.setdefault(point.position, {})[key] = point.limit, point.used
    assert read
    for position, values in read.items():
        assert values == lines_of(STATES[position], name)


@pytest.mark.parametrize("name", QUOTAS)
async def test_exact_steps_have_every_change(view: ProjectionView, name: str) -> None:
    steps = await usage_steps(view, await numbered(view, name), 0, LAST, points=500)
    assert steps.exact
    shown = {point.position for line in steps.lines.values() for point in line}
    for position in range(1, LAST + 1):
        before, after = (lines_of(STATES[at], name) for at in (position - 1, position))
        assert before == after or not after or position in shown


async def test_few_points_are_not_exact_and_end_at_both_ends(view: ProjectionView) -> None:
    account = await numbered(view, QUOTAS[0])
    steps = await usage_steps(view, account, 20, LAST, points=4)
    positions = {point.position for line in steps.lines.values() for point in line}
    assert not steps.exact
    assert min(positions) >= 20
    assert LAST in positions


@pytest.mark.parametrize("name", QUOTAS)
@pytest.mark.parametrize("limit", [1, 7, 500])
async def test_events_are_all_that_touched_the_account(
    view: ProjectionView, name: str, limit: int
) -> None:
    assert await events_of(view, name, None, limit) == touching(name)


@pytest.mark.parametrize("name", QUOTAS)
async def test_events_of_a_namespace_are_only_its_own(view: ProjectionView, name: str) -> None:
    (red,) = await namespace_named(view, LAST, "c1", "red")
    assert await events_of(view, name, red, 4) == touching(name, "c1/red")


@pytest.mark.parametrize("bound", ["RECORDS_MAX", "ITEMS_MAX"])
async def test_a_page_examines_few_events_and_continues(
    view: ProjectionView, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    account, whole = await numbered(view, QUOTAS[2]), touching(QUOTAS[2])
    monkeypatch.setattr(paging, bound, 2)
    rows, place = await account_events(view, account, 1, LAST, limit=500)
    assert place is not None
    assert len(rows) < len(whole)
    assert await events_of(view, QUOTAS[2], None, 500) == whole


async def test_a_page_reads_no_record_that_it_does_not_examine(
    view: ProjectionView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account, last = await numbered(view, QUOTAS[2]), touching(QUOTAS[2])[-1][0]
    with closing(sqlite3.connect(tmp_path / "p.sqlite")) as damaged, damaged:
        damaged.execute("UPDATE records SET body = x'00' WHERE position = ?", (last,))
    monkeypatch.setattr(paging, "ITEMS_MAX", 2)
    async with viewing(tmp_path / "p.sqlite") as reopened:
        assert (await account_events(reopened, account, 1, LAST, limit=500))[0]
        with pytest.raises(sqlite3.OperationalError):
            await account_events(reopened, account, 1, last, limit=500)


async def events_of(
    view: ProjectionView, name: str, namespace: NumberedNamespace | None, limit: int
) -> Touched:
    account, place, places = await numbered(view, name), None, Touched()
    while True:
        rows, place = await account_events(
            view, account, 1, LAST, limit=limit, before=place, namespace=namespace
        )
        assert len(rows) <= limit
        places += [(row.position, row.number) for row in rows]
        if place is None:
            return places


def charges(state: State, namespace: str) -> dict[str, tuple[str, Amounts]]:
    space = state.namespaces.get(namespace)
    entries = {} if space is None else space.entries
    return {key: (drawn_from(entry), entry.charge) for key, entry in entries.items()}


def expected(namespace: str, first: int, last: int) -> list[dict[str, tuple[Amounts, Amounts]]]:
    """Return the keys that came, went and changed, with both charges."""
    old, new = charges(STATES[first], namespace), charges(STATES[last], namespace)
    came, went, changed = (dict[str, tuple[Amounts, Amounts]]() for _ in range(3))
    for key in old.keys() | new.keys():
        before, after = old.get(key, ("", {}))[1], new.get(key, ("", {}))[1]
        kind = came if key not in old else went if key not in new else changed
        if kind is not changed or before != after:
            kind[key] = before, after
    return [came, went, changed]


def read(changes: HolderChanges) -> list[dict[str, tuple[Amounts, Amounts]]]:
    return [
        {change.key: (change.before, change.after) for change in kind}
        for kind in (changes.came, changes.went, changes.changed)
    ]


async def test_holder_changes_are_the_difference_of_two_states(view: ProjectionView) -> None:
    seen = [0, 0, 0]
    for name in ("red", "blue"):
        (namespace,) = await namespace_named(view, LAST, "c1", name)
        for first in range(0, LAST, 5):
            for last in (*range(first, LAST, 7), LAST):
                wanted = expected(f"c1/{name}", first, last)
                changes = await holder_changes(view, namespace, first, last)
                assert read(changes) == wanted, (first, last)
                assert changes.complete
                seen = [count + len(kind) for count, kind in zip(seen, wanted, strict=True)]
    assert all(seen)
