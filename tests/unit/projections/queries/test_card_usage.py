"""Cards as they are read: limits and use of each, who is on them, and what nodes have lost."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.utils import floatToGoString
from starlette.applications import Starlette
from support.builders.decide_and_fold import record
from support.claims.fixed_slices import FixedSlices
from support.harness.projection_harness import SECOND, START, log_of, project, viewing

from ledger.core.model import commands
from ledger.core.model.cards import HAMI, OWN, Card, Part, Phase, Share, Stage
from ledger.core.model.state import State
from projections.api import usage_metrics
from projections.api.routes import routes
from projections.api.usage_metrics import UsageCollector, UsageExport
from projections.queries.charged_units import key_charges
from projections.queries.query_scope import EVERYTHING, namespaces
from projections.queries.quota_usage import usage
from projections.store.readers import Readers

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
FIRST = Card("GPU-a", 0, "NVIDIA A100", 40_000, 100, 10)
ILL = Card("GPU-b", 1, "NVIDIA A100", 60_000, 100, 10, healthy=False, cordoned=True, numa=1)
OTHER = Card("GPU-c", 0, "NVIDIA T4", 15_000, 100, 10)
TRAINING = ("c1/red", "pods/training", "u-1")
WEB = "deployments.apps/web"
PARTS = (
    Part("prepare", Phase.INIT, (Share("GPU-a", 9_000, 10),)),
    Part("proxy", Phase.SIDECAR),
    Part("main", Phase.APP, (Share("GPU-a", 8_000, 30),)),
)

STEPS: list[list[commands.AnyCommand]] = [
    [
        commands.SetLimits("quota/c1/red/main", ("c1/red",), {f"limits.{MEMORY}": 50_000}),
        commands.RegisterCards("c1/n1", OWN, (FIRST, ILL)),
        commands.RegisterCards("c1/n2", HAMI, (OTHER,)),
        commands.RegisterCards("c2/n1", HAMI, (OTHER,)),
    ],
    [
        commands.Reserve("c1/red", WEB, "u-web", {GPU: 1, MEMORY: 40_000}),
        commands.Observe("c1/red", WEB, "u-web", 5, {GPU: 1, MEMORY: 40_000}),
        commands.Reserve(*TRAINING, {GPU: 1, MEMORY: 40_000}, root=WEB),
        commands.Place(*TRAINING, "c1/n1", PARTS, {MEMORY: 9_000}),
    ],
    [commands.Advance(*TRAINING, Stage.ALLOCATED, initialised=True, stands={MEMORY: 8_000})],
    [commands.RegisterCards("c1/n1", OWN, (ILL,))],
    [commands.RemoveNode("c1/n1")],
    [commands.End(*TRAINING, 9, "deleted")],
]


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    state = State()
    payloads = [record(state, step, time=START + n * SECOND) for n, step in enumerate(STEPS)]
    await project(
        tmp_path / "ledger.sqlite", log_of([payload for payload in payloads if payload is not None])
    )
    return tmp_path / "ledger.sqlite"


@pytest.fixture
async def client(path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    async with Readers(path) as readers:
        transport = httpx2.ASGITransport(app=Starlette(routes=routes(readers)))
        async with httpx2.AsyncClient(transport=transport, base_url="http://ledger") as client:
            yield client


async def get(client: httpx2.AsyncClient, **query: str) -> Any:
    answer = await client.get("/v1/cards", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_card_has_limits_and_used_amounts(
    client: httpx2.AsyncClient,
) -> None:
    (card,) = [row for row in await get(client, at="2") if row["uuid"] == "GPU-a"]
    assert card == {
        "cluster": "c1",
        "node": "n1",
        "uuid": "GPU-a",
        "index": 0,
        "type": "NVIDIA A100",
        "health": True,
        "memory": 40_000,
        "cores": 100,
        "slots": 10,
        "used_memory": 9_000,
        "used_cores": 30,
        "used_slots": 1,
        "free_memory": 31_000,
        "free_cores": 70,
        "free_slots": 9,
        "vendor": "nvidia",
        "mode": "",
        "numa": 0,
        "cordoned": False,
        "memory_scale": 100,
        "cores_scale": 100,
        "keeper": "gpuledger",
        "state": "announced",
    }


SLICE = {"GPU-b": "gpu.nvidia.com", "GPU-z": "x"}


@pytest.mark.parametrize(
    ("at", "since", "expected"),
    [
        ("1", 2, [None] * 4),
        ("2", 2, ["device-plugin ", "dra gpu.nvidia.com", "device-plugin ", None]),
        ("4", 2, [" ", "dra gpu.nvidia.com", "device-plugin ", None]),
        ("", 99, ["device-plugin ", None]),
    ],
)
async def test_cards_have_the_mechanism_that_offers_them_where_it_is_known(
    path: Path, at: str, since: int, expected: list[str | None]
) -> None:
    """At position 4 GPU-a is lost, and at the end its node is gone."""
    slices = FixedSlices("c1", {"n1": SLICE}, since=since)
    async with Readers(path) as readers:
        transport = httpx2.ASGITransport(app=Starlette(routes=routes(readers, slices)))
        async with httpx2.AsyncClient(transport=transport, base_url="http://ledger") as client:
            listed = await get(client, **({"at": at} if at else {}))
    shown = [
        f"{card['offered_by']} {card['driver']}" if "offered_by" in card else None
        for card in listed
    ]
    assert shown == expected


async def test_cards_are_listed_by_node_with_what_is_wrong_with_them(
    client: httpx2.AsyncClient,
) -> None:
    listed = await get(client, at="1")
    assert [(card["cluster"], card["node"], card["uuid"]) for card in listed] == [
        ("c1", "n1", "GPU-a"),
        ("c1", "n1", "GPU-b"),
        ("c1", "n2", "GPU-c"),
        ("c2", "n1", "GPU-c"),
    ]
    assert [(card["health"], card["cordoned"], card["numa"]) for card in listed[:2]] == [
        (True, False, 0),
        (False, True, 1),
    ]


@pytest.mark.parametrize(
    ("query", "count"),
    [({"node": "n1"}, 3), ({"node": "n1", "cluster": "c1"}, 2), ({"node": "c1"}, 0)],
)
async def test_cards_of_one_node_or_cluster(
    client: httpx2.AsyncClient, query: dict[str, str], count: int
) -> None:
    assert len(await get(client, at="1", **query)) == count


async def test_cards_of_a_namespace_are_refused_for_who_may_see_only_that(
    client: httpx2.AsyncClient,
) -> None:
    answer = await client.get("/v1/cards", params={"namespace": "red", "pods": "true"})
    assert answer.status_code == 400
    assert answer.json()["error"]["parameter"] == "namespace"


async def test_a_pod_is_on_a_card_with_what_it_books_at_that_position(
    client: httpx2.AsyncClient,
) -> None:
    (then, _) = await get(client, at="2", node="n1", cluster="c1", pods="true")
    assert then["pods"] == [
        {
            "namespace": "red",
            "key": "pods/training",
            "uid": "u-1",
            "memory": 9_000,
            "cores": 30,
            "slots": 1,
            "exclusive": False,
            "stage": "proposed",
            "observed": False,
            "since": "2025-06-15T15:06:41.000000Z",
        }
    ]
    (later, ill) = await get(client, at="3", node="n1", cluster="c1", pods="true")
    assert [(pod["memory"], pod["stage"]) for pod in later["pods"]] == [(8_000, "allocated")]
    assert ill["pods"] == []


async def test_a_card_that_pods_hold_is_lost_then_gone_then_forgotten(
    client: httpx2.AsyncClient,
) -> None:
    seen = [
        [(card["state"], card["memory"], card["used_memory"]) for card in cards]
        for at in ("3", "4", "5", "6")
        for cards in [await get(client, at=at, node="n1", cluster="c1")]
    ]
    assert seen == [
        [("announced", 40_000, 8_000), ("announced", 60_000, 0)],
        [("lost", 0, 8_000), ("announced", 60_000, 0)],
        [("gone", 0, 8_000)],
        [],
    ]


async def test_small_pages_of_cards_together_are_the_whole(client: httpx2.AsyncClient) -> None:
    whole = await get(client, at="2", pods="true")
    pages, query = [], {"limit": "1", "at": "2", "pods": "true"}
    for _ in range(10):
        answer = await client.get("/v1/cards", params=query)
        pages += answer.json()
        if "Gpuledger-Next" not in answer.headers:
            break
        query["after"] = answer.headers["Gpuledger-Next"]
    assert pages == whole
    assert len(pages) == 4


async def test_cards_are_not_listed_as_quotas(path: Path) -> None:
    async with viewing(path) as view:
        lines, more = await usage(view, 2, EVERYTHING, limit=1)
    assert ([line.quota for line in lines], more) == (["main"], "")


async def test_what_cards_decide_is_what_the_pod_and_its_root_are_charged(path: Path) -> None:
    charged = []
    async with viewing(path) as view:
        (space,) = [
            namespace for namespace in await namespaces(view, EVERYTHING) if namespace.name == "red"
        ]
        for position in (2, 3):
            keys = [key async for key in key_charges(view, position, space)]
            (line,), _ = await usage(view, position, EVERYTHING, limit=9)
            charged.append([*(key.charge[MEMORY] for key in keys), line.used])
    assert charged == [[9_000, 9_000, 9_000], [8_000, 8_000, 8_000]]


async def test_every_card_is_a_gauge_and_no_line_of_a_quota(path: Path) -> None:
    async with Readers(path) as readers:
        collector, registry = UsageCollector(readers, UsageExport(measures={})), CollectorRegistry()
        registry.register(collector)
        await collector.refresh()
    text = generate_latest(registry).decode()
    labels = '{card="GPU-c",cluster="c1",node="n2"}'
    assert f"gpuledger_card_memory_limit_bytes{labels} {floatToGoString(15_000 << 20)}" in text
    assert f"gpuledger_card_memory_used_bytes{labels} 0.0" in text
    assert f"gpuledger_card_cores_limit_ratio{labels} 1.0" in text
    assert f"gpuledger_card_slots_limit{labels} 10.0" in text
    assert f"gpuledger_card_healthy{labels} 1.0" in text
    assert "gpuledger_cards_left_out 0.0" in text
    assert "gpuledger_quota_lines_left_out 0.0" in text
    assert 'namespace="n2"' not in text


@pytest.mark.parametrize(("cluster", "left_out"), [("", 1), ("c1", 0)])
async def test_cards_beyond_the_bound_are_counted(
    path: Path, monkeypatch: pytest.MonkeyPatch, cluster: str, left_out: int
) -> None:
    monkeypatch.setattr(usage_metrics, "CARDS_MAX", 1)
    async with Readers(path) as readers:
        collector = UsageCollector(readers, UsageExport(measures={}, cluster=cluster))
        await collector.refresh()
    families = {family.name: family for family in collector.collect()}
    assert len(families["gpuledger_card_slots_used"].samples) == 1
    assert families["gpuledger_cards_left_out"].samples[0].value == left_out
