"""A tenant's pages: the answers of its namespace, and no name of another tenant on any page."""

import asyncio
import re
import shutil
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from msgspec import structs
from support.builders.decide_and_fold import record
from support.harness.projection_harness import SECOND, START, log_of, project
from support.pages.page_harness import FakeSource, Tenant, pages
from support.pages.two_tenants import (
    GPU,
    LAST,
    MEMORY,
    OWN,
    RED,
    SECRETS,
    SHARED,
    THEIRS,
    two_tenants,
)

from gpuledger.page.page_source import LogHealth, LogScrub
from ledger.core.model.commands import SetLimits
from ledger.core.model.state import State
from ledger.log.writer import denial_log
from webhook.gates.waiting_report import WaitingRow


def waiting(cluster: str, namespace: str, pod: str, place: int = 1) -> WaitingRow:
    since = "2026-01-01T00:00:00Z"
    return WaitingRow(
        cluster,
        namespace,
        pod,
        f"pods/{pod}",
        "u",
        {},
        unknown="",
        since=since,
        place=place,
        obstacle="all is full",
    )


WAITING = [
    waiting("c1", "red", "aside", 0),
    waiting("c1", "red", "queued"),
    waiting("c1", "hidden-tenant", "hidden-pod-9"),
    waiting("c2", "red", "hidden-pod-8"),
]
OWN_PAGES = (
    "/page/namespace?namespace=red",
    "/page/namespace?namespace=red&root=deployments.apps/web",
    "/page/denials?namespace=red",
    "/page/denials?namespace=red&reason=UniverseExceeded",
    "/page/waiting?namespace=red",
    "/page/namespaces?prefix=r",
    "/page/namespaces?prefix=h",
    "/page/history?namespace=red",
    f"/page/history?account={OWN}&from=0",
    f"/page/history?account={SHARED}&namespace=red&from=0",
    "/page/audit?namespace=red",
    *(f"/page/record?namespace=red&position={position}" for position in range(1, LAST + 1)),
)
OTHERS = (
    "/page/namespace?namespace=hidden-tenant",
    "/page/namespace?namespace=absent",
    "/page/history",
    "/page/history?namespace=hidden-tenant",
    f"/page/history?account={THEIRS}",
    f"/page/history?account={THEIRS}&namespace=red",
    f"/page/history?account={SHARED}",
    f"/page/history?account={SHARED}&namespace=hidden-tenant",
    "/page/history?account=quota/c2/red/main",
    "/page/denials",
    "/page/denials?namespace=hidden-tenant",
    "/page/denials?namespace=red&cluster=c2",
    "/page/waiting",
    "/page/waiting?namespace=hidden-tenant",
    "/page/audit",
    "/page/audit?namespace=hidden-tenant",
    "/page/record?position=5",
    "/page/record?position=5&namespace=hidden-tenant",
    "/page/namespace?namespace=red&cluster=c2",
)


@pytest.fixture(scope="module")
def projection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_tenants(tmp_path_factory.mktemp("page") / "ledger.sqlite")


@pytest.fixture
async def tenant(projection: Path) -> AsyncIterator[httpx2.AsyncClient]:
    source = FakeSource(waiting=WAITING)
    async with pages(projection, viewer=Tenant("red"), source=source) as client:
        yield client


@pytest.fixture
async def operator(projection: Path) -> AsyncIterator[httpx2.AsyncClient]:
    async with pages(projection, source=FakeSource(waiting=WAITING)) as client:
        yield client


@pytest.mark.parametrize("at", ["", "&at=7"])
@pytest.mark.parametrize("path", OWN_PAGES)
async def test_no_page_of_a_tenant_names_another(
    tenant: httpx2.AsyncClient, path: str, at: str
) -> None:
    if at and path.startswith("/page/record"):
        path = "/page/record?namespace=red&position=5"
    answer = await tenant.get(path + at)
    assert answer.status_code == 200, answer.text
    assert not [name for name in SECRETS if name in answer.text]


async def test_the_hidden_names_are_on_the_pages_of_an_operator(
    operator: httpx2.AsyncClient,
) -> None:
    paths = (
        "/page/namespace?namespace=hidden-tenant",
        "/page/namespaces?prefix=h",
        "/page/denials",
        "/page/waiting",
        "/page/history",
        f"/page/history?account={SHARED}&from=0",
        "/page/audit",
        "/page/record?position=5",
    )
    for path in paths:
        answer = await operator.get(path)
        assert answer.status_code == 200, answer.text
        assert "hidden-" in answer.text, path


@pytest.mark.parametrize("path", OTHERS)
async def test_a_tenant_is_refused_the_pages_of_others(
    tenant: httpx2.AsyncClient, path: str
) -> None:
    answer = await tenant.get(path)
    assert answer.status_code == 403, answer.text
    assert "hidden-pod" not in answer.text
    assert "theirs" not in answer.text.replace("account=", "")


async def test_a_shared_quota_that_does_not_cover_the_tenant_is_absent(
    tmp_path: Path, projection: Path
) -> None:
    async with pages(projection, viewer=Tenant("blue", "red")) as client:
        answer = await client.get(f"/page/history?account={SHARED}&namespace=blue")
    assert answer.status_code == 404


async def test_the_namespace_shows_own_part_and_sum_of_others(tenant: httpx2.AsyncClient) -> None:
    text = (await tenant.get("/page/namespace?namespace=red")).text
    shared = text[text.index("shared</span>") :]
    assert "3 GPUs</td><td" in shared  # this namespace: the root with its pod
    assert "8 GPUs" in shared  # the others together
    assert "other namespaces together: " in text


async def test_the_namespace_shows_holders_by_root_with_their_pods(
    tenant: httpx2.AsyncClient,
) -> None:
    text = (await tenant.get("/page/namespace?namespace=red")).text
    assert "deployments.apps/web" in text
    assert "pods/w1" not in text
    text = (await tenant.get("/page/namespace?namespace=red&root=deployments.apps/web")).text
    assert "pods/w1" in text


async def test_a_pod_among_the_holders_is_one_pod(operator: httpx2.AsyncClient) -> None:
    text = (await operator.get("/page/namespace?namespace=hidden-tenant")).text
    holders = text.split('<h2 id="holders">')[1].split("</table>")[0]
    assert "pods/hidden-pod" in holders
    assert re.findall(r'<td class="number">(\d+)</td>', holders) == ["1"] * 3
    text = (await operator.get("/page/namespace?namespace=red&root=deployments.apps/web")).text
    assert '<td class="number">1</td>' in text


async def test_the_namespace_shows_what_fits_and_the_quota_that_limits(
    tenant: httpx2.AsyncClient,
) -> None:
    text = (await tenant.get("/page/namespace?namespace=red")).text
    assert "3 of 3" in text
    assert "all (limits.nvidia.com/gpumem)" in text


async def test_waiting_pods_have_no_estimate_without_a_past(tenant: httpx2.AsyncClient) -> None:
    text = (await tenant.get("/page/namespace?namespace=red")).text
    assert "queued" in text
    assert "no estimate" in text
    assert text.index("queued") < text.index("set aside")
    assert "because 1 holders of this namespace have ended" in text
    past = (await tenant.get("/page/namespace?namespace=red&at=6")).text
    assert "queued" not in past
    assert "does not record waiting pods" in past


async def test_denials_show_numbers_and_remedy(tenant: httpx2.AsyncClient) -> None:
    text = (await tenant.get("/page/namespace?namespace=red")).text
    assert "pods/big" in text
    assert "Remedy:" in text
    assert "pods/vast" not in text


async def test_a_denial_names_no_release_where_none_makes_room(
    tmp_path: Path, projection: Path
) -> None:
    path = Path(shutil.copy(projection, tmp_path))
    with sqlite3.connect(path) as connection:
        ((position, body),) = connection.execute("SELECT position, body FROM denials LIMIT 1")
        denied = denial_log.decode(body)
        never = structs.replace(denied, denial=structs.replace(denied.denial, transient=False))
        change = "UPDATE denials SET body = ? WHERE position = ?"
        connection.execute(change, (denial_log.encode(never), position))
    connection.close()
    headers = []
    for each in (projection, path):
        async with pages(each) as client:
            text = (await client.get("/page/denials?namespace=red")).text
        headers.append(re.findall(r'<th scope="col"[^>]*>([^<]*)', text))
    common = ["Quota", "Resource", "Increase", "Used", "Limit", "Free"]
    assert headers == [[*common, "To release"], common]


async def test_a_right_less_is_a_section_less(projection: Path) -> None:
    class UsageOnly(Tenant):
        async def may(self, verb: str, resource: str, namespace: str = "") -> bool:
            return resource == "usage" and await super().may(verb, resource, namespace)

    async with pages(
        projection, viewer=UsageOnly("red"), source=FakeSource(waiting=WAITING)
    ) as client:
        page = (await client.get("/page/namespace?namespace=red")).text
        history = (await client.get(f"/page/history?account={OWN}&from=0")).text
        record = await client.get("/page/record?namespace=red&position=5")
    assert [name for name in ("queued", "pods/big", "deployments.apps") if name in page] == []
    assert "You may not list holders.gpuledger.io" in page
    assert "pods/p1" not in history
    assert record.status_code == 403


async def test_the_history_marks_and_lists_events_and_the_difference(
    tenant: httpx2.AsyncClient,
) -> None:
    text = (await tenant.get(f"/page/history?account={OWN}&from=0&to={LAST - 1}")).text
    assert 'class="chart-limit-change"><title>limit 12 to 8' in text
    assert "pods/p1: +2</title>" in text
    assert text.count("<path class=") == 4 + 1
    assert "Holders that came" in text
    went = (await tenant.get(f"/page/history?account={OWN}&from={LAST - 1}")).text
    assert "Holders that went" in went
    assert "Holders that came" not in went


async def test_a_limit_set_within_the_period_has_no_amounts_before(
    tenant: httpx2.AsyncClient,
) -> None:
    text = (await tenant.get(f"/page/history?account={OWN}&from=0&to=1")).text
    assert _differences(text) == [["not counted", "0 GPUs", "not counted", "none", "12 GPUs"]]
    later = (await tenant.get(f"/page/history?account={OWN}&from=1&to={LAST - 1}")).text
    assert "<title>limit set to 12</title>" in text
    assert "limit set to" not in later
    assert _differences(later) == [["0 GPUs", "5 GPUs", "5 GPUs", "12 GPUs", "8 GPUs"]]


async def test_a_limit_removed_within_the_period_has_no_amounts_after(tmp_path: Path) -> None:
    limits = ({GPU: 12, MEMORY: 9_000}, {GPU: 12})
    state = State()
    steps = [
        record(
            state,
            [SetLimits(OWN, (RED,), {f"requests.{key}": size for key, size in each.items()}, "a")],
            time=START + number * SECOND,
        )
        for number, each in enumerate(limits)
    ]
    await project(tmp_path / "ledger.sqlite", log_of([step for step in steps if step]))
    async with pages(tmp_path / "ledger.sqlite") as client:
        text = (await client.get(f"/page/history?account={OWN}&from=1&to=2")).text
    assert _differences(text) == [
        ["0 GPUs", "0 GPUs", "0 GPUs", "12 GPUs", "12 GPUs"],
        ["0 MiB", "not counted", "not counted", "8.8 GiB", "none"],
    ]
    assert "<title>limit 9,000 removed</title>" in text


def _differences(text: str) -> list[list[str]]:
    """Return the cells of each line in the table of the difference."""
    table = text.split("Usage at position")[1].split("</table>")[0]
    return [re.findall(r'<td class="number">([^<]*)', row) for row in table.split("<tr>")[2:]]


async def test_the_links_of_a_record_are_apart_from_its_namespace(
    tenant: httpx2.AsyncClient,
) -> None:
    for position, last_words in ((5, "Next record"), (LAST, "This is the last record")):
        page = await tenant.get(f"/page/record?namespace=red&position={position}")
        assert f"{last_words} with events of namespace red" in _words(page.text)


def _words(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", text))


async def test_a_period_that_is_reversed_or_later_names_the_field(
    tenant: httpx2.AsyncClient,
) -> None:
    for query, field in (("from=9&to=3", "from"), ("at=4&to=6", "to"), ("to=999", "to")):
        answer = await tenant.get(f"/page/history?account={OWN}&{query}")
        assert answer.status_code == 400
        assert f"Parameter {field} = " in answer.text


async def test_the_audit_shows_head_and_corrections(operator: httpx2.AsyncClient) -> None:
    text = (await operator.get("/page/audit")).text
    record = (await operator.get(f"/page/record?position={LAST}")).text
    digest = record.split('<dd class="mono">')[1].split("<")[0]
    assert len(digest) == 64
    assert f"gpuledger audit verify --expect {LAST}:{digest}" in text
    assert "did not pass the webhook" in text
    early = (await operator.get("/page/audit?at=5")).text
    assert "No correction is recorded" in early


async def test_the_audit_of_a_tenant_has_no_addresses_of_the_log(projection: Path) -> None:
    health = LogHealth(None, "a test", problems=("nats://10.0.0.1 does not answer",))
    source = FakeSource(health=health)
    async with pages(projection, viewer=Tenant("red"), source=source) as client:
        text = (await client.get("/page/audit?namespace=red")).text
    assert "10.0.0.1" not in text
    assert "Ask its operator" in text
    async with pages(projection, source=source) as client:
        assert "10.0.0.1" in (await client.get("/page/audit")).text


async def test_the_audit_shows_the_last_scrub(projection: Path) -> None:
    scrub = LogScrub(LAST, 1_800_000_000_000_000)
    source = FakeSource(health=LogHealth(LAST, "a test", scrub=scrub))
    async with pages(projection, source=source) as client:
        text = (await client.get("/page/audit")).text
    assert "read the whole log at 2027-01-15T08:00:00Z" in text
    assert f"intact up to {LAST}." in text


async def test_records_are_linked_to_their_neighbours(
    tenant: httpx2.AsyncClient, operator: httpx2.AsyncClient
) -> None:
    text = (await operator.get("/page/record?position=5")).text
    assert "position=4" in text
    assert "position=6" in text
    own = (await tenant.get("/page/record?position=7&namespace=red")).text
    assert "position=9" in own  # record 8 is of the other tenant
    assert "position=8" not in own
    assert (await operator.get("/page/record?position=11")).status_code == 404
    assert (await operator.get("/page/record?position=6&at=5")).status_code == 404


async def test_pages_answer_together(tenant: httpx2.AsyncClient) -> None:
    answers = await asyncio.gather(*(tenant.get(path) for path in OWN_PAGES))
    assert {answer.status_code for answer in answers} == {200}


async def test_no_page_shows_fractions_of_a_second(tenant: httpx2.AsyncClient) -> None:
    for path in OWN_PAGES:
        text = (await tenant.get(path)).text
        assert re.findall(r"\d\d:\d\d:\d\d(?!Z)", text) == [], path
