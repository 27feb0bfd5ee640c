"""The pages of the service itself: over TLS, as soon as a review was answered."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
import pytest
from playwright.sync_api import Browser, expect
from support.browser.chromium import Visit, visiting
from support.servers.service_process import (
    VALIDATE,
    ServiceProcess,
    creation,
    running_service,
    set_quota,
)

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def service() -> Iterator[ServiceProcess]:
    with (
        TemporaryDirectory(prefix="live-", ignore_cleanup_errors=True) as folder,
        running_service(Path(folder) / "store") as running,
    ):
        running.wait_for("follower", ok=True)
        yield running


@pytest.fixture
def visit(browser: Browser, service: ServiceProcess) -> Iterator[Visit]:
    with visiting(browser, service.url, ignore_https_errors=True) as opened:
        yield opened
        assert opened.complaints == []


def _post(service: ServiceProcess, name: str) -> bool:
    review = creation(name)
    answer = httpx2.post(service.url + VALIDATE, json=review, verify=service.tls(), timeout=20)
    allowed: bool = answer.json()["response"]["allowed"]
    return allowed


def test_first_page_leads_to_the_overview_of_an_empty_ledger(visit: Visit) -> None:
    # The follower makes the first projection shortly after the service is ready.
    while visit.open("/").status == 503:
        visit.complaints.clear()
    assert visit.page.url == f"{visit.origin}/page/"
    assert "no quota" in visit.text("main")


def test_reservation_is_on_the_page_after_its_answer(visit: Visit, service: ServiceProcess) -> None:
    set_quota(service.store, 16_000)
    assert _post(service, "first")
    visit.open("/page/")
    for _ in range(20):
        visit.page.reload()
        if "reserved;" in visit.text("main"):
            break
    expect(visit.page.locator("main")).to_contain_text("7.8 GiB of 15.6 GiB")


def test_denial_is_counted_on_the_page(visit: Visit, service: ServiceProcess) -> None:
    assert _post(service, "second")
    assert not _post(service, "third")
    for _ in range(20):
        visit.open("/page/")
        if "QuotaExceeded" in visit.text("main"):
            break
    assert "QuotaExceeded" in visit.text("main")
