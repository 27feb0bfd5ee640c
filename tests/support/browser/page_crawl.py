"""Page crawl: all pages that links and query forms lead to, and what their HTML may not contain."""

import re
from collections import deque
from html.parser import HTMLParser
from typing import Final
from urllib.parse import urldefrag, urljoin, urlsplit

import httpx2

PAGES_MAX: Final = 120
"""A crawl ends after this number of pages."""

_LOCAL: Final = re.compile(r"^(/page(/|$|\?)|#|\?)")
_ELEMENTS: Final = frozenset({"script", "iframe", "object", "embed", "base", "style"})
_HIDDEN: Final = re.compile("[\u0000-\u0008\u000b-\u001f\u200b-\u200f\u202a-\u202e\u2060-\u206f]")
"""Control characters, and those that reorder or hide text."""


def crawl(client: httpx2.Client, start: str = "/page/", most: int = PAGES_MAX) -> dict[str, str]:
    """Return the HTML of pages by path, of at most `most` pages, the nearest ones first.

    Raises AssertionError for an answer of 500 or more.
    """
    waiting, seen, read = deque([start]), {start}, dict[str, str]()
    while waiting and len(read) < most:
        path = waiting.popleft()
        answer = client.get(path)
        assert answer.status_code < 500, f"{path}: {answer.status_code} {answer.text[:500]}"
        read[path] = answer.text
        for link in Markup(answer.text).links:
            target = urldefrag(urljoin(path, link)).url
            if target not in seen and _is_page(target):
                seen.add(target)
                waiting.append(target)
    return read


def _is_page(target: str) -> bool:
    parts = urlsplit(target)
    is_page = not parts.netloc and parts.path.startswith("/page/") and "/static/" not in parts.path
    # Every page has a paused twin.
    return is_page and "refresh=" not in parts.query


class Markup(HTMLParser):
    """The links of a page, and what a page without scripts and styles of its own never has."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.offences: list[str] = []
        self.feed(html)
        self.close()

    def handle_data(self, data: str) -> None:
        self._shown(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _ELEMENTS:
            self.offences.append(f"<{tag}>")
        for name, value in attrs:
            if name.startswith("on") or name in ("style", "srcdoc", "autofocus"):
                self.offences.append(f"<{tag} {name}>")
            if name in ("href", "action", "src", "formaction"):
                self._address(tag, name, value or "")
            elif name != "value":  # a form has to send a name as it is
                self._shown(value or "")

    def _shown(self, text: str) -> None:
        if hidden := _HIDDEN.findall(text):
            self.offences.append(f"characters {sorted(set(map(ascii, hidden)))} in {text!a}")

    def _address(self, tag: str, name: str, value: str) -> None:
        if not _LOCAL.match(value):
            self.offences.append(f"<{tag} {name}={value}>")
        elif tag == "a":
            self.links.append(value)
