"""kube-scheduler understands every answer of the extender that is not a 4xx."""

import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from support.harness.extender_harness import FIXTURES, ExtenderReplica, cards, replica

from extender.extender_routes import endpoints
from ledger.runtime.http.direct_endpoints import routes

JSON = {"content-type": "application/json"}
BODY_MAX = 2_000_000
RECORDED = [
    (form, number, request["verb"], request["args"])
    for form in ("names", "nodes")
    for number, request in enumerate(json.loads((FIXTURES / f"extender-{form}.json").read_text()))
]
FILTER = RECORDED[0][3]


class Site:
    """An extender behind HTTP."""

    def __init__(
        self, service: ExtenderReplica, client: httpx2.AsyncClient, took: list[str]
    ) -> None:
        self.replica, self.client, self.took = service, client, took

    async def post(self, verb: str, args: Any) -> Any:
        answer = await self.client.post(f"/extender/{verb}", json=args)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """An extender with two of the recorded nodes."""
    took: list[str] = []
    async with replica() as service:
        await service.register("gpu-0", cards("GPU-0"))
        await service.register("gpu-1", cards("GPU-1", memory=4000))
        served = endpoints(service.extender, BODY_MAX, lambda verb, _: took.append(verb))
        app = Starlette(routes=routes(served))
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://x") as client:
            yield Site(service, client, took)


@pytest.mark.parametrize(("form", "number", "verb", "args"), RECORDED)
async def test_a_recorded_request_is_answered(
    site: Site, form: str, number: int, verb: str, args: Any
) -> None:
    answer = await site.post(verb, args)
    if verb == "filter":
        assert answer["Error"] == ""
        assert set(answer["FailedAndUnresolvableNodes"]) == {"gpu-1", "gpu-2"}
        if form == "names":
            assert (answer["NodeNames"], answer["Nodes"]) == (["gpu-0"], None)
        else:
            node = next(
                item for item in args["Nodes"]["items"] if item["metadata"]["name"] == "gpu-0"
            )
            assert (answer["NodeNames"], answer["Nodes"]["items"]) == (None, [node])
    elif verb == "prioritize":
        assert {entry["Host"]: entry["Score"] for entry in answer} == {
            "gpu-0": 10,
            "gpu-1": 0,
            "gpu-2": 0,
        }
    else:
        assert list(answer) == ["Error"]
    assert site.took == [verb]


def in_other_letters(value: Any, change: Any) -> Any:
    """Change the names of fields, but for those of maps whose keys are data."""
    if isinstance(value, list):
        return [in_other_letters(item, change) for item in value]
    if not isinstance(value, dict):
        return value
    data = ("limits", "requests", "annotations", "labels")
    return {
        change(name): item if name in data else in_other_letters(item, change)
        for name, item in value.items()
    }


@pytest.mark.parametrize("change", [str.lower, str.upper, str.swapcase, str.title])
@pytest.mark.parametrize(("form", "number", "verb", "args"), RECORDED)
async def test_names_of_fields_may_be_in_any_letters(
    site: Site, form: str, number: int, verb: str, args: Any, change: Any
) -> None:
    expected = await site.post(verb, args)
    answer = await site.post(verb, in_other_letters(args, change))
    if verb == "filter" and form == "nodes":
        names = [list(filtered["Nodes"]["items"]) for filtered in (expected, answer)]
        assert len(names[0]) == len(names[1]) == 1
        expected["Nodes"] = answer["Nodes"] = None
    assert answer == expected


async def test_a_compressed_body_is_read(site: Site) -> None:
    body = gzip.compress(json.dumps(FILTER).encode())
    headers = {**JSON, "content-encoding": "gzip"}
    answer = await site.client.post("/extender/filter", content=body, headers=headers)
    assert answer.json()["NodeNames"] == ["gpu-0"]


@pytest.mark.parametrize(
    ("body", "coding", "status", "said"),
    [
        (b"no gzip", "gzip", 400, "is not gzip"),
        (gzip.compress(b"x" * 100, mtime=0)[:-9], "gzip", 400, "in the middle"),
        (gzip.compress(b" " * (BODY_MAX + 1), mtime=0), "gzip", 413, "larger than 2000000 bytes"),
        (b" " * (BODY_MAX + 1), "", 413, "larger than 2000000 bytes"),
        (b"{}", "br", 415, "content-encoding is br"),
    ],
    ids=["no gzip", "cut off", "large when unpacked", "large", "another coding"],
)
async def test_a_body_that_cannot_be_unpacked_is_refused(
    site: Site, body: bytes, coding: str, status: int, said: str
) -> None:
    headers = {**JSON, "content-encoding": coding} if coding else JSON
    answer = await site.client.post("/extender/filter", content=body, headers=headers)
    assert answer.status_code == status
    assert said in answer.json()["message"]


async def test_five_thousand_nodes_in_full_are_read(site: Site) -> None:
    node = next(args for form, _, verb, args in RECORDED if form == "nodes" and verb == "filter")
    template = node["Nodes"]["items"][0]
    items = [
        {**template, "metadata": {**template["metadata"], "name": f"gpu-{number}"}}
        for number in range(5_000)
    ]
    body = json.dumps({**node, "Nodes": {"metadata": {}, "items": items}}).encode()
    assert len(body) > 5_000_000
    app = Starlette(routes=routes(endpoints(site.replica.extender, len(body))))
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://x") as client:
        answer = (await client.post("/extender/filter", content=body, headers=JSON)).json()
    assert [item["metadata"]["name"] for item in answer["Nodes"]["items"]] == ["gpu-0"]
    assert len(answer["FailedAndUnresolvableNodes"]) == 4_999


@pytest.mark.parametrize("verb", ["filter", "select", "prioritize", "bind", "preempt"])
@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "$"),
        (b"{", "$"),
        (b"[]", "$"),
        (b"null", "$"),
        (b"\xff", "$"),
        (b"[" * 100_000, "$"),
    ],
)
async def test_body_that_is_not_a_json_object_is_a_400(
    site: Site, verb: str, body: bytes, field: str
) -> None:
    answer = await site.client.post(f"/extender/{verb}", content=body, headers=JSON)
    assert answer.status_code == 400
    assert answer.json()["field"] == field
    assert answer.json()["message"]


@pytest.mark.parametrize(
    ("verb", "args", "field"),
    [
        ("filter", {}, "Pod"),
        ("filter", {"Pod": 5}, "$.Pod"),
        ("filter", {**FILTER, "NodeNames": [5]}, "$.NodeNames["),
        ("filter", {"Pod": FILTER["Pod"], "Nodes": {"items": [{}]}}, "Nodes.items"),
        ("select", {"Pod": FILTER["Pod"], "Nodes": {"items": [{}]}}, "Nodes.items"),
        ("prioritize", {"Pod": None}, "Pod"),
        ("bind", {}, "PodName"),
        ("bind", {"PodName": "a", "PodNamespace": "b"}, "Node"),
        ("preempt", {}, "Pod"),
    ],
)
async def test_what_is_missing_is_named(site: Site, verb: str, args: Any, field: str) -> None:
    answer = await site.client.post(f"/extender/{verb}", json=args)
    assert answer.status_code == 400
    assert answer.json()["field"].startswith(field)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_only_posting_is_supported(site: Site, method: str) -> None:
    answer = await site.client.request(method, "/extender/filter")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


async def test_without_nodes_there_are_none(site: Site) -> None:
    answer = await site.post("filter", {"Pod": FILTER["Pod"], "NodeNames": []})
    assert (answer["NodeNames"], answer["FailedNodes"]) == ([], {})
