"""Access to the pages: this machine, a named proxy, a bearer token, a session, and no other."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send
from support.builders.decide_and_fold import record
from support.harness.projection_harness import log_of, project
from support.pages.page_harness import FakeSource

from gpuledger.page.access.form_tokens import FormTokens
from gpuledger.page.access.login_page import FORM_COOKIE, LoginPage, safe_path
from gpuledger.page.access.page_access import AccessSettings, PageAccess, PageMode
from gpuledger.page.access.proxied_user import ProxySettings, proxied_user
from gpuledger.page.access.session_cookie import NAME, SessionCookies, TokenTooLong
from gpuledger.page.page_app import PageApp
from gpuledger.page.page_errors import PageError
from gpuledger.page.serving import form_body
from ledger.core.model import commands
from ledger.core.model.state import State
from ledger.kube.client.access_review import Subject
from ledger.runtime.http.token_reviews import TokenGuard
from ledger.runtime.tls import certificate_reload
from ledger.runtime.tls.certificate_reload import Tls
from projections.store.readers import Readers

PROXY = ProxySettings(frozenset({"CN=ingress"}), "X-Forwarded-User", "X-Forwarded-Groups")
MANY = ",".join(["admins", *map(str, range(300))])
FIELD = 'name="form_token" value="'
NAMELESS = "You may not read all namespaces."
RED = "/page/?namespace=red"


class Reviewer:
    """Alice may list usage in red; admins, and Kubernetes' own users and masters, everything."""

    def __init__(self) -> None:
        self.reviewed: list[str] = []

    async def review(self, token: str) -> Subject | None:
        self.reviewed.append(token)
        return Subject("alice") if token == "alice-token" else None

    async def may(self, caller: Subject, verb: str, resource: str, namespace: str) -> bool:
        if {"admins", "system:masters"} & set(caller.groups) or "system:" in caller.username:
            return True
        return (caller.username, verb, resource, namespace) == ("alice", "list", "usage", "red")


class Site:
    """The pages as a client on another machine reaches them; `certificate` is its subject."""

    def __init__(self, readers: Readers, mode: PageMode) -> None:
        self.now, self.certificate, self.peer = 1_000.0, "", "10.0.0.9"
        self.reviewer = Reviewer()
        self.guard: TokenGuard[Subject] = TokenGuard(self.reviewer, lambda: self.now)
        tokens = FormTokens(lambda: b"k" * 32)
        self.sessions = SessionCookies(lambda: b"s" * 32, seconds=600, clock=lambda: self.now)
        settings = AccessSettings(mode=mode, cluster="c1", proxy=PROXY)
        login = LoginPage(self.guard, sessions=self.sessions, tokens=tokens)
        app = PageApp(
            readers,
            FakeSource(),
            identify=PageAccess(settings, self.guard, sessions=self.sessions).identify,
            tokens=tokens,
            login=login if mode is PageMode.LOGIN else None,
        )
        self._app = Starlette(routes=app.routes())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tls = {"client_cert_name": self.certificate or None}
        seen = {**scope, "client": (self.peer, 1), "extensions": {"tls": tls}}
        await self._app(seen, receive, send)

    def client(self, host: str = "gpuledger.example") -> httpx2.AsyncClient:
        transport = httpx2.ASGITransport(app=self)
        return httpx2.AsyncClient(transport=transport, base_url=f"https://{host}")


@pytest.fixture
async def readers(tmp_path: Path) -> AsyncIterator[Readers]:
    limits = commands.SetLimits(
        "quota/c1/red/main", ("c1/red",), {"requests.nvidia.com/gpu": 4}, ""
    )
    payload = record(State(), [limits], time=1)
    assert payload is not None
    await project(tmp_path / "ledger.sqlite", log_of([payload]))
    async with Readers(tmp_path / "ledger.sqlite") as readers:
        yield readers


@pytest.mark.parametrize(
    ("peer", "host", "header", "status"),
    [
        ("127.0.0.1", "localhost", "", 200),
        ("127.0.0.1", "rebound.example", "", 403),
        ("10.0.0.9", "localhost", "", 403),
        ("127.0.0.1", "localhost", "x-forwarded-for", 403),
        ("127.0.0.1", "localhost", "forwarded", 403),
    ],
)
async def test_only_this_machine_reads_unless_the_operator_allows_others(
    readers: Readers, peer: str, host: str, header: str, status: int
) -> None:
    site = Site(readers, PageMode.LOOPBACK)
    site.peer = peer
    headers = {header: "10.0.0.9"} if header else {}
    answer = await site.client(host).get("/page/", headers=headers)
    assert answer.status_code == status
    assert status == 200 or "page_proxy_subjects" in answer.text


async def test_a_token_reads_what_its_user_may(readers: Readers) -> None:
    site = Site(readers, PageMode.TOKEN)
    bearer = {"authorization": "Bearer alice-token"}
    async with site.client() as client:
        assert "alice" in (await client.get(RED, headers=bearer)).text
        assert NAMELESS in (await client.get("/page/", headers=bearer)).text
        other = await client.get(f"{RED}&cluster=c2", headers=bearer)
        assert (other.status_code, "cluster c1 only" in other.text) == (403, True)
        assert (await client.get(RED)).status_code == 401
        wrong = {"authorization": "Bearer wrong"}
        assert (await client.get(RED, headers=wrong)).status_code == 401


async def test_a_session_does_not_count_where_only_tokens_do(readers: Readers) -> None:
    site = Site(readers, PageMode.TOKEN)
    cookies = {NAME: site.sessions.seal("alice-token")}
    assert (await site.client().get(RED, headers=_cookie(cookies))).status_code == 401


def _cookie(cookies: dict[str, str]) -> dict[str, str]:
    return {"cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}


async def test_reviews_of_unknown_tokens_are_limited(readers: Readers) -> None:
    site = Site(readers, PageMode.TOKEN)
    async with site.client() as client:
        answers = [
            (await client.get(RED, headers={"authorization": f"Bearer unknown{n}"})).status_code
            for n in range(40)
        ]
    assert answers[0] == 401
    assert answers[-1] == 429
    assert len(site.reviewer.reviewed) <= 10


async def test_questions_about_the_rights_of_one_user_are_limited(readers: Readers) -> None:
    site = Site(readers, PageMode.TOKEN)
    bearer = {"authorization": "Bearer alice-token"}
    async with site.client() as client:
        answers = [
            (await client.get(f"/page/?namespace=n{n}", headers=bearer)).status_code
            for n in range(105)
        ]
    assert set(answers[:100]) == {403}
    assert answers[-1] == 429


async def test_a_proxy_names_the_user_over_its_certificate_only(readers: Readers) -> None:
    site = Site(readers, PageMode.LOOPBACK)
    named = {"x-forwarded-user": "alice", "x-forwarded-for": "1.2.3.4"}
    async with site.client() as client:
        assert (await client.get(RED, headers=named)).status_code == 403
        site.certificate = "CN=other"
        assert (await client.get(RED, headers=named)).status_code == 403
        site.certificate = "CN=ingress"
        assert (await client.get(RED, headers=named)).status_code == 200
        assert NAMELESS in (await client.get("/page/", headers=named)).text
        grouped = named | {"x-forwarded-groups": "users,admins"}
        assert NAMELESS not in (await client.get("/page/", headers=grouped)).text


def test_groups_are_not_read_without_a_header_of_the_proxy() -> None:
    sent = Headers({"x-forwarded-user": "bob", "x-forwarded-groups": "admins"})
    settings = ProxySettings(PROXY.subjects, "X-Forwarded-User")
    assert proxied_user(sent, settings) == Subject("bob", groups=("system:authenticated",))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([], 401),
        ([("x-forwarded-user", " ")], 401),
        ([("x-forwarded-user", "alice"), ("x-forwarded-user", "bob")], 401),
        ([("x-forwarded-user", "system:admin")], 403),
        ([("x-forwarded-user", "a" * 254)], 403),
        ([("x-forwarded-user", "bob"), ("x-forwarded-groups", "system:masters,x")], 403),
        (
            [("x-forwarded-user", "bob"), ("x-forwarded-groups", MANY)],
            403,
        ),
    ],
)
async def test_an_unclear_or_reserved_user_of_a_proxy_is_refused(
    readers: Readers, headers: list[tuple[str, str]], status: int
) -> None:
    site = Site(readers, PageMode.LOOPBACK)
    site.certificate = "CN=ingress"
    assert (await site.client().get(RED, headers=headers)).status_code == status


async def _form_token(client: httpx2.AsyncClient, path: str = "/page/login") -> str:
    shown = (await client.get(path)).text
    return shown.partition(FIELD)[2].partition('"')[0]


async def _sign_in(client: httpx2.AsyncClient, token: str, **more: str) -> httpx2.Response:
    form = {"form_token": await _form_token(client), "token": token, **more}
    return await client.post("/page/login", data=form)


async def test_a_browser_signs_in_reads_and_signs_out(readers: Readers) -> None:
    site = Site(readers, PageMode.LOGIN)
    async with site.client() as client:
        led = await client.get(RED)
        assert led.status_code == 303
        assert led.headers["location"] == "/page/login?next=%2Fpage%2F%3Fnamespace%3Dred"
        signed = await _sign_in(client, " alice-token ", next=RED)
        assert (signed.status_code, signed.headers["location"]) == (303, RED)
        cookie = signed.headers["set-cookie"]
        for attribute in ("Secure", "HttpOnly", "SameSite=Strict", "Path=/;", "Max-Age=600"):
            assert attribute in cookie
        assert "alice-token" not in cookie
        shown = await client.get(RED)
        assert "Sign out" in shown.text
        refused = await client.post("/page/logout", data={"form_token": "0" * 64})
        assert refused.status_code == 403
        token = await _form_token(client, RED)
        ended = await client.post("/page/logout", data={"form_token": token})
        assert ended.status_code == 303
        assert (await client.get(RED)).status_code == 303


async def test_a_wrong_token_begins_no_session(readers: Readers) -> None:
    site = Site(readers, PageMode.LOGIN)
    async with site.client() as client:
        answer = await _sign_in(client, "wrong")
        assert answer.status_code == 401
        assert "not valid in this cluster" in answer.text
        assert NAME not in client.cookies
        assert (await _sign_in(client, "\N{SNOWMAN}")).status_code == 400


@pytest.mark.parametrize(
    "headers",
    [{"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}],
)
async def test_a_form_of_another_site_is_refused(readers: Readers, headers: dict[str, str]) -> None:
    site = Site(readers, PageMode.LOGIN)
    async with site.client() as client:
        form = {"form_token": await _form_token(client), "token": "alice-token"}
        assert (await client.post("/page/login", data=form, headers=headers)).status_code == 403
        assert (await client.post("/page/login", data=form)).status_code == 303


@pytest.mark.parametrize("bound", ["", "x" * 32, "\\012Set-Cookie: a=b"])
async def test_a_login_form_without_its_cookie_is_refused(readers: Readers, bound: str) -> None:
    site = Site(readers, PageMode.LOGIN)
    async with site.client() as client:
        form = {"form_token": await _form_token(client), "token": "alice-token"}
    headers = _cookie({FORM_COOKIE: f'"{bound}"'}) if bound else {}
    answer = await site.client().post("/page/login", data=form, headers=headers)
    assert answer.status_code == 403
    shown = await site.client().get("/page/login", headers=headers)
    assert "a=b" not in shown.headers["set-cookie"]


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"token=" + b"a" * 32_768, "application/x-www-form-urlencoded", 413),
        (b"&".join([b"a=b"] * 40), "application/x-www-form-urlencoded", 400),
        (b"token=\xff", "application/x-www-form-urlencoded", 400),
        (b"{}", "application/json", 400),
    ],
)
async def test_a_body_without_a_small_form_is_refused(
    readers: Readers, body: bytes, kind: str, status: int
) -> None:
    site = Site(readers, PageMode.LOGIN)
    headers = {"content-type": kind}
    answer = await site.client().post("/page/login", content=body, headers=headers)
    assert answer.status_code == status


@pytest.mark.parametrize(
    ("ends", "reason"), [(False, "did not arrive within 0.01 s"), (True, "connection ended")]
)
async def test_a_form_that_does_not_arrive_is_refused(
    ends: bool, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def receive() -> Message:
        return {"type": "http.disconnect"} if ends else await asyncio.sleep(30, {})

    monkeypatch.setattr(form_body, "SECONDS", 0.01)
    kind = (b"content-type", b"application/x-www-form-urlencoded")
    request = Request({"type": "http", "method": "POST", "headers": [kind]}, receive)
    async with asyncio.timeout(5):
        with pytest.raises(PageError, match=reason):
            await form_body.read_form(request)


async def test_a_session_ends_in_time_and_with_its_secret(readers: Readers) -> None:
    site = Site(readers, PageMode.LOGIN)
    headers = _cookie({NAME: site.sessions.seal("alice-token")})
    assert (await site.client().get(RED, headers=headers)).status_code == 200
    site.now += 600
    assert (await site.client().get(RED, headers=headers)).status_code == 303
    other = SessionCookies(lambda: b"o" * 32, seconds=600, clock=lambda: site.now)
    forged = _cookie({NAME: other.seal("alice-token")})
    assert (await site.client().get(RED, headers=forged)).status_code == 303


@pytest.mark.parametrize("value", ["", "a", "%%%", "A" * 200, "\N{SNOWMAN}", "A" * 5_000])
def test_a_damaged_cookie_has_no_token(value: str) -> None:
    assert SessionCookies(lambda: b"s" * 32, seconds=600).open(value) == ""


def test_a_sealed_token_is_not_readable_and_bounded() -> None:
    sessions = SessionCookies(lambda: b"s" * 32, seconds=600)
    sealed = sessions.seal("alice-token")
    assert "alice" not in sealed
    assert sealed != sessions.seal("alice-token")
    assert sessions.open(sealed) == "alice-token"
    with pytest.raises(TokenTooLong, match="too long for a cookie"):
        sessions.seal(secrets.token_urlsafe(6_000))


@pytest.mark.parametrize(
    "wanted",
    ["", "//evil.example", "https://evil.example/page/", "/page/\\evil", "/other", "/page/\r\nx"],
)
def test_a_login_leads_to_pages_only(wanted: str) -> None:
    assert safe_path(wanted) == "/page/"


async def test_a_login_never_leads_to_another_site(readers: Readers) -> None:
    elsewhere = "https://evil.example/page/"
    async with Site(readers, PageMode.LOGIN).client() as client:
        shown = await client.get("/page/login", params={"next": elsewhere})
        assert "evil.example" not in shown.text
        signed = await _sign_in(client, "alice-token", next=elsewhere)
    assert (signed.status_code, signed.headers["location"]) == (303, "/page/")


def test_replicas_with_one_certificate_open_the_sessions_of_each_other(tmp_path: Path) -> None:
    names = ("127.0.0.1",)
    same = [Tls(certificate_reload.own(tmp_path / "a", names)) for _ in range(2)]
    other = Tls(certificate_reload.own(tmp_path / "b", names))
    cookies = [SessionCookies(partial(tls.secret, "pages"), seconds=600) for tls in (*same, other)]
    sealed = cookies[0].seal("alice-token")
    assert [cookie.open(sealed) for cookie in cookies] == ["alice-token", "alice-token", ""]
    assert same[0].secret("pages") != same[0].secret("another purpose")
