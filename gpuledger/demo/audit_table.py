"""The audit of a namespace as a short table: its first and its last events."""

from typing import Any, Final

FIRST: Final = 4
LAST: Final = 6

_PREFIX: Final = "nvidia.com/"
_ROW: Final = "{:>8}  {:12}  {:8}  {:24}  {:22}  {}"


def excerpt(events: list[dict[str, Any]]) -> str:
    """Return the first and the last events, one per line, with the balance after each."""
    rows = [_ROW.format("POSITION", "TIME", "TYPE", "KEY", "AMOUNTS", "USED AFTER")]
    rows += map(_row, events[:FIRST])
    if len(events) > FIRST + LAST:
        rows.append(f"{'…':>8}  {len(events) - FIRST - LAST} more")
    rows += map(_row, events[FIRST:][-LAST:])
    return "\n".join(row.rstrip() for row in rows)


def _row(event: dict[str, Any]) -> str:
    return _ROW.format(
        event["position"],
        event["time"][11:23],
        event["type"],
        event["key"].removeprefix("pods/") or "-",
        _short(event["amounts"]),
        _short(event["used_after"]),
    )


def _short(amounts: dict[str, int]) -> str:
    """Write amounts without what all their names have in common."""
    parts = (
        f"{name.rpartition(_PREFIX)[2]}={amount}" for name, amount in amounts.items() if amount
    )
    return ",".join(parts) or "-"
