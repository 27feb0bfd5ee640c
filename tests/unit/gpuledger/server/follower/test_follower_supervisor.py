"""Starting the follower again, when it ends, and its answers."""

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs
from support.claims.kept_slices import NVIDIA
from support.harness.waiting import until

from extender.settlement.allocated_devices.offered_cards import OfferedCards
from gpuledger.server.follower import follower_supervisor
from gpuledger.server.follower.follower_process import FollowerInstructions
from gpuledger.server.follower.follower_supervisor import FollowerSupervisor, FollowerUnavailable
from gpuledger.server.follower.unsent_offers import UnsentOffers
from gpuledger.wiring import log_from_settings
from ledger.runtime.settings.settings import Settings


def supervisor() -> FollowerSupervisor:
    servers = log_from_settings.LogServers((), "", "", ())
    return FollowerSupervisor(FollowerInstructions(Settings(), servers), lambda _: None)


async def test_follower_restarts_after_the_short_pause_when_it_ran_steadily(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follower_supervisor, "AGAIN_SECONDS", 0.001)
    monkeypatch.setattr(follower_supervisor, "STEADY_SECONDS", 0.05)
    follower = supervisor()
    lives = [0.0, 0.0, 0.0, 0.2, 0.0]

    async def run_once() -> bool:
        await asyncio.sleep(lives.pop(0))
        return not lives

    monkeypatch.setattr(follower, "_run_once", run_once)
    with capture_logs() as logged:
        await asyncio.wait_for(follower.run(), 10)
    assert [event["again_in_seconds"] for event in logged] == [0.001, 0.002, 0.004, 0.001]
    assert follower.restarts == 4


@pytest.mark.parametrize("answers", [True, False])
async def test_a_question_ends_with_the_follower_or_its_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answers: bool
) -> None:
    """The process has a line of instructions and one question; then it answers, or ends."""
    script, answer = tmp_path / "follower", '{"answer": {"number": 1, "position": 7, "pods": []}}'
    last = f"echo '{answer}'; cat" if answers else "exit 1"
    script.write_text(f"#!/bin/sh\nread instructions; read question; {last}\n")
    script.chmod(0o700)
    monkeypatch.setattr(follower_supervisor, "sys", SimpleNamespace(executable=str(script)))
    follower = supervisor()
    running = asyncio.create_task(follower._run_once())
    await until(lambda: follower._process is not None)
    asked = follower.ask([], within="", nodes_max=1, offers=None, position=0, seconds=5.0)
    if answers:
        assert (await asked).position == 7
        running.cancel()
    else:
        with pytest.raises(FollowerUnavailable, match="the follower has ended"):
            await asked
    await asyncio.gather(running, return_exceptions=True)


FOLLOWER = """#!{python}
import json, sys
sys.stdin.readline()
for line in sys.stdin:
    message = json.loads(line)
    with open("{noted}", "a") as noted:
        noted.write(message["type"] + " ")
    if message["type"] == "CardQuestion":
        answer = {{"number": message["number"], "position": 7, "pods": []}}
        print(json.dumps({{"answer": answer}}), flush=True)
"""
"""A follower that notes the kinds of its lines."""


async def test_each_process_gets_the_cards_of_slices_before_its_questions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script, noted = tmp_path / "follower", tmp_path / "noted"
    script.write_text(FOLLOWER.format(python=sys.executable, noted=noted))
    script.chmod(0o700)
    monkeypatch.setattr(follower_supervisor, "sys", SimpleNamespace(executable=str(script)))
    offered = OfferedCards()
    offered.set("n1", {"GPU-0": NVIDIA})
    follower, offers = supervisor(), UnsentOffers(offered)
    for _ in range(2):
        running = asyncio.create_task(follower._run_once())
        await until(lambda: follower._process is not None)
        for _ in range(2):
            await follower.ask([], within="", nodes_max=1, offers=offers, position=0, seconds=20.0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    once = ["OfferMessage", "OfferMessage", "CardQuestion", "CardQuestion"]
    assert noted.read_text().split() == once * 2
