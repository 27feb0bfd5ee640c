"""The figures of the trips: as results of the bench, and as a table with those of earlier trees."""

from collections.abc import Mapping
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.table import Table

from tests.bench.harness.results import Goal, Result, result
from tests.bench.trips import profiled_trips
from tests.bench.trips.call_profile import Figures, figures

TITLES: Final = {
    "review": "a pod is reviewed",
    "mutate": "a pod is completed",
    "select": "nodes are selected",
    "filter": "nodes are filtered",
    "prioritize": "nodes are prioritized",
    "bind": "a pod is bound",
    "release": "a deleted pod is released",
    "project": "a record is projected",
}
"""The titles of the trips in tables."""

REVIEWED: Final = {
    "review": 106,
    "mutate": 30,
    "select": 81 + 36,
    "filter": 81,
    "prioritize": 36,
    "bind": 172,
    "release": 71,
}
"""Moves at 75bd653, counted by a reviewer with another script. Its bind ends before the client."""

BEFORE: Final = {
    "review": 161,
    "mutate": 33,
    "select": 78 + 46,
    "filter": 78,
    "prioritize": 46,
    "bind": 204,
    "release": 97,
    "project": 80,
}
"""Moves at 98aff8c, the last tree before files were grouped by what they are about."""

HALVED: Final = ("review", "bind")
"""Trips that are to take at most half of the moves that they took before."""


def run(quick: bool) -> list[Result]:
    """Count the moves of every trip; counts are exact, also where the run is quick."""
    return [
        result(
            f"moves between files: {TITLES[trip]}",
            counts.moves,
            "moves",
            baseline=BEFORE[trip],
            goal=Goal(0.5, "most", "ratio") if trip in HALVED else None,
            note=_note(trip, counts),
        )
        for trip, counts in counted().items()
    ]


def counted() -> dict[str, Figures]:
    """Return the figures of every trip."""
    return {trip: figures(entries) for trip, entries in profiled_trips.profiled().items()}


def table(trips: Mapping[str, Figures]) -> Table:
    """Return the figures of trips, beside the moves of earlier trees."""
    made = Table(
        *("trip", "", "files", "functions", "calls", "moves", "back", "98aff8c", "75bd653"),
        box=SIMPLE_HEAD,
    )
    for trip, counts in trips.items():
        numbers = (counts.files, counts.functions, counts.calls, counts.moves, counts.back)
        before = (BEFORE[trip], REVIEWED.get(trip, ""))
        made.add_row(trip, TITLES[trip], *map(str, (*numbers, *before)))
    return made


def _note(trip: str, counts: Figures) -> str:
    at_review = f"; {REVIEWED[trip]} moves at 75bd653" if trip in REVIEWED else ""
    return (
        f"{counts.files} files, {counts.functions} functions, {counts.calls} calls,"
        f" {counts.back} moves back{at_review}; baseline: at 98aff8c"
    )
