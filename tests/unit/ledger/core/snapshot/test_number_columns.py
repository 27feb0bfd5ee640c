"""Columns hold any numbers, in as few bytes as the largest of them needs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.snapshot.number_columns import InvalidColumn, pack, unpack


@given(st.lists(st.integers(min_value=-(2**63), max_value=2**64 - 1), max_size=20))
def test_any_numbers_come_back(numbers: list[int]) -> None:
    assert list(unpack(pack(numbers), len(numbers))) == numbers


@pytest.mark.parametrize(
    ("most", "width"), [(255, 1), (256, 2), (2**16, 4), (2**32, 8), (2**64 - 1, 8)]
)
def test_a_column_is_as_wide_as_its_largest_number(most: int, width: int) -> None:
    packed = pack([0, most])
    assert packed == (0).to_bytes(width) + most.to_bytes(width, "little")


@pytest.mark.parametrize("number", [-1, 0, 7, 2**64 - 1])
def test_one_number_for_all_rows_is_that_number(number: int) -> None:
    assert pack([number] * 3) == number
    assert list(unpack(number, 3)) == [number] * 3


@pytest.mark.parametrize("column", [b"123", b"", [1], bytes(6)])
def test_a_column_with_other_rows_is_refused(column: bytes | list[int]) -> None:
    with pytest.raises(InvalidColumn):
        unpack(column, 2)
