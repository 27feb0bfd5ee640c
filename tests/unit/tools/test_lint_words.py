"""`tools.lint` finds its words in all that people read, and nowhere else."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.lint import words
from tools.lint.texts import texts
from tools.lint.tree import Tree

Plant = Callable[[dict[str, str]], Path]

READ = {
    "document": ("README.md", "# Title\n\nIt is nobody.\n", 3),
    "docstring": ("tests/a.py", '"""One line.\n\nIt is nobody.\n"""\n', 3),
    "docstring of a function": ("a.py", 'def f() -> None:\n    """It is nobody."""\n', 2),
    "comment": ("a.py", "x = 1  # it is nobody\n", 1),
    "comment over two lines": ("a.py", "x = '#'\n# it is\n# nobody at all\n", 3),
    "message": ("webhook/a.py", "raise ValueError('nobody has it')\n", 1),
    "message with values": ("webhook/a.py", "raise ValueError(f'{name} is nobody at all')\n", 1),
    "name of a test": ("tests/test_a.py", "def test_nobody_has_it() -> None: ...\n", 1),
    "comment in C": ("vgpu_native/src/a.c", "int x; /* it is\n * nobody */\n", 2),
    "comment of lines in C": ("vgpu_native/src/a.c", "int x; // it is no\n  // one\n", 1),
    "comment with marks in C": ("vgpu_native/src/a.h", "/* it is no\n * one */\n", 1),
    "comment in assembly": ("vgpu_native/src/a.S", "/* it is nobody */\n", 1),
    "comment in SQL": ("projections/a.sql", "x -- it is no\n  -- one\n", 1),
    "comment in a Makefile": ("Makefile", "x:\n\t@# it is nobody\n", 2),
    "comment over two lines of a manifest": ("deploy/a.yaml", "a: b\n# it is no\n# one\n", 2),
    "comment of git": (".gitignore", "# it is nobody\n", 1),
    "message with a format": ("vgpu_native/src/a.c", 'log("nobody %s");\n', 1),
    "text of a link": ("README.md", "[nobody](docs/it.md)\n", 1),
    "message in C": ("vgpu_native/src/a.c", 'log("nobody has it");\n', 1),
    "comment of a manifest": ("deploy/a.yaml", "a: b\n# it is nobody\n", 2),
    "schema": ("deploy/crds/a.yaml", "a: b\ndescription: Nobody has it.\n", 2),
}

UNREAD = {
    "code in a document": ("README.md", "It is `nobody`.\n\n```\nnobody\n```\n"),
    "address": ("README.md", "[it](docs/nobody.md)\n"),
    "address in code": ("README.md", "See `curl https://a/`, and `nobody`.\n"),
    "name": ("webhook/a.py", "nobody = 1\n"),
    "key": ("webhook/a.py", "x = y['nobody']\n"),
    "data of a test": ("tests/a.py", "x = 'nobody has it'\n"),
    "hash in a string": ("tests/a.py", "x = '# it is nobody'\n"),
    "name in C": ("vgpu_native/src/a.c", "int nobody;\n"),
    "value of a manifest": ("deploy/a.yaml", "user: nobody\n"),
}


@pytest.mark.parametrize("case", READ)
def test_word_is_found_in_prose_with_its_line_and_remedy(case: str, plant: Plant) -> None:
    path, text, line = READ[case]
    rule = words.rule(words.read())
    findings = [
        finding
        for finding in rule(Tree(plant({path: text})))
        if finding.subject in ("nobody", "no one")
    ]
    assert [(finding.path, finding.line, finding.rule) for finding in findings] == [
        (path, line, "words")
    ]
    assert "another replica" in findings[0].message


@pytest.mark.parametrize("case", UNREAD)
def test_word_is_not_found_in_code(case: str, plant: Plant) -> None:
    path, text = UNREAD[case]
    assert list(words.rule(words.read())(Tree(plant({path: text})))) == []


REFUSED = [
    "The node tells the agent.",
    "The agents are told.",
    "The file says which.",
    "The writer knows the head.",
    "The writer does not know the head.",
    "The writer must not believe it.",
    "What the node announced counts.",
    "Pods:\n\n* What the node announced\n",
    "It waits; who comes first wins.".replace("who", "Who"),
    "Return what the node announced.",
    "This is no name.",
    "He waits.",
    "a node of HAMi's",
    "the latter",
    "a sighting",
]

ACCEPTED = [
    "The agent sends it.",
    "There is no name.",
    "It is no longer there.",
    "The user says yes.",
    "The user does not know the head.",
    "What is a root?",
    "Return the victims.",
    "Her Majesty's".replace("Her", "The"),
]


@pytest.mark.parametrize("sentence", REFUSED)
def test_house_list_refuses(sentence: str, plant: Plant) -> None:
    assert words_in(sentence, plant), sentence


@pytest.mark.parametrize("sentence", ACCEPTED)
def test_house_list_accepts(sentence: str, plant: Plant) -> None:
    assert words_in(sentence, plant) == []


def test_each_word_of_the_list_has_a_remedy() -> None:
    dictionary = words.read()
    assert dictionary
    assert all(word.remedy for word in dictionary)


def test_lines_of_a_text_are_counted_past_fenced_code(plant: Plant) -> None:
    tree = Tree(plant({"a.md": "a\n\n```sh\nx\ny\n```\n\nb\n"}))
    assert [text.text.count("\n") for text in texts(tree)] == [8]


def words_in(sentence: str, plant: Plant) -> list[str]:
    """Return the words that the rule finds in a sentence."""
    tree = Tree(plant({"README.md": f"{sentence}\n"}))
    return [finding.subject for finding in words.rule(words.read())(tree)]
