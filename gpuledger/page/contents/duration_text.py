"""Duration text: a length of time in two units at most."""

from typing import Final

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_SECOND: Final = 1_000_000


def duration_text(microseconds: int) -> str:
    """Return a duration such as `2 h 5 min`, from days down to seconds."""
    seconds = round(microseconds / _SECOND)
    for place, (unit, length) in enumerate(_UNITS[:-1]):
        if seconds >= length:
            smaller, size = _UNITS[place + 1]
            rest = seconds % length // size
            return f"{seconds // length} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{seconds} s"
