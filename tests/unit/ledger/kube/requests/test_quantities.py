"""Quantities mean exactly what they mean to the API server, or are refused with a reason."""

import pytest

from ledger.kube.requests import quantities
from ledger.kube.requests.quantities import (
    BinarySuffix,
    Fraction,
    Negative,
    NotAQuantity,
    TooLarge,
    TooLong,
    parse_integer,
    parse_milli,
    parse_nano,
    parse_scaled,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("7", 7),
        ("+7", 7),
        ("-0", 0),
        ("8k", 8_000),
        ("8.5k", 8_500),
        ("1e3", 1_000),
        ("1E3", 1_000),
        ("2000m", 2),
        ("3000000u", 3),
        ("5.000", 5),
        ("5.", 5),
        (".5k", 500),
        (str(2**53), 2**53),
        (8_000, 8_000),
    ],
)
def test_whole_numbers_in_every_decimal_form_are_read(text: str | int, value: int) -> None:
    assert parse_integer(text) == value


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("16Gi", BinarySuffix),
        ("1Ki", BinarySuffix),
        ("0.5", Fraction),
        ("500m", Fraction),
        ("1e-1", Fraction),
        ("1e-60", Fraction),
        ("1e-999999999999", Fraction),
        ("-5", Negative),
        (-5, Negative),
        ("-0.5", Negative),
        (str(2**53 + 1), TooLarge),
        (2**53 + 1, TooLarge),
        ("1e40", TooLarge),
        ("1E", TooLarge),
        ("1e999999999999", TooLarge),
        ("", NotAQuantity),
        (".", NotAQuantity),
        ("k", NotAQuantity),
        ("1 000", NotAQuantity),
        ("1_000", NotAQuantity),
        ("1K", NotAQuantity),
        ("1ki", NotAQuantity),
        ("0x10", NotAQuantity),
        ("1e", NotAQuantity),
        ("12e-1k", NotAQuantity),
        ("1e1.5", NotAQuantity),
        ("NaN", NotAQuantity),
        ("\u0663", NotAQuantity),
        ("5\n", NotAQuantity),
        ("1" * 65, TooLong),
    ],
)
def test_quantity_is_refused_with_its_own_error_when_not_whole(
    text: str | int, error: type[Exception]
) -> None:
    with pytest.raises(error):
        parse_integer(text)


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [("2", 2_000), ("500m", 500), ("0.5", 500), ("1u", 1), ("1Ki", 1_024_000), (3, 3_000)],
)
def test_thousandths_are_rounded_up(text: str | int, thousandths: int) -> None:
    assert parse_milli(text) == thousandths


@pytest.mark.parametrize(
    ("text", "size"),
    [("1Gi", 2**30), ("1.5Gi", 3 * 2**29), ("1G", 10**9), ("128M", 128 * 10**6), ("1n", 1)],
)
def test_bytes_are_read_in_every_form(text: str, size: int) -> None:
    assert parse_scaled(text) == size


@pytest.mark.parametrize("text", ["-1", "-1Gi", -1])
def test_a_negative_size_is_refused(text: str | int) -> None:
    with pytest.raises(Negative):
        parse_scaled(text)


def test_a_size_beyond_the_largest_amount_is_refused() -> None:
    with pytest.raises(TooLarge):
        parse_scaled("8Ei")


def test_every_error_is_one_family() -> None:
    for error in (NotAQuantity, TooLong, BinarySuffix, Fraction, Negative, TooLarge):
        assert issubclass(error, quantities.QuantityError)


@pytest.mark.parametrize(
    ("text", "billionths"),
    [
        ("1", 10**9),
        (2, 2 * 10**9),
        ("100n", 100),
        ("0.1n", 1),
        ("-0.1n", 0),
        ("-3m", -3_000_000),
        ("7500Mi", 7_500 * 2**20 * 10**9),
        ("8Ei", (2**63 - 1) * 10**9),
        ("1e100", (2**63 - 1) * 10**9),
        ("1e-999", 1),
    ],
)
def test_billionths_are_exact_up_to_the_largest_of_the_server(
    text: str | int, billionths: int
) -> None:
    assert parse_nano(text) == billionths


def test_billionths_of_absurd_texts_are_refused() -> None:
    with pytest.raises(NotAQuantity):
        parse_nano("x")
    with pytest.raises(TooLong):
        parse_nano("1" * 65)
    with pytest.raises(TooLarge):
        parse_nano("1e999")
