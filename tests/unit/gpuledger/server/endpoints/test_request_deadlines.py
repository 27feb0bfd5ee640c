"""`POST /v1/explain` and `/v1/fit` have one deadline for body, rights, turn and decision."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.routing import Route

from gpuledger.server.endpoints import explain_endpoint
from gpuledger.server.endpoints.explain_endpoint import ExplainEndpoint
from gpuledger.server.endpoints.fit_endpoint import FitEndpoint
from ledger.runtime.http.token_reviews import AccessRefusal
from ledger.runtime.http.v1_access import RIGHTS
from ledger.runtime.settings.settings import DEFAULTS
from webhook.admission.explanation import Explanation

SECONDS = 0.6
ARRIVAL_SECONDS = 0.3
"""Time that the body takes to arrive."""

ANSWER = Explanation(True, "Allowed.", "c/team", "pods/p", {}, None, ())
NOTHING: Any = None
SETTINGS = replace(DEFAULTS, admission_deadline_seconds=SECONDS)


class Decisions:
    """Stores the seconds that each decision gets."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def explain(self, *_: object, deadline: float, **__: object) -> Explanation:
        self.seconds.append(deadline)
        return ANSWER

    async def fit(self, question: object, seconds: float) -> None:
        self.seconds.append(seconds)
        raise TimeoutError


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch) -> Decisions:
    made = Decisions()
    monkeypatch.setattr(explain_endpoint, "explain", made.explain)
    return made


async def slow_body() -> AsyncIterator[bytes]:
    yield b"{"
    await asyncio.sleep(ARRIVAL_SECONDS)
    yield b"}"


async def no_rights(verb: str, resource: str, namespace: str) -> AccessRefusal | None:
    return AccessRefusal(403, "no")


async def silence(verb: str, resource: str, namespace: str) -> AccessRefusal | None:
    await asyncio.Event().wait()
    return None


async def post(
    path: str, routes: list[Route], *, rights: Any = no_rights, content: Any = b"{}"
) -> httpx2.Response:
    app = Starlette(routes=routes)

    async def of_caller(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, RIGHTS: rights}, receive, send)

    transport = httpx2.ASGITransport(of_caller)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.post(path, content=content)


def routes(decisions: Decisions) -> list[Route]:
    live: Any = decisions
    return [ExplainEndpoint(NOTHING, SETTINGS).route(), FitEndpoint(live, SETTINGS).route()]


@pytest.mark.parametrize("path", ["/v1/explain", "/v1/fit"])
async def test_time_of_the_body_is_not_granted_again(decisions: Decisions, path: str) -> None:
    await post(path, routes(decisions), content=slow_body())
    (seconds,) = decisions.seconds
    assert 0 < seconds <= SECONDS - ARRIVAL_SECONDS + 0.05


@pytest.mark.parametrize("path", ["/v1/explain", "/v1/fit"])
async def test_rights_are_not_awaited_beyond_the_deadline(decisions: Decisions, path: str) -> None:
    async with asyncio.timeout(5):
        refused = await post(path, routes(decisions), rights=silence)
    assert refused.status_code == 503
    assert "deadline" in refused.text
    assert not decisions.seconds
