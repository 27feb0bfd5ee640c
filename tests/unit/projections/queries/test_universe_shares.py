"""Shares of a quota over many namespaces: by cluster, by namespace, now and then."""

from pathlib import Path

import pytest
from support.builders.decide_and_fold import record
from support.harness.projection_harness import SECOND, START, log_of, project, viewing

from ledger.core.model import accounts, commands
from ledger.core.model.commands import AnyCommand
from ledger.core.model.state import State
from ledger.core.model.traits import Reach, Requirement
from projections.queries.query_scope import EVERYTHING, QueryScope
from projections.queries.quota_usage import usage
from projections.queries.universe_shares import UsageBreakdown, UsageShare, shares

GPU = "nvidia.com/gpu"
KEY = f"limits.{GPU}"
GOLD = Reach(namespaces=(Requirement("tier", "In", ("gold",)),))
ALL = accounts.universe("all")
READ = "!read=1"
"""Of an object whose labels were looked at."""


def reserve(namespace: str, name: str, cards: int, *traits: str) -> commands.Reserve:
    return commands.Reserve(namespace, f"pods/{name}", name, {GPU: cards}, traits=traits)


STEPS: list[list[AnyCommand]] = [
    [
        commands.SetLimits(ALL, (), {KEY: 100}, reach=Reach()),
        commands.SetLimits(accounts.universe("gold"), (), {KEY: 100}, reach=GOLD),
        commands.SetLimits(
            accounts.universe("batch"),
            (),
            {KEY: 100},
            reach=Reach(),
            selects=(Requirement("app", "In", ("batch",)),),
        ),
        commands.SetLimits("quota/c1/red/own", ("c1/red",), {KEY: 50}),
    ],
    [reserve("c1/red", "p1", 1, READ), reserve("c1/blue", "p2", 2, f"{READ},app=batch")],
    [
        reserve("c2/red", "p3", 4, READ),
        commands.Observe("c1/red", "pods/p1", "p1", 9, {GPU: 1}, traits=(READ,)),
    ],
    [commands.Describe("c2/red", "!name=red,tier=gold")],
    [commands.Describe("c2/red", "!name=red")],
    [commands.SetLimits("quota/c3/new/own", ("c3/new",), {KEY: 50})],
    [reserve("c3/new", "p4", 8, READ)],
]


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    state, path = State(), tmp_path / "ledger.sqlite"
    payloads = [record(state, step, time=START + n * SECOND) for n, step in enumerate(STEPS)]
    await project(path, log_of([payload for payload in payloads if payload is not None]))
    return path


async def read(
    path: Path, position: int, by: UsageBreakdown, quota: str = "", scope: QueryScope = EVERYTHING
) -> list[UsageShare]:
    async with viewing(path) as view:
        rows, more = await shares(view, position, scope, by, limit=100, quota=quota)
    assert not more
    return rows


async def test_a_quota_is_broken_down_by_namespace(path: Path) -> None:
    rows = await read(path, 3, UsageBreakdown.NAMESPACE, "all")
    assert [(share.cluster, share.namespace, share.used, share.committed) for share in rows] == [
        ("c1", "blue", 2, 0),
        ("c1", "red", 1, 1),
        ("c2", "red", 4, 0),
    ]


async def test_a_quota_is_broken_down_by_cluster_as_of_a_position(path: Path) -> None:
    now, then = (
        await read(path, 5, UsageBreakdown.CLUSTER, "all"),
        await read(path, 2, UsageBreakdown.CLUSTER, "all"),
    )
    assert [(share.cluster, share.namespace, share.used) for share in now] == [
        ("c1", "", 3),
        ("c2", "", 4),
    ]
    assert [(share.cluster, share.used, share.reserved) for share in then] == [("c1", 3, 3)]


async def test_only_what_a_quota_selects_is_its_share(path: Path) -> None:
    rows = await read(path, 5, UsageBreakdown.NAMESPACE, "batch")
    assert [(share.cluster, share.namespace, share.used) for share in rows] == [("c1", "blue", 2)]


async def test_what_a_quota_reaches_follows_the_labels_of_namespaces(path: Path) -> None:
    assert await read(path, 3, UsageBreakdown.NAMESPACE, "gold") == []
    (share,) = await read(path, 4, UsageBreakdown.NAMESPACE, "gold")
    assert (share.cluster, share.namespace, share.used) == ("c2", "red", 4)
    assert await read(path, 5, UsageBreakdown.NAMESPACE, "gold") == []


async def test_a_namespace_that_is_first_named_by_a_quota_of_its_own_is_reached(path: Path) -> None:
    (share,) = await read(path, 7, UsageBreakdown.NAMESPACE, "all", QueryScope("new"))
    assert (share.cluster, share.used) == ("c3", 8)


async def test_without_a_name_the_quotas_over_many_namespaces_are_broken_down(path: Path) -> None:
    assert {share.quota for share in await read(path, 4, UsageBreakdown.CLUSTER)} == {
        "all",
        "batch",
        "gold",
    }
    (own,) = await read(path, 4, UsageBreakdown.NAMESPACE, "own")
    assert (own.namespace, own.used) == ("red", 1)


async def test_nothing_outside_the_scope_is_listed(path: Path) -> None:
    rows = await read(path, 5, UsageBreakdown.CLUSTER, "all", QueryScope("red", "c1"))
    assert [(share.cluster, share.used) for share in rows] == [("c1", 1)]


@pytest.mark.parametrize("by", UsageBreakdown)
async def test_small_pages_together_are_the_whole(path: Path, by: UsageBreakdown) -> None:
    pages: list[UsageShare] = []
    after = ""
    async with viewing(path) as view:
        for _ in range(9):
            rows, after = await shares(view, 4, EVERYTHING, by, limit=1, after=after)
            pages += rows
            if not after:
                break
    assert pages == await read(path, 4, by)


async def test_shares_add_up_to_what_is_used(path: Path) -> None:
    async with viewing(path) as view:
        for position in range(1, len(STEPS) + 1):
            lines, _ = await usage(view, position, EVERYTHING, limit=10, quota="all")
            for by in UsageBreakdown:
                rows = await read(path, position, by, "all")
                assert sum(share.used for share in rows) == lines[0].used
