"""Count how many files each trip leads through, and how often it moves between them.

`--way TRIP` prints the files in the order in which the trip enters them, each with the functions
that it calls there, and the pairs of files with the most moves between them.
"""

import argparse
import sys
from collections import Counter

import msgspec
from rich.console import Console

from tests.bench.trips import profiled_trips, trip_report
from tests.bench.trips.call_profile import Entry, pairs, visits

COLUMNS_MIN = 120
"""Lines of the table are not broken where the output is not a terminal."""

PAIRS_SHOWN = 15


def main() -> int:
    """Count every trip, or print the way of a single trip."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.trips", description=__doc__)
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="print the figures as JSON")
    shown.add_argument(
        "--way", choices=trip_report.TITLES, metavar="TRIP", help="print the way of a trip"
    )
    arguments = parser.parse_args()
    if arguments.way:
        print(way(profiled_trips.profiled()[arguments.way]))
        return 0
    counted = trip_report.counted()
    if arguments.json:
        print(msgspec.json.format(msgspec.json.encode(counted), indent=1).decode())
        return 0
    console = Console()
    console.width = max(console.width, COLUMNS_MIN)
    console.print(trip_report.table(counted))
    return 0


def way(entries: list[Entry]) -> str:
    """Return the visits of a trip, a line each, and the pairs of files with the most moves."""
    between: Counter[tuple[str, ...]] = Counter()
    for pair, moves in pairs(entries).items():
        between[tuple(sorted(pair))] += moves
    lines = [f"{file}: {' '.join(functions)}" for file, functions in visits(entries)]
    most = [f"{moves:4d}  {'  '.join(pair)}" for pair, moves in between.most_common(PAIRS_SHOWN)]
    return "\n".join([*lines, "", "moves between two files, most first:", *most])


if __name__ == "__main__":
    sys.exit(main())
