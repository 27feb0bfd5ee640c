"""The service asks the API server who it is."""

from pathlib import Path

import pytest
from aiohttp import web
from support.fakes.apiserver import client_on_loopback

from ledger.kube.api.cluster_errors import ClusterError
from ledger.kube.client.own_identity import own_name

ASKED = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


async def named(answer: web.Response, folder: Path) -> str:
    """Return the own name by an API server that gives one answer."""

    async def review(request: web.Request) -> web.Response:
        assert await request.json() == ASKED
        return answer

    app = web.Application()
    app.router.add_post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    async with client_on_loopback(app, folder) as client:
        return await own_name(client)


async def test_the_name_is_the_one_that_the_api_server_authenticated(tmp_path: Path) -> None:
    user = {"username": "system:serviceaccount:own:gpuledger", "groups": ["a"]}
    answer = web.json_response({**ASKED, "status": {"userInfo": user}}, status=201)
    assert await named(answer, tmp_path) == user["username"]


@pytest.mark.parametrize(("status", "body"), [(403, {}), (404, {}), (201, {"status": {}})])
async def test_without_a_name_the_answer_is_an_error(
    tmp_path: Path, status: int, body: object
) -> None:
    with pytest.raises(ClusterError, match="selfsubjectreviews"):
        await named(web.json_response(body, status=status), tmp_path)
