"""Each page in Chromium: readable at all widths, by keyboard, without scripts, and without errors.

The pages are those of the product's list, so a new page is checked as soon as it is listed.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser
from support.browser import axe
from support.browser.chromium import WIDTHS, Visit, visiting
from support.pages.page_addresses import addresses

pytestmark = pytest.mark.integration

PATHS = addresses("vision", "berlin")

each_page = pytest.mark.parametrize("path", PATHS)


@pytest.fixture(scope="module")
def visit(browser: Browser, day_pages: str) -> Iterator[Visit]:
    """One tab for the tests of this module; each opens its page."""
    with visiting(browser, day_pages) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _no_complaints(visit: Visit) -> Iterator[None]:
    """Nothing is printed on the console, blocked by the policy, failed or foreign."""
    visit.complaints.clear()
    yield
    assert visit.complaints == []


@each_page
def test_page_is_an_answer_of_the_present(visit: Visit, path: str) -> None:
    answer = visit.open(path)
    assert answer.status == 200
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert visit.page.locator("h1").count() == 1
    assert "gpuledger" in visit.page.title()


@each_page
def test_document_never_scrolls_sideways(visit: Visit, path: str) -> None:
    visit.open(path)
    for width in WIDTHS:
        visit.resize(width)
        assert visit.overflow() == [], width


@each_page
def test_page_has_no_accessibility_findings(visit: Visit, path: str) -> None:
    visit.open(path)
    for width, scheme in ((1_280, "dark"), (360, "light")):
        visit.resize(width)
        visit.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        assert axe.findings(visit.page) == [], scheme


@each_page
def test_keyboard_reaches_the_content_by_the_skip_link(visit: Visit, path: str) -> None:
    visit.open(path)
    visit.page.keyboard.press("Tab")
    assert visit.focused().startswith("A# Skip")
    visit.page.keyboard.press("Enter")
    assert visit.focused().startswith("MAIN#main")


@each_page
def test_keyboard_reaches_every_control_and_leaves_it(visit: Visit, path: str) -> None:
    visit.open(path)
    wanted = visit.page.evaluate(_MARK_CONTROLS)
    reached = set()
    for _ in range(wanted + 5):
        visit.page.keyboard.press("Tab")
        reached.add(visit.page.evaluate("document.activeElement.dataset.control || ''"))
    assert reached - {""} == {str(number) for number in range(wanted)}


@each_page
def test_page_is_the_same_without_scripts(browser: Browser, visit: Visit, path: str) -> None:
    visit.resize(1_280)
    visit.open(path)
    with visiting(browser, visit.origin, java_script_enabled=False) as bare:
        bare.open(path)
        assert bare.text() == visit.text()
        assert bare.complaints == []


@each_page
def test_print_leaves_out_what_paper_cannot_do(visit: Visit, path: str) -> None:
    visit.open(path)
    visit.page.emulate_media(media="print")
    try:
        assert visit.page.locator("h1").is_visible()
        assert not visit.page.locator("header nav").is_visible()
        assert not visit.page.locator("a.skip").is_visible()
        assert not visit.page.locator("form button").filter(visible=True).count()
    finally:
        visit.page.emulate_media(media="screen")


@each_page
def test_unchanged_page_is_not_sent_again(visit: Visit, path: str) -> None:
    fetched = visit.page.context.request
    first = fetched.get(visit.origin + path)
    tag = first.headers["etag"]
    assert first.headers["gpuledger-position"] in tag
    again = fetched.get(visit.origin + path, headers={"If-None-Match": tag})
    assert (again.status, again.body()) == (304, b"")


def test_short_names_of_events_are_not_folded_on_a_computer(visit: Visit) -> None:
    visit.open("/page/history?account=universe/machine-learning")
    for width in (1_280, 1_920):
        visit.resize(width)
        assert visit.page.locator("td.actor .name").count() > 5
        assert visit.page.evaluate(_FOLDED_NAMES) == [], width


@pytest.mark.parametrize(
    "path", ["/page/audit", "/page/record?position=42", "/page/history?account=universe/europe"]
)
def test_cells_of_text_rows_are_lines_on_a_telephone(visit: Visit, path: str) -> None:
    visit.open(path)
    visit.resize(360)
    cells = visit.stacked_cells()
    assert cells
    for header, label, width, is_folded in cells:
        assert (label, is_folded) == (header, False)
        assert width > 320
    visit.resize(1_280)
    assert max(width for _, _, width, _ in visit.stacked_cells()) < 700


def test_amounts_of_a_card_are_in_one_line(visit: Visit) -> None:
    visit.open("/page/cards")
    for width in WIDTHS:
        visit.resize(width)
        texts = visit.page.locator(".card-bar span:last-child").filter(has_text="GiB").all()
        assert len(texts) > 20
        heights = {text.evaluate("e => e.getClientRects()[0].height") for text in texts}
        assert max(heights) < 30, width


def test_controls_of_a_filter_are_of_one_height(visit: Visit) -> None:
    visit.open("/page/denials")
    controls = visit.page.locator("main form .field > :is(input, select, button)").all()
    heights = {control.evaluate("e => e.getBoundingClientRect().height") for control in controls}
    assert len(controls) == 3
    assert len(heights) == 1


_FOLDED_NAMES = """() => [...document.querySelectorAll(
    'td.object > .name:first-child, td.actor > .name')]
  .filter(e => e.textContent.length <= 18 && e.getClientRects().length > 1)
  .map(e => e.textContent)"""

_MARK_CONTROLS = """() => {
  const controls = [...document.querySelectorAll(
    'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex="0"]')]
    .filter(e => e.checkVisibility() && !e.disabled);
  controls.forEach((e, number) => { e.dataset.control = number; });
  return controls.length;
}"""
