"""A watch that accepts protobuf, over real HTTP: what the server chooses, and damaged frames."""

import contextlib
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from support.generators.protobuf_objects import enclosed, frame

from ledger.kube.api.cluster_ports import Changed, Interrupted, Listed, Reached
from ledger.kube.api.objects import ApiStatus, Bookmark, ObjectMeta, Pod, PodList
from ledger.kube.api.protobuf_envelope import PROTOBUF
from ledger.kube.watch import list_watch
from ledger.kube.watch.list_watch import CollectionSource, watch_backoff, whole
from ledger.kube.watch.watch_encodings import FrameSplitter, protobuf_events

PATH = "/api/v1/pods"
RECORDED = Path(__file__).parents[4] / "fixtures" / "pods"
FRAMED = f"{PROTOBUF};stream=watch"
LIST = {"metadata": {"resourceVersion": "10"}, "items": []}


def added(version: int) -> bytes:
    pod = Pod(ObjectMeta(name="p", namespace="red", uid="u", resource_version=str(version)))
    return frame("ADDED", enclosed(pod, "Pod"))


class Server:
    """An API server that plays watches, each a content type and its bytes."""

    def __init__(self) -> None:
        self.watches: list[tuple[str, bytes]] = []
        self.accepted: list[str] = []
        self.since: list[str] = []

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get(PATH, self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response(LIST)
        self.accepted.append(request.headers["Accept"])
        self.since.append(request.query["resourceVersion"])
        content_type, content = self.watches.pop(0)
        return web.Response(body=content, headers={"Content-Type": content_type})


@pytest.fixture
def answers() -> Server:
    return Server()


@pytest.fixture
async def changes(client):
    async def sleep(seconds: float) -> None:
        del seconds

    source = CollectionSource(
        PATH, Pod, page_type=PodList, keep=whole, protobuf=protobuf_events(Pod, "Pod")
    )
    stream = list_watch.watch(client, source, watch_backoff(sleep))
    async with contextlib.aclosing(stream):
        yield stream


async def test_watch_reads_protobuf_until_its_last_bookmark(answers, changes) -> None:
    mark = enclosed(Bookmark(ObjectMeta(resource_version="15")), "Pod")
    answers.watches = [(FRAMED, added(11) + frame("BOOKMARK", mark)), (FRAMED, added(16))]
    seen = [await anext(changes) for _ in range(4)]
    assert [type(change) for change in seen] == [Listed, Changed, Reached, Changed]
    assert [change.version for change in seen] == [10, 11, 15, 16]
    assert answers.since == ["10", "15"]
    assert answers.accepted == [f"{FRAMED}, application/json"] * 2


@pytest.mark.parametrize("content_type", ["application/json", "application/json;stream=watch", ""])
async def test_watch_reads_json_where_the_server_sends_it(answers, changes, content_type) -> None:
    line = (RECORDED / "watch.json").read_bytes().splitlines(keepends=True)[0]
    answers.watches = [(content_type, line)]
    seen = [await anext(changes) for _ in range(2)]
    assert seen[1].object.metadata.name == "plain"


@pytest.mark.parametrize(
    "damaged",
    [
        b"\xff\xff\xff\xff",
        b"\0\0\0\x02{}",
        frame("SURPRISE", enclosed(Pod(), "Pod")),
        frame("ADDED", enclosed(Pod(), "Table")),
        frame("ADDED", enclosed(Pod(ObjectMeta(resource_version="x")), "Pod")),
        frame("ADDED", msgspec.json.encode(Pod())),
        frame("ADDED", enclosed(Pod(), "Pod")[:-1] + b"\x0a\x05"),
    ],
)
async def test_damaged_frame_leads_to_another_list(answers, changes, damaged: bytes) -> None:
    answers.watches = [(FRAMED, damaged + added(99)), (FRAMED, added(12))]
    seen = [await anext(changes) for _ in range(4)]
    assert [type(change) for change in seen] == [Listed, Interrupted, Listed, Changed]
    assert seen[-1].version == 12


async def test_forgotten_version_in_protobuf_leads_to_another_list(answers, changes) -> None:
    gone = enclosed(ApiStatus(code=410, message="too old"), "Status")
    answers.watches = [(FRAMED, frame("ERROR", gone)), (FRAMED, added(12))]
    seen = [await anext(changes) for _ in range(4)]
    assert [type(change) for change in seen] == [Listed, Interrupted, Listed, Changed]
    assert "410 too old" in seen[1].reason


async def test_cut_frame_is_read_again_from_the_last_version(answers, changes) -> None:
    answers.watches = [(FRAMED, added(11) + added(12)[:-3]), (FRAMED, added(12))]
    seen = [await anext(changes) for _ in range(3)]
    assert [change.version for change in seen] == [10, 11, 12]
    assert answers.since == ["10", "11"]


def test_recorded_frames_are_those_of_the_builder() -> None:
    """The builder of these tests frames and encloses an object as the API server does."""
    [first, *_] = FrameSplitter().feed((RECORDED / "watch.pb").read_bytes())
    kind, encoded = protobuf_events(Pod, "Pod").event(first)
    assert frame(kind, encoded)[4:] == first
