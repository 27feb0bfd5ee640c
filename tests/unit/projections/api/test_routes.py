"""The reading API: what it answers, how far it goes at once, and how it refuses."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from support.builders.decide_and_fold import record
from support.harness.projection_harness import SECOND, START, log_of, project

from ledger.core.model import commands
from ledger.core.model.state import State
from projections.api.routes import routes
from projections.store.readers import Readers

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
ACCOUNT = "quota/c1/red/main"


def story() -> list[bytes]:
    """Limits; three pods reserved; one persisted; one deleted; two without a reservation.

    A record and a second for each.
    """
    state = State()
    reserve = [
        commands.Reserve("c1/red", f"pods/p{n}", f"u{n}", {GPU: 1, MEMORY: 4_000}, actor="alice")
        for n in range(3)
    ]
    steps: list[list[commands.AnyCommand]] = [
        [
            commands.SetLimits(ACCOUNT, ("c1/red",), {f"limits.{MEMORY}": 16_000}, "admin"),
            commands.SetLimits("quota/c1/blue/main", ("c1/blue",), {f"limits.{GPU}": 1}, "admin"),
        ],
        [*reserve],
        [commands.Observe("c1/red", "pods/p0", "u0", 7, {GPU: 1, MEMORY: 4_000}, "watch")],
        [commands.End("c1/red", "pods/p0", "u0", 8, "deleted", "watch")],
        [commands.Observe("c1/blue", f"pods/p{n}", f"u{n}", n, {GPU: 1}, "watch") for n in (8, 9)],
    ]
    payloads = [record(state, step, time=START + n * SECOND) for n, step in enumerate(steps)]
    return [payload for payload in payloads if payload is not None]


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    path = tmp_path / "ledger.sqlite"
    await project(path, log_of(story()))
    async with Readers(path) as readers:
        transport = httpx2.ASGITransport(app=Starlette(routes=routes(readers)))
        async with httpx2.AsyncClient(transport=transport, base_url="http://ledger") as client:
            yield client


async def get(client: httpx2.AsyncClient, path: str, **query: str) -> Any:
    answer = await client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_usage_is_a_list_of_lines_with_the_numbers_of_a_quota(
    client: httpx2.AsyncClient,
) -> None:
    assert await get(client, "/v1/usage", namespace="red", at="3") == [
        {
            "cluster": "c1",
            "namespace": "red",
            "quota": "main",
            "resource": f"limits.{MEMORY}",
            "limit": 16_000,
            "reserved": 8_000,
            "committed": 4_000,
            "used": 12_000,
            "free": 4_000,
            "incomplete": False,
        }
    ]


async def test_answers_have_the_position_of_their_record(client: httpx2.AsyncClient) -> None:
    now = await client.get("/v1/usage")
    assert now.headers["Gpuledger-Position"] == now.headers["Gpuledger-Head"] == "5"
    then = await client.get("/v1/usage", params={"at": "2"})
    assert then.headers["Gpuledger-Position"] == "2"
    assert then.headers["Gpuledger-Head"] == "5"
    assert then.headers["Gpuledger-Time"] == "2025-06-15T15:06:41.000000Z"


@pytest.mark.parametrize(
    ("at", "used"),
    [
        ("1", 0),
        ("2", 12_000),
        ("2025-06-15T15:06:40.999999Z", 0),
        ("2025-06-15T15:06:41Z", 12_000),
        ("2025-06-15T17:06:42+02:00", 12_000),
        ("2030-01-01", 8_000),
    ],
)
async def test_usage_as_of_a_position_or_a_time(
    client: httpx2.AsyncClient, at: str, used: int
) -> None:
    lines = await get(client, "/v1/usage", namespace="red", at=at)
    assert [line["used"] for line in lines] == [used]


async def test_before_the_first_record_there_is_nothing(client: httpx2.AsyncClient) -> None:
    assert await get(client, "/v1/usage", at="2020-01-01") == []
    assert await get(client, "/v1/holders", at="0") == []


async def test_unknown_cluster_or_namespace_has_no_rows(
    client: httpx2.AsyncClient,
) -> None:
    assert await get(client, "/v1/usage", namespace="green") == []
    assert await get(client, "/v1/usage", namespace="red", cluster="c2") == []
    assert await get(client, "/v1/holders", namespace="green") == []
    assert await get(client, "/v1/events", namespace="green") == []


async def test_holders_distinguish_committed_and_reserved_amounts(
    client: httpx2.AsyncClient,
) -> None:
    holders = await get(client, "/v1/holders", namespace="red", at="3")
    assert [(holder["key"], holder["holds"], bool(holder["committed"])) for holder in holders] == [
        ("pods/p0", 0, True),
        ("pods/p1", 1, False),
        ("pods/p2", 1, False),
    ]
    assert holders[1]["amounts"] == holders[1]["reserved"] == {GPU: 1, MEMORY: 4_000}


async def test_holds_are_the_attempts_that_are_not_settled(client: httpx2.AsyncClient) -> None:
    holds = await get(client, "/v1/holds")
    assert [(hold["key"], hold["uid"], hold["base"], hold["actor"]) for hold in holds] == [
        ("pods/p1", "u1", 0, "alice"),
        ("pods/p2", "u2", 0, "alice"),
    ]


async def test_events_have_actor_type_and_cause(client: httpx2.AsyncClient) -> None:
    events = await get(client, "/v1/events", namespace="red")
    assert [(event["position"], event["type"], event["key"]) for event in events] == [
        (1, "LimitSet", ACCOUNT),
        (2, "Reserved", "pods/p0"),
        (2, "Reserved", "pods/p1"),
        (2, "Reserved", "pods/p2"),
        (3, "Committed", "pods/p0"),
        (4, "Released", "pods/p0"),
    ]
    assert events[-1]["cause"] == "deleted"
    assert events[-1]["actor"] == "watch"
    assert events[-1]["postings"] == [
        {
            "account": ACCOUNT,
            "resource": f"limits.{MEMORY}",
            "delta": -4_000,
            "used_after": 8_000,
        }
    ]


async def test_usage_of_one_quota_and_by_cluster_or_namespace(client: httpx2.AsyncClient) -> None:
    lines = await get(client, "/v1/usage", quota="main", namespace="blue")
    assert [(line["namespace"], line["quota"]) for line in lines] == [("blue", "main")]
    assert await get(client, "/v1/usage", quota="other") == []
    shares = await get(client, "/v1/usage", quota="main", by="namespace", at="3")
    assert shares == [
        {
            "quota": "main",
            "cluster": "c1",
            "namespace": "red",
            "resource": f"limits.{MEMORY}",
            "reserved": 8_000,
            "committed": 4_000,
            "used": 12_000,
        }
    ]
    assert await get(client, "/v1/usage", by="cluster") == []


async def test_unknown_root_has_no_pods(client: httpx2.AsyncClient) -> None:
    assert len(await get(client, "/v1/holders", namespace="red", pods="true")) == 2
    assert await get(client, "/v1/holders", root="deployments.apps/web") == []


async def test_corrections_have_the_place_of_the_next_page(client: httpx2.AsyncClient) -> None:
    whole = await get(client, "/v1/drift", namespace="blue")
    assert [
        (correction["position"], correction["key"], correction["cause"]) for correction in whole
    ] == [
        (5, "pods/p9", "unreserved"),
        (5, "pods/p8", "unreserved"),
    ]
    assert whole[0]["over"] == [
        {"account": "quota/c1/blue/main", "resource": f"limits.{GPU}", "used": 2, "limit": 1}
    ]
    first = await client.get("/v1/drift", params={"limit": "1"})
    assert first.headers["Gpuledger-Next"] == "5.1"
    assert await get(client, "/v1/drift", before="5.1") == whole[1:]
    assert await get(client, "/v1/drift", **{"from": "2030-01-01"}) == []


async def test_events_between_two_moments(client: httpx2.AsyncClient) -> None:
    by_time = {"from": "2025-06-15T15:06:40.5Z", "to": "2025-06-15T15:06:42Z"}
    for query in ({"from": "2", "to": "3"}, by_time):
        events = await get(client, "/v1/events", **query)
        assert [event["position"] for event in events] == [2, 2, 2, 3]


@pytest.mark.parametrize("path", ["/v1/usage", "/v1/holders", "/v1/holds", "/v1/events"])
async def test_small_pages_together_are_the_whole(client: httpx2.AsyncClient, path: str) -> None:
    whole, pages, query = await get(client, path), [], {"limit": "1"}
    for _ in range(20):
        answer = await client.get(path, params=query)
        pages += answer.json()
        if "Gpuledger-Next" not in answer.headers:
            break
        query["after"] = answer.headers["Gpuledger-Next"]
    assert pages == whole


@pytest.mark.parametrize(
    ("path", "query", "parameter"),
    [
        ("/v1/usage", {"at": "yesterday"}, "at"),
        ("/v1/usage", {"at": "6"}, "at"),
        ("/v1/usage", {"at": "-1"}, "at"),
        ("/v1/holders", {"limit": "0"}, "limit"),
        ("/v1/holders", {"limit": "5001"}, "limit"),
        ("/v1/holds", {"limit": "ten"}, "limit"),
        ("/v1/events", {"from": "2025-99-01"}, "from"),
        ("/v1/events", {"to": "99"}, "to"),
        ("/v1/events", {"after": "3"}, "after"),
        ("/v1/denials", {"before": "x"}, "before"),
        ("/v1/drift", {"before": f"1.{'9' * 28}"}, "before"),
        ("/v1/events", {"after": f"{'9' * 28}.1"}, "after"),
        ("/v1/denials", {"from": "7"}, "from"),
        ("/v1/drift", {"to": "7"}, "to"),
        ("/v1/events", {"from": "3", "to": "1"}, "from and to"),
        ("/v1/denials", {"from": "2026-01-01", "to": "2025-01-01"}, "from and to"),
        ("/v1/usage", {"by": "pod"}, "by"),
        ("/v1/holders", {"pods": "yes"}, "pods"),
        ("/v1/drift", {"from": "7"}, "from"),
        ("/v1/drift", {"before": "7"}, "before"),
        ("/v1/usage", {"namespace": "x" * 601}, "namespace"),
        ("/v1/usage", {"namespace": "é" * 301}, "namespace"),
        ("/v1/holders", {"root": "pods/\x00"}, "root"),
    ],
)
async def test_what_cannot_be_understood_is_refused_by_name(
    client: httpx2.AsyncClient, path: str, query: dict[str, str], parameter: str
) -> None:
    answer = await client.get(path, params=query)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["parameter"] == parameter
    assert error["message"]


@pytest.mark.parametrize(
    ("path", "parameter"),
    [
        ("/v1/usage", "at"),
        ("/v1/events", "from"),
        ("/v1/events", "after"),
        ("/v1/denials", "before"),
        ("/v1/holders", "limit"),
        ("/v1/holders", "pods"),
        ("/v1/usage", "by"),
        ("/v1/usage", "namespace"),
    ],
)
async def test_an_answer_about_a_long_parameter_is_short(
    client: httpx2.AsyncClient, path: str, parameter: str
) -> None:
    answer = await client.get(path, params={parameter: "9" * 5_000})
    assert answer.status_code == 400
    assert answer.json()["error"]["value"] == "9" * 64 + "…"
    assert len(answer.text) < 300


@pytest.mark.parametrize(
    ("host", "remedy"), [("localhost", "gpuledger serve"), ("ledger", "projection_unreadable")]
)
async def test_answer_has_a_remedy_when_no_projection_exists(
    tmp_path: Path, host: str, remedy: str
) -> None:
    readers = Readers(tmp_path / "ledger.sqlite")
    transport = httpx2.ASGITransport(app=Starlette(routes=routes(readers)))
    async with httpx2.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
        answer = await client.get("/v1/usage")
    assert answer.status_code == 503
    message = answer.json()["error"]["message"]
    assert remedy in message
    assert (str(tmp_path) in message) == (host == "localhost"), "a path is for this machine"
