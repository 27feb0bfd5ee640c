"""Pages of lists: the links to the next pages lead to each row once, in the same order."""

import html
import re
from pathlib import Path
from types import ModuleType

import httpx2
import pytest
from support.pages.page_harness import pages
from support.pages.two_tenants import SHARED, two_tenants

from gpuledger.page.views import (
    audit_page,
    denial_list_page,
    history_page,
    namespace_list_page,
    namespace_page,
    record_page,
)

EVENT = r'<tr id="(event-[^"]+)"'
HOLDER = r'<tr>\n<th scope="row"><bdi class="name">((?:pods|deployments.apps)/[^<]+)'
DENIAL = r'<h3 id="denial-\d+"><bdi class="name">([^<]+)'
LINK = r'<tr><th scope="row"><a href="([^"]+)"'
CORRECTION = r'<td class="time"[^>]*>[^<]+<br><a href="[^"]+">(\d+)</a></td>\n<th[^>]+>([^\n]+)'
NEXT = re.compile(r'aria-label="Pages of [^"]+"><p><a rel="next" href="([^"]+)"')
PAGES_MAX = 60


@pytest.fixture(scope="module")
def projection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_tenants(tmp_path_factory.mktemp("page") / "ledger.sqlite")


async def read(client: httpx2.AsyncClient, path: str, row: str) -> tuple[list[str], int]:
    """Return the rows of a page and of all next ones, and the number of these pages."""
    rows, count = list[str](), 0
    while path and count < PAGES_MAX:
        answer = await client.get(path)
        assert answer.status_code == 200, answer.text
        rows += re.findall(row, answer.text)
        following = NEXT.search(answer.text)
        path, count = html.unescape(following[1]) if following else "", count + 1
    return rows, count


@pytest.mark.parametrize(
    ("view", "bound", "path", "row"),
    [
        (namespace_list_page, "ROWS_MAX", "/page/namespaces", LINK),
        (namespace_page, "HOLDERS_MAX", "/page/namespace?namespace=hidden-tenant", HOLDER),
        (denial_list_page, "ROWS_MAX", "/page/denials", DENIAL),
        (denial_list_page, "EQUAL_DENIALS_MAX", "/page/denials", DENIAL),
        (history_page, "QUOTAS_MAX", "/page/history", LINK),
        (history_page, "EVENTS_MAX", f"/page/history?account={SHARED}&from=0", EVENT),
        (audit_page, "ROWS_MAX", "/page/audit", CORRECTION),
        (record_page, "EVENTS_MAX", "/page/record?position=5", EVENT),
    ],
    ids=[
        "namespaces",
        "holders",
        "denials",
        "denials-read",
        "quotas",
        "history",
        "corrections",
        "record",
    ],
)
async def test_next_pages_have_each_row_once(
    projection: Path,
    monkeypatch: pytest.MonkeyPatch,
    view: ModuleType,
    bound: str,
    path: str,
    row: str,
) -> None:
    async with pages(projection) as client:
        wanted, whole = await read(client, path, row)
        monkeypatch.setattr(view, bound, 1)
        rows, count = await read(client, path, row)
    assert len(wanted) > 1
    assert rows == wanted
    assert whole == 1
    assert count >= len(rows)
