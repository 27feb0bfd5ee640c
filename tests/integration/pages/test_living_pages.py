"""Pages that load again by themselves, and pages that must not: forms, the past, paused pages."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect
from support.browser.chromium import Visit, visiting
from support.harness.command_line import gpuledger
from support.pages.page_addresses import addresses

from gpuledger.page.page_list import PAGES

pytestmark = pytest.mark.integration

FORMS = {f"/page{page.path}" for page in PAGES if page.form}
PATHS = addresses("vision", "berlin")
SOON_MILLISECONDS = 15_000.0


@pytest.fixture(scope="module")
def visit(browser: Browser, day_pages: str) -> Iterator[Visit]:
    with visiting(browser, day_pages) as opened:
        yield opened


@pytest.mark.parametrize("path", PATHS)
def test_page_loads_again_unless_it_is_a_form_past_or_paused(visit: Visit, path: str) -> None:
    is_form = path.partition("?")[0] in FORMS
    assert ("refresh" in visit.open(path).headers) is not is_form
    joint = "&" if "?" in path else "?"
    assert "refresh" not in visit.open(f"{path}{joint}at=400").headers
    assert "refresh" not in visit.open(f"{path}{joint}refresh=off").headers


def test_new_record_is_shown_without_a_key_or_a_click(visit: Visit, day_store: Path) -> None:
    def hurry(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, headers={**answer.headers, "refresh": "1"})

    visit.page.route("**/page/", hurry)
    visit.open("/page/")
    position = _position(visit)
    done = gpuledger(
        *("quota", "set", "-n", "fresh", "new-quota"),
        "limits.nvidia.com/gpumem=12345",
        store=day_store,
    )
    assert done.status == 0, done
    expect(visit.page.locator("main")).to_contain_text("new-quota", timeout=SOON_MILLISECONDS)
    assert _position(visit) == position + 1
    visit.page.unroute("**/page/")


def test_past_shows_the_values_of_the_past(visit: Visit) -> None:
    visit.open("/page/?at=60")
    assert "As of position 60" in visit.text("body")
    assert "new-quota" not in visit.text("body")
    visit.page.get_by_role("link", name="Show now").click()
    assert "at=" not in visit.page.url


def test_moment_of_the_form_is_kept_by_the_navigation(visit: Visit) -> None:
    visit.open("/page/")
    visit.page.get_by_label("As of").fill("300")
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_url("**at=300*")
    links = visit.page.locator("header nav a").evaluate_all("all => all.map(a => a.search)")
    assert links
    assert all("at=300" in link for link in links)


@pytest.mark.parametrize("at", ["999999", "yesterday"])
def test_impossible_moment_is_refused_with_a_remedy(visit: Visit, at: str) -> None:
    answer = visit.open(f"/page/?at={at}")
    assert answer.status == 400
    assert at in visit.text("body")
    assert "Remedy" in visit.text("body")


def _position(visit: Visit) -> int:
    shown = re.search(r"Position (\d+)", visit.text("body"))
    assert shown is not None
    return int(shown[1])
