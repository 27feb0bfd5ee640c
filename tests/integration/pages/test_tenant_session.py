"""A tenant who signs in by token: sees the own namespace, and no name of any other tenant."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser
from support.browser import axe
from support.browser.chromium import Visit, visiting
from support.browser.page_crawl import crawl
from support.harness.command_line import gpuledger
from support.page_data.day_cluster import BERLIN, L4_NODES, TEAMS
from support.pages.login_server import FROM_AFAR, login_server
from support.pages.page_harness import FakeSource

from gpuledger.page.page_list import PAGES
from gpuledger.wiring import store_layout
from webhook.gates.waiting_report import WaitingRow

pytestmark = pytest.mark.integration

MINE = "vision"
SINCE = "2026-01-31T12:00:00Z"


def _waiting(cluster: str, namespace: str, name: str, obstacle: str) -> WaitingRow:
    amounts = {"nvidia.com/gpu": 1}
    key = f"pods/{name}"
    where = (cluster, namespace, name, key, f"uid-{name}")
    return WaitingRow(*where, amounts, "", SINCE, 1, obstacle)


WAITING = [
    _waiting(BERLIN, MINE, "mine-waits", "no room"),
    _waiting(BERLIN, "speech", "secret-waits", "speech waits for 3 GPUs"),
    _waiting("oslo", MINE, "far-waits", "oslo is full"),
]

ATTACKS = (
    f"namespace={MINE}",
    f"namespace={MINE}&cluster=oslo",
    "namespace=speech",
    "namespace=speech&cluster=berlin&at=300",
    "account=quota/berlin/speech/gpus",
    f"account=quota/berlin/speech/gpus&namespace={MINE}&cluster=berlin",
    f"account=quota/oslo/vision/gpus&namespace={MINE}&cluster=berlin",
    "account=universe/machine-learning",
    f"account=universe/machine-learning&namespace={MINE}&cluster=berlin",
    f"account=universe/europe&namespace={MINE}&cluster=berlin&from=1&to=550",
    f"namespace={MINE}&cluster=berlin&root=deployments.apps/asr",
)
RECORDS = [f"position={position}" for position in range(1, 552, 61)]
RECORDS += [f"{record}&namespace={MINE}&cluster=berlin" for record in RECORDS]
"""Queries by which a tenant asks for what belongs to others, tried on every page."""


@pytest.fixture(scope="module")
def origin(day_store: Path) -> Iterator[str]:
    source = FakeSource(waiting=WAITING)
    with login_server(day_store / store_layout.PROJECTION, source, BERLIN) as served:
        yield served


@pytest.fixture(scope="module")
def secrets(day_store: Path) -> set[str]:
    """Names of other tenants: their namespaces, objects and users."""
    listed = gpuledger("holders", "--pods", "-o", "json", store=day_store).json
    denied = gpuledger("denials", "-o", "json", store=day_store).json
    others = [row for row in [*listed, *denied] if not _is_mine(row["cluster"], row["namespace"])]
    names = {row["key"].partition("/")[2] for row in others} | {row["actor"] for row in denied}
    names |= {name.partition("/")[2] for name in TEAMS if not _is_mine(*name.split("/"))}
    # The pods of the tenant run on other nodes.
    nodes = {node.partition("/")[2] for node in L4_NODES}
    mine = {row["actor"] for row in denied if _is_mine(row["cluster"], row["namespace"])}
    # The word is on the pages of each user, and the namespace has other objects to look for.
    own_words = {MINE, "search"}
    return (names | nodes | {"secret-waits", "far-waits"}) - mine - own_words


def _is_mine(cluster: str, namespace: str) -> bool:
    return (cluster, namespace) == (BERLIN, MINE)


def crawled_by(origin: str, token: str) -> dict[str, str]:
    headers = {**FROM_AFAR, "authorization": f"Bearer {token}"}
    with httpx2.Client(base_url=origin, headers=headers, timeout=20) as client:
        read = crawl(client, f"/page/namespace?namespace={MINE}", 60)
        for page in PAGES:
            for query in ("", *ATTACKS, *(RECORDS if page.path == "/record" else ())):
                path = f"/page{page.path}?{query}"
                read[path] = client.get(path).text
    return read


def seen_in(read: dict[str, str], names: set[str]) -> dict[str, set[str]]:
    """Return the names on each page, without pages that only repeat the request's own."""
    seen = {}
    for path, html in read.items():
        there = {name for name in names if name not in path and _is_in(name, html)}
        if there:
            seen[path] = there
    return seen


def _is_in(name: str, html: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", html) is not None


def test_tenant_reads_no_name_of_another_tenant(origin: str, secrets: set[str]) -> None:
    read = crawled_by(origin, f"t-{MINE}")
    assert seen_in(read, secrets) == {}
    own = seen_in(read, {"detector", "segmenter", "train-vit"})
    assert own, "the own objects are nowhere, so this test sees nothing"


def test_user_with_all_rights_reads_these_names(origin: str, secrets: set[str]) -> None:
    # Otherwise the search for the names of others would be blind.
    assert seen_in(crawled_by(origin, "t-all"), secrets)


@pytest.fixture
def visit(browser: Browser, origin: str) -> Iterator[Visit]:
    with visiting(browser, origin, extra_http_headers=FROM_AFAR) as opened:
        yield opened


def sign_in(visit: Visit, token: str) -> None:
    visit.page.get_by_label("Token").fill(token)
    visit.page.get_by_role("button", name="Sign in").click()


def test_login_leads_to_the_page_that_was_wanted(visit: Visit) -> None:
    wanted = f"/page/namespace?namespace={MINE}"
    visit.open(wanted)
    assert "/page/login?" in visit.page.url
    sign_in(visit, f"t-{MINE}")
    visit.page.wait_for_url(visit.origin + wanted)
    assert "reader-of-vision" in visit.text("body")
    assert visit.complaints == []


def test_own_waiting_pods_are_listed_accessibly(visit: Visit) -> None:
    visit.open(f"/page/waiting?namespace={MINE}")
    sign_in(visit, f"t-{MINE}")
    visit.page.wait_for_url("**/page/waiting?**")
    assert "mine-waits" in visit.text("main")
    for width in (1_280, 360):
        visit.resize(width)
        assert axe.findings(visit.page) == []
        assert visit.overflow() == []
    cells = visit.stacked_cells()
    assert [label for _, label, _, _ in cells] == [header for header, _, _, _ in cells]
    assert len(cells) == 6
    assert min(width for _, _, width, _ in cells) > 320


def test_session_is_hidden_from_scripts_and_ends(visit: Visit) -> None:
    visit.open("/page/login")
    sign_in(visit, f"t-{MINE}")
    (cookie,) = visit.page.context.cookies()
    assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "Strict")
    assert f"t-{MINE}" not in cookie["value"]
    assert visit.page.evaluate("document.cookie") == ""
    visit.page.get_by_role("button", name="Sign out").click()
    visit.page.wait_for_url("**/page/login")
    assert not [kept for kept in visit.page.context.cookies() if "session" in kept["name"]]


def test_wrong_token_is_refused_with_the_reason(visit: Visit) -> None:
    visit.open("/page/login")
    sign_in(visit, "wrong")
    assert "not valid" in visit.text("body")
    assert "wrong" not in visit.page.content()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_login_has_no_accessibility_findings(visit: Visit, scheme: str) -> None:
    visit.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    visit.open("/page/login")
    assert axe.findings(visit.page) == []
    visit.resize(360)
    assert visit.overflow() == []
