"""Quantities of Kubernetes, as exact integers.

The grammar is that of the API server: a signed decimal number, then nothing, a decimal suffix
(`n u m k M G T P E`), a binary suffix (`Ki` to `Ei`) or an exponent (`e3`, `E-3`). The API server
canonicalises stored quantities, so `8000` arrives as `8k`. No floats are used. No value is clamped:
a value out of range raises an error with the cause.
"""

import re
from functools import lru_cache
from typing import Final

from ledger.core.model.amounts import AMOUNT_MAX

LENGTH_MAX: Final = 64
"""Longest text that is parsed; every quantity up to 2^53 can be written in far less."""

REMEMBERED_MAX: Final = 4_096
"""Entries of the cache; many pods use the same few texts."""

TEN_MAX: Final = 128
"""Beyond this power of ten, positive or negative, no text is between 1 and 2^53."""

MEBIBYTE: Final = 1 << 20
"""The bytes of one MiB."""

_DECIMAL: Final = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_FORM: Final = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]*))?|\.(?P<bare>[0-9]+))"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]+))?",
    re.ASCII,
)
_NANO: Final = 9
_NANO_MAX: Final = (2**63 - 1) * 10**_NANO
_PLAIN_DIGITS_MAX: Final = 15
"""Numbers with this many digits are always below 2^53."""


class QuantityError(ValueError):
    """A quantity is invalid; the text gives the cause, as the end of a sentence about it."""


class NotAQuantity(QuantityError):
    """The text does not follow the grammar."""


class TooLong(NotAQuantity):
    """The text is longer than `LENGTH_MAX`."""


class BinarySuffix(QuantityError):
    """The quantity has a binary suffix, which counts bytes, but the unit is not bytes."""


class Fraction(QuantityError):
    """Not a whole number."""


class Negative(QuantityError):
    """Below zero."""


class TooLarge(QuantityError):
    """Beyond 2^53."""


@lru_cache(maxsize=REMEMBERED_MAX)
def parse_integer(quantity: str | int) -> int:
    """Return a whole number: `3`, `8k`, `1e3`, `2000m`.

    Raises NotAQuantity, BinarySuffix, Fraction, Negative and TooLarge.
    """
    if isinstance(quantity, int):
        return _in_range(quantity)
    if len(quantity) <= _PLAIN_DIGITS_MAX and quantity.isascii() and quantity.isdigit():
        return int(quantity)
    digits, ten, two = _parts(quantity)
    if two:
        raise BinarySuffix("has a binary suffix and so counts bytes")
    if digits < 0:
        raise Negative("is negative")
    value, rest = _shifted(digits, ten)
    if rest:
        raise Fraction("is not a whole number")
    return _in_range(value)


def parse_scaled(quantity: str | int, scale: int = 0) -> int:
    """Return a quantity in units of 10^scale, rounded up as Kubernetes does.

    `scale` 0 gives bytes of memory or whole units, -3 gives thousandths of a processor. Any suffix
    is valid. Raises NotAQuantity, Negative and TooLarge.
    """
    digits, ten, two = (quantity, 0, 0) if isinstance(quantity, int) else _parts(quantity)
    if digits < 0:
        raise Negative("is negative")
    value, rest = _shifted(digits << two, ten - scale)
    return _in_range(value + (rest > 0))


def parse_units(quantity: str | int, unit: int) -> int:
    """Return a quantity in units of `unit`, rounded up: `16Gi` in units of 2^20 is 16384.

    Only the result must be within 2^53, so more bytes than that can be read as MiB. Raises
    NotAQuantity, Negative and TooLarge.
    """
    digits, ten, two = (quantity, 0, 0) if isinstance(quantity, int) else _parts(quantity)
    if digits < 0:
        raise Negative("is negative")
    value, rest = _shifted(digits << two, ten)
    whole, left = divmod(value, unit)
    return _in_range(whole + (left > 0 or rest > 0))


def parse_milli(quantity: str | int) -> int:
    """Return a quantity in thousandths, rounded up: `500m` is 500, `2` is 2000.

    Raises NotAQuantity, Negative and TooLarge.
    """
    return parse_scaled(quantity, -3)


def parse_nano(quantity: str | int) -> int:
    """Return a quantity in billionths, the finest step of Kubernetes, rounded up.

    As in Kubernetes, amounts beyond 2^63 - 1 count as that. The result may be negative. Raises
    NotAQuantity, and TooLarge beyond 10^128.
    """
    digits, ten, two = (quantity, 0, 0) if isinstance(quantity, int) else _parts(quantity)
    value, rest = _shifted(digits << two, ten + _NANO)
    return min(value + (rest > 0), _NANO_MAX)


def _parts(text: str) -> tuple[int, int, int]:
    """Return `(digits, ten, two)` of a text, where its value is digits * 10^ten * 2^two."""
    if len(text) > LENGTH_MAX:
        raise TooLong(f"is longer than {LENGTH_MAX} characters")
    form = _FORM.fullmatch(text)
    if form is None:
        raise NotAQuantity("is not a quantity")
    part = form["bare"] or form["part"] or ""
    digits = int(f"{form['sign']}{form['whole'] or ''}{part}")
    suffix = form["suffix"] or ""
    ten = int(form["exponent"]) if form["exponent"] else _DECIMAL.get(suffix, 0)
    return digits, ten - len(part), _BINARY.get(suffix, 0)


def _shifted(digits: int, ten: int) -> tuple[int, int]:
    """Return digits * 10^ten as a whole number and the remainder."""
    if not digits:
        return 0, 0
    if ten > TEN_MAX:
        raise TooLarge("is beyond 2^53")
    if ten < -TEN_MAX:
        return 0, 1
    power: int = 10 ** abs(ten)
    return (digits * power, 0) if ten >= 0 else divmod(digits, power)


def _in_range(value: int) -> int:
    if value < 0:
        raise Negative("is negative")
    if value > AMOUNT_MAX:
        raise TooLarge("is beyond 2^53")
    return value
