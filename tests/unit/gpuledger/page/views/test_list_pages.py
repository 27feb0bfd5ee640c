"""The lists of denials and waiting pods: filters, pages, moments, and the links that lead there."""

import html
import re
from pathlib import Path

import pytest
from support.pages.page_harness import FakeSource, Tenant, pages
from support.pages.two_tenants import two_tenants

from gpuledger.page.views import waiting_list_page
from projections.queries import denial_history
from webhook.gates.waiting_report import WaitingRow

FULL = "UniverseExceeded"


@pytest.fixture(scope="module")
def projection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_tenants(tmp_path_factory.mktemp("page") / "ledger.sqlite")


def waiting(namespace: str, number: int, cluster: str = "c1") -> WaitingRow:
    since = f"2026-01-{number:02}T00:00:00Z"
    name, amounts = f"p{number}", {"nvidia.com/gpu": number}
    where = (cluster, namespace, name, f"pods/{name}", f"u{number}")
    return WaitingRow(*where, amounts, "", since, number, f"no room for {name}")


async def shown(path: Path, address: str, **of: object) -> str:
    async with pages(path, **of) as client:  # type: ignore[arg-type]
        answer = await client.get(address)
    assert answer.status_code == 200, answer.text
    return answer.text


@pytest.mark.parametrize(
    ("query", "objects"),
    [
        ("", ["pods/vast", "pods/big"]),
        ("?namespace=red", ["pods/big"]),
        (f"?reason={FULL}", ["pods/vast", "pods/big"]),
        (f"?reason={FULL}&namespace=red", ["pods/big"]),
        ("?reason=LogFull", []),
        ("?reason=unheard-of", []),
        ("?at=1", []),
    ],
)
async def test_denials_are_those_of_namespace_reason_and_moment(
    projection: Path, query: str, objects: list[str]
) -> None:
    text = await shown(projection, f"/page/denials{query}")
    assert re.findall(r'<h3 id="denial-\d+"><bdi class="name">([^<]+)', text) == objects
    assert ("No such denial" in text or "No denial" in text) == (not objects)


async def test_a_long_search_for_a_reason_ends_and_goes_on(
    projection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(denial_history, "SCANNED_MAX", 1)
    text = await shown(projection, "/page/denials?reason=LogFull")
    assert "More follow" in text
    (following,) = re.findall(r'rel="next" href="([^"]+)"', text)
    assert "No such denial" in await shown(projection, html.unescape(following))


async def test_counts_of_the_overview_lead_to_the_lists(projection: Path) -> None:
    source = FakeSource(waiting=[waiting("red", 1)])
    async with pages(projection, source=source, viewer=Tenant("red")) as client:
        text = (await client.get("/page/?namespace=red&at=10")).text
        now = (await client.get("/page/?namespace=red")).text
        links = re.findall(r'href="(/page/(?:denials|waiting)[^"]+namespace=[^"]+)"', text + now)
        answers = [await client.get(html.unescape(link)) for link in links]
    assert {answer.status_code for answer in answers} == {200}
    paths = {answer.url.path for answer in answers}
    assert paths == {"/page/denials", "/page/waiting"}
    assert any(answer.url.params.get("reason") == FULL for answer in answers)


async def test_waiting_pods_have_place_since_amounts_and_obstacle(projection: Path) -> None:
    rows = [waiting("red", 2), waiting("blue", 1), waiting("red", 3, "c2")]
    source = FakeSource(waiting=rows)
    text = await shown(projection, "/page/waiting", source=source)
    assert re.findall(r'row"[^>]*><bdi class="name">(p\d)', text) == ["p1", "p2", "p3"]
    for part in (
        "no room for p2",
        "2026-01-02T00:00:00Z",
        "2 GPUs",
        "namespace=red&amp;cluster=c1",
    ):
        assert part in text
    own = await shown(projection, "/page/waiting", source=source, viewer=Tenant(""))
    assert "p2" in own
    assert "p3" not in own, "it waits in another cluster"


async def test_waiting_pods_of_other_pages_follow(
    projection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_list_page, "ROWS_MAX", 2)
    source = FakeSource(waiting=[waiting("red", number) for number in (1, 2, 3)])
    second = await shown(projection, "/page/waiting?page=2", source=source)
    assert re.findall(r'row"[^>]*><bdi class="name">(p\d)', second) == ["p3"]
    assert "3 to 3 of 3" in second


async def test_a_page_beyond_the_last_one_is_the_last_one(
    projection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page loads again by itself, and pods may have stopped waiting meanwhile."""
    monkeypatch.setattr(waiting_list_page, "ROWS_MAX", 2)
    source = FakeSource(waiting=[waiting("red", number) for number in (1, 2, 3, 4)])
    beyond = await shown(projection, "/page/waiting?page=3", source=source)
    assert "3 to 4 of 4" in beyond
    assert 'rel="next"' not in beyond
    assert "No pod waits here" in await shown(projection, "/page/waiting?page=3")
    assert "There is no quota here" not in await shown(projection, "/page/?page=9")


async def test_the_past_and_a_store_have_no_waiting_pods_but_the_reason(projection: Path) -> None:
    source = FakeSource(waiting=[waiting("red", 1)])
    assert "the past shows none" in await shown(projection, "/page/waiting?at=3", source=source)
    store = FakeSource(waiting=None)
    assert "The service of the cluster lists them" in await shown(
        projection, "/page/waiting", source=store
    )


@pytest.mark.parametrize("page", ["/", "/denials", "/waiting", "/cards"])
async def test_a_filter_keeps_cluster_moment_and_pause_and_no_page(
    projection: Path, page: str
) -> None:
    text = await shown(projection, f"/page{page}?cluster=c1&at=3&refresh=off&page=1")
    form = re.findall(r'<form method="get".*?</form>', text, re.DOTALL)[-1]
    kept = re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form)
    assert sorted(kept) == [("at", "3"), ("cluster", "c1"), ("refresh", "off")]
