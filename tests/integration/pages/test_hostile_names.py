"""Hostile names on the pages: shown as text, in links that keep them, and never carried out."""

import re
from collections.abc import Iterator

import httpx2
import pytest
from playwright.sync_api import Browser
from support.browser.chromium import Visit, visiting
from support.browser.page_crawl import Markup, crawl
from support.page_data.hostile_names import BIDI, LONG, NAMESPACES, SCRIPT

from gpuledger.page.page_list import PAGES

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def crawled(hostile_pages: str) -> dict[str, str]:
    """The HTML of the pages that links of the overview lead to."""
    with httpx2.Client(base_url=hostile_pages, timeout=20) as client:
        return crawl(client)


@pytest.fixture(scope="module")
def visit(browser: Browser, hostile_pages: str) -> Iterator[Visit]:
    """One tab, as wide as a phone."""
    with visiting(browser, hostile_pages, viewport={"width": 360, "height": 800}) as opened:
        yield opened


def test_html_has_no_element_or_address_that_a_name_made(crawled: dict[str, str]) -> None:
    offences = {path: Markup(html).offences for path, html in crawled.items()}
    assert {path: listed for path, listed in offences.items() if listed} == {}


def test_crawl_is_not_blind() -> None:
    assert Markup(f"<p>{SCRIPT}").offences == ["<script>"]
    assert Markup('<a href="javascript:x()" onclick="x()">').offences
    assert Markup(f"<p>{BIDI}").offences


def test_every_page_of_the_list_was_reached(crawled: dict[str, str]) -> None:
    reached = {path.partition("?")[0] for path in crawled}
    listed = {f"/page{page.path}" for page in PAGES if page.navigation}
    assert listed <= reached


def test_long_names_are_whole_in_the_html(crawled: dict[str, str]) -> None:
    assert any(LONG in html for html in crawled.values())


def test_no_name_runs_in_the_browser(visit: Visit, crawled: dict[str, str]) -> None:
    # One page of each kind with each namespace: links differ in sorting and moments besides.
    opened = 0
    for path in _representatives(crawled):
        visit.complaints.clear()
        visit.open(path)
        opened += 1
        assert visit.page.evaluate("window.attacked") is None, path
        assert _without_statuses(visit.complaints) == [], path
        assert visit.overflow() == [], path
    assert opened >= len({path.partition("?")[0] for path in crawled})


def test_text_of_a_name_keeps_its_direction(visit: Visit, crawled: dict[str, str]) -> None:
    visit.open("/page/")
    assert "\u202e" not in visit.page.content()
    assert "gnp.exe" in visit.text("body")


def _representatives(crawled: dict[str, str], most: int = 24) -> list[str]:
    """Return paths: the first of each page, then others until there are enough."""
    first = {path.partition("?")[0]: path for path in reversed(list(crawled))}
    return list(dict.fromkeys([*first.values(), *crawled]))[:most]


def _without_statuses(complaints: list[str]) -> list[str]:
    """Return complaints without those about an answer of 4xx, which the browser prints as well."""
    status = re.compile(r"Failed to load resource: the server responded with a status of 4\d\d")
    return [complaint for complaint in complaints if not status.search(complaint)]


def test_namespaces_are_kept_by_the_links_to_them(crawled: dict[str, str]) -> None:
    asked = {
        value
        for path in crawled
        for name, value in httpx2.QueryParams(path.partition("?")[2]).multi_items()
        if name == "namespace"
    }
    assert set(NAMESPACES) <= asked
