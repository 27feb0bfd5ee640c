"""Cards: the grid with its filters and pages, the summary, and names that are not shown."""

import asyncio
import re
from pathlib import Path

import httpx2
import pytest
from support.builders.decide_and_fold import record
from support.claims.fixed_slices import FixedSlices
from support.harness.projection_harness import SECOND, START, log_of, project
from support.pages.page_harness import FakeSource, Tenant, pages

from gpuledger.page.card_grid import card_nodes
from gpuledger.page.views import cards_page
from ledger.core.model import commands
from ledger.core.model.cards import OWN, Card, Part, Phase, Share
from ledger.core.model.state import State

EVIL = "<script>alert(1)</script>\u202e"
NODES = 6


def card(node: int, index: int, **more: object) -> Card:
    kind = "A100" if node % 2 else "T4"
    fields = {"cores": 100, "slots": 10, **more}
    return Card(f"GPU-{node}-{index}", index, kind, 16_000, **fields)  # type: ignore[arg-type]


def held(space: str, name: str, node: int, index: int, memory: int) -> list[commands.AnyCommand]:
    pod = (f"c1/{space}", f"pods/{name}", f"{space}-{name}")
    part = Part("main", Phase.APP, (Share(f"GPU-{node}-{index}", memory, 50),))
    return [
        commands.Reserve(*pod, {"nvidia.com/gpu": 1}),
        commands.Place(*pod, f"c1/node-{node}", (part,)),
    ]


def story() -> list[bytes]:
    """Six nodes of two cards; on node-1 a card of red and blue, and an unhealthy card."""
    registrations = [
        commands.RegisterCards(f"c1/node-{node}", OWN, (card(node, 0), card(node, 1)))
        for node in range(NODES)
        if node != 1
    ]
    special = (card(1, 0), card(1, 1, healthy=False, cordoned=True))
    registrations.append(commands.RegisterCards("c1/node-1", OWN, special))
    steps = [
        *registrations,
        *held("red", "train", 1, 0, 4_000),
        *held("blue", EVIL, 1, 0, 2_000),
    ]
    state = State()
    payloads = [record(state, [step], time=START + n * SECOND) for n, step in enumerate(steps)]
    return [payload for payload in payloads if payload is not None]


@pytest.fixture(scope="module")
def projection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "ledger.sqlite"
    asyncio.run(project(path, log_of(story())))
    return path


class CardReader(Tenant):
    """May list all cards, and the holders of some namespaces."""

    async def may(self, verb: str, resource: str, namespace: str = "") -> bool:
        if (verb, resource, namespace) == ("list", "cards", ""):
            return True
        return await super().may(verb, resource, namespace)


def nodes_of(answer: httpx2.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return re.findall(r'<h3><bdi class="name">([^<]+)</bdi>', answer.text)


async def test_the_grid_shows_cards_with_promised_amounts_and_pods(projection: Path) -> None:
    async with pages(projection) as client:
        answer = await client.get("/page/cards?node=node-1")
    assert nodes_of(answer) == ["node-1"]
    for shown in ("5.9 GiB of 15.6 GiB", "100 of 100 %", "2 of 10", "red/pods/train", "unhealthy"):
        assert shown in answer.text
    assert answer.text.count('class="card-cell"') == 2


async def test_hostile_names_are_text(projection: Path) -> None:
    async with pages(projection) as client:
        answer = await client.get("/page/cards")
    assert "&lt;script&gt;alert" in answer.text
    assert "<script" not in answer.text
    assert "\u202e" not in answer.text


async def test_the_summary_counts_each_type(projection: Path) -> None:
    async with pages(projection) as client:
        text = (await client.get("/page/cards")).text
    rows = re.findall(r'<tr><th scope="row">.*?</tr>', text)
    numbers = [re.findall(r'<td class="number">([^<]+)</td>', row) for row in rows]
    assert [row[:6] for row in numbers] == [
        ["6", "4", "1", "0", "1", "1"],
        ["6", "6", "0", "0", "0", "0"],
    ]


@pytest.mark.parametrize(
    ("query", "nodes"),
    [
        ("type=A100", ["node-1", "node-3", "node-5"]),
        ("state=unhealthy", ["node-1"]),
        ("state=cordoned&type=T4", []),
        ("node=node-4&state=", ["node-4"]),
        ("node=%25", []),
        ("at=1", ["node-0"]),
    ],
)
async def test_filters_choose_nodes(projection: Path, query: str, nodes: list[str]) -> None:
    async with pages(projection) as client:
        assert nodes_of(await client.get(f"/page/cards?{query}")) == nodes


async def test_cards_in_slices_are_marked_with_their_driver(projection: Path) -> None:
    source = FakeSource()
    source.offers = FixedSlices("c1", {"node-1": {"GPU-1-1": f"gpu.example.com{EVIL}"}})
    async with pages(projection, source=source) as client:
        marked = (await client.get("/page/cards?node=node-1")).text
        others = (await client.get("/page/cards?node=node-2")).text
        filtered = await client.get("/page/cards?state=dra")
    assert marked.count("<strong>DRA</strong>") == marked.count("Cards marked DRA") == 1
    assert "gpu.example.com&lt;script" in marked.partition("GPU-1-1")[2]
    assert "DRA" not in others.replace('<option value="dra">dra</option>', "")
    assert nodes_of(filtered) == ["node-1"]
    assert filtered.text.count('class="card-cell"') == 1


@pytest.mark.parametrize("offers", [None, FixedSlices("c1", {}, since=None)])
async def test_the_filter_of_slices_names_the_limit_where_none_are_known(
    projection: Path, offers: FixedSlices | None
) -> None:
    source = FakeSource()
    source.offers = offers
    async with pages(projection, source=source) as client:
        shown = await client.get("/page/cards?node=node-1")
        filtered = await client.get("/page/cards?state=dra")
    assert "<strong>DRA" not in shown.text
    assert nodes_of(filtered) == []
    assert "the log has no slices" in filtered.text


@pytest.mark.parametrize(
    ("query", "offers"),
    [("state=dra&node=none", FixedSlices("c1", {})), ("state=lost", None)],
)
async def test_filters_without_a_card_name_no_limit_of_slices(
    projection: Path, query: str, offers: FixedSlices | None
) -> None:
    source = FakeSource()
    source.offers = offers
    async with pages(projection, source=source) as client:
        text = (await client.get(f"/page/cards?{query}")).text
    assert "No card matches." in text
    assert "the log has no slices" not in text


@pytest.mark.parametrize(
    ("since", "usable"), [(0, ["4 of 6", "6 of 6"]), (None, ["5 of 6", "6 of 6"])]
)
async def test_cards_in_slices_are_not_usable_by_a_namespace(
    projection: Path, since: int | None, usable: list[str]
) -> None:
    source = FakeSource()
    source.offers = FixedSlices("c1", {"node-3": {"GPU-3-0": ""}}, since=since)
    async with pages(projection, source=source) as client:
        text = (await client.get("/page/namespace?namespace=red")).text
    fits = text.partition("What fits now")[2].partition("</table>")[0]
    assert re.findall(r"\d+ of \d+", fits) == usable
    assert ("in ResourceSlices" in text) == (since is not None)


@pytest.mark.parametrize("scanned", [1, 5_000])
async def test_pages_show_each_node_once(
    projection: Path, scanned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cards_page, "NODES_SHOWN", 2)
    monkeypatch.setattr(card_nodes, "AT_ONCE", 3)
    monkeypatch.setattr(card_nodes, "SCANNED_MAX", scanned)
    read: list[str] = []
    path = "/page/cards"
    async with pages(projection) as client:
        while path and len(read) < 2 * NODES:
            answer = await client.get(path)
            read += nodes_of(answer)
            links = re.findall(r'rel="next" href="([^"]+)"', answer.text)
            path = links[0].replace("&amp;", "&") if links else ""
    assert read == [f"node-{number}" for number in range(NODES)]


async def test_a_viewer_without_the_right_to_cards_is_refused(projection: Path) -> None:
    async with pages(projection, viewer=Tenant("red")) as client:
        answer = await client.get("/page/cards")
    assert answer.status_code == 403
    assert "node-1" not in answer.text


async def test_pods_of_namespaces_that_may_not_be_read_are_counted(projection: Path) -> None:
    async with pages(projection, viewer=CardReader("red")) as client:
        answer = await client.get("/page/cards?node=node-1")
    assert "red/pods/train" in answer.text
    assert "1 others" in answer.text
    assert "blue" not in answer.text
    assert "script" not in answer.text.partition("<main")[2]


async def test_rights_are_asked_for_a_bounded_number_of_namespaces(
    projection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cards_page, "NAMESPACES_ASKED", 1)
    viewer = CardReader("red", "blue")
    async with pages(projection, viewer=viewer) as client:
        answer = await client.get("/page/cards?node=node-1")
    assert [asked for asked in viewer.asked if asked[1] == "holders"] == [
        ("list", "holders", ""),
        ("list", "holders", "blue"),
    ]
    assert "red/pods/train" not in answer.text


@pytest.mark.parametrize("query", ["state=lostt", "at=99", "node=" + "x" * 700])
async def test_invalid_parameters_are_refused(projection: Path, query: str) -> None:
    async with pages(projection) as client:
        assert (await client.get(f"/page/cards?{query}")).status_code == 400
