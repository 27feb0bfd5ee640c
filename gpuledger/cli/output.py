"""Output: rows as a table, names, CSV, JSON or YAML on standard output.

The default view of a table has the columns that matter, with amounts in their units and ages; a
terminal gets them in its width, and a pipe in full, with the same columns. The wide view, CSV, JSON
and YAML have everything. JSON and YAML are a list of objects, or one object for a command with one
result; amounts are integers in the unit of their resource.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from contextvars import ContextVar
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec
import typer

from gpuledger.cli.prose import note
from gpuledger.cli.tables import table_layout
from gpuledger.cli.tables.csv_rows import csv_header, csv_line
from gpuledger.cli.tables.display_texts import columns_of
from gpuledger.cli.tables.table_columns import Listing, TableColumn
from gpuledger.cli.tables.table_layout import (
    TableLines,
    aligned,
    natural_widths,
    table_lines,
    wrapped,
)

STREAM_WIDTH: Final = 80
"""Width for which the columns of a stream are chosen; a wider terminal shortens less."""


class Format(StrEnum):
    """The format of a command's output."""

    TABLE = "table"
    WIDE = "wide"
    NAME = "name"
    CSV = "csv"
    JSON = "json"
    YAML = "yaml"

    @property
    def is_object(self) -> bool:
        """Return whether it shows whole objects, not cells."""
        return self in (Format.JSON, Format.YAML)


OBJECT_FORMATS: Final = "table|json|yaml"

headers_shown: ContextVar[bool] = ContextVar("headers_shown", default=True)
"""Whether tables and CSV begin with a header, by the option --no-headers."""


def _not_of_rows(chosen: Format) -> Format:
    """Refuse the formats of rows. Raises BadParameter."""
    if chosen in (Format.WIDE, Format.NAME, Format.CSV):
        raise typer.BadParameter(
            f"{str(chosen)!r} is for commands with rows: give {OBJECT_FORMATS}"
        )
    return chosen


Output = Annotated[
    Format,
    typer.Option("--output", "-o", help="How to print.", metavar="table|wide|name|csv|json|yaml"),
]
"""The option of every command with rows."""

ObjectOutput = Annotated[
    Format,
    typer.Option(
        "--output", "-o", help="How to print.", metavar=OBJECT_FORMATS, callback=_not_of_rows
    ),
]
"""The option of a command whose result has no rows."""


def show_rows(
    rows: Sequence[Any], listing: Listing, output: Format, nothing: str, *, namespace: str = ""
) -> None:
    """Print rows; for an empty table, print the sentence `nothing` on standard error.

    The default view leaves the namespace out if it is the given one in all rows.
    """
    if output.is_object:
        _show_encoded(rows, output)
    elif output is Format.CSV:
        _show_csv(rows, listing)
    elif not rows:
        note(nothing)
    elif output is Format.NAME:
        column = listing.name_column()
        for name in dict.fromkeys(column.harmless_cell(row) for row in rows):
            write_line(name)
    else:
        _show_table(rows, listing, output, namespace)


def show_one(value: Any, listing: Listing, output: Format) -> None:
    """Print one object: as such, as one row, or line by line where a terminal is too narrow."""
    columns = listing.default()
    cells = [column.harmless_cell(value) for column in columns]
    if output.is_object:
        _show_encoded(value, output)
    elif output is Format.TABLE and sys.stdout.isatty() and not _fits(columns, cells):
        wide = max(columns_of(column.header) for column in columns)
        for column, cell in zip(columns, cells, strict=True):
            write_line(f"{_bold(column.header.ljust(wide))}{table_layout.GAP}{cell}")
    else:
        show_rows([value], listing, output, "")


def show_object(value: Any, output: Format) -> None:
    """Print one object as JSON or YAML."""
    _show_encoded(value, output)


def write_line(text: str = "") -> None:
    """Print a line on standard output; end the command quietly when its reader closed the pipe.

    Raises CommandError if it cannot be written.
    """
    try:
        typer.echo(text)
    except OSError as error:
        from gpuledger.cli.exit_codes import CommandError, Exit

        # The interpreter flushes the buffer when it ends, and would fail with 120 and a message.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise typer.Exit(Exit.FAILED) from None
        why = error.strerror or str(error)
        raise CommandError(Exit.FAILED, f"standard output cannot be written: {why}") from error


def announce(position: int, head: int) -> None:
    """Print on standard error as of which position an answer is, and the last one."""
    note(f"As of position {position} of {head}.")


def view_lines(
    rows: Sequence[Any], listing: Listing, width: int, *, namespace: str = ""
) -> TableLines:
    """Return the default view of rows for a terminal of `width` columns; there is one at least."""
    columns, cells = _view(rows, listing, namespace)
    return table_lines(columns, cells, width)


class RowStream:
    """A stream of rows: JSON as one object per line, YAML as a list, or lines of a table."""

    def __init__(self, listing: Listing, output: Format) -> None:
        """Prepare; a table's header is printed with the first row."""
        self._listing = listing
        self._output = output
        self._columns = listing.default() if output is Format.TABLE else listing.wide
        self.begun = False

    def show(self, row: Any) -> None:
        """Print a row."""
        header, self.begun = not self.begun and headers_shown.get(), True
        if self._output is Format.JSON:
            write_line(msgspec.json.encode(row).decode())
        elif self._output is Format.YAML:
            _show_encoded([row], Format.YAML)
        elif self._output is Format.NAME:
            write_line(self._listing.name_column().harmless_cell(row))
        elif self._output is Format.CSV:
            columns = self._listing.csv or self._listing.wide
            for line in (*([csv_header(columns)] if header else []), csv_line(row, columns)):
                write_line(line)
        else:
            if header:
                self._line([column.header for column in self._columns], header=True)
            self._line([column.harmless_cell(row) for column in self._columns])

    def _line(self, cells: list[str], *, header: bool = False) -> None:
        """Print cells; the last one continues on further lines of a terminal."""
        widths = [column.width for column in self._columns]
        if self._output is not Format.TABLE or not sys.stdout.isatty():
            write_line(_plain(cells, widths, self._columns))
            return
        room = _terminal_width() - STREAM_WIDTH
        widths = [
            width + max(room, 0) // 3 if column.least else width
            for width, column in zip(widths, self._columns, strict=True)
        ]
        head = aligned(cells[:-1], widths[:-1], self._columns[:-1], table_layout.NARROW_GAP)
        begin = sum(widths[:-1]) + len(table_layout.NARROW_GAP) * (len(widths) - 1)
        rest = wrapped(cells[-1], max(_terminal_width() - begin, table_layout.BESIDE_LEAST // 2))
        line = f"{head.ljust(begin)}{rest[0]}"
        write_line(_bold(line) if header else line)
        for more in rest[1:]:
            write_line(" " * begin + more)


def _show_encoded(value: Any, output: Format) -> None:
    if output is Format.JSON:
        write_line(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
        return
    import yaml

    plain = msgspec.to_builtins(value)
    write_line(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).rstrip("\n"))


def _show_csv(rows: Sequence[Any], listing: Listing) -> None:
    columns = listing.csv or listing.wide
    if headers_shown.get():
        write_line(csv_header(columns))
    for row in rows:
        write_line(csv_line(row, columns))


def _show_table(rows: Sequence[Any], listing: Listing, output: Format, namespace: str) -> None:
    if output is Format.TABLE and sys.stdout.isatty():
        table = view_lines(rows, listing, _terminal_width(), namespace=namespace)
        _write_table(table.header, table.lines)
        if table.left_out:
            left_out = ", ".join(table.left_out)
            note(f"No room for {left_out}: widen the terminal, or give -o wide.")
        return
    if output is Format.TABLE:
        columns, cells = _view(rows, listing, namespace)
    else:
        columns, cells = listing.wide, _cells(rows, listing.wide)
    widths = natural_widths(columns, cells)
    header = _plain([column.header for column in columns], widths, columns)
    _write_table(header, [_plain(line, widths, columns) for line in cells])


def _view(
    rows: Sequence[Any], listing: Listing, namespace: str
) -> tuple[tuple[TableColumn, ...], list[list[str]]]:
    """Return the columns of the default view that rows need, and their cells."""
    columns = listing.default()
    cells = _cells(rows, columns)
    places = listing.shown(cells, namespace)
    shown = tuple(columns[place] for place in places)
    return shown, [[line[place] for place in places] for line in cells]


def _cells(rows: Sequence[Any], columns: Sequence[TableColumn]) -> list[list[str]]:
    return [[column.harmless_cell(row) for column in columns] for row in rows]


def _plain(cells: Sequence[str], widths: Sequence[int], columns: Sequence[TableColumn]) -> str:
    """Return cells as one line, each in full."""
    padded = (
        cell.rjust(width) if column.number else cell.ljust(width)
        for cell, width, column in zip(cells, widths, columns, strict=True)
    )
    return table_layout.GAP.join(padded).rstrip()


def _write_table(header: str, lines: Sequence[str]) -> None:
    """Print a table; its header is bold on a terminal."""
    if headers_shown.get():
        write_line(_bold(header))
    for line in lines:
        write_line(line)


def _fits(columns: Sequence[TableColumn], cells: list[str]) -> bool:
    widths = natural_widths(columns, [cells])
    return sum(widths) + len(table_layout.GAP) * (len(widths) - 1) <= _terminal_width()


def _terminal_width() -> int:
    return shutil.get_terminal_size().columns


def _bold(text: str) -> str:
    """Return a text in bold on a terminal that shows it."""
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb" or "NO_COLOR" in os.environ:
        return text
    return typer.style(text, bold=True)
