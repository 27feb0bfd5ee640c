"""Rows as people and programs get them."""

import json

import msgspec
import pytest
import yaml

from gpuledger.cli.output import Format, RowStream, show_one, show_rows
from gpuledger.cli.tables.table_columns import Listing, amounts, flag, number, text


class Row(msgspec.Struct, frozen=True):
    """The output."""

    name: str
    used: int
    asked: dict[str, int]
    ok: bool = True


COLUMNS = Listing(
    (text("NAME", "name"), number("USED", "used"), amounts("ASKED", "asked"), flag("OK", "ok"))
)
ROWS = [Row("team-a", 16_000, {"gpu": 2, "gpumem": 8_000}), Row("", 7, {}, ok=False)]


def test_a_table_in_a_pipe_is_plain_columns_under_upper_case_headers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_rows(ROWS, COLUMNS, Format.TABLE, "nothing")
    assert capsys.readouterr().out == (
        "NAME      USED   ASKED               OK\n"
        "team-a   16000   gpu=2,gpumem=8000   yes\n"
        "-            7   -                   no\n"
    )


def test_json_is_a_list_of_objects_with_integers(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(ROWS, COLUMNS, Format.JSON, "nothing")
    printed = json.loads(capsys.readouterr().out)
    assert printed == [msgspec.to_builtins(row) for row in ROWS]
    show_one(ROWS[0], COLUMNS, Format.JSON)
    assert json.loads(capsys.readouterr().out) == printed[0]


def test_yaml_holds_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(ROWS, COLUMNS, Format.YAML, "nothing")
    assert yaml.safe_load(capsys.readouterr().out) == [msgspec.to_builtins(row) for row in ROWS]


def test_an_empty_table_speaks_on_standard_error_only(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows([], COLUMNS, Format.TABLE, "No rows found.")
    assert capsys.readouterr() == ("", "No rows found.\n")
    show_rows([], COLUMNS, Format.JSON, "No rows found.")
    assert capsys.readouterr() == ("[]\n", "")


@pytest.mark.parametrize("output", list(Format))
def test_lines_are_printed_one_by_one(output: Format, capsys: pytest.CaptureFixture[str]) -> None:
    lines = RowStream(COLUMNS, output)
    lines.show(ROWS[0])
    first = capsys.readouterr().out
    lines.show(ROWS[1])
    both = first + capsys.readouterr().out
    plain = [msgspec.to_builtins(row) for row in ROWS]
    if output is Format.JSON:
        assert [json.loads(line) for line in both.splitlines()] == plain
    elif output is Format.YAML:
        assert yaml.safe_load(both) == plain
    else:
        headers = 0 if output is Format.NAME else 1
        assert first.lower().startswith("name" if headers else "team-a")
        assert len(both.splitlines()) == 2 + headers


def test_a_terminal_gets_the_same_cells_and_no_markup(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    show_rows([Row("[red]x", 1, {})], COLUMNS, Format.TABLE, "nothing")
    header, line = capsys.readouterr().out.splitlines()
    assert header.split() == ["NAME", "USED", "ASKED", "OK"]
    assert line.split() == ["[red]x", "1", "-", "yes"]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_name_neither_forges_a_line_nor_steers_a_terminal(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    row = Row("eve\nroot 0\x1b[2J\u202e", 1, {})
    show_rows([row], COLUMNS, Format.TABLE, "nothing")
    RowStream(COLUMNS, Format.TABLE).show(row)
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) == 4
    assert printed.count(r"eve\nroot 0\x1b[2J\u202e") == 2


def test_one_object_is_whole_on_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "40")
    digest = "0123456789abcdef" * 4
    show_one(Row(digest, 1, {}), COLUMNS, Format.TABLE)
    first, *_ = capsys.readouterr().out.splitlines()
    assert first.split() == ["NAME", digest]


def test_names_are_harmless_and_each_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [Row("b\x1b[2J", 1, {}), Row("a", 1, {}), Row("b\x1b[2J", 2, {})]
    show_rows(rows, COLUMNS, Format.NAME, "nothing")
    assert capsys.readouterr() == ("b\\x1b[2J\na\n", "")
