"""Table layout: cells as the lines of a terminal of a given width.

No line is longer than the terminal, and no word is cut in two. In this order, as far as necessary:
a smaller gap; the last column continues on further lines, or below its row; names lose their
middle; columns are left out from the right, and the caller reports them.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gpuledger.cli.tables.display_texts import NOTHING, columns_of, shortened
from gpuledger.cli.tables.table_columns import TableColumn

GAP: Final = "   "
"""Separator of columns, as in kubectl."""

NARROW_GAP: Final = "  "
INDENT: Final = "    "
"""Beginning of a line below a row."""

BESIDE_LEAST: Final = 28
"""Least width of a text that continues beside the other columns."""

BESIDE_LINES: Final = 5
"""Most lines of a text beside the other columns; a longer one has the whole width below its row."""

BESIDE_MOST: Final = 36
"""Widest text for which names are shortened, so that it stays on the line of its row."""

_WORDS: Final = re.compile(r"\S+")
_ITEMS: Final = re.compile(r"[^,]+,?")


class TableLines(NamedTuple):
    """The header and the lines of a table, and the headers of columns without room."""

    header: str
    lines: list[str]
    left_out: list[str]


class _Grid(NamedTuple):
    """Columns with their widths; `gap` separates them."""

    columns: Sequence[TableColumn]
    widths: list[int]
    gap: str

    def line(self, cells: Sequence[str]) -> str:
        """Return cells as one line."""
        return aligned(cells, self.widths, self.columns, self.gap)

    def taken(self) -> int:
        """Return the width of a line."""
        return _total(self.widths, self.gap)


def table_lines(
    columns: Sequence[TableColumn], cells: Sequence[Sequence[str]], width: int
) -> TableLines:
    """Lay a table out for a terminal of `width` columns."""
    text = columns[-1] if columns[-1].wraps and len(columns) > 1 else None
    fixed = columns[:-1] if text is not None else columns
    natural = natural_widths(columns, cells)
    if _fit_one_line(columns, natural, width):
        text, fixed = None, columns
    grid = _grid(fixed, natural[: len(fixed)], width)
    left_out = [column.header for column in fixed[len(grid.columns) :]]
    headers = [column.header for column in grid.columns]
    if text is None:
        lines = [grid.line(row[: len(headers)]) for row in cells]
        return TableLines(grid.line(headers), lines, left_out)
    beside = _has_room_beside(grid, [row[-1] for row in cells], width)
    header = next(_with_text(grid, [*headers, text.header], width, beside=beside))
    lines = [line for row in cells for line in _with_text(grid, row, width, beside=beside)]
    return TableLines(header, lines, left_out)


def _has_room_beside(grid: _Grid, texts: Sequence[str], width: int) -> bool:
    """Return whether each text continues beside the other columns, in few lines."""
    room = width - grid.taken() - len(grid.gap)
    return room >= BESIDE_LEAST and all(len(wrapped(text, room)) <= BESIDE_LINES for text in texts)


def _fit_one_line(columns: Sequence[TableColumn], natural: list[int], width: int) -> bool:
    """Return whether each row is one line, if names are shortened beside a short text."""
    if natural[-1] <= BESIDE_MOST:
        natural = _shrunk(columns, natural, width)
    return _total(natural, NARROW_GAP) <= width


def natural_widths(columns: Sequence[TableColumn], cells: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column that shows all of its cells."""
    return [
        max(columns_of(column.header), *(columns_of(line[place]) for line in cells), column.width)
        for place, column in enumerate(columns)
    ]


def aligned(
    cells: Sequence[str], widths: Sequence[int], columns: Sequence[TableColumn], gap: str = GAP
) -> str:
    """Return cells as one line: numbers to the right, texts to the left."""
    padded = (
        _padded(shortened(cell, width) if column.least else cell, width, right=column.number)
        for cell, width, column in zip(cells, widths, columns, strict=True)
    )
    return gap.join(padded).rstrip()


def wrapped(text: str, width: int) -> list[str]:
    """Return a text as lines of at most `width` columns.

    It breaks between words, or after commas if it is one word. A longer word loses its middle.
    """
    if columns_of(text) <= width:
        return [text]
    glue = " " if " " in text else ""
    lines: list[str] = []
    for piece in (_WORDS if glue else _ITEMS).findall(text):
        word = shortened(piece, width)
        if lines and columns_of(lines[-1]) + len(glue) + columns_of(word) <= width:
            lines[-1] += glue + word
        else:
            lines.append(word)
    return lines


def _grid(columns: Sequence[TableColumn], natural: list[int], width: int) -> _Grid:
    """Return as many of the columns as fit, the first one at least."""
    for count in range(len(columns), 0, -1):
        for gap in (GAP, NARROW_GAP):
            if _total(natural[:count], gap) <= width:
                return _Grid(columns[:count], natural[:count], gap)
        widths = _shrunk(columns[:count], natural[:count], width)
        if _total(widths, NARROW_GAP) <= width:
            return _Grid(columns[:count], widths, NARROW_GAP)
    return _Grid(columns[:1], [min(natural[0], width)], NARROW_GAP)


def _shrunk(columns: Sequence[TableColumn], natural: list[int], width: int) -> list[int]:
    """Return the widths after the widest names are shortened as far as necessary."""
    widths = list(natural)
    excess = _total(widths, NARROW_GAP) - width
    while excess > 0:
        places = [at for at, column in enumerate(columns) if 0 < column.least < widths[at]]
        if not places:
            break
        widths[max(places, key=widths.__getitem__)] -= 1
        excess -= 1
    return widths


def _with_text(grid: _Grid, row: Sequence[str], width: int, *, beside: bool) -> Iterator[str]:
    """Yield the lines of a row whose last cell is a text: beside the others, or below them."""
    begin = grid.taken() + len(grid.gap)
    head = grid.line(row[: len(grid.columns)])
    if not beside:
        yield head
        if row[-1] == NOTHING:
            return
        yield from (INDENT + line for line in wrapped(row[-1], width - len(INDENT)))
        return
    first, *rest = wrapped(row[-1], width - begin) or [""]
    yield _padded(head, begin) + first
    yield from (" " * begin + line for line in rest)


def _padded(text: str, width: int, *, right: bool = False) -> str:
    space = " " * (width - columns_of(text))
    return space + text if right else text + space


def _total(widths: Sequence[int], gap: str) -> int:
    return sum(widths) + len(gap) * (len(widths) - 1)
