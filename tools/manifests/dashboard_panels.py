"""Panels of dashboards: their form, and their common kinds."""

from typing import Any, Final, NamedTuple


class Panel(NamedTuple):
    """One panel: `series` are pairs of a legend and an expression.

    `unit` is one of Grafana's. `bounds` are the color of the lowest values, and pairs of a value
    and the color from there on. `alerts` have a runbook to which the panel leads.
    """

    title: str
    description: str = ""
    series: tuple[tuple[str, str], ...] = ()
    unit: str = "none"
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    bounds: tuple[Any, ...] = ()
    alerts: tuple[str, ...] = ()


def row(title: str) -> Panel:
    """Return the title of the panels below it."""
    return Panel(title, kind="row", width=24, height=1)


def stat(
    title: str,
    description: str,
    expression: str,
    unit: str = "none",
    *,
    bounds: tuple[Any, ...] = (),
    alerts: tuple[str, ...] = (),
) -> Panel:
    """Return a panel with the present value of one expression."""
    series = (("", expression),)
    return Panel(title, description, series, unit, "stat", 4, 4, bounds, alerts)


BAD_FROM_1: Final = ("green", (1, "red"))
BAD_BELOW_1: Final = ("red", (1, "green"))
PRESSURE: Final = ("green", (0.7, "orange"), (0.9, "red"))
