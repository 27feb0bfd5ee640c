"""TokenReview and SubjectAccessReview over real HTTP, against a stand-in for the API server."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from support.fakes.apiserver import client_on_loopback

from ledger.kube.client.access_review import KubernetesReviewer, Subject


class Reviews:
    """Answers reviews as an API server does, and keeps what was asked."""

    def __init__(self) -> None:
        self.access: list[Any] = []
        self.status = 201
        self.broken = False

    async def token(self, request: web.Request) -> web.Response:
        asked = await request.json()
        assert (asked["apiVersion"], asked["kind"]) == ("authentication.k8s.io/v1", "TokenReview")
        known = asked["spec"]["token"] == "t-red"
        user = {"username": "red", "uid": "u1", "groups": ["tenants"], "extra": {"scope": ["a"]}}
        named = {"username": "red"} if asked["spec"]["token"] == "t-expired" else {}
        status = {"authenticated": True, "user": user} if known else {"user": named}
        body = {"status": "?"} if self.broken else {**asked, "status": status}
        return web.json_response(body, status=self.status)

    async def subject(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.access.append(asked)
        spec = asked["spec"]
        wanted = spec.get("resourceAttributes") or spec["nonResourceAttributes"]
        allowed = (spec["user"], wanted.get("namespace")) == ("red", "red")
        allowed = allowed or wanted == {"path": "/metrics", "verb": "get"}
        return web.json_response({**asked, "status": {"allowed": allowed}}, status=self.status)


@pytest.fixture
def reviews() -> Reviews:
    return Reviews()


@pytest.fixture
async def reviewer(reviews: Reviews, tmp_path: Path) -> AsyncIterator[KubernetesReviewer]:
    app = web.Application()
    app.router.add_post("/apis/authentication.k8s.io/v1/tokenreviews", reviews.token)
    app.router.add_post("/apis/authorization.k8s.io/v1/subjectaccessreviews", reviews.subject)
    async with client_on_loopback(app, tmp_path) as client:
        yield KubernetesReviewer(client)


async def test_a_valid_token_names_its_user(reviewer: KubernetesReviewer) -> None:
    assert await reviewer.review("t-red") == Subject("red", "u1", ("tenants",), {"scope": ["a"]})


@pytest.mark.parametrize("token", ["t-forged", "t-expired"])
async def test_a_token_that_is_not_authenticated_names_no_user(
    reviewer: KubernetesReviewer, token: str
) -> None:
    assert await reviewer.review(token) is None


async def test_the_question_names_user_groups_and_resource(
    reviewer: KubernetesReviewer, reviews: Reviews
) -> None:
    subject = Subject("red", "u1", ("tenants",), {"scope": ["a"]})
    assert await reviewer.may(subject, "list", "holders", "red")
    assert reviews.access[0]["spec"] == {
        "user": "red",
        "uid": "u1",
        "groups": ["tenants"],
        "extra": {"scope": ["a"]},
        "resourceAttributes": {
            "group": "gpuledger.io",
            "resource": "holders",
            "verb": "list",
            "namespace": "red",
        },
    }


@pytest.mark.parametrize("namespace", ["blue", ""])
async def test_another_tenants_holders_are_refused(
    reviewer: KubernetesReviewer, namespace: str
) -> None:
    assert not await reviewer.may(Subject("red"), "list", "holders", namespace)


@pytest.mark.parametrize("status", [401, 403, 500, 503])
async def test_a_silent_api_server_is_an_unavailable_review(
    reviewer: KubernetesReviewer, reviews: Reviews, status: int
) -> None:
    reviews.status = status
    with pytest.raises(ConnectionError, match=f"answered {status}"):
        await reviewer.review("t-red")


async def test_an_answer_that_is_not_a_review_is_unavailable(
    reviewer: KubernetesReviewer, reviews: Reviews
) -> None:
    reviews.broken = True
    with pytest.raises(ConnectionError):
        await reviewer.review("t-red")


async def test_a_path_is_asked_about_as_a_path(
    reviewer: KubernetesReviewer, reviews: Reviews
) -> None:
    assert await reviewer.may(Subject("scraper"), "get", "/metrics", "")
    assert not await reviewer.may(Subject("scraper"), "get", "/readyz", "")
    assert "resourceAttributes" not in reviews.access[0]["spec"]
