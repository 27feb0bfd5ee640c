"""Number columns: many numbers in a few bytes each, or one number for all rows.

A column is one number when all rows have it. Otherwise it is the bytes of unsigned little-endian
numbers of 1, 2, 4 or 8 bytes, whichever is the least that holds all of them. A column that does not
fit into 8 unsigned bytes is a list. So the same numbers give the same column.
"""

from array import array
from collections.abc import Sequence
from typing import Final

Column = int | bytes | list[int]

_CODES: Final = ("B", "H", "I", "Q")
_WIDTHS: Final = {array(code).itemsize: code for code in _CODES}
_IS_BIG_ENDIAN: Final = array("H", [1]).tobytes()[0] == 0


class InvalidColumn(ValueError):
    """A column does not have as many rows as its table."""


def pack(numbers: Sequence[int]) -> Column:
    """Return numbers as a column."""
    if not numbers:
        return 0
    least, most = min(numbers), max(numbers)
    if least == most:
        return least
    code = _code_of(most)
    if least < 0 or not code:
        return list(numbers)
    return _swapped(array(code, numbers)).tobytes()


def unpack(column: Column, rows: int) -> Sequence[int]:
    """Return the numbers of a column, one for each row. Raises InvalidColumn."""
    if isinstance(column, int):
        code = _code_of(column) if column >= 0 else ""
        return array(code, [column]) * rows if code else [column] * rows
    if isinstance(column, list):
        numbers: Sequence[int] = column
    else:
        width = len(column) // rows if rows else 0
        if width not in _WIDTHS or width * rows != len(column):
            raise InvalidColumn(f"a column of {rows} numbers has {len(column)} bytes")
        numbers = _swapped(array(_WIDTHS[width], column))
    if len(numbers) != rows:
        raise InvalidColumn(f"a column of {rows} numbers has {len(numbers)}")
    return numbers


def _code_of(most: int) -> str:
    """Return the type code of the smallest numbers up to this one, empty when none is so large."""
    for width, code in _WIDTHS.items():
        if most < 1 << 8 * width:
            return code
    return ""


def _swapped(numbers: "array[int]") -> "array[int]":
    """Return the numbers in the other order of bytes, if this machine's is not little-endian."""
    if _IS_BIG_ENDIAN:
        numbers.byteswap()
    return numbers
