"""CSV rows: cells for spreadsheets, by RFC 4180, that no spreadsheet takes for a formula.

Names in a cluster are hostile input: a cell that begins with `=`, `+`, `-`, `@` or a tab, and is
not a number, gets a leading apostrophe.
"""

import csv
import io
import re
from collections.abc import Sequence
from typing import Any, Final

from gpuledger.cli.tables.display_texts import NOTHING
from gpuledger.cli.tables.table_columns import TableColumn

_FORMULA: Final = re.compile(r"\s*[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]")
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def csv_header(columns: Sequence[TableColumn]) -> str:
    """Return the header line: names in snake_case, as in JSON."""
    return _line([re.sub(r"[^a-z0-9]+", "_", column.header.lower()) for column in columns])


def csv_line(row: Any, columns: Sequence[TableColumn]) -> str:
    """Return a row as one line; empty values are empty cells."""
    return _line([_safe(column, row) for column in columns])


def _safe(column: TableColumn, row: Any) -> str:
    raw, cell = column.cell(row), column.harmless_cell(row)
    if raw == NOTHING:
        return ""
    return f"'{cell}" if _FORMULA.match(raw) and not _NUMBER.fullmatch(raw) else cell


def _line(cells: Sequence[str]) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="").writerow(cells)
    return written.getvalue()
