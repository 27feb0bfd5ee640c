"""CSV that a spreadsheet reads as data."""

import csv
import io

import msgspec
import pytest

from gpuledger.cli.output import Format, show_rows
from gpuledger.cli.tables.csv_rows import csv_header, csv_line
from gpuledger.cli.tables.table_columns import Listing, number, text


class Cell(msgspec.Struct, frozen=True):
    """A name that a tenant chose, and an amount."""

    name: str
    free: int = 0


COLUMNS = (text("NAME", "name"), number("FREE MEMORY", "free"))


def read(line: str) -> list[str]:
    """Return the cells of a line as a spreadsheet reads them."""
    (cells,) = csv.reader(io.StringIO(line))
    return cells


@pytest.mark.parametrize(
    "name",
    ["=1+1", "+1", "-x", "@SUM(A1)", "\t=1", " =cmd|' /C calc'!A0", "\uff1d1", "-1+2", "\r=1"],
)
def test_a_hostile_name_becomes_a_text(name: str) -> None:
    cell, _ = read(csv_line(Cell(name), COLUMNS))
    assert cell[0] == "'"


@pytest.mark.parametrize("name", ["team-a", 'a"b', "a,b", "a b"])
def test_other_names_are_unchanged(name: str) -> None:
    assert read(csv_line(Cell(name), COLUMNS)) == [name, "0"]


def test_a_negative_amount_stays_a_number_and_an_empty_value_is_empty() -> None:
    assert csv_line(Cell("", -5), COLUMNS) == ",-5"


def test_a_line_break_in_a_name_makes_no_row() -> None:
    assert "\n" not in csv_line(Cell("a\n=1"), COLUMNS)


def test_an_empty_list_has_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    assert csv_header(COLUMNS) == "name,free_memory"
    show_rows([], Listing(COLUMNS), Format.CSV, "nothing")
    assert capsys.readouterr() == ("name,free_memory\n", "")
