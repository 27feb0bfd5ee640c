"""Probes: which check fails and why, and readiness that falls before the end."""

import asyncio
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette

from ledger.runtime.http.health import Health


@pytest.fixture
def health() -> Health:
    made = Health()
    made.add("log", lambda: (True, ""))
    return made


async def probe(health: Health, path: str) -> httpx2.Response:
    transport = httpx2.ASGITransport(Starlette(routes=health.routes()))
    async with httpx2.AsyncClient(transport=transport, base_url="http://gpuledger") as client:
        return await client.get(path)


async def test_when_all_is_well_the_answer_is_200(health: Health) -> None:
    answer = await probe(health, "/readyz")
    assert answer.status_code == 200
    assert answer.json() == {
        "ok": True,
        "checks": [
            {"name": "stopping", "ok": True, "reason": ""},
            {"name": "log", "ok": True, "reason": ""},
        ],
    }


async def test_a_failing_check_is_named_with_its_reason(health: Health) -> None:
    health.add("durable", lambda: (False, "sync_interval is 2m"))
    answer = await probe(health, "/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"][-1] == {
        "name": "durable",
        "ok": False,
        "reason": "sync_interval is 2m",
    }


@pytest.mark.parametrize("path", ["/livez", "/healthz"])
async def test_what_is_not_ready_may_well_be_alive(health: Health, path: str) -> None:
    health.add("durable", lambda: (False, "sync_interval is 2m"))
    assert (await probe(health, path)).status_code == 200


@pytest.mark.parametrize("path", ["/livez", "/healthz", "/readyz"])
async def test_a_failing_check_of_life_fails_every_probe(health: Health, path: str) -> None:
    health.add("chain", lambda: (False, "a record is missing"), live=True)
    assert (await probe(health, path)).status_code == 503


async def test_readiness_falls_when_the_end_is_near_and_life_does_not(health: Health) -> None:
    health.stop()
    assert not health.ready().ok
    assert (await probe(health, "/livez")).status_code == 200


async def test_verbose_is_text_for_people(health: Health) -> None:
    health.add("mode", lambda: (True, "not production"))
    health.add("durable", lambda: (False, "sync_interval is 2m"))
    answer = await probe(health, "/readyz?verbose")
    assert answer.text.splitlines() == [
        "[+]stopping ok",
        "[+]log ok",
        "[+]mode ok: not production",
        "[-]durable failed: sync_interval is 2m",
        "failing",
    ]


async def test_a_check_can_be_left_out(health: Health) -> None:
    health.add("durable", lambda: (False, "sync_interval is 2m"))
    assert (await probe(health, "/readyz?exclude=durable")).status_code == 200


def test_a_check_is_added_once(health: Health) -> None:
    with pytest.raises(AssertionError, match="the check log exists"):
        health.add("log", lambda: (True, ""))


async def test_check_results_are_reported_once_when_they_change() -> None:
    health, told, reason = Health(), list[Any](), ["slow"]
    health.add("disk", lambda: (True, reason[0]))
    telling = asyncio.create_task(health.report_changes(told.append, every_seconds=0.001))
    await asyncio.sleep(0.02)
    reason[0] = ""
    await asyncio.sleep(0.02)
    telling.cancel()
    assert [(finding.name, finding.reason) for finding in told] == [("disk", "slow"), ("disk", "")]
