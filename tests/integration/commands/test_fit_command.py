"""`gpuledger fit` as users of the command line meet it."""

import json
from pathlib import Path

import pytest
from support.harness.command_line import gpuledger

from gpuledger.storage.open_log import open_log, writer_on
from ledger.core.model import commands
from ledger.core.model.cards import OWN, Card, Part, Phase, Share
from ledger.log.ledger_port import Accepted
from ledger.runtime.settings.settings import Settings

pytestmark = pytest.mark.integration

POD = ("local/x", "pods/busy", "u-0")
STEPS: list[commands.AnyCommand] = [
    commands.RegisterCards("local/n1", OWN, (Card("GPU-a", 0, "A100", 16_000, 100, 10),)),
    commands.Reserve(*POD, {"nvidia.com/gpu": 1}),
    commands.Place(*POD, "local/n1", (Part("main", Phase.APP, (Share("GPU-a", 8_000, 0),)),)),
]


def pod(memory: int) -> str:
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory)}
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    named = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "job"}, "spec": spec}
    return json.dumps(named)


@pytest.fixture
async def store(tmp_path: Path) -> Path:
    """A ledger in which half of the only card is taken, since position 3."""
    settings = Settings(store_dir=str(tmp_path / "store"))
    async with open_log(settings, create=True) as opened, writer_on(settings, opened) as writer:
        for step in STEPS:
            assert isinstance(await writer.submit(step), Accepted)
    return tmp_path / "store"


def test_where_a_pod_fits_is_a_table(store: Path) -> None:
    shown = gpuledger("fit", "-f", "-", stdin=pod(8_000), store=store)
    assert shown.status == 0
    assert shown.out.splitlines()[1].split() == ["n1", "yes", "10", "0", "-"]
    wide = gpuledger("fit", "-f", "-", "-o", "wide", stdin=pod(8_000), store=store)
    assert wide.out.splitlines()[1].split()[3] == "main=GPU-a:8000MiB"
    assert "Quotas: Allowed: there is room." in shown.err


def test_the_remedy_is_printed_and_the_status_is_a_denial(store: Path) -> None:
    shown = gpuledger("fit", "-f", "-", stdin=pod(8_002), store=store)
    assert shown.status == 4
    assert shown.out.splitlines()[1].split()[:3] == ["n1", "no", "0"]
    assert "Changes that would help: evict x/busy (8000 MiB) from n1" in shown.err
    assert "or ask for at most 8000 MiB of each card instead of 8002" in shown.err


def test_cards_show_what_is_free_of_them(store: Path) -> None:
    shown = gpuledger("fit", "-f", "-", "--cards", stdin=pod(8_002), store=store)
    (line,) = [line.split() for line in shown.out.splitlines()[1:]]
    reason = ("CardInsufficientMemory", "short", "by", "2")
    assert line == ["n1", "0", "8000Mi", "100%", "9", *reason]
    wide = gpuledger("fit", "-f", "-", "--cards", "-o", "wide", stdin=pod(8_002), store=store)
    (line,) = [line.split() for line in wide.out.splitlines()[1:]]
    assert line == [
        *("n1", "0", "GPU-a", "A100", "8000", "100", "9", "no", "CardInsufficientMemory", "2")
    ]


def test_an_earlier_position_is_asked_as_it_was(store: Path) -> None:
    shown = gpuledger("fit", "-f", "-", "--at", "1", "-o", "json", stdin=pod(8_002), store=store)
    assert shown.status == 0, shown
    (answer,) = shown.json["pods"]
    assert answer["nodes"][0]["cards"][0]["free_memory"] == 16_000
    assert "As of position 1 of 3." in shown.err


def test_a_time_before_the_log_has_no_node(store: Path) -> None:
    shown = gpuledger("fit", "-f", "-", "--at", "2020-01-01", stdin=pod(1), store=store)
    assert (shown.status, shown.out) == (4, "")
    assert "No node has announced cards." in shown.err
