"""Table columns: how rows become cells, in the default view, the wide one, CSV and names."""

from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final

import msgspec

from gpuledger.cli.tables.display_texts import (
    NOTHING,
    age_text,
    amounts_text,
    harmless,
    quantity_text,
    resource_text,
)

NAME_LEAST: Final = 10
"""Columns of a terminal that a shortened name keeps."""

KEY_LEAST: Final = 16


class Omitted(Enum):
    """When the default view leaves a column out."""

    NEVER = auto()
    ALIKE = auto()
    """No two rows have different values."""
    ASKED = auto()
    """All rows have the namespace of `-n`."""
    EMPTY = auto()
    """No row has a value."""


class TableColumn(msgspec.Struct, frozen=True):
    """A column of a table: its header, the cell of a row, and whether it holds numbers.

    `least` is the width to which a narrow terminal may shorten it, 0 for never. A column that
    `wraps` is the last one, and continues on further lines. `width` is the least width in a stream,
    whose lines are printed before all rows are available.
    """

    header: str
    cell: Callable[[Any], str]
    number: bool = False
    width: int = 0
    least: int = 0
    wraps: bool = False
    omitted: Omitted = Omitted.NEVER

    def harmless_cell(self, row: Any) -> str:
        """Return the cell of a row without characters that control a terminal."""
        return harmless(self.cell(row))


class Listing(msgspec.Struct, frozen=True):
    """The columns of a command's rows.

    `wide` has all columns, with names and amounts as in the log. `view` are those of the default
    view, all without them. `csv` are those of CSV if they are not `wide`. `name` is the header of
    the column with the name that other commands take; without it, the first one.
    """

    wide: tuple[TableColumn, ...]
    view: tuple[TableColumn, ...] = ()
    csv: tuple[TableColumn, ...] = ()
    name: str = ""

    def default(self) -> tuple[TableColumn, ...]:
        """Return the columns of the default view."""
        return self.view or self.wide

    def shown(self, cells: list[list[str]], asked: str) -> list[int]:
        """Return the places of the columns of the default view for its cells."""
        return [
            place
            for place, column in enumerate(self.default())
            if not _is_omitted(column, [line[place] for line in cells], asked)
        ]

    def name_column(self) -> TableColumn:
        """Return the column with the name of a row."""
        named = (column for column in self.wide if column.header == self.name)
        return next(named, self.wide[0])


def _is_omitted(column: TableColumn, cells: list[str], asked: str) -> bool:
    if column.omitted is Omitted.ALIKE:
        return len({*cells} - {NOTHING}) <= 1
    if column.omitted is Omitted.ASKED:
        return bool(asked) and set(cells) == {asked}
    return column.omitted is Omitted.EMPTY and set(cells) <= {NOTHING}


def text(header: str, name: str) -> TableColumn:
    """Return a column with a field of the row; an empty field shows as `-`."""
    return TableColumn(header, lambda row: str(getattr(row, name)) or NOTHING)


def name(header: str, field: str, least: int = NAME_LEAST) -> TableColumn:
    """Return a column with a name, which a narrow terminal shortens to no less than `least`."""
    return TableColumn(header, lambda row: str(getattr(row, field)) or NOTHING, least=least)


def sentence(header: str, field: str) -> TableColumn:
    """Return a last column with a text, which continues on further lines."""
    return TableColumn(header, lambda row: str(getattr(row, field)) or NOTHING, wraps=True)


def number(header: str, name: str) -> TableColumn:
    """Return a column with a number of the row."""
    return TableColumn(header, lambda row: str(getattr(row, name)), number=True)


def flag(header: str, name: str) -> TableColumn:
    """Return a column with yes or no."""
    return TableColumn(header, lambda row: "yes" if getattr(row, name) else "no")


def age(header: str, field: str) -> TableColumn:
    """Return a column with the age of a time of the row."""
    return TableColumn(header, lambda row: age_text(getattr(row, field)))


def resource(header: str, field: str) -> TableColumn:
    """Return a column with a resource or quota key, without prefix and without nvidia's domain."""
    return TableColumn(header, lambda row: resource_text(getattr(row, field)), least=NAME_LEAST)


def quantity(header: str, field: str) -> TableColumn:
    """Return a column with an amount of the row's `resource`, with its unit."""
    return TableColumn(
        header, lambda row: quantity_text(row.resource, getattr(row, field)), number=True
    )


def part(header: str, used: str, limit: str, unit: str = "") -> TableColumn:
    """Return a column with used amount and limit, `used/limit`, in one unit."""
    return TableColumn(
        header, lambda row: f"{getattr(row, used)}/{getattr(row, limit)}{unit}", number=True
    )


def amounts(header: str, name: str) -> TableColumn:
    """Return a column with amounts, `resource=amount,…`, as in the log."""
    return TableColumn(header, lambda row: joined(getattr(row, name)))


def short_amounts(header: str, field: str) -> TableColumn:
    """Return a last column with amounts in their units, which continues on further lines."""
    return TableColumn(header, lambda row: amounts_text(getattr(row, field)), wraps=True)


def joined(quantities: dict[str, int]) -> str:
    """Write amounts as one word."""
    return ",".join(f"{resource}={amount}" for resource, amount in quantities.items()) or NOTHING


CLUSTER: Final = TableColumn(
    "CLUSTER", lambda row: row.cluster or NOTHING, least=NAME_LEAST // 2, omitted=Omitted.ALIKE
)
NAMESPACE: Final = TableColumn(
    "NAMESPACE", lambda row: row.namespace or NOTHING, least=NAME_LEAST, omitted=Omitted.ASKED
)
KEY: Final = name("KEY", "key", KEY_LEAST)
POSITION: Final = number("POSITION", "position")
