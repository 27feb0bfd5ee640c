"""Output: rows as a table, JSON or YAML on standard output.

In a pipe a table has plain columns with upper-case headers, for `awk` and `grep`; on a terminal
Rich draws it. JSON and YAML are a list of objects, or one object for a command with one result;
amounts are integers in the unit of their resource.
"""

import os
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

import msgspec
import typer

GAP: Final = "   "
"""Separator of columns, as in kubectl."""


class Format(StrEnum):
    """The format of a command's output."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


Output = Annotated[
    Format, typer.Option("--output", "-o", help="How to print.", metavar="table|json|yaml")
]
"""The option of every command with data."""


class TableColumn(msgspec.Struct, frozen=True):
    """A column of a table: its header, the cell of a row, and whether it holds numbers."""

    header: str
    cell: Callable[[Any], str]
    number: bool = False
    width: int = 0
    """Least width, for lines that are printed before all rows are available."""


def text(header: str, name: str) -> TableColumn:
    """Return a column with a field of the row; an empty field shows as `-`."""
    return TableColumn(header, lambda row: str(getattr(row, name)) or "-")


def number(header: str, name: str) -> TableColumn:
    """Return a column with a number of the row."""
    return TableColumn(header, lambda row: str(getattr(row, name)), number=True)


def flag(header: str, name: str) -> TableColumn:
    """Return a column with yes or no."""
    return TableColumn(header, lambda row: "yes" if getattr(row, name) else "no")


def amounts(header: str, name: str) -> TableColumn:
    """Return a column with amounts, `resource=amount,…`."""
    return TableColumn(header, lambda row: joined(getattr(row, name)))


def joined(quantities: dict[str, int]) -> str:
    """Write amounts as one word."""
    return ",".join(f"{resource}={amount}" for resource, amount in quantities.items()) or "-"


def show_rows(
    rows: Sequence[Any], columns: Sequence[TableColumn], output: Format, nothing: str
) -> None:
    """Print rows; for an empty table, print the sentence `nothing` on standard error."""
    if output is not Format.TABLE:
        _show_encoded(rows, output)
    elif rows:
        _show_table(rows, columns)
    else:
        typer.echo(nothing, err=True)


def show_one(value: Any, columns: Sequence[TableColumn], output: Format) -> None:
    """Print one object: as such, or as a table of one row."""
    if output is Format.TABLE:
        _show_table([value], columns)
    else:
        _show_encoded(value, output)


class RowStream:
    """A stream of rows: JSON as one object per line, YAML as a list, or a table."""

    def __init__(self, columns: Sequence[TableColumn], output: Format) -> None:
        """Prepare; a table's header is printed with the first row."""
        self._columns = columns
        self._output = output
        self.begun = False

    def show(self, row: Any) -> None:
        """Print a row."""
        header, self.begun = not self.begun, True
        if self._output is Format.JSON:
            _write(msgspec.json.encode(row).decode())
        elif self._output is Format.YAML:
            _show_encoded([row], Format.YAML)
        else:
            if header:
                _write(self._line([column.header for column in self._columns]))
            _write(self._line(_cells(row, self._columns)))

    def _line(self, cells: Sequence[str]) -> str:
        widths = [column.width for column in self._columns]
        return _aligned(cells, widths, self._columns)


def show_object(value: Any, output: Format) -> None:
    """Print one object as JSON or YAML."""
    _show_encoded(value, output)


def _show_encoded(value: Any, output: Format) -> None:
    if output is Format.JSON:
        _write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
        return
    import yaml

    plain = msgspec.to_builtins(value)
    _write(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).rstrip("\n"))


def _show_table(rows: Sequence[Any], columns: Sequence[TableColumn]) -> None:
    cells = [_cells(row, columns) for row in rows]
    if sys.stdout.isatty():
        _draw(cells, columns)
        return
    widths = [
        max(len(column.header), *(len(line[index]) for line in cells))
        for index, column in enumerate(columns)
    ]
    for line in ([column.header for column in columns], *cells):
        _write(_aligned(line, widths, columns))


def _write(text: str) -> None:
    """Print to standard output; end the command quietly when the reader closed the pipe."""
    try:
        typer.echo(text)
    except BrokenPipeError:
        from gpuledger.cli.exit_codes import Exit

        # The interpreter flushes the buffer when it ends, and the pipe is closed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(Exit.FAILED) from None
    except OSError as error:
        from gpuledger.cli.exit_codes import CommandError, Exit

        why = error.strerror or str(error)
        raise CommandError(Exit.FAILED, f"standard output cannot be written: {why}") from error


def _cells(row: Any, columns: Sequence[TableColumn]) -> list[str]:
    return [_harmless(column.cell(row)) for column in columns]


def _harmless(cell: str) -> str:
    """Escape unprintable characters, so that names cannot forge lines or control a terminal."""
    if cell.isprintable():
        return cell
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in cell
    )


def _aligned(cells: Sequence[str], widths: Sequence[int], columns: Sequence[TableColumn]) -> str:
    aligned = [
        cell.rjust(width) if column.number else cell.ljust(width)
        for cell, width, column in zip(cells, widths, columns, strict=True)
    ]
    return GAP.join(aligned).rstrip()


def _draw(cells: Sequence[Sequence[str]], columns: Sequence[TableColumn]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, len(GAP), 0, 0), header_style="bold")
    for column in columns:
        side: Literal["left", "right"] = "right" if column.number else "left"
        table.add_column(column.header, justify=side, overflow="fold")
    for line in cells:
        # A Text is shown unchanged, so that brackets in names are not read as markup.
        table.add_row(*(Text(cell) for cell in line))
    Console().print(table)
