"""Properties of quantities: every canonical form of a number is read back as that number."""

from contextlib import suppress
from fractions import Fraction as Rational

from hypothesis import given
from hypothesis import strategies as st

from ledger.core.model.amounts import AMOUNT_MAX
from ledger.kube.requests.quantities import QuantityError, parse_integer, parse_milli, parse_scaled

DECIMAL = ("", "k", "M", "G", "T", "P", "E")
BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def canonical(value: int) -> str:
    """Write a number as the API server stores it: the largest suffix without a fraction."""
    step = 0
    while value and value % 1000 == 0 and step < len(DECIMAL) - 1:
        value, step = value // 1000, step + 1
    return f"{value}{DECIMAL[step]}"


def canonical_binary(value: int) -> str:
    """Write a size as the API server stores one that was given in binary."""
    step = 0
    while value and value % 1024 == 0 and step < len(BINARY) - 1:
        value, step = value // 1024, step + 1
    return f"{value}{BINARY[step]}"


@given(st.integers(0, AMOUNT_MAX))
def test_a_canonical_whole_number_is_read_back(value: int) -> None:
    assert parse_integer(canonical(value)) == value
    assert parse_integer(str(value)) == value
    assert parse_integer(value) == value
    assert parse_scaled(canonical_binary(value)) == value


@given(st.integers(0, AMOUNT_MAX // 1000), st.integers(-20, 20))
def test_an_exponent_only_moves_the_point(value: int, exponent: int) -> None:
    exact = Rational(value) * Rational(10) ** exponent
    try:
        parsed = parse_integer(f"{value}e{exponent}")
    except QuantityError:
        assert exact.denominator != 1 or exact > AMOUNT_MAX
    else:
        assert parsed == exact


@given(st.integers(0, 10**12), st.integers(0, 999_999_999), st.sampled_from(DECIMAL + BINARY[1:]))
def test_rounding_goes_up_and_by_less_than_one_unit(whole: int, part: int, suffix: str) -> None:
    factor = 1024 ** BINARY.index(suffix) if suffix in BINARY else 1000 ** DECIMAL.index(suffix)
    exact = (Rational(whole) + Rational(part, 10**9)) * factor
    text = f"{whole}.{part:09}{suffix}"
    for parse, unit in ((parse_scaled, 1), (parse_milli, 1000)):
        try:
            parsed = parse(text)
        except QuantityError:
            assert exact * unit > AMOUNT_MAX - 1
        else:
            assert exact * unit <= parsed < exact * unit + 1


@given(st.text(max_size=80) | st.from_regex(r"[+-]?[0-9.]{0,20}[eEinumkKMGTP]{0,3}[-+]?[0-9]*"))
def test_any_text_is_an_amount_or_a_named_error(text: str) -> None:
    for parse in (parse_integer, parse_milli, parse_scaled):
        with suppress(QuantityError):
            assert 0 <= parse(text) <= AMOUNT_MAX
