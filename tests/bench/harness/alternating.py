"""Alternating pairs: the same measurements in this checkout and in another one, in turn.

Each checkout measures with its own interpreter and its own benches. Rows are matched by name, so
a row that the other checkout does not have is left out.
"""

import subprocess
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tests.bench.harness.fresh_process import ROOT, SECONDS_MAX
from tests.bench.harness.results import Report

PYTHON: Final = Path(".venv/bin/python")

Values = dict[str, list[float]]
"""Values of each row, one of each pair."""


def compare(other: Path, only: list[str] | None, pairs: int) -> int:
    """Print medians of both checkouts and the median of the pairs' ratios. Returns 0.

    Raises RuntimeError if a checkout cannot measure.
    """
    mine: Values = {}
    theirs: Values = {}
    for number in range(pairs):
        sides = [(ROOT, mine), (other.resolve(), theirs)]
        for checkout, values in sides if number % 2 else sides[::-1]:
            _measure(checkout, only or [], values)
    table = Table("measured", "other", "here", "here / other", "pairs", box=SIMPLE_HEAD)
    for name in mine:
        if name in theirs:
            both = list(zip(mine[name], theirs[name], strict=True))
            ratios = [here / there for here, there in both if there]
            table.add_row(
                name,
                f"{median(theirs[name]):,.4g}",
                f"{median(mine[name]):,.4g}",
                f"{median(ratios):.3f}" if ratios else "",
                " ".join(f"{ratio:.2f}" for ratio in ratios),
            )
    Console(width=120).print(table)
    return 0


def _measure(checkout: Path, only: list[str], values: Values) -> None:
    chosen = [word for name in only for word in ("--only", name)]
    command = [str(PYTHON), "-m", "tests.bench", "--quick", "--json", *chosen]
    ended = subprocess.run(
        command, cwd=checkout, capture_output=True, check=False, timeout=SECONDS_MAX
    )
    if ended.returncode:
        raise RuntimeError(f"{checkout}: {' '.join(command)} failed: {ended.stderr.decode()}")
    for row in msgspec.json.decode(ended.stdout, type=Report).results:
        values.setdefault(row.name, []).append(row.value)
