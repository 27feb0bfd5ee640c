"""Starting the follower again, when it ends."""

import asyncio

import pytest
from structlog.testing import capture_logs

from gpuledger.server.follower import follower_supervisor
from gpuledger.server.follower.follower_process import FollowerInstructions
from gpuledger.server.follower.follower_supervisor import FollowerSupervisor
from gpuledger.wiring import log_from_settings
from ledger.runtime.settings.settings import Settings


async def test_follower_restarts_after_the_short_pause_when_it_ran_steadily(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follower_supervisor, "AGAIN_SECONDS", 0.001)
    monkeypatch.setattr(follower_supervisor, "STEADY_SECONDS", 0.05)
    follower = FollowerSupervisor(
        FollowerInstructions(Settings(), log_from_settings.LogServers((), "", "", ())),
        lambda _: None,
    )
    lives = [0.0, 0.0, 0.0, 0.2, 0.0]

    async def run_once() -> bool:
        await asyncio.sleep(lives.pop(0))
        return not lives

    monkeypatch.setattr(follower, "_run_once", run_once)
    with capture_logs() as logged:
        await asyncio.wait_for(follower.run(), 10)
    assert [event["again_in_seconds"] for event in logged] == [0.001, 0.002, 0.004, 0.001]
    assert follower.restarts == 4
