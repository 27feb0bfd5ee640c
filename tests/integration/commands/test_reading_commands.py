"""Reading commands about roots, quotas over many namespaces, and corrections."""

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest
from support.harness.command_line import gpuledger

from gpuledger.storage.open_log import open_log, writer_on
from ledger.core.model import accounts, commands
from ledger.core.model.traits import Reach, Requirement
from ledger.log.ledger_port import Accepted
from ledger.runtime.settings.settings import Settings

pytestmark = pytest.mark.integration

GPU = "nvidia.com/gpu"
KEY = f"requests.{GPU}"
WEB = "deployments.apps/web"
TEAM = "local/team-a"
GOLD = Reach(namespaces=(Requirement("tier", "In", ("gold",)),))

STEPS: list[commands.AnyCommand] = [
    commands.SetLimits(accounts.universe("company"), (), {KEY: 3}, reach=GOLD),
    commands.Describe(TEAM, "!name=team-a,tier=gold"),
    commands.Reserve(TEAM, WEB, "u-web", {GPU: 2}, actor="alice"),
    commands.Observe(TEAM, WEB, "u-web", 5, {GPU: 2}, "settlement"),
    commands.Reserve(TEAM, "pods/web-1", "u-1", {GPU: 1}, root=WEB, actor="rs"),
    commands.Observe(TEAM, "pods/stray", "u-2", 7, {GPU: 2}, "settlement"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with a root, a pod of it, and a pod that was not reviewed."""
    path = tmp_path_factory.mktemp("ledger") / "store"
    asyncio.run(_write(path))
    return path


async def _write(path: Path) -> None:
    settings = Settings(store_dir=str(path))
    async with open_log(settings, create=True) as opened, writer_on(settings, opened) as writer:
        for command in STEPS:
            assert isinstance(await writer.submit(command), Accepted)


def test_drift_names_what_was_corrected_and_what_is_over_its_limit(store: Path) -> None:
    (correction,) = gpuledger("drift", "-n", "team-a", "-o", "json", store=store).json
    assert (correction["key"], correction["cause"], correction["amounts"]) == (
        "pods/stray",
        "unreserved",
        {GPU: 2},
    )
    assert correction["over"] == [
        {"account": "universe/company", "resource": KEY, "used": 4, "limit": 3}
    ]
    table = gpuledger("drift", store=store)
    assert table.status == 0
    assert "gpu=2; over: universe/company gpu 4 of 3" in table.out
    assert f"universe/company {KEY} 4 of 3" in gpuledger("drift", "-o", "wide", store=store).out


def test_a_ledger_without_drift_passes(store: Path) -> None:
    quiet = gpuledger("drift", "--since", "2100-01-01", store=store)
    assert (quiet.status, quiet.out) == (0, "")
    assert "No corrections found." in quiet.err


def test_drift_is_shown_from_a_position_to_another(store: Path) -> None:
    (row,) = gpuledger("drift", "-o", "json", store=store).json
    position = row["position"]
    at = str(position)
    assert gpuledger("drift", "--since", at, "--until", at, "-o", "json", store=store).json == [row]
    assert gpuledger("drift", "--since", str(position + 1), store=store).status == 3
    assert gpuledger("drift", "--until", str(position - 1), "-o", "json", store=store).json == []


@pytest.mark.parametrize(("by", "namespace"), [("cluster", ""), ("namespace", "team-a")])
def test_a_quota_over_many_is_broken_down(store: Path, by: str, namespace: str) -> None:
    asked = ("usage", "--quota", "company", "--by", by, "-o", "json")
    (share,) = gpuledger(*asked, store=store).json
    assert (share["cluster"], share["namespace"], share["used"]) == ("local", namespace, 4)


def test_a_root_is_one_holder_and_its_pods_are_shown_when_asked_for(store: Path) -> None:
    holders = gpuledger("holders", "-o", "json", store=store).json
    assert [(holder["key"], holder["amounts"], holder["pods"]) for holder in holders] == [
        (WEB, {GPU: 2}, 1),
        ("pods/stray", {GPU: 2}, 0),
    ]
    everything = gpuledger("holders", "--pods", "-o", "json", store=store).json
    assert [holder["key"] for holder in everything] == [WEB, "pods/stray", "pods/web-1"]
    (pod,) = gpuledger("holders", "--root", WEB, "-o", "json", store=store).json
    assert (pod["key"], pod["root"]) == ("pods/web-1", WEB)


def test_a_pod_without_a_root_is_one_pod_in_the_table(store: Path) -> None:
    header, *rows = (line.split() for line in gpuledger("holders", store=store).out.splitlines())
    pods = {row[header.index("KEY")]: row[header.index("PODS")] for row in rows}
    assert pods == {WEB: "1", "pods/stray": "1"}


def test_a_quota_describes_what_it_covers(store: Path) -> None:
    (limit,) = gpuledger("quota", "list", "-o", "json", store=store).json
    assert limit["covers"] == "namespaces with tier in (gold) of all clusters"
    assert limit["selects"] == ""


def test_replay_describes_roots_and_labels(store: Path) -> None:
    told = gpuledger("audit", "replay", "-o", "wide", store=store).out.splitlines()
    assert any("Described" in line and "is name=team-a, tier=gold" in line for line in told)
    assert any("pods/web-1" in line and f"draws from {WEB}" in line for line in told)
    assert any("LimitSet" in line and "covers namespaces with tier in" in line for line in told)


def test_history_shows_how_to_read_on_inside_one_position(tmp_path: Path) -> None:
    store = tmp_path / "store"
    asyncio.run(_write_at_once(store))
    positions = [row["position"] for row in gpuledger("history", "-o", "json", store=store).json]
    shared = next(left for left, right in pairwise(positions) if left == right)
    first = gpuledger("history", "--limit", "2", store=store)
    assert f"There is more: go on with --since {shared}, or raise --limit." in first.err
    within = gpuledger("history", "--since", str(shared), "--limit", "2", store=store)
    assert "There is more: raise --limit." in within.err


async def _write_at_once(path: Path) -> None:
    """Write a record, then one with the events of several commands."""
    settings = Settings(store_dir=str(path))
    async with open_log(settings, create=True) as opened, writer_on(settings, opened) as writer:
        await writer.submit(commands.Describe(TEAM, "!name=team-a"))
        reserves = (
            commands.Reserve(TEAM, f"pods/p-{number}", f"u-{number}", {GPU: 1}, actor="alice")
            for number in range(4)
        )
        await asyncio.gather(*map(writer.submit, reserves))
