"""Cards in ResourceSlices in Chromium: their marks, the filter, and the sentence of a fit."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from support.browser import axe
from support.browser.chromium import WIDTHS, Visit, visiting
from support.claims.fixed_slices import FixedSlices
from support.page_data.day_cluster import BERLIN, L4_NODES
from support.pages.login_server import FROM_AFAR, login_server
from support.pages.page_harness import FakeSource

from gpuledger.manifest_fit.fit_report import DecidedFit, FitReport, PodFit
from gpuledger.page.page_source import ManifestQuestion
from gpuledger.wiring import store_layout
from webhook.admission.explanation import Explanation

pytestmark = pytest.mark.integration

NODE = L4_NODES[0].partition("/")[2]
CARD = f"GPU-{BERLIN}-{NODE}-{0:012x}"
DRIVER = "gpu.nvidia.com"


class Source(FakeSource):
    """A source with slices, which leaves two cards out."""

    async def fit(self, question: ManifestQuestion) -> DecidedFit:
        pod = PodFit("job", True, [], [], fitting=3, total=4)
        report = FitReport(1, "team", True, True, "Allowed", [pod], offered_by_dra=2)
        return DecidedFit(Explanation(True, "Allowed", "", "", {}, None, ()), report)


@pytest.fixture(scope="module")
def visit(browser: Browser, day_store: Path) -> Iterator[Visit]:
    source = Source()
    source.offers = FixedSlices(BERLIN, {NODE: {CARD: DRIVER}})
    headers = {**FROM_AFAR, "authorization": "Bearer t-all"}
    projection = day_store / store_layout.PROJECTION
    with (
        login_server(projection, source, BERLIN) as origin,
        visiting(browser, origin, extra_http_headers=headers) as opened,
    ):
        yield opened
        assert opened.complaints == []


def test_cards_of_slices_are_marked_and_found_by_their_state(visit: Visit) -> None:
    visit.open("/page/cards")
    visit.page.get_by_label("State").select_option("dra")
    visit.page.get_by_role("button", name="Filter").click()
    assert visit.page.locator("h3").all_inner_texts() == [NODE]
    (text,) = visit.page.locator(".card-cell").all_inner_texts()
    assert CARD in text
    assert f"DRA {DRIVER}" in text
    expect(visit.page.locator("main")).to_contain_text("Cards marked DRA are in a ResourceSlice")
    for width in WIDTHS:
        visit.resize(width)
        assert visit.overflow() == [], width
    assert axe.findings(visit.page) == []


def test_a_fit_counts_the_cards_that_were_left_out(visit: Visit) -> None:
    visit.open("/page/fit?namespace=vision")
    visit.page.get_by_label("Manifest").fill("kind: Pod")
    visit.page.get_by_role("button", name="Would it fit?").click()
    expect(visit.page.locator("#fit-left-out")).to_contain_text("2 cards are left out")
    assert axe.findings(visit.page) == []
