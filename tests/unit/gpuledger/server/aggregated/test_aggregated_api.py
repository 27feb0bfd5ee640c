"""Aggregated API: users by the proxy only, their rights, and errors for both kinds of clients."""

from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography.x509.oid import NameOID
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from support.servers.tls_server import ClientAuthority

from gpuledger.server.aggregated.aggregated_api import AggregatedApi
from gpuledger.server.aggregated.aggregated_discovery import ROOT
from gpuledger.server.aggregated.front_proxy_trust import FrontProxyTrust, UntrustedProxy
from ledger.kube.client.access_review import Subject
from ledger.runtime.http.token_reviews import TokenGuard
from ledger.runtime.http.v1_access import rights_of

TEAM = f"{ROOT}/namespaces/team-a/holders"


class Reviewer:
    """Grants `alice` holders and explain of team-a; counts questions."""

    def __init__(self) -> None:
        self.asked: list[tuple[Subject, str, str, str]] = []
        self.fails = False

    async def review(self, token: str) -> Subject | None:
        raise AssertionError("no token is reviewed")

    async def may(self, caller: Subject, verb: str, resource: str, namespace: str) -> bool:
        if self.fails:
            raise ConnectionError("no route")
        self.asked.append((caller, verb, resource, namespace))
        granted = {("list", "holders", "team-a"), ("create", "explain", "team-a")}
        return caller.username == "alice" and (verb, resource, namespace) in granted


async def echo(request: Request) -> Response:
    """Answer the query that arrived."""
    if request.query_params.get("at") == "99":
        error = {"message": "not projected yet", "parameter": "at", "value": "99"}
        return JSONResponse({"error": error}, 400)
    if request.query_params.get("at") == "text":
        return PlainTextResponse("went wrong", 500)
    if request.query_params.get("at") == "rights":
        refusal = await rights_of(request.scope)("list", "cards", "")
        return JSONResponse({"status": refusal and refusal.status})
    return JSONResponse(dict(request.query_params), headers={"Gpuledger-Position": "7"})


ROUTES = [
    Route("/v1/holders", echo, methods=["GET"]),
    Route("/v1/cards", echo, methods=["GET"]),
    Route("/v1/explain", echo, methods=["POST"]),
    Route("/metrics", echo, methods=["GET"]),
    Route("/admission/validate", echo, methods=["POST"]),
]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return certificates by their names; the first block of the file is the certificate."""
    authority = ClientAuthority(tmp_path_factory.mktemp("ca") / "proxies")
    end = "-----END CERTIFICATE-----\n"
    return {
        name: Path(authority.issue((NameOID.COMMON_NAME, name))).read_text().split(end)[0] + end
        for name in ("front-proxy", "another")
    }


class Client:
    """Sends requests to the application as the TLS layer describes them."""

    def __init__(self, certificates: dict[str, str]) -> None:
        self.reviewer, self.certificates = Reviewer(), certificates
        self.trust: FrontProxyTrust | None = FrontProxyTrust(
            b"",
            frozenset({"front-proxy"}),
            ("x-remote-user",),
            ("x-remote-uid",),
            ("x-remote-group",),
            ("x-remote-extra-",),
        )
        # With a clock that never moves, a slow machine regains no questions during a test.
        guard = TokenGuard(self.reviewer, clock=lambda: 1.0)
        self._api = AggregatedApi(ROUTES, guard=guard, trust=self._trusted, cluster="east")

    def _trusted(self) -> FrontProxyTrust:
        if self.trust is None:
            raise UntrustedProxy("no CA")
        return self.trust

    async def ask(
        self,
        path: str,
        user: str | None = "alice",
        *,
        name: str | None = "front-proxy",
        method: str = "GET",
        headers: list[tuple[str, str]] | None = None,
        raw: tuple[tuple[bytes, bytes], ...] = (),
    ) -> httpx2.Response:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            chain = [self.certificates[name]] if name else []
            tls = {"client_cert_chain": chain, "client_cert_name": name and f"CN={name}"}
            await self._api({**scope, "extensions": {"tls": tls}}, receive, send)

        transport = httpx2.ASGITransport(app, client=("127.0.0.1", 4711))
        sent = [*(headers or []), *([("X-Remote-User", user)] if user is not None else [])]
        async with httpx2.AsyncClient(transport=transport, base_url="https://localhost") as client:
            encoded = [(key.encode(), value.encode()) for key, value in sent]
            return await client.request(method, path, headers=[*encoded, *raw])


@pytest.fixture
def client(certificates: dict[str, str]) -> Client:
    return Client(certificates)


async def test_proxied_user_reads_as_in_v1_in_own_namespace(client: Client) -> None:
    answer = await client.ask(f"{TEAM}?limit=5")
    assert answer.status_code == 200
    assert answer.json() == {"limit": "5", "namespace": "team-a", "cluster": "east"}
    assert answer.headers["gpuledger-position"] == "7"
    groups = [("X-Remote-Group", "tenants"), ("x-remote-group", "system:authenticated")]
    extra = [("X-Remote-Uid", "u1"), ("X-Remote-Extra-Example.com%2fScope", "a")]
    await client.ask(TEAM, headers=groups + extra)
    assert client.reviewer.asked[-1] == (
        Subject("alice", "u1", ("tenants", "system:authenticated"), {"example.com/scope": ["a"]}),
        "list",
        "holders",
        "team-a",
    )


@pytest.mark.parametrize("name", [None, "another"])
async def test_client_without_the_proxy_certificate_names_no_user(
    client: Client, name: str | None
) -> None:
    answer = await client.ask(TEAM, name=name)
    assert answer.status_code == 401
    assert answer.headers["connection"] == "close", "an old connection lacks the certificate"
    assert not client.reviewer.asked, "no right of the named user is reviewed"


async def test_proxy_names_no_user_while_no_authority_is_trusted(client: Client) -> None:
    client.trust = None
    answer = await client.ask(TEAM)
    assert (answer.status_code, answer.json()["reason"]) == (503, "ServiceUnavailable")
    assert (await client.ask(ROOT)).status_code == 200, "namespaces can still be deleted"


@pytest.mark.parametrize(
    ("user", "path", "named"),
    [
        ("alice", f"{ROOT}/namespaces/team-b/holders", 'in the namespace "team-b"'),
        ("alice", f"{ROOT}/holders", "at the cluster scope"),
        ("mallory", TEAM, 'User "mallory"'),
        ("alice", f"{ROOT}/cards", "at the cluster scope"),
    ],
)
async def test_user_without_the_right_is_refused(
    client: Client, user: str, path: str, named: str
) -> None:
    answer = await client.ask(path, user)
    body = answer.json()
    assert (answer.status_code, body["kind"], body["reason"]) == (403, "Status", "Forbidden")
    assert named in body["message"]
    assert body["error"]["message"] == body["message"], "clients of /v1 read it, too"


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("namespace=team-b", 400),
        ("limit=1&limit=2", 400),
        ("watch=true", 400),
        ("fieldSelector=metadata.name%3Dx", 400),
        ("cluster=west", 403),
    ],
)
async def test_query_cannot_widen_what_was_authorized(
    client: Client, query: str, status: int
) -> None:
    assert (await client.ask(f"{TEAM}?{query}")).status_code == status
    assert not client.reviewer.asked


@pytest.mark.parametrize(
    "path",
    [
        "/metrics",
        "/v1/holders?namespace=team-a",
        "/admission/validate",
        f"{TEAM}/pods",
        f"{ROOT}/namespaces//holders",
        f"{ROOT}/namespaces/team-a/secrets",
        f"{ROOT}/namespaces/team-a%2F..%2Fteam-b/holders",
    ],
)
async def test_other_paths_are_not_served(client: Client, path: str) -> None:
    assert (await client.ask(path)).status_code == 404


async def test_other_methods_are_refused_before_the_review(client: Client) -> None:
    answer = await client.ask(TEAM, method="POST")
    assert answer.status_code == 405
    assert (await client.ask(TEAM, method="DELETE")).status_code == 405
    assert not client.reviewer.asked


async def test_explained_user_is_the_caller_unless_given(client: Client) -> None:
    path = f"{ROOT}/namespaces/team-a/explain"
    assert (await client.ask(path, method="POST")).json()["user"] == "alice"
    assert (await client.ask(f"{path}?user=bob", method="POST")).json()["user"] == "bob"


@pytest.mark.parametrize(
    "headers", [[], [("X-Remote-User", "")], [("X-Remote-User", "a"), ("X-Remote-User", "b")]]
)
async def test_unclear_user_is_refused(client: Client, headers: list[tuple[str, str]]) -> None:
    assert (await client.ask(TEAM, None, headers=headers)).status_code == 401
    assert not client.reviewer.asked


async def test_headers_that_name_no_user_may_have_any_bytes(client: Client) -> None:
    latin = ((b"User-Agent", b"\xe9"), (b"X-Comment", b"\xff\x80"))
    assert (await client.ask(TEAM, raw=latin)).status_code == 200
    utf8 = await client.ask(TEAM, raw=((b"X-Remote-Group", "gäste".encode()),))
    assert utf8.status_code == 200
    assert client.reviewer.asked[-1][0].groups == ("gäste",)


async def test_header_of_the_user_has_to_be_utf8(client: Client) -> None:
    refused = await client.ask(TEAM, raw=((b"X-Remote-Group", b"g\xe4ste"),))
    assert refused.status_code == 401
    assert "x-remote-group is not UTF-8" in refused.json()["message"]
    assert not client.reviewer.asked


async def test_refusal_of_an_endpoint_becomes_a_status(client: Client) -> None:
    body = (await client.ask(f"{TEAM}?at=99")).json()
    assert (body["kind"], body["code"], body["reason"]) == ("Status", 400, "BadRequest")
    assert body["message"] == "at: not projected yet"
    assert body["error"] == {"message": "not projected yet", "parameter": "at", "value": "99"}
    body = (await client.ask(f"{TEAM}?at=text")).json()
    assert (body["code"], body["message"]) == (500, "went wrong")


async def test_reviewer_without_an_answer_refuses_with_503(client: Client) -> None:
    client.reviewer.fails = True
    assert (await client.ask(TEAM)).status_code == 503


async def test_discovery_lists_what_v1_serves(client: Client) -> None:
    listed = (await client.ask(ROOT, None, name=None)).json()
    by_name = {entry["name"]: entry for entry in listed["resources"]}
    assert {name: (by_name[name]["verbs"], by_name[name]["namespaced"]) for name in by_name} == {
        "holders": (["list"], True),
        "cards": (["list"], False),
        "explain": (["create"], True),
    }


async def test_questions_of_one_caller_are_limited(client: Client) -> None:
    statuses = [
        (await client.ask(f"{ROOT}/namespaces/n{number}/holders")).status_code
        for number in range(130)
    ]
    assert statuses[0] == 403
    assert statuses[-1] == 429
    assert len(client.reviewer.asked) <= 100


async def test_endpoint_asks_further_rights_of_the_caller(client: Client) -> None:
    assert (await client.ask(f"{TEAM}?at=rights")).json() == {"status": 403}
    assert client.reviewer.asked[-1][0].username == "alice"
    assert client.reviewer.asked[-1][1:] == ("list", "cards", "")
