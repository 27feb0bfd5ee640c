"""Queries about one namespace: search, past lifetimes, shares of shared quotas, room on cards."""

import statistics
from pathlib import Path

import pytest
from support.builders.decide_and_fold import record
from support.claims.fixed_slices import FixedSlices
from support.generators.long_history import history
from support.harness.projection_harness import (
    SECOND,
    START,
    log_of,
    project,
    random_payloads,
    viewing,
)

from ledger.core.model import accounts, commands
from ledger.core.model.cards import MIG, Card
from ledger.core.model.commands import AnyCommand
from ledger.core.model.state import State
from ledger.core.model.traits import Reach, Requirement
from ledger.log import records
from projections.queries.query_scope import QueryScope
from projections.queries.quota_usage import usage
from projections.queries.tenants import past_lifetimes as lifetimes
from projections.queries.tenants import shared_quota_shares as sharing
from projections.queries.tenants.card_room import FreeShare, card_room
from projections.queries.tenants.namespace_search import namespace_named, namespaces_named
from projections.queries.tenants.past_lifetimes import past_lifetimes
from projections.queries.tenants.shared_quota_shares import shared_quota_shares
from projections.queries.universe_shares import UsageBreakdown, shares

GPU = "nvidia.com/gpu"
KEY = f"limits.{GPU}"


async def projected(path: Path, steps: list[list[AnyCommand]]) -> Path:
    """Project one record for each step, a second apart."""
    state = State()
    payloads = [record(state, step, time=START + n * SECOND) for n, step in enumerate(steps)]
    await project(path, log_of([payload for payload in payloads if payload is not None]))
    return path


def quota(namespace: str) -> commands.SetLimits:
    cluster, name = namespace.split("/")
    return commands.SetLimits(accounts.quota(cluster, name, "main"), (namespace,), {KEY: 9})


async def test_search_lists_each_namespace_once_in_pages(tmp_path: Path) -> None:
    names = ["c1/b", "c1/red", "c2/red", "c1/red-2", "c1/redder", "c1/s", "c1/r"]
    path = await projected(tmp_path / "p.sqlite", [[quota(name)] for name in names])
    async with viewing(path) as view:
        listed, after = list[str](), 0
        while True:
            rows, after = await namespaces_named(view, 7, "red", limit=1, after=after)
            listed += [f"{row.cluster}/{row.name}" for row in rows]
            if not after:
                break
        assert listed == ["c1/red", "c2/red", "c1/red-2", "c1/redder"]
        early, _ = await namespaces_named(view, 3, "red", limit=9)
        assert [row.name for row in early] == ["red", "red"]
        own, _ = await namespaces_named(view, 7, "red", limit=9, cluster="c2")
        assert [row.cluster for row in own] == ["c2"]


def ended(payloads: list[bytes], namespace: str, recent: int) -> list[int]:
    """Return the lifetimes of the objects that ended in the newest records of a namespace."""
    committed: dict[str, int] = {}
    of_namespace: list[list[int]] = []
    for payload in payloads:
        made, _ = records.decode(payload)
        items = [item.event for item in made.items]
        events = [event for event in items if getattr(event, "namespace", "") == namespace]
        for event in events:
            if type(event).__name__ == "Committed":
                committed[event.uid] = made.time
        gone = [e for e in events if type(e).__name__ == "Released" and e.base == -1]
        if events:
            of_namespace.append([made.time - committed[event.uid] for event in gone])
    return [lifetime for part in of_namespace[-recent:] for lifetime in part]


@pytest.mark.parametrize("recent", [500, 4])
async def test_lifetimes_are_those_of_the_newest_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recent: int
) -> None:
    payloads = list(history(State(), 2_000, namespaces=3, live=100, group=20))
    await project(tmp_path / "p.sqlite", log_of(payloads))
    monkeypatch.setattr(lifetimes, "RECORDS_MAX", recent)
    async with viewing(tmp_path / "p.sqlite") as view:
        for position in (view.head.position, view.head.position - 20):
            (namespace,) = await namespace_named(view, position, "c1", "team-1")
            past = await past_lifetimes(view, position, namespace)
            lasted = ended(payloads[:position], "c1/team-1", recent)
            assert past.count == len(lasted) > 1
            assert past.median == int(statistics.median(lasted))


async def test_pods_that_draw_from_a_root_are_not_counted(tmp_path: Path) -> None:
    root, pod = ("c1/red", "jobs.batch/train", "j"), ("c1/red", "pods/p", "p")
    path = await projected(
        tmp_path / "p.sqlite",
        [
            [quota("c1/red"), commands.Observe(*root, 1, {GPU: 2})],
            [commands.Reserve(*pod, {GPU: 1}, root=root[1])],
            [commands.Observe(*pod, 2, {GPU: 1}, root=root[1])],
            [commands.End(*pod, 3, "finished")],
            [],
            [commands.End(*root, 4, "finished")],
        ],
    )
    async with viewing(path) as view:
        (red,) = await namespace_named(view, view.head.position, "c1", "red")
        past = await past_lifetimes(view, view.head.position, red)
    assert (past.count, past.median) == (1, 5 * SECOND)


async def test_shares_are_those_that_the_charges_add_up_to(tmp_path: Path) -> None:
    await project(tmp_path / "p.sqlite", log_of(random_payloads(3, 240)))
    compared = 0
    async with viewing(tmp_path / "p.sqlite") as view:
        for position in range(4, view.head.position + 1, 3):
            for name in ("red", "blue"):
                for namespace in await namespace_named(view, position, "c1", name):
                    scope = QueryScope(name, "c1")
                    lines, _ = await usage(view, position, scope, limit=99)
                    parts = await shared_quota_shares(view, position, namespace, lines)
                    rows, _ = await shares(
                        view, position, scope, UsageBreakdown.NAMESPACE, limit=99
                    )
                    wanted = {(row.quota, row.resource): row.used for row in rows}
                    assert parts == {line: wanted.get(line, 0) for line in parts}
                    shared = {(li.quota, li.resource) for li in lines if not li.namespace}
                    assert parts.keys() == shared
                    compared += len(parts)
    assert compared


async def test_a_share_is_not_that_of_a_quota_that_selects_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = (Requirement("app", "In", ("batch",)),)
    path = await projected(
        tmp_path / "p.sqlite",
        [
            [quota("c1/red"), commands.SetLimits("universe/all", (), {KEY: 9}, reach=Reach())],
            [
                commands.SetLimits("universe/batch", (), {KEY: 9}, reach=Reach(), selects=batch),
                commands.Reserve("c1/red", "pods/p", "p", {GPU: 2}, traits=("!read=1",)),
            ],
        ],
    )
    async with viewing(path) as view:
        (red,) = await namespace_named(view, 2, "c1", "red")
        lines, _ = await usage(view, 2, QueryScope("red", "c1"), limit=9)
        parts = await shared_quota_shares(view, 2, red, lines)
        monkeypatch.setattr(sharing, "CHARGES_MAX", 0)
        cheap = await shared_quota_shares(view, 2, red, lines)
    assert parts == {("all", KEY): 2, ("batch", KEY): 0}
    assert cheap == {("all", KEY): 2}


async def test_room_counts_cards_by_their_free_part(tmp_path: Path) -> None:
    cards = (
        Card("u0", 0, "A100", 80, 100, 10),
        Card("u1", 1, "A100", 80, 100, 10),
        Card("u2", 2, "A100", 80, 100, 10, healthy=False),
        Card("u3", 3, "A100", 80, 100, 10, cordoned=True),
        Card("u4", 4, "A100", 80, 100, 10, mode=MIG),
        Card("u5", 5, "L4", 24, 100, 4),
    )
    path = await projected(
        tmp_path / "p.sqlite",
        [
            [commands.RegisterCards("c1/n1", "hami", cards)],
            [commands.RegisterCards("c2/n1", "hami", (Card("u9", 0, "L4", 24, 100, 4),))],
        ],
    )
    slices = FixedSlices("c1", {"n1": {"u0": ""}, "": {"u5": ""}, "n2": {"u1": ""}})
    async with viewing(path) as view:
        a100, l4 = await card_room(view, 2, "c1")
        everything = await card_room(view, 2, "")
        early = await card_room(view, 1, "")
        offered = await card_room(view, 2, "c1", slices)
    assert (a100.cards, a100.unusable, a100.cut) == (5, 2, 1)
    assert a100.shares == {FreeShare(80, 100, 10, whole=True): 2}
    assert l4.shares == {FreeShare(24, 100, 4, whole=True): 1}
    assert [(room.cards, room.unusable) for room in offered] == [(5, 3), (1, 1)]
    assert offered[0].shares == {FreeShare(80, 100, 10, whole=True): 1}
    assert everything[1].cards == 2
    assert early[1].cards == 1
