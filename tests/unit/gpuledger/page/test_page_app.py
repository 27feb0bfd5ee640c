"""The pages' frame: headers, versions, moments, refresh, and refusals as pages."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from support.builders.decide_and_fold import record
from support.harness.projection_harness import SECOND, START, log_of, project
from support.pages.page_harness import TOKENS, FakeSource, Tenant, pages

from gpuledger.page import page_app
from gpuledger.page.page_app import PageApp
from gpuledger.page.page_definition import PageDefinition
from gpuledger.page.page_errors import PageError
from gpuledger.page.page_request import PageRequest
from gpuledger.page.serving.static_files import EDITION
from ledger.core.model import commands
from ledger.core.model.state import State
from projections.store.readers import Readers

MEMORY = "nvidia.com/gpumem"


def story() -> list[bytes]:
    """A quota of 16,000 MiB; a pod of 4,000 is reserved, and then stored."""
    state = State()
    demand = {MEMORY: 4_000}
    steps: list[list[commands.AnyCommand]] = [
        [commands.SetLimits("quota/c1/red/main", ("c1/red",), {f"limits.{MEMORY}": 16_000}, "a")],
        [commands.Reserve("c1/red", "pods/p0", "u0", demand, actor="alice")],
        [commands.Observe("c1/red", "pods/p0", "u0", 7, demand, "watch")],
    ]
    payloads = [record(state, step, time=START + n * SECOND) for n, step in enumerate(steps)]
    return [payload for payload in payloads if payload is not None]


@pytest.fixture(scope="module")
def projection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "ledger.sqlite"
    asyncio.run(project(path, log_of(story())))
    return path


@pytest.fixture
async def client(projection: Path) -> AsyncIterator[httpx2.AsyncClient]:
    async with pages(projection) as client:
        yield client


async def test_the_overview_shows_each_quota_with_its_use(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/page/")
    assert answer.status_code == 200, answer.text
    assert "3.9 GiB" in answer.text
    assert '<rect class="committed" x="0" y="0" width="250"' in answer.text


@pytest.mark.parametrize("path", ["/page/", "/page/none", "/page/?at=99", "/page/static/page.css"])
async def test_each_answer_has_the_security_headers(client: httpx2.AsyncClient, path: str) -> None:
    headers = (await client.get(path)).headers
    policy = headers["content-security-policy"]
    for part in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"):
        assert part in policy
    assert "unsafe" not in policy
    assert "script-src" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"


@pytest.mark.parametrize(
    ("edition", "kept"), [(EDITION, "immutable"), ("", "no-cache"), ("0" * 12, "no-cache")]
)
async def test_only_the_current_style_is_kept_by_browsers(
    client: httpx2.AsyncClient, edition: str, kept: str
) -> None:
    answer = await client.get(f"/page/static/page.css?{edition}")
    assert answer.status_code == 200
    assert kept in answer.headers["cache-control"]


async def test_a_page_is_not_sent_again_until_it_changes(client: httpx2.AsyncClient) -> None:
    first = await client.get("/page/")
    tag = first.headers["etag"]
    assert tag.startswith('"3-')
    again = await client.get("/page/", headers={"if-none-match": f'"1-x", W/{tag}'})
    assert (again.status_code, again.content) == (304, b"")
    other = await client.get("/page/?at=2", headers={"if-none-match": tag})
    assert other.status_code == 200
    assert other.headers["etag"].startswith('"2-')


async def test_a_page_of_the_past_has_a_banner_and_no_refresh(client: httpx2.AsyncClient) -> None:
    now, then = await client.get("/page/"), await client.get("/page/?at=2")
    assert now.headers["refresh"] == "30"
    assert "This page shows the past" not in now.text
    assert "refresh" not in then.headers
    assert "This page shows the past" in then.text
    assert 'class="reserved"' in then.text


async def test_the_refresh_can_be_paused(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/page/?refresh=off")
    assert "refresh" not in answer.headers
    assert "paused" in answer.text


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/page/?at=99", 400, "position 99 is not projected yet"),
        ("/page/?at=soon", 400, "is neither a position such as 1234"),
        ("/page/?page=0", 400, "it is 1 to 1000"),
        ("/page/?at=1&amp;at=2", 200, ""),
        ("/page/?at=1&at=2", 400, "given more than once"),
        ("/page/nothing", 404, "There is no page /page/nothing."),
    ],
)
async def test_a_refusal_is_a_page_with_a_remedy(
    client: httpx2.AsyncClient, path: str, status: int, text: str
) -> None:
    answer = await client.get(path)
    assert answer.status_code == status
    assert text in answer.text
    assert ("Remedy" in answer.text) == (status != 200)


async def test_hostile_parameters_are_shown_as_text(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/page/", params={"at": "<script>\N{RIGHT-TO-LEFT OVERRIDE}"})
    assert answer.status_code == 400
    assert "<script" not in answer.text
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in answer.text


async def test_a_long_parameter_is_cut_in_the_error_about_it(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/page/record", params={"position": "9" * 5_000})
    assert answer.status_code == 400
    assert f"position = {'9' * 64}…:" in answer.text


async def test_a_tenant_reads_only_namespaces_with_a_right(projection: Path) -> None:
    async with pages(projection, viewer=Tenant("red")) as client:
        assert (await client.get("/page/?namespace=red")).status_code == 200
        refused = await client.get("/page/?namespace=blue")
        assert (refused.status_code, "Ask for a role" in refused.text) == (403, True)
        whole = (await client.get("/page/")).text
        assert "You may not read all namespaces." in whole
        assert "limits.nvidia.com" not in whole


def serve_view(monkeypatch: pytest.MonkeyPatch, view: Any) -> None:
    """Serve a view with a form at `/page/tried`."""
    page = PageDefinition(path="/tried", title="T", template="error.html", view=view, form=True)
    monkeypatch.setattr(page_app, "PAGES", (page,))


async def test_a_form_needs_the_token_of_its_user(
    projection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def view(request: PageRequest) -> Any:
        raise PageError(404, f"reached with {request.form}")

    serve_view(monkeypatch, view)
    async with pages(projection) as client:
        for token, status in (
            ("", 403),
            (TOKENS.token("other"), 403),
            (TOKENS.token("local"), 404),
        ):
            form = {"form_token": token, "manifest": "a: b"}
            answer = await client.post("/page/tried", data=form)
            assert answer.status_code == status
        assert "{&#39;manifest&#39;: &#39;a: b&#39;}" in answer.text


async def test_forms_have_a_largest_size_and_number(
    projection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once: list[int] = []
    inside = 0

    async def view(_: PageRequest) -> Any:
        nonlocal inside
        inside += 1
        at_once.append(inside)
        await asyncio.sleep(0.01)
        inside -= 1
        raise PageError(404, "seen")

    serve_view(monkeypatch, view)
    monkeypatch.setattr(page_app, "FORMS_MAX", 2)
    monkeypatch.setattr(page_app, "FORMS_OF_ONE_MAX", 6)
    form = {"form_token": TOKENS.token("local")}
    async with pages(projection) as client:
        sent = [client.post("/page/tried", data=form) for _ in range(6)]
        assert {answer.status_code for answer in await asyncio.gather(*sent)} == {404}
        large = form | {"manifest": "a" * (1 << 20)}
        assert (await client.post("/page/tried", data=large)).status_code == 413
    assert max(at_once) == 2


async def test_forms_of_one_user_leave_places_to_others(
    projection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = asyncio.Event()

    async def view(request: PageRequest) -> Any:
        if request.viewer.name == "slow":
            await ended.wait()
        raise PageError(404, "seen")

    async def identify(request: Request) -> Tenant:
        return Tenant(name=request.headers["user"])

    async def send(client: httpx2.AsyncClient, name: str) -> int:
        form = {"form_token": TOKENS.token(f"user {name}")}
        answer = await client.post("/page/tried", data=form, headers={"user": name})
        return answer.status_code

    serve_view(monkeypatch, view)
    async with Readers(projection) as readers:
        app = PageApp(readers, FakeSource(), identify=identify, tokens=TOKENS)
        transport = httpx2.ASGITransport(app=Starlette(routes=app.routes()))
        async with httpx2.AsyncClient(transport=transport, base_url="http://ledger") as client:
            slow = [asyncio.create_task(send(client, "slow")) for _ in range(page_app.FORMS_MAX)]
            await asyncio.sleep(0.05)
            async with asyncio.timeout(5):
                assert await send(client, "other") == 404
            ended.set()
            assert set(await asyncio.gather(*slow)) == {404}


async def test_a_failure_of_a_view_is_a_page_without_its_text(
    projection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def view(_: PageRequest) -> Any:
        raise ValueError("secret")

    serve_view(monkeypatch, view)
    async with pages(projection) as client:
        answer = await client.get("/page/tried")
    assert (answer.status_code, "secret" in answer.text) == (500, False)
    assert "default-src 'none'" in answer.headers["content-security-policy"]


async def test_a_view_that_takes_too_long_is_ended(
    projection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def view(_: PageRequest) -> Any:
        await asyncio.sleep(30)

    serve_view(monkeypatch, view)
    monkeypatch.setattr(page_app, "ANSWER_SECONDS", 0.05)
    async with pages(projection) as client, asyncio.timeout(10):
        assert (await client.get("/page/tried")).status_code == 504


async def test_pages_without_a_projection_are_not_available(tmp_path: Path) -> None:
    async with pages(tmp_path / "none.sqlite") as client:
        answer = await client.get("/page/")
        paused = await client.get("/page/?refresh=off")
    assert (answer.status_code, "projection rebuild" in answer.text) == (503, True)
    assert (answer.headers["retry-after"], answer.headers["refresh"]) == ("1", "30")
    assert "refresh" not in paused.headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_another_method_is_refused_with_the_right_one(
    client: httpx2.AsyncClient, method: str
) -> None:
    answer = await client.request(method, "/page/")
    assert (answer.status_code, "Use GET." in answer.text) == (405, True)


async def test_the_root_leads_to_the_pages(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/")
    assert (answer.status_code, answer.headers["location"]) == (307, "/page/")


@pytest.mark.parametrize(
    ("viewer", "shown"),
    [(None, "gpuledger serve"), (Tenant(""), "projection_unreadable")],
    ids=["local", "tenant"],
)
async def test_only_a_local_viewer_sees_the_path_of_a_missing_projection(
    tmp_path: Path, viewer: Tenant | None, shown: str
) -> None:
    async with pages(tmp_path / "ledger.sqlite", viewer=viewer) as client:
        answer = await client.get("/page/")
    assert answer.status_code == 503
    assert answer.headers["refresh"]
    assert shown in answer.text
    assert (str(tmp_path) in answer.text) == (viewer is None)
