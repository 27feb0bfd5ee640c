"""Roots as holders: one row with its pods, whose amounts add up to what is used."""

from pathlib import Path

import pytest
from support.builders.decide_and_fold import record
from support.harness.projection_harness import SECOND, START, log_of, project, viewing

from ledger.core.model import commands
from ledger.core.model.commands import AnyCommand
from ledger.core.model.state import State
from projections.queries.holders import HolderCharge, holders, holds
from projections.queries.query_scope import EVERYTHING, QueryScope
from projections.queries.quota_usage import usage
from projections.store.readers import ProjectionView

GPU = "nvidia.com/gpu"
WEB = "deployments.apps/web"


def seen(key: str, cards: int, version: int, root: str = "") -> commands.Observe:
    return commands.Observe("c1/red", key, f"uid of {key}", version, {GPU: cards}, "w", root)


def end(key: str, version: int) -> commands.End:
    return commands.End("c1/red", key, f"uid of {key}", version, "deleted", "w")


STEPS: list[list[AnyCommand]] = [
    [commands.SetLimits("quota/c1/red/main", ("c1/red",), {f"limits.{GPU}": 20}, "w")],
    [
        commands.Reserve("c1/red", WEB, f"uid of {WEB}", {GPU: 3}),
        commands.Reserve("c1/red", "pods/alone", "a", {GPU: 1}),
    ],
    [seen(WEB, 3, 5)],
    [
        seen("pods/web-1", 1, 6, WEB),
        commands.Reserve("c1/red", "pods/web-2", "b", {GPU: 1}, root=WEB),
    ],
    [seen("pods/web-3", 2, 7, WEB)],
    [end(WEB, 8)],
]


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    state, path = State(), tmp_path / "ledger.sqlite"
    payloads = [record(state, step, time=START + n * SECOND) for n, step in enumerate(STEPS)]
    await project(path, log_of([payload for payload in payloads if payload is not None]))
    return path


async def listed(
    view: ProjectionView, position: int, **options: bool | str
) -> dict[str, HolderCharge]:
    rows, more = await holders(view, position, EVERYTHING, limit=100, **options)  # type: ignore[arg-type]
    assert not more
    return {holder.key: holder for holder in rows}


async def test_a_root_without_pods_is_charged_its_envelope(path: Path) -> None:
    async with viewing(path) as view:
        by_key = await listed(view, 3)
    web = by_key[WEB]
    assert (web.amounts, web.envelope, web.drawn, web.pods) == ({GPU: 3}, {GPU: 3}, {}, 0)
    assert by_key["pods/alone"].envelope == {}


async def test_root_is_charged_the_larger_of_envelope_and_pods(
    path: Path,
) -> None:
    async with viewing(path) as view:
        within, beyond = (await listed(view, 4))[WEB], (await listed(view, 5))[WEB]
    assert (within.amounts, within.drawn, within.pods) == ({GPU: 3}, {GPU: 2}, 2)
    assert (beyond.amounts, beyond.envelope, beyond.drawn) == ({GPU: 4}, {GPU: 3}, {GPU: 4})
    assert (beyond.committed, beyond.reserved) == ({GPU: 3}, {GPU: 1})


async def test_the_pods_of_a_root_are_listed_only_when_they_are_asked_for(path: Path) -> None:
    async with viewing(path) as view:
        assert set(await listed(view, 5)) == {WEB, "pods/alone"}
        everything = await listed(view, 5, pods=True)
        of_web = await listed(view, 5, root=WEB)
    assert set(everything) == {WEB, "pods/alone", "pods/web-1", "pods/web-2", "pods/web-3"}
    assert set(of_web) == {"pods/web-1", "pods/web-2", "pods/web-3"}
    assert {holder.root for holder in of_web.values()} == {WEB}


async def test_pods_that_outlive_their_root_are_holders_themselves(path: Path) -> None:
    async with viewing(path) as view:
        by_key = await listed(view, 6)
    assert set(by_key) == {"pods/alone", "pods/web-1", "pods/web-2", "pods/web-3"}
    assert by_key["pods/web-1"].root == WEB


async def test_what_holders_have_adds_up_to_what_is_used_at_every_position(path: Path) -> None:
    async with viewing(path) as view:
        for position in range(1, len(STEPS) + 1):
            (line,), _ = await usage(view, position, EVERYTHING, limit=10)
            rows = (await listed(view, position)).values()
            assert line.used == sum(holder.amounts.get(GPU, 0) for holder in rows)
            assert line.committed == sum(holder.committed.get(GPU, 0) for holder in rows)


async def test_pages_of_the_pods_of_one_root_are_the_whole(path: Path) -> None:
    pages, after = [], ""
    async with viewing(path) as view:
        for _ in range(9):
            rows, after = await holders(view, 5, QueryScope("red"), limit=1, after=after, root=WEB)
            pages += [holder.key for holder in rows]
            if not after:
                break
    assert pages == ["pods/web-1", "pods/web-2", "pods/web-3"]


async def test_hold_has_the_root_from_which_it_will_draw(path: Path) -> None:
    async with viewing(path) as view:
        rows, _ = await holds(view, 4, EVERYTHING, limit=10)
    assert {hold.key: hold.root for hold in rows} == {"pods/alone": "", "pods/web-2": WEB}
