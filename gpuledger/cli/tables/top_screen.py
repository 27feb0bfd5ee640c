"""Top screen: quotas and cards by pressure, as lines of a terminal.

Pressure is the part of a limit that is used. The fullest come first, so that what has no room on
the screen is what has most room in the cluster.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from rich.text import Text

from gpuledger.cli.output import view_lines
from gpuledger.cli.tables.display_texts import harmless
from gpuledger.cli.tables.table_columns import (
    CLUSTER,
    KEY_LEAST,
    NAMESPACE,
    Listing,
    TableColumn,
    name,
    number,
    part,
    quantity,
    resource,
)

BAR: Final = 10
"""Characters of a full bar."""

_TABLE_LEAST: Final = 3
"""Lines that each of the two tables gets at least: header, a row, and what is left out."""


class TopState(msgspec.Struct, frozen=True):
    """The quotas as of a position, and the cards read after them, the fullest first.

    `note` is why cards are missing.
    """

    position: int
    head: int
    quotas: Sequence[Any]
    cards: Sequence[Any]
    note: str = ""


def pressure(used: int, limit: int) -> float:
    """Return the used part of a limit; 1 for a limit of 0, and more if it is exceeded."""
    return used / limit if limit > 0 else 1.0 + used


def bar_text(used: int, limit: int) -> str:
    """Return a bar and the percentage of a limit that is used, at most `>999%`."""
    share = pressure(used, limit)
    filled = min(int(share * BAR + 0.5), BAR)
    percent = f"{share:.0%}" if share < 10 else ">999%"
    return f"{'#' * filled}{'.' * (BAR - filled)} {percent:>5}"


def state_of(
    position: int, head: int, quotas: Sequence[Any], cards: Sequence[Any], note: str = ""
) -> TopState:
    """Return rows as a state, sorted by pressure; equal ones keep their order."""
    fullest, busiest = (sorted(rows, key=_pressure, reverse=True) for rows in (quotas, cards))
    return TopState(position, head, fullest, busiest, note)


def screen(state: TopState, width: int, height: int) -> Text:
    """Return a state as text of at most `width` columns and `height` lines."""
    rest = max(height - 2, 2 * _TABLE_LEAST)
    wanted = len(state.quotas) + 1, len(state.cards) + 1
    for_cards = max(min(wanted[1], rest // 2), rest - wanted[0])
    shown = Text(no_wrap=True, overflow="crop")
    shown.append(f"{_title(state)[:width]}\n", "reverse")
    _append(shown, state.quotas, QUOTAS, width, rest - for_cards, "No quotas.")
    shown.append("\n")
    _append(shown, state.cards, CARDS, width, for_cards, state.note or "No cards.")
    shown.rstrip()
    return shown


def _append(
    shown: Text, rows: Sequence[Any], listing: Listing, width: int, lines: int, nothing: str
) -> None:
    """Append a table of at most `lines` lines to a text."""
    if not rows:
        shown.append(f"{harmless(nothing)[:width]}\n")
        return
    fitting = rows if len(rows) < lines else rows[: max(lines - 2, 1)]
    table = view_lines(fitting, listing, width)
    shown.append(f"{table.header}\n", "bold")
    for row, line in zip(fitting, table.lines, strict=True):
        shown.append(f"{line}\n", _style(row))
    if len(fitting) < len(rows):
        shown.append(f"{len(rows) - len(fitting)} more, with more room.\n")


def _style(row: Any) -> str:
    """Return the colour of a row: red if full, yellow if nearly."""
    share = _pressure(row)
    return "red" if share >= 1 else "yellow" if share >= 0.9 else ""


def _used_and_limit(row: Any) -> tuple[int, int]:
    if hasattr(row, "quota"):
        return row.used, row.limit
    return row.used_memory, row.memory


def _pressure(row: Any) -> float:
    return pressure(*_used_and_limit(row))


def _title(state: TopState) -> str:
    at = f"position {state.position}"
    return f"gpuledger top: {at}, {len(state.quotas)} limits, {len(state.cards)} cards. q quits."


def _bar(row: Any) -> str:
    return bar_text(*_used_and_limit(row))


QUOTAS: Final = Listing(
    (
        CLUSTER,
        NAMESPACE,
        name("QUOTA", "quota"),
        resource("RESOURCE", "resource"),
        quantity("USED", "used"),
        quantity("LIMIT", "limit"),
        TableColumn("PRESSURE", _bar),
    ),
)
CARDS: Final = Listing(
    (
        CLUSTER,
        name("NODE", "node", KEY_LEAST),
        number("INDEX", "index"),
        part("MEMORY", "used_memory", "memory", "Mi"),
        part("CORES", "used_cores", "cores", "%"),
        part("SLOTS", "used_slots", "slots"),
        TableColumn("PRESSURE", _bar),
    ),
)
