"""Tables in the width of a terminal."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.cli.output import Format, headers_shown, show_rows, view_lines
from gpuledger.cli.tables.display_texts import ELLIPSIS, columns_of
from gpuledger.cli.tables.table_columns import (
    CLUSTER,
    NAMESPACE,
    Listing,
    age,
    name,
    number,
    sentence,
    text,
)
from gpuledger.cli.tables.table_layout import table_lines, wrapped


class Row(msgspec.Struct, frozen=True):
    """A row with a place, a name and a text."""

    namespace: str = "team-a"
    key: str = "pods/web"
    used: int = 1
    note: str = "-"
    cluster: str = "local"
    since: str = ""


COLUMNS = (
    name("NAMESPACE", "namespace"),
    name("KEY", "key", 16),
    number("USED", "used"),
    sentence("NOTE", "note"),
)


def lines(rows: list[Row], width: int = 80) -> list[str]:
    """Return a table as lines, with its header."""
    cells = [[column.cell(row) for column in COLUMNS] for row in rows]
    table = table_lines(COLUMNS, cells, width)
    assert not table.left_out
    return [table.header, *table.lines]


def test_a_table_that_fits_is_as_in_a_pipe() -> None:
    assert lines([Row()]) == [
        "NAMESPACE   KEY        USED   NOTE",
        "team-a      pods/web      1   -",
    ]


def test_a_long_text_goes_on_beside_the_other_columns() -> None:
    header, *rest = lines([Row(note="word " * 20)])
    start = header.index("NOTE")
    assert len(rest) > 1
    assert {line[:start].strip() for line in rest[1:]} == {""}
    assert " ".join(" ".join(line[start:] for line in rest).split()) == ("word " * 20).strip()


def test_a_long_text_goes_on_below_where_there_is_no_room_beside() -> None:
    row = Row(namespace="n" * 30, key="k" * 30, note="word " * 20)
    header, first, *below = lines([row])
    assert "NOTE" not in header
    assert first.split() == ["n" * 30, "k" * 30, "1"]
    assert " ".join(" ".join(below).split()) == row.note.strip()


def test_a_text_of_many_lines_goes_on_below_each_row() -> None:
    rows = [Row(note="word " * 60), Row(note="short"), Row()]
    header, first, *rest = lines(rows)
    assert "NOTE" not in header
    assert first.split() == ["team-a", "pods/web", "1"]
    assert len(rest) == 7
    assert " ".join(" ".join(rest[:4]).split()) == rows[0].note.strip()
    assert rest[5].split() == ["short"]
    assert "NOTE" in lines(rows, width=160)[0]


def test_the_widest_name_is_shortened_first() -> None:
    _, line = lines([Row(namespace="n" * 20, key="k" * 120)])
    assert line.split()[0] == "n" * 20
    assert ELLIPSIS in line.split()[1]


def test_columns_without_room_are_reported() -> None:
    columns = tuple(text(f"C{at}", "key") for at in range(5))
    table = table_lines(columns, [["x" * 10] * 5], 40)
    assert table.header.split() == ["C0", "C1", "C2"]
    assert table.left_out == ["C3", "C4"]


def test_one_word_breaks_after_commas_only() -> None:
    assert wrapped("gpu=2,gpumem=16000Mi,gpucores=60%", 20) == [
        "gpu=2,",
        "gpumem=16000Mi,",
        "gpucores=60%",
    ]


def test_a_word_longer_than_a_line_loses_its_middle() -> None:
    assert wrapped(f"a {'n' * 253}", 20) == ["a", f"{'n' * 10}{ELLIPSIS}{'n' * 9}"]


NAMES = st.text(st.sampled_from("abc-./é名\u0301"), min_size=1, max_size=253)


@given(
    st.lists(st.builds(Row, NAMES, NAMES, st.integers(0, 10**12), NAMES | st.just("a b " * 30))),
    st.integers(64, 200),
)
def test_no_line_is_longer_than_the_terminal(rows: list[Row], width: int) -> None:
    for line in lines([Row(), *rows], width):
        assert columns_of(line) <= width


VIEW = Listing(
    (text("KEY", "key"),),
    view=(CLUSTER, NAMESPACE, text("KEY", "key"), age("AGE", "since")),
)


@pytest.mark.parametrize(
    ("rows", "asked", "headers"),
    [
        ([Row(), Row(namespace="b")], "", ["NAMESPACE", "KEY", "AGE"]),
        ([Row()], "", ["NAMESPACE", "KEY", "AGE"]),
        ([Row()], "team-a", ["KEY", "AGE"]),
        ([Row(), Row(namespace="", cluster="")], "team-a", ["NAMESPACE", "KEY", "AGE"]),
        ([Row(), Row(cluster="west")], "team-a", ["CLUSTER", "KEY", "AGE"]),
    ],
)
def test_a_place_is_shown_where_it_differs(rows: list[Row], asked: str, headers: list[str]) -> None:
    assert view_lines(rows, VIEW, 80, namespace=asked).header.split() == headers


@pytest.mark.parametrize("output", [Format.TABLE, Format.WIDE, Format.CSV])
def test_headers_can_be_left_out(output: Format, capsys: pytest.CaptureFixture[str]) -> None:
    token = headers_shown.set(False)
    show_rows([Row()], VIEW, output, "nothing")
    headers_shown.reset(token)
    assert len(capsys.readouterr().out.splitlines()) == 1
