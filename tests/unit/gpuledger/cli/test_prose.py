"""Sentences on a terminal and in a pipe."""

import io

import pytest

from gpuledger.cli.prose import as_prose


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("short", ["short"]),
        ("a sentence of words that is longer", ["a sentence of words that is", "longer"]),
        ("two\nlines", ["two", "lines"]),
        ("check (`kubectl get pods -A`), then", ["check (`kubectl get pods -A`),", "then"]),
        ("check that `kubectl get pods -A`", ["check that", "`kubectl get pods -A`"]),
        (f"a {'x' * 40} b", ["a", "x" * 40, "b"]),
    ],
)
def test_a_terminal_gets_lines_that_cut_no_word(text: str, lines: list[str]) -> None:
    assert as_prose(text, Terminal()).split("\n") == lines
    assert as_prose(text, io.StringIO()) == text


def test_a_terminal_without_a_width_has_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    lines = as_prose("word " * 40, Terminal()).split("\n")
    assert len(lines) == 3
    assert max(map(len, lines)) <= 80
