"""`gpuledger what-if` as users of the command line meet it."""

from pathlib import Path

import pytest
from support.harness.command_line import gpuledger

from gpuledger.storage.open_log import open_log, writer_on
from ledger.core.model import commands
from ledger.core.model.cards import OWN, Card, Part, Phase, Share
from ledger.log.ledger_port import Accepted
from ledger.runtime.settings.settings import Settings

pytestmark = pytest.mark.integration

MEMORY = "nvidia.com/gpumem"


def placed(name: str, node: str, uuid: str) -> list[commands.AnyCommand]:
    pod, part = ("local/team", f"pods/{name}", name), Part("m", Phase.APP, (Share(uuid, 8_000, 0),))
    return [commands.Reserve(*pod, {MEMORY: 8_000}), commands.Place(*pod, f"local/{node}", (part,))]


STEPS: list[commands.AnyCommand] = [
    commands.SetLimits("quota/local/team/main", ("local/team",), {f"limits.{MEMORY}": 90_000}),
    commands.RegisterCards("local/n1", OWN, (Card("GPU-a", 0, "A100", 16_000, 100, 10),)),
    commands.RegisterCards("local/n2", OWN, (Card("GPU-b", 0, "A100", 16_000, 100, 10),)),
    *placed("one", "n1", "GPU-a"),
    *placed("two", "n2", "GPU-b"),
]


@pytest.fixture
async def store(tmp_path: Path) -> Path:
    """A ledger with two pods on two nodes."""
    settings = Settings(store_dir=str(tmp_path / "store"))
    async with open_log(settings, create=True) as opened, writer_on(settings, opened) as writer:
        for step in STEPS:
            assert isinstance(await writer.submit(step), Accepted)
    return tmp_path / "store"


def test_scenarios_stand_side_by_side(store: Path) -> None:
    limit = f"--limit=team/main:limits.{MEMORY}=8000"
    shown = gpuledger("what-if", "--without", "n1", limit, store=store)
    assert shown.status == 0, shown
    lines = [line.split() for line in shown.out.splitlines()]
    assert lines[0] == ["FIGURE", "RECORDED", "REPLAYED", "WHAT-IF"]
    assert lines[1] == ["nodes", "2", "2", "1"]
    assert lines[2] == ["not", "created", "0", "0", "1"]
    assert lines[3] == ["placed", "2", "2", "1"]
    assert lines[-1][:5] == ["quota/local/team/main", "gpumem", "8000Mi", "2", "1"]
    assert "2 arrivals." in shown.err


def test_preferences_of_the_command_line_are_what_is_otherwise(store: Path) -> None:
    asked = ("what-if", "--node-policy", "spread", "-o", "json")
    report = gpuledger(*asked, store=store, GPULEDGER_NODE_POLICY="binpack").json
    cards = {
        scenario["name"]: scenario["outcome"]["cards"]["peak"] for scenario in report["scenarios"]
    }
    assert cards == {"recorded": 2, "replayed": 1, "what-if": 2}
