"""The glossary stays short, sorted and in one sentence a word."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[3] / "docs" / "concepts.md").read_text()
TABLE = PAGE.partition("| word | meaning |")[2].partition("\n\n")[0]
WORDS = re.findall(r"^\| ([a-z ]+) \| (.+) \|$", TABLE, re.MULTILINE)
WORDS_MAX = 31


def test_glossary_is_short_and_in_order() -> None:
    names = [name for name, _ in WORDS]
    assert 0 < len(names) <= WORDS_MAX
    assert names == sorted(names)


def test_every_word_of_the_glossary_has_one_sentence() -> None:
    """Names in code, such as `limits.nvidia.com/gpumem`, may have dots."""
    meanings = {name: re.sub(r"`[^`]*`", "", meaning) for name, meaning in WORDS}
    assert {name for name, text in meanings.items() if text.find(".") != len(text) - 1} == set()


def test_every_word_of_the_glossary_is_used_outside_of_it() -> None:
    """A word that no other page uses needs no definition."""
    root = Path(__file__).parents[3]
    pages = [page for page in (root / "docs").rglob("*.md") if page.name != "concepts.md"]
    text = " ".join(page.read_text().lower() for page in pages) + PAGE.replace(TABLE, "").lower()
    used = {name for name, _ in WORDS if re.search(pattern_of(name), text)}
    assert {name for name, _ in WORDS} - used == set()


def pattern_of(word: str) -> str:
    """Return the pattern of a word in singular or plural, also over a line break."""
    return r"\b" + r"\s+".join(word.split()) + r"(?:s|es)?\b"
