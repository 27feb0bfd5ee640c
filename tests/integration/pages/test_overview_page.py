"""The overview shows the values that the commands print for the same store."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from support.browser.chromium import Visit, visiting
from support.harness.command_line import gpuledger

from gpuledger.wiring import store_layout
from ledger.log.recovery.log_end_check import HeadFile

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def visit(browser: Browser, day_pages: str) -> Iterator[Visit]:
    with visiting(browser, day_pages) as opened:
        opened.open("/page/")
        yield opened


def _tile(visit: Visit, label: str) -> str:
    tile = visit.page.locator(".tile").filter(has_text=label)
    return tile.locator("dd").first.inner_text().split()[0]


def test_quotas_are_those_of_the_command_the_fullest_first(visit: Visit, day_store: Path) -> None:
    rows = gpuledger("usage", "-o", "json", store=day_store).json
    shown = visit.page.locator("table").first.locator("tbody tr")
    assert shown.count() == len(rows)
    shares = [int(text.split()[-2]) for text in shown.all_inner_texts()]
    wanted = sorted((row["used"] / row["limit"] * 100 for row in rows), reverse=True)
    assert shares == pytest.approx(wanted, abs=0.6)


def test_over_the_limit_is_named_with_its_amount(visit: Visit) -> None:
    first = visit.page.locator("table").first.locator("tbody tr").first.inner_text()
    assert "robotics" in first
    assert "15.6 GiB over" in first


def test_cards_are_counted_as_the_command_lists_them(visit: Visit, day_store: Path) -> None:
    rows = gpuledger("cards", "-o", "json", store=day_store).json
    usable = [row for row in rows if row["health"] and row["state"] == "announced"]
    usable = [row for row in usable if not row["cordoned"]]
    free = [row for row in usable if not row["used_slots"]]
    assert _tile(visit, "Free cards") == str(len(free))
    assert _tile(visit, "Out of service") == str(len(rows) - len(usable))


def test_denials_of_the_day_are_counted_by_reason(visit: Visit, day_store: Path) -> None:
    rows = gpuledger("denials", "--limit", "1000", "-o", "json", store=day_store).json
    reasons = Counter(row["denial"]["reason"] for row in rows)
    table = visit.page.locator("table").filter(has_text="Reason").last.inner_text()
    for reason, count in reasons.items():
        assert f"{reason}\t{count}" in table, table


def test_shared_quotas_have_the_part_of_each_cluster(visit: Visit, day_store: Path) -> None:
    rows = gpuledger("usage", "--by", "cluster", "-o", "json", store=day_store).json
    text = visit.text("main")
    parts = [row for row in rows if row["resource"] == "requests.nvidia.com/gpu"]
    assert parts
    for row in parts:
        assert f"{row['cluster']} {row['used']} GPUs" in text, row


def test_health_has_position_and_head_of_the_log(visit: Visit, day_store: Path) -> None:
    noted = HeadFile(day_store / store_layout.HEAD).read()
    assert noted is not None
    text = visit.text("main")
    assert text.count(f"position {noted.position}") == 2
    assert noted.hash in text
