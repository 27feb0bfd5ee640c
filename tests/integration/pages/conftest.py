"""Stores with a day's work and with hostile names, their pages, and one browser for a module."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from playwright.sync_api import Browser
from support.browser.chromium import chromium
from support.page_data.hostile_names import hostile_day
from support.page_data.stored_day import now, stored_day_in
from support.page_data.working_day import working_day
from support.servers.page_process import page_process


@pytest.fixture(scope="session")
def day_store() -> Iterator[Path]:
    """A store with the working day, which ends now."""
    with TemporaryDirectory(prefix="day-", ignore_cleanup_errors=True) as folder:
        yield stored_day_in(Path(folder) / "store", working_day(now()))


@pytest.fixture(scope="session")
def day_pages(day_store: Path) -> Iterator[str]:
    """The origin of `gpuledger page` on the working day."""
    with page_process(day_store, "--cluster=berlin") as process:
        yield process.origin


@pytest.fixture(scope="session")
def hostile_pages() -> Iterator[str]:
    """The origin of `gpuledger page` on a store with hostile names."""
    with TemporaryDirectory(prefix="hostile-", ignore_cleanup_errors=True) as folder:
        store = stored_day_in(Path(folder) / "store", hostile_day(now()))
        with page_process(store) as process:
            yield process.origin


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for the tests of a module."""
    with chromium() as running:
        yield running
