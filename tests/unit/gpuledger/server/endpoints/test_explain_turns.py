"""Manifests are explained one after the other, so that reviews are answered in between."""

import asyncio
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace
from starlette.applications import Starlette
from support.harness.waiting import until

from gpuledger.server.endpoints import explain_endpoint
from gpuledger.server.endpoints.explain_endpoint import BUSY, ExplainEndpoint
from ledger.runtime.settings.settings import DEFAULTS
from webhook.admission.explanation import Explanation

ANSWER = Explanation(True, "Allowed.", "c/team", "pods/p", {}, None, ())
NOTHING: Any = None


class Decisions:
    """Decides a manifest when `free` is set, and counts those in progress."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.running = self.most = 0

    async def explain(self, *_: object, **__: object) -> Explanation:
        self.running += 1
        self.most = max(self.most, self.running)
        await self.free.wait()
        self.running -= 1
        return ANSWER


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch) -> Decisions:
    made = Decisions()
    monkeypatch.setattr(explain_endpoint, "explain", made.explain)
    return made


def client(seconds: float) -> httpx2.AsyncClient:
    settings = replace(DEFAULTS, admission_deadline_seconds=seconds)
    app = Starlette(routes=[ExplainEndpoint(NOTHING, settings).route()])
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost")


async def test_one_manifest_is_explained_at_a_time(decisions: Decisions) -> None:
    async with client(5) as asking:
        asked = [asyncio.create_task(asking.post("/v1/explain", content=b"{}")) for _ in range(4)]
        await until(lambda: decisions.running > 0)
        await asyncio.sleep(0.05)
        decisions.free.set()
        assert [answer.status_code for answer in await asyncio.gather(*asked)] == [200] * 4
    assert decisions.most == 1


async def test_a_manifest_whose_turn_does_not_come_is_refused(decisions: Decisions) -> None:
    async with client(0.2) as asking:
        first = asyncio.create_task(asking.post("/v1/explain", content=b"{}"))
        await until(lambda: decisions.running > 0)
        second = await asking.post("/v1/explain", content=b"{}")
        decisions.free.set()
        assert (await first).status_code == 200
    assert second.status_code == 503
    assert BUSY in second.text


async def test_a_long_user_is_refused_by_its_parameter(decisions: Decisions) -> None:
    async with client(5) as asking:
        refused = await asking.post("/v1/explain", params={"user": "é" * 301}, content=b"{}")
    assert refused.status_code == 400
    assert refused.json()["error"]["parameter"] == "user"
    assert decisions.running == 0
