"""Signed 32-bit decimal numbers in HAMi annotations."""

import re
from typing import Final

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1

_FORM: Final = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)


def int32_of(text: str, least: int = INT32_MIN) -> int | None:
    """Return the number in a text, None if it is not a number from `least` to `INT32_MAX`."""
    number = int(text) if _FORM.fullmatch(text) else None
    return number if number is not None and least <= number <= INT32_MAX else None
