"""Every decision has its five parts and a row in the index."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "docs" / "decisions"
PAGES = sorted(FOLDER.glob("*/*.md"))
PARTS = ["Context", "Decision", "For", "Against", "What would change our mind"]
HEADING = re.compile(r"^## (.*)$", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_decision_has_its_five_parts(page: Path) -> None:
    text = page.read_text()
    assert text.startswith(f"# {page.name[:4]}: ")
    assert HEADING.findall(text) == PARTS


def test_index_lists_every_decision_with_its_title_in_order() -> None:
    rows = re.findall(
        r"^\| \[(\d{4})\]\((.+?)\) \| (.+?) \|$", (FOLDER / "index.md").read_text(), re.MULTILINE
    )
    titles = [(page, page.read_text().splitlines()[0]) for page in PAGES]
    expected = {(str(page.relative_to(FOLDER)), title) for page, title in titles}
    assert {(path, f"# {number}: {title}") for number, path, title in rows} == expected
    assert [number for number, _, _ in rows] == [f"{n:04}" for n in range(1, len(PAGES) + 1)]
