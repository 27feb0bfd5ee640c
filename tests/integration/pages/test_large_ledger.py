"""Pages of a ledger with 1,000 namespaces and 100,000 holders: processor time and bytes of each."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
import pytest
from support.page_data.large_ledger import Size, large_ledger
from support.page_data.stored_day import now, stored_day_in
from support.pages.page_addresses import addresses
from support.servers.page_process import PageProcess, page_process

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]

SECONDS_MAX = 0.1
"""Goal of processor time for a page."""

BYTES_MAX = 300_000
TIMES = 10


@pytest.fixture(scope="module")
def pages() -> Iterator[PageProcess]:
    with TemporaryDirectory(prefix="large-", ignore_cleanup_errors=True) as folder:
        store = stored_day_in(Path(folder) / "store", large_ledger(Size(), now()))
        with page_process(store) as process:
            yield process


@pytest.mark.parametrize("path", addresses("team-0000", "berlin", position=8_000))
def test_page_of_a_large_ledger_is_cheap_and_small(pages: PageProcess, path: str) -> None:
    with httpx2.Client(base_url=pages.origin, timeout=30) as client:
        body = client.get(path).raise_for_status().content
        before = pages.computed()
        for _ in range(TIMES):
            client.get(path)
        seconds = (pages.computed() - before) / TIMES
    print(f"{path}: {seconds * 1000:.0f} ms, {len(body):,} bytes")
    assert len(body) <= BYTES_MAX
    assert seconds <= SECONDS_MAX
