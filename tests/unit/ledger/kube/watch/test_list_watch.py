"""Watching over real HTTP: what servers, proxies and time do to a watch."""

import asyncio
import contextlib
import json

import pytest
from aiohttp import web
from support.fakes.apiserver import on_loopback, pod_body

from ledger.kube.api.cluster_errors import (
    ClusterUnavailable,
    Forbidden,
    Malformed,
    NotFound,
    Rejected,
)
from ledger.kube.api.cluster_ports import Changed, Interrupted, Listed, Reached
from ledger.kube.api.objects import Pod, PodList
from ledger.kube.client import api_client as clients
from ledger.kube.client.api_client import ApiClient
from ledger.kube.watch import list_watch
from ledger.kube.watch.list_watch import CollectionSource, watch_backoff, whole
from ledger.kube.watch.watch_encodings import LineSplitter

PODS = CollectionSource("/api/v1/pods", Pod, page_type=PodList, keep=whole)


def line(kind: str, version: int, name: str = "p") -> bytes:
    body = pod_body(name)
    body["metadata"] |= {"resourceVersion": str(version), "namespace": "red", "uid": f"u-{name}"}
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"


def bookmark(version: int) -> bytes:
    mark = {"metadata": {"resourceVersion": str(version)}}
    return json.dumps({"type": "BOOKMARK", "object": mark}).encode() + b"\n"


def error(code: int) -> bytes:
    status = {"code": code, "reason": "Expired", "message": "too old resource version"}
    return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


class Script:
    """An API server that plays prepared answers and notes what it was asked."""

    def __init__(self) -> None:
        self.lists: list[web.Response] = []
        self.streams: list[list[bytes | None] | int] = []
        """A status, or chunks; at None the stream stays open and sends nothing more."""
        self.asked: list[dict[str, str]] = []
        self.headers: list[str] = []
        self.version = 10

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/api/v1/pods", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(dict(request.query))
        self.headers.append(request.headers.get("Authorization", ""))
        if "watch" not in request.query:
            if self.lists:
                return self.lists.pop(0)
            return page(self.version)
        return await self._stream(request)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        stream: list[bytes | None] | int = self.streams.pop(0) if self.streams else [None]
        if isinstance(stream, int):
            return web.json_response({"message": f"status {stream}"}, status=stream)
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in stream:
            if chunk is None:
                await asyncio.Event().wait()
                continue
            await response.write(chunk)
        return response

    def watched_from(self) -> list[str]:
        return [query["resourceVersion"] for query in self.asked if "watch" in query]

    def lists_asked(self) -> int:
        return sum("watch" not in query for query in self.asked)


def page(version: int, *names: str, more: str = "") -> web.Response:
    items = [json.loads(line("x", version, name))["object"] for name in names]
    metadata = {"resourceVersion": str(version), "continue": more}
    return web.json_response({"metadata": metadata, "items": items})


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def answers(script) -> Script:
    """The server of the client."""
    return script


@pytest.fixture
def delays() -> list[float]:
    return []


@pytest.fixture
async def changes(client, delays):
    async def sleep(seconds: float) -> None:
        delays.append(seconds)

    stream = list_watch.watch(client, PODS, watch_backoff(sleep, jitter=lambda: 1.0))
    async with contextlib.aclosing(stream), asyncio.timeout(20):
        yield stream


async def take(changes, count: int) -> list:
    return [await anext(changes) for _ in range(count)]


async def test_watch_resumes_from_the_last_yielded_version(script, changes):
    script.streams = [[line("ADDED", 11), bookmark(15)], [line("MODIFIED", 16)]]
    seen = await take(changes, 4)
    assert [type(change) for change in seen] == [Listed, Changed, Reached, Changed]
    assert script.watched_from() == ["10", "15"]
    assert script.lists_asked() == 1
    assert all(query["allowWatchBookmarks"] == "true" for query in script.asked[1:])


@pytest.mark.parametrize("gone", [410, [error(410)]], ids=["status", "line"])
async def test_a_forgotten_version_is_answered_by_another_list(script, changes, gone):
    script.streams = [gone, [line("ADDED", 21)]]
    await take(changes, 1)
    script.version = 20
    seen = await take(changes, 3)
    assert [type(change) for change in seen] == [Interrupted, Listed, Changed]
    assert script.watched_from() == ["10", "20"]


async def test_line_is_yielded_once_and_complete_when_split_in_chunks(script, changes):
    whole = line("ADDED", 11)
    script.streams = [[whole[:20], whole[20:] + line("ADDED", 12, "q")[:30]], [line("ADDED", 12)]]
    seen = await take(changes, 3)
    assert [change.version for change in seen] == [10, 11, 12]
    assert script.watched_from() == ["10", "11"]


@pytest.mark.parametrize(
    "bad",
    [
        b"not json\n",
        b'{"type": "SURPRISE", "object": {}}\n',
        b'{"type": "ADDED", "object": {"metadata": {"resourceVersion": "x"}}}\n',
        b'{"type": "ADDED", "object": {"metadata": {"labels": 7}}}\n',
        b'\xff\xfe{"type"\n',
        b"[]\n",
    ],
)
async def test_a_line_that_makes_no_sense_leads_to_another_list(script, changes, bad):
    script.streams = [[bad, line("ADDED", 99)], [line("ADDED", 12)]]
    seen = await take(changes, 4)
    assert [type(change) for change in seen] == [Listed, Interrupted, Listed, Changed]
    assert seen[-1].version == 12


async def test_a_failing_server_is_asked_again_ever_more_slowly(script, changes, delays):
    script.streams = [500, 429, [line("ADDED", 11)]]
    seen = await take(changes, 4)
    assert [type(change) for change in seen] == [Listed, Interrupted, Interrupted, Changed]
    assert delays[:2] == [list_watch.BACKOFF_SECONDS, 2 * list_watch.BACKOFF_SECONDS]
    assert script.watched_from() == ["10", "10", "10"]


async def test_waiting_is_bounded_however_long_a_server_fails():
    delays: list[float] = []

    async def sleep(seconds: float) -> None:
        delays.append(seconds)

    backoff = watch_backoff(sleep, jitter=lambda: 1.0)
    for _ in range(12):
        await backoff.wait()
    assert delays[-1] == list_watch.BACKOFF_SECONDS_MAX


async def test_a_server_that_ends_every_watch_at_once_is_not_hammered(script, changes, delays):
    script.streams = [[], [], [line("ADDED", 11)]]
    await take(changes, 2)
    assert delays == [list_watch.BACKOFF_SECONDS] * 2


async def test_a_silent_connection_is_given_up_and_resumed(script, changes, monkeypatch):
    monkeypatch.setattr(clients, "SILENCE_SECONDS", 0.2)
    script.streams = [[line("ADDED", 11), None], [line("ADDED", 12)]]
    seen = await take(changes, 4)
    assert [type(change) for change in seen] == [Listed, Changed, Interrupted, Changed]
    assert script.watched_from() == ["10", "11"]


async def test_a_list_is_read_page_by_page_at_the_first_pages_request(script, client):
    script.lists = [page(30, "a", more="token"), page(30, "b")]
    listed = await list_watch.list_all(client, PODS)
    assert [pod.metadata.name for pod in listed.objects] == ["a", "b"]
    assert listed.version == 30
    assert script.asked[1]["continue"] == "token"
    assert not any("resourceVersion" in query for query in script.asked), "must be linearizable"


async def test_a_page_is_reduced_to_what_is_kept_before_the_next_is_asked_for(script, client):
    script.lists = [page(30, "a", more="token"), page(30, "b")]
    asked_at: dict[str, int] = {}

    def keep(pod: Pod) -> str:
        asked_at[pod.metadata.name] = script.lists_asked()
        return pod.metadata.uid

    listed = await list_watch.list_all(
        client, CollectionSource("/api/v1/pods", Pod, page_type=PodList, keep=keep)
    )
    assert listed.objects == ["u-a", "u-b"]
    assert asked_at == {"a": 1, "b": 2}


async def test_pages_that_expire_under_way_start_the_list_over(script, client):
    gone = web.json_response({"message": "expired"}, status=410)
    script.lists = [page(30, "a", more="token"), gone, page(40, "a", "b")]
    listed = await list_watch.list_all(client, PODS)
    assert listed.version == 40
    assert len(listed.objects) == 2


async def test_pages_that_always_expire_are_unavailable(script, client):
    script.lists = [
        web.json_response({"message": "expired"}, status=410)
        for _ in range(list_watch.EXPIRED_PAGES_MAX)
    ]
    with pytest.raises(ClusterUnavailable, match="expire"):
        await list_watch.list_all(client, PODS)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, Forbidden),
        (403, Forbidden),
        (404, NotFound),
        (422, Rejected),
        (503, ClusterUnavailable),
    ],
)
async def test_errors_name_the_address_and_the_servers_message(script, client, status, kind):
    script.lists = [web.json_response({"message": "because I say so"}, status=status)]
    with pytest.raises(kind, match=r"http://127.*because I say so"):
        await client.get("/api/v1/pods")


async def test_an_unreachable_server_is_unavailable_and_named(tmp_path, script):
    async with on_loopback(script.app(), tmp_path) as kubeconfig:
        pass
    async with await ApiClient.connect(kubeconfig) as client:
        with pytest.raises(ClusterUnavailable, match=r"127\.0\.0\.1.*is the API server reachable"):
            await client.get("/api/v1/pods")


async def test_an_answer_that_never_ends_meets_its_deadline(script, client):
    script.streams = [[None]]
    with pytest.raises(ClusterUnavailable):
        await client.request("GET", "/api/v1/pods", params={"watch": "1"}, seconds=0.2)


async def test_a_body_beyond_the_bound_is_not_read(script, client, monkeypatch):
    monkeypatch.setattr(clients, "BODY_BYTES_MAX", 10)
    with pytest.raises(ClusterUnavailable, match="more than 10 bytes"):
        await client.get("/api/v1/pods")


async def test_requests_carry_the_token_of_the_kubeconfig(script, client):
    await client.get("/api/v1/pods")
    assert script.headers == ["Bearer secret"]


async def test_a_refused_token_is_read_again_before_the_next_request(script, client, tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    token_file = tmp_path / "token"
    token_file.write_text("first")
    kubeconfig.write_text(kubeconfig.read_text().replace("token: secret", "tokenFile: token"))
    async with await ApiClient.connect(kubeconfig) as rotating:
        await rotating.get("/api/v1/pods")
        token_file.write_text("second")
        script.lists = [web.json_response({"message": "expired token"}, status=401)]
        with pytest.raises(Forbidden):
            await rotating.get("/api/v1/pods")
        await rotating.get("/api/v1/pods")
    assert script.headers == ["Bearer first", "Bearer first", "Bearer second"]


async def test_a_missing_kubeconfig_is_named(tmp_path):
    with pytest.raises(Forbidden, match=r"nowhere.*--kubeconfig"):
        await ApiClient.connect(tmp_path / "nowhere")


def test_lines_are_split_wherever_the_chunks_end():
    text = b"one\ntwo\n\nthree\n"
    for cut in range(len(text)):
        lines = LineSplitter()
        assert [*lines.feed(text[:cut]), *lines.feed(text[cut:])] == [b"one", b"two", b"three"]


def test_a_line_without_end_is_refused():
    lines = LineSplitter(bytes_max=8)
    with pytest.raises(Malformed, match="longer than 8 bytes"):
        list(lines.feed(b"123456789"))
