"""Read history: a store with every kind of row that commands read, of two clusters."""

from pathlib import Path

from gpuledger.storage.open_log import open_log, writer_on
from ledger.core.model import accounts, commands
from ledger.core.model.cards import OWN, Card, Part, Phase, Share
from ledger.core.model.denials import Denial
from ledger.core.model.traits import Reach, Requirement
from ledger.runtime.settings.settings import Settings

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
WEB = "deployments.apps/web"
GOLD = Reach(namespaces=(Requirement("tier", "In", ("gold",)),))
PARTS = (Part("main", Phase.APP, (Share("GPU-a", 8_000, 30),)),)

STEPS: list[commands.AnyCommand] = [
    commands.SetLimits(accounts.universe("company"), (), {f"requests.{GPU}": 8}, reach=GOLD),
    commands.Describe("local/team-a", "!name=team-a,tier=gold"),
    commands.Describe("east/team-b", "!name=team-b,tier=gold"),
    commands.SetLimits(
        accounts.quota("local", "team-a", "gpus"), ("local/team-a",), {f"limits.{MEMORY}": 30_000}
    ),
    commands.SetLimits(
        accounts.quota("east", "team-b", "gpus"), ("east/team-b",), {f"requests.{GPU}": 2}
    ),
    commands.RegisterCards(
        "local/n1",
        OWN,
        tuple(Card(f"GPU-{name}", at, "A100", 20_000, 100, 10) for at, name in enumerate("ab")),
    ),
    commands.RegisterCards("east/n2", OWN, (Card("GPU-c", 0, "T4", 15_000, 100, 10),)),
    commands.Reserve("local/team-a", WEB, "u-web", {GPU: 2}, actor="alice"),
    commands.Observe("local/team-a", WEB, "u-web", 5, {GPU: 2}, "settlement"),
    commands.Reserve("local/team-a", "pods/web-1", "u-1", {GPU: 1}, root=WEB, actor="rs"),
    commands.Reserve("local/team-a", "pods/job", "u-2", {GPU: 1, MEMORY: 8_000}, actor="bob"),
    commands.Place("local/team-a", "pods/job", "u-2", "local/n1", PARTS),
    commands.Reserve("east/team-b", "pods/far", "u-3", {GPU: 1}, actor="carol"),
    commands.Observe("local/team-a", "pods/stray", "u-4", 7, {GPU: 2}, "settlement"),
    commands.Observe("east/team-b", "pods/lost", "u-5", 8, {GPU: 1}, "settlement"),
    commands.Reserve("local/team-a", "pods/big", "u-6", {GPU: 9}, actor="dave"),
    commands.Reserve("east/team-b", "pods/big", "u-7", {GPU: 9}, actor="erin"),
    commands.Reserve("local/team-a", "pods/vast", "u-8", {GPU: 1, MEMORY: 90_000}, actor="dave"),
]
"""The last three are denied."""

DENIED = 3


async def write_history(store: Path) -> None:
    """Write the steps into a new store."""
    settings = Settings(store_dir=str(store))
    async with open_log(settings, create=True) as opened, writer_on(settings, opened) as writer:
        answers = [await writer.submit(step) for step in STEPS]
    denied = [isinstance(answer, Denial) for answer in answers]
    assert denied == [False] * (len(STEPS) - DENIED) + [True] * DENIED, answers
