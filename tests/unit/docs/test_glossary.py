"""The glossary stays short, sorted and in one sentence a word."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[3] / "docs" / "concepts.md").read_text()
TABLE = PAGE.partition("| word | meaning |")[2].partition("\n\n")[0]
WORDS = re.findall(r"^\| ([a-z ]+) \| (.+) \|$", TABLE, re.MULTILINE)
WORDS_MAX = 25


def test_glossary_has_at_most_25_words_in_order() -> None:
    names = [name for name, _ in WORDS]
    assert 0 < len(names) <= WORDS_MAX
    assert names == sorted(names)


def test_every_word_of_the_glossary_has_one_sentence() -> None:
    """Names in code, such as `limits.nvidia.com/gpumem`, may have dots."""
    meanings = {name: re.sub(r"`[^`]*`", "", meaning) for name, meaning in WORDS}
    assert {name for name, text in meanings.items() if text.find(".") != len(text) - 1} == set()
