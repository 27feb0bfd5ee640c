"""Access to /v1: loopback, tokens, tenants, and what is remembered for how long."""

import asyncio
import tracemalloc
from typing import Any

import httpx2
import msgspec
import pytest

from ledger.runtime.http import token_reviews
from ledger.runtime.http.token_reviews import TokenGuard
from ledger.runtime.http.v1_access import AccessRequired

Question = tuple[str, str, str, str]


class Reviewer:
    """Accepts some tokens, with the rights of their users."""

    def __init__(self, tokens: dict[str, str], granted: set[Question]) -> None:
        self.tokens = tokens
        self.granted = granted
        self.asked = self.questions = 0
        self.failing = False

    async def review(self, token: str) -> str | None:
        self.asked += 1
        if self.failing:
            raise ConnectionError("no route")
        await asyncio.sleep(0)
        return self.tokens.get(token)

    async def may(self, caller: str, verb: str, resource: str, namespace: str) -> bool:
        self.questions += 1
        return (caller, verb, resource, namespace) in self.granted


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def reviewer() -> Reviewer:
    return Reviewer(
        {"t-red": "red", "t-admin": "admin"},
        {
            ("red", "list", "holders", "red"),
            ("admin", "list", "holders", ""),
            ("admin", "create", "explain", "red"),
        },
    )


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer the query that arrived."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope.get("query_string", b"")})


async def ask(
    guard: TokenGuard[str],
    path: str,
    token: str = "",
    peer: str = "203.0.113.9",
    method: str = "GET",
    host: str = "gpuledger.example:8443",
) -> httpx2.Response:
    transport = httpx2.ASGITransport(
        AccessRequired(echo, guard, cluster="east"), client=(peer, 4711)
    )
    headers = {"host": host} | ({"authorization": f"Bearer {token}"} if token else {})
    async with httpx2.AsyncClient(transport=transport, base_url="https://gpuledger") as client:
        return await client.request(method, path, headers=headers)


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize("host", ["localhost:8443", "127.0.0.1:8443", "[::1]:8443", "[::1]"])
async def test_loopback_may_read_everything(peer: str, host: str) -> None:
    answer = await ask(TokenGuard(None), "/v1/holders?at=7", peer=peer, host=host)
    assert (answer.status_code, answer.text) == (200, "at=7")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8443", "", "127.0.0.1.evil.example"]
)
async def test_a_web_page_that_points_its_own_name_at_loopback_is_refused(host: str) -> None:
    answer = await ask(TokenGuard(None), "/v1/holders", peer="127.0.0.1", host=host)
    assert answer.status_code == 403


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8443"])
async def test_remote_client_with_loopback_as_host_is_refused(host: str) -> None:
    answer = await ask(TokenGuard(None), "/v1/holders", peer="203.0.113.9", host=host)
    assert answer.status_code == 403


async def test_without_a_cluster_others_are_refused_even_with_a_token() -> None:
    assert (await ask(TokenGuard(None), "/v1/holders", "t-red")).status_code == 403


@pytest.mark.parametrize("token", ["", "t-unknown"])
async def test_a_missing_or_invalid_token_is_answered_401(reviewer: Reviewer, token: str) -> None:
    answer = await ask(TokenGuard(reviewer), "/v1/holders?namespace=red", token)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_a_tenant_reads_its_own_holders(reviewer: Reviewer) -> None:
    answer = await ask(TokenGuard(reviewer), "/v1/holders?namespace=red", "t-red")
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/v1/holders?namespace=blue",
        "/v1/holders",
        "/v1/holders?namespace=",
        "/v1/usage?namespace=red",
        "/v1/holders/of/blue?namespace=blue",
    ],
)
async def test_tenant_reads_only_its_own_data(reviewer: Reviewer, path: str) -> None:
    answer = await ask(TokenGuard(reviewer), path, "t-red")
    assert answer.status_code == 403
    assert "you may not list" in msgspec.json.decode(answer.content)["error"]["message"]


async def test_two_namespaces_in_one_query_are_refused(reviewer: Reviewer) -> None:
    answer = await ask(TokenGuard(reviewer), "/v1/holders?namespace=red&namespace=blue", "t-red")
    assert answer.status_code == 400


async def test_a_token_is_good_for_its_own_cluster_only(reviewer: Reviewer) -> None:
    answer = await ask(TokenGuard(reviewer), "/v1/holders?namespace=red&cluster=west", "t-red")
    assert answer.status_code == 403


async def test_the_query_behind_a_token_is_narrowed_to_its_cluster(reviewer: Reviewer) -> None:
    answer = await ask(TokenGuard(reviewer), "/v1/holders?namespace=red&at=7", "t-red")
    assert answer.text == "namespace=red&at=7&cluster=east"


async def test_a_post_needs_the_verb_create(reviewer: Reviewer) -> None:
    guard = TokenGuard(reviewer)
    path = "/v1/explain?namespace=red"
    assert (await ask(guard, path, "t-admin", method="POST")).status_code == 200
    assert (await ask(guard, path, "t-admin")).status_code == 403


async def test_other_methods_are_refused(reviewer: Reviewer) -> None:
    assert (
        await ask(TokenGuard(reviewer), "/v1/holders", "t-admin", method="PUT")
    ).status_code == 405


async def test_other_paths_are_not_guarded(reviewer: Reviewer) -> None:
    assert (await ask(TokenGuard(reviewer), "/metrics")).status_code == 200


async def test_a_review_that_fails_is_answered_503_and_not_remembered(reviewer: Reviewer) -> None:
    guard = TokenGuard(reviewer)
    reviewer.failing = True
    assert (await ask(guard, "/v1/holders?namespace=red", "t-red")).status_code == 503
    reviewer.failing = False
    assert (await ask(guard, "/v1/holders?namespace=red", "t-red")).status_code == 200


async def test_a_grant_is_remembered_until_it_is_old(reviewer: Reviewer) -> None:
    clock = Clock()
    guard = TokenGuard(reviewer, clock)
    question = ("t-red", "list", "holders", "red")
    assert await guard.refusal(*question) is None
    reviewer.granted.clear()
    clock.now += token_reviews.GRANT_SECONDS - 1
    assert await guard.refusal(*question) is None
    clock.now += 1
    assert await guard.refusal(*question) is not None


async def test_a_refusal_is_remembered_for_less_long(reviewer: Reviewer) -> None:
    clock = Clock()
    guard = TokenGuard(reviewer, clock)
    question = ("t-red", "list", "holders", "blue")
    assert await guard.refusal(*question) is not None
    reviewer.granted.add(("red", "list", "holders", "blue"))
    clock.now += token_reviews.REFUSAL_SECONDS - 1
    assert await guard.refusal(*question) is not None
    clock.now += 1
    assert await guard.refusal(*question) is None


async def test_only_so_many_answers_are_remembered(
    reviewer: Reviewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_reviews, "REMEMBERED_MAX", 2)
    guard = TokenGuard(reviewer, Clock())
    for namespace in ("a", "b", "c", "a"):
        await guard.refusal("t-red", "list", "holders", namespace)
    assert reviewer.questions == 4
    await guard.refusal("t-red", "list", "holders", "c")
    assert reviewer.questions == 4


async def test_a_long_question_is_remembered_in_as_many_bytes_as_a_short_one(
    reviewer: Reviewer,
) -> None:
    guard = TokenGuard(reviewer, Clock())
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(50):
            await guard.refusal("t-red", "list", "holders", f"{number}" * 100_000)
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept < 100_000


async def test_a_token_is_reviewed_once_for_all_that_it_asks(reviewer: Reviewer) -> None:
    guard = TokenGuard(reviewer, Clock())
    for namespace in ("a", "b", "c"):
        await guard.refusal("t-red", "list", "holders", namespace)
        await guard.refusal("t-unknown", "list", "holders", namespace)
    assert (reviewer.asked, reviewer.questions) == (2, 3)


async def test_requests_with_one_token_at_once_share_one_review(reviewer: Reviewer) -> None:
    guard = TokenGuard(reviewer, Clock())
    questions = [guard.refusal("t-red", "list", "holders", "red") for _ in range(50)]
    assert await asyncio.gather(*questions) == [None] * 50
    assert reviewer.asked == 1


async def test_a_thousand_unknown_tokens_make_few_reviews(reviewer: Reviewer) -> None:
    clock = Clock()
    guard = TokenGuard(reviewer, clock)
    seen = set()
    for number in range(1000):
        peer = f"203.0.113.{number % 40}"
        refusal = await guard.refusal(f"t-{number}", "list", "holders", "red", peer)
        assert refusal is not None
        seen.add(refusal.status)
        clock.now += 0.005
    assert seen == {401, 429}
    assert reviewer.asked <= 40


async def test_one_peer_with_unknown_tokens_leaves_room_for_the_tokens_of_others(
    reviewer: Reviewer,
) -> None:
    guard = TokenGuard(reviewer, Clock())
    for number in range(1000):
        await guard.refusal(f"t-{number}", "list", "holders", "red", "203.0.113.7")
    assert await guard.refusal("t-red", "list", "holders", "red", "203.0.113.8") is None


async def test_a_token_that_was_accepted_is_reviewed_again_beside_unknown_ones(
    reviewer: Reviewer,
) -> None:
    clock = Clock()
    guard = TokenGuard(reviewer, clock)
    assert await guard.refusal("t-red", "list", "holders", "red", "203.0.113.7") is None
    clock.now += token_reviews.GRANT_SECONDS
    for number in range(1000):
        await guard.refusal(f"t-{number}", "list", "holders", "red", f"203.0.113.{number % 40}")
    assert await guard.refusal("t-red", "list", "holders", "red", "203.0.113.7") is None


async def test_one_token_asks_only_so_many_questions(reviewer: Reviewer) -> None:
    guard = TokenGuard(reviewer, Clock())
    for number in range(1000):
        refusal = await guard.refusal("t-red", "list", "holders", f"n-{number}")
        assert refusal is not None
    assert reviewer.questions <= token_reviews.QUESTIONS_OF_ONE.burst
    assert (refusal.status, "try again" in refusal.error) == (429, True)
    assert await guard.refusal("t-admin", "list", "holders", "") is None


async def test_the_review_of_a_token_that_is_not_valid_is_remembered(reviewer: Reviewer) -> None:
    clock = Clock()
    guard = TokenGuard(reviewer, clock)
    await guard.refusal("t-new", "list", "holders", "red")
    reviewer.tokens["t-new"] = "red"
    clock.now += token_reviews.INVALID_SECONDS - 1
    assert await guard.refusal("t-new", "list", "holders", "red") is not None
    assert reviewer.asked == 1
    clock.now += 1
    assert await guard.refusal("t-new", "list", "holders", "red") is None


async def test_revoked_token_works_until_its_cached_grant_expires(
    reviewer: Reviewer,
) -> None:
    clock = Clock()
    guard = TokenGuard(reviewer, clock)
    reviewer.granted.add(("red", "list", "holds", "red"))
    await guard.refusal("t-red", "list", "holders", "red")
    del reviewer.tokens["t-red"]
    clock.now += token_reviews.GRANT_SECONDS - 1
    assert await guard.refusal("t-red", "list", "holds", "red") is None
    clock.now += 1
    assert await guard.refusal("t-red", "list", "holds", "red") is not None


async def test_an_answer_for_one_token_is_not_given_to_another(reviewer: Reviewer) -> None:
    guard = TokenGuard(reviewer, Clock())
    assert await guard.refusal("t-admin", "list", "holders", "") is None
    assert await guard.refusal("t-red", "list", "holders", "") is not None


async def test_a_user_is_granted_the_same_with_and_without_a_token(reviewer: Reviewer) -> None:
    guard = TokenGuard(reviewer, Clock())
    assert await guard.refusal("t-red", "list", "holders", "red") is None
    assert await guard.refusal_of("red", "list", "holders", "red") is None
    assert reviewer.questions == 1, "one cached answer serves both"


async def test_a_failed_review_of_a_user_without_a_token_mentions_none(reviewer: Reviewer) -> None:
    class Silent(Reviewer):
        async def may(self, caller: str, verb: str, resource: str, namespace: str) -> bool:
            raise ConnectionError("no route")

    refusal = await TokenGuard(Silent({}, set())).refusal_of("red", "list", "holders", "red")
    assert refusal is not None
    assert (refusal.status, "token" in refusal.error) == (503, False)
