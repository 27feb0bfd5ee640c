"""Quantity texts: names, amounts, percentages and times as people read them."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from markupsafe import Markup

from gpuledger.cli.tables.display_texts import harmless
from ledger.core.model.accounts import resource_of
from ledger.core.model.display_names import measure

_AFTER_BREAK: Final = re.compile(r"(?<=[/.])(?=.)")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MIB_OF_GIB: Final = 1024
_MEMORY_UNITS: Final = ("MiB", "GiB")
_TO_THE_SECOND: Final = "%Y-%m-%dT%H:%M:%SZ"


def with_breaks(name: str) -> Markup:
    """Return a harmless name as HTML that a browser breaks after `/` and `.`."""
    return Markup("<wbr>").join(_AFTER_BREAK.split(harmless(name)))


def amount_text(value: int, key: str) -> str:
    """Return an amount of a quota key or resource with its unit; memory from 1 GiB on in GiB."""
    measured = measure(resource_of(key))
    unit = measured.singular if abs(value) == 1 else measured.many
    if unit.startswith("MiB"):
        return _memory(value)
    if unit.startswith("%"):
        return f"{value:,} %"
    return f"{value:,} {unit.partition(' ')[0]}" if unit else f"{value:,}"


def _memory(mib: int) -> str:
    if abs(mib) < _MIB_OF_GIB:
        return f"{mib:,} MiB"
    gib = mib / _MIB_OF_GIB
    return f"{gib:,.0f} GiB" if mib % _MIB_OF_GIB == 0 else f"{gib:,.1f} GiB"


def part_text(part: int, whole: int, key: str) -> str:
    """Return an amount of another as `6 of 10 GPUs`, or `512 MiB of 2 GiB`."""
    first = amount_text(part, key)
    number, _, unit = first.partition(" ")
    return f"{first if unit in _MEMORY_UNITS else number} of {amount_text(whole, key)}"


def percent_text(part: int, whole: int) -> str:
    """Return a part in percent of a whole; a part of nothing is "over", and no part of it 0 %."""
    if whole <= 0:
        return "0 %" if part <= 0 else "over"
    return f"{100 * part / whole:.0f} %"


def time_text(time: int) -> str:
    """Return a time in µs of Unix time as RFC 3339 in UTC to the second, "never" for 0."""
    if not time:
        return "never"
    return (_EPOCH + timedelta(microseconds=time)).strftime(_TO_THE_SECOND)


def second_text(time: str) -> str:
    """Return a time in RFC 3339 in UTC and to the second; "" stays "".

    Raises ValueError for another text.
    """
    return datetime.fromisoformat(time).astimezone(UTC).strftime(_TO_THE_SECOND) if time else ""
