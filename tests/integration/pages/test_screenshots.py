"""Pictures of the pages for the documents, taken in each run and kept by `make screenshots`."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from support.browser.chromium import Visit, save, visiting

pytestmark = pytest.mark.integration

KEPT_IN = os.environ.get("GPULEDGER_SCREENSHOTS", "")
BYTES_MAX = 150_000
HEIGHT_MAX = 1_400

PICTURES = {
    "overview-360": ("/", 360, "light"),
    "overview-1280": ("/", 1_280, "light"),
    "overview-1920": ("/", 1_920, "dark"),
    "namespace-1280": ("/namespace?namespace=speech&cluster=berlin", 1_280, "light"),
    "cards-1280": ("/cards", 1_280, "light"),
    "history-1280": (
        "/history?account=quota/berlin/search/gpus&namespace=search&cluster=berlin",
        1_280,
        "light",
    ),
}
"""The path below /page, the width, and the colours of each picture."""


@pytest.fixture(scope="module")
def visit(browser: Browser, day_pages: str) -> Iterator[Visit]:
    with visiting(browser, day_pages) as opened:
        yield opened


@pytest.mark.parametrize("name", PICTURES)
def test_picture_of_a_page_is_small_enough_to_keep(visit: Visit, name: str, tmp_path: Path) -> None:
    path, width, scheme = PICTURES[name]
    visit.resize(width)
    visit.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    visit.open("/page" + path)
    height = visit.page.evaluate("document.documentElement.scrollHeight")
    visit.resize(width, min(height, HEIGHT_MAX))
    picture = tmp_path / f"page-{name}.png"
    save(visit.page, picture)
    assert picture.stat().st_size > 5_000
    if KEPT_IN:
        _keep(picture, Path(KEPT_IN))


def _keep(picture: Path, folder: Path) -> None:
    program = shutil.which("pngquant")
    assert program, "pngquant is not installed: run `apt-get install pngquant`"
    kept = folder / picture.name
    folder.mkdir(parents=True, exist_ok=True)
    options = ["--force", "--speed=1", "--strip", f"--output={kept}", str(picture)]
    subprocess.run([program, *options], check=True, timeout=60)
    assert kept.stat().st_size <= BYTES_MAX, f"{kept} has {kept.stat().st_size} bytes"
