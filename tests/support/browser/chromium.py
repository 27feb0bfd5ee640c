"""Chromium: Debian's browser without a window, driven by Playwright, and what a visit complains of.

Playwright never downloads a browser here. Its synchronous interface keeps an event loop in the
thread, so a module that uses it has no asynchronous tests.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Dialog,
    Error,
    Page,
    Request,
    Response,
    sync_playwright,
)

PROGRAM: Final = shutil.which("chromium")
NO_CHROMIUM: Final = (
    "chromium is not installed: no page was opened in a browser. Run `apt-get install chromium`"
)

MILLISECONDS: Final = 10_000.0
"""Deadline of each step in the browser."""

WIDTHS: Final = (360, 1_280, 1_920)
"""The widths that pages are made for, in CSS pixels."""

_ARGUMENTS: Final = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run the browser for the block; skips where it is not installed."""
    if PROGRAM is None:
        pytest.skip(NO_CHROMIUM)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=list(_ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """One page in a context of its own; `complaints` are the errors of console, network and page.

    A violation of the Content-Security-Policy is an error of the console.
    """

    def __init__(self, page: Page, origin: str) -> None:
        self.page = page
        self.origin = origin
        self.complaints: list[str] = []
        page.set_default_timeout(MILLISECONDS)
        page.on("console", self._heard)
        page.on("pageerror", self._threw)
        page.on("dialog", self._asked)
        page.on("requestfailed", self._failed)
        page.on("request", self._requested)

    def open(self, path: str) -> Response:
        """Open a path below the origin and return its answer."""
        answer = self.page.goto(self.origin + path, wait_until="load")
        assert answer is not None, path
        return answer

    def resize(self, width: int, height: int = 900) -> None:
        """Give the page another width, in CSS pixels."""
        self.page.set_viewport_size({"width": width, "height": height})

    def overflow(self) -> list[str]:
        """Return the elements that make the document scroll sideways."""
        culprits: list[str] = self.page.evaluate(_OVERFLOW)
        return culprits

    def stacked_cells(self) -> list[tuple[str, str, float, bool]]:
        """Return header, label, width and whether a short name is folded, of cells of text rows."""
        return [(*cell,) for cell in self.page.evaluate(_STACKED)]

    def text(self, selector: str = "main") -> str:
        """Return the text that is shown."""
        return self.page.locator(selector).first.inner_text()

    def focused(self) -> str:
        """Return the element that has the focus, as tag, id and text."""
        element: str = self.page.evaluate(_FOCUSED)
        return element

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"console: {message.text}")

    def _threw(self, error: Error) -> None:
        self.complaints.append(f"exception: {error}")

    def _asked(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _failed(self, request: Request) -> None:
        # The next navigation aborts the requests of the page before it.
        if request.failure != "net::ERR_ABORTED":
            self.complaints.append(f"failed: {request.url} {request.failure}")

    def _requested(self, request: Request) -> None:
        if not request.url.startswith((self.origin + "/", "data:")):
            self.complaints.append(f"foreign: {request.url}")


@contextmanager
def visiting(browser: Browser, origin: str, **context: Any) -> Iterator[Visit]:
    """Open a context with one page for the block; `context` as in Playwright's `new_context`."""
    settings = {"viewport": {"width": 1_280, "height": 900}, **context}
    with browser.new_context(**settings) as opened:
        yield Visit(opened.new_page(), origin)


def save(page: Page, path: Path) -> None:
    """Write a picture of what a page shows in its window."""
    path.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=os.fspath(path), animations="disabled", caret="hide")


_OVERFLOW: Final = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  return [...document.querySelectorAll('body *')]
    .filter(e => e.getBoundingClientRect().right > width + 1 && !e.closest('.scroll'))
    .map(e => `${e.tagName}.${e.getAttribute('class')} to ${e.getBoundingClientRect().right}`)
    .slice(0, 9).concat([`document ${document.documentElement.scrollWidth} of ${width}`]);
}"""

_STACKED: Final = """() => [...document.querySelectorAll('.stacked tbody tr')].flatMap(row => {
  const headers = row.closest('table').querySelectorAll('thead th');
  return [...row.children].map((cell, place) => [
    headers[place].textContent,
    cell.dataset.label,
    cell.getBoundingClientRect().width,
    [...cell.querySelectorAll('.name')].some(
      e => e.textContent.length <= 18 && e.getClientRects().length > 1)]);
})"""

_FOCUSED: Final = """() => {
  const e = document.activeElement;
  return e ? `${e.tagName}#${e.id} ${(e.textContent || '').trim().slice(0, 40)}` : '';
}"""
