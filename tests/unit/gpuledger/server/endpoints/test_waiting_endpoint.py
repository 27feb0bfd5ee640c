"""`GET /v1/waiting`: rows of the caller's namespace, and refusals with their remedies."""

from urllib.parse import urlencode

import httpx2
import msgspec
import pytest
from starlette.applications import Starlette

from gpuledger.server.endpoints.live_waiting import Answer, LiveWaiting
from gpuledger.server.endpoints.waiting_endpoint import WaitingEndpoint
from ledger.log.log_port import Unreachable
from ledger.log.peers.active_replica_questions import QUESTION_BYTES_MAX, ActiveReplicaQuestions
from ledger.runtime.http.token_reviews import TokenGuard
from ledger.runtime.http.v1_access import AccessRequired
from projections.api.query_parameters import LIMIT_MAX
from webhook.gates.waiting_report import WaitingPage, WaitingQuestion, WaitingRow


def row(namespace: str) -> WaitingRow:
    amounts = {"nvidia.com/gpu": 1}
    return WaitingRow("east", namespace, "p", "pods/p", "u", amounts, "", "2026-01-01", 1, "full")


def answer(question: WaitingQuestion) -> WaitingPage:
    rows = [row(name) for name in ("blue", "red") if question.namespace in ("", name)]
    return WaitingPage(rows[: question.limit], "red/1/pods/p" if question.limit == 1 else "")


class Reviewer:
    """Lets the tenant list what waits in namespace red, and the admin in all."""

    async def review(self, token: str) -> str | None:
        return token

    async def may(self, caller: str, verb: str, resource: str, namespace: str) -> bool:
        is_granted = caller == "admin" or namespace == "red"
        return (verb, resource) == ("list", "waiting") and is_granted


async def ask(
    query: str = "", *, token: str = "admin", by: Answer | None = answer
) -> httpx2.Response:
    live = LiveWaiting(ActiveReplicaQuestions("east"), by)
    routes = [WaitingEndpoint(live, "east").route()]
    app = AccessRequired(Starlette(routes=routes), TokenGuard(Reviewer()), cluster="east")
    transport = httpx2.ASGITransport(app, client=("203.0.113.9", 4711))
    headers = {"authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(transport=transport, base_url="https://ledger") as client:
        return await client.get(f"/v1/waiting{query}", headers=headers)


async def test_all_rows_are_listed_with_the_place_of_the_next_page() -> None:
    listed = await ask()
    assert [line["namespace"] for line in listed.json()] == ["blue", "red"]
    assert "gpuledger-next" not in listed.headers
    assert (await ask("?limit=1")).headers["gpuledger-next"] == "red/1/pods/p"


async def test_a_tenant_gets_the_rows_of_its_namespace_only() -> None:
    listed = await ask("?namespace=red", token="tenant")
    assert [line["namespace"] for line in listed.json()] == ["red"]


@pytest.mark.parametrize("query", ["", "?namespace=blue", "?namespace=red&namespace=blue"])
async def test_a_tenant_is_refused_elsewhere(query: str) -> None:
    assert (await ask(query, token="tenant")).status_code in (400, 403)


@pytest.mark.parametrize("query", ["?at=3", "?limit=0", "?limit=x"])
async def test_invalid_parameters_are_refused(query: str) -> None:
    refused = await ask(query)
    assert refused.status_code == 400
    assert refused.json()["error"]["parameter"] in query


@pytest.mark.parametrize("value", ["x" * 601, "é" * 301, "\U0001f4bb" * 600, "a\nb"])
@pytest.mark.parametrize("by", [answer, lambda _: None], ids=["active", "passive"])
async def test_replicas_refuse_a_long_parameter_alike(value: str, by: Answer) -> None:
    for name in ("namespace", "after"):
        refused = await ask(f"?{urlencode({name: value})}", by=by)
        assert refused.status_code == 400
        assert refused.json()["error"]["parameter"] == name
        assert "600" in refused.text or "control character" in refused.text


@pytest.mark.parametrize("text", ["\U0001f4bb" * 150, '"' * 600, "\\" * 600])
async def test_longest_parameters_fit_into_a_question(text: str) -> None:
    asked = list[WaitingQuestion]()

    def by(question: WaitingQuestion) -> WaitingPage:
        asked.append(question)
        return WaitingPage([])

    given = {"namespace": text, "after": text, "limit": LIMIT_MAX}
    assert (await ask(f"?{urlencode(given)}", by=by)).status_code == 200
    assert len(msgspec.json.encode(asked[0])) <= QUESTION_BYTES_MAX


async def test_without_a_cluster_the_answer_is_honest() -> None:
    refused = await ask(by=None)
    assert refused.status_code == 404
    assert "runs with a cluster" in refused.json()["error"]["message"]


async def test_before_the_log_is_open_the_answer_is_503() -> None:
    refused = await ask(by=lambda _: None)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")


@pytest.mark.parametrize("question", [b"{", b'{"namespace": "\xff", "limit": 1}', b"[]"])
async def test_an_unreadable_question_is_not_answered(question: bytes) -> None:
    questions = ActiveReplicaQuestions("east")
    LiveWaiting(questions, answer)
    assert await questions.ask(b'{"namespace": "red", "limit": 1}')
    with pytest.raises(Unreachable, match="not open"):  # as if no answer was there
        await questions.ask(question)
