"""Results: a measured value, its baseline, and whether the value reaches its goal."""

import os
import platform
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec
from rich.box import SIMPLE_HEAD
from rich.table import Table

LATEST = Path(__file__).parents[1] / "results" / "latest.json"
BEFORE = LATEST.with_name("75bd653.json")
"""Figures of commit 75bd653 by name of the row, on the developers' quiet machine."""


COLUMNS = ("measured", "value", "unit", "baseline", "ratio", "75bd653", "goal", "met")


class Skipped(Exception):
    """A benchmark cannot run here; the message names the missing part."""


class Goal(msgspec.Struct, frozen=True):
    """A bound for a result's value, or for its ratio to the baseline."""

    bound: float
    at: Literal["least", "most"]
    of: Literal["value", "ratio"] = "value"

    def holds(self, number: float) -> bool:
        """Return whether the number is within the bound."""
        return number >= self.bound if self.at == "least" else number <= self.bound

    def text(self) -> str:
        """Return the bound as the table shows it."""
        sign = "≥" if self.at == "least" else "≤"
        return f"{sign} {self.bound:,g}" + (" of the baseline" if self.of == "ratio" else "")


class Figure(msgspec.Struct, frozen=True):
    """A value and, if there was a baseline, its ratio to that."""

    value: float
    ratio: float | None = None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One measured number. `ratio` is value divided by baseline; `note` names the bottleneck.

    `before` is the figure of commit 75bd653, None for a row that it did not have.
    """

    name: str
    value: float
    unit: str
    baseline: float | None = None
    ratio: float | None = None
    before: Figure | None = None
    goal: Goal | None = None
    met: bool | None = None
    note: str = ""


class Machine(msgspec.Struct, frozen=True):
    """Where it was measured. `load` is the load average per core before the first measurement."""

    processor: str
    cores: int
    memory_gib: float
    system: str
    python: str
    load: float


class Report(msgspec.Struct, frozen=True):
    """The results of a run and the machine that produced them."""

    machine: Machine
    results: list[Result]


def result(
    name: str,
    value: float,
    unit: str,
    *,
    baseline: float | None = None,
    goal: Goal | None = None,
    note: str = "",
) -> Result:
    """Return a result, judged."""
    ratio = value / baseline if baseline else None
    judged = value if goal is None or goal.of == "value" else ratio
    met = None if goal is None or judged is None else goal.holds(judged)
    return Result(
        name=name,
        value=_rounded(value),
        unit=unit,
        baseline=None if baseline is None else _rounded(baseline),
        ratio=None if ratio is None else _rounded(ratio),
        before=_before().get(name),
        goal=goal,
        met=met,
        note=note,
    )


def machine() -> Machine:
    """Describe this machine."""
    cores = len(os.sched_getaffinity(0))
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(
        _processor(),
        cores,
        _rounded(pages / 2**30),
        platform.platform(),
        platform.python_version(),
        _rounded(os.getloadavg()[0] / cores),
    )


def write(report: Report, path: Path = LATEST) -> None:
    """Write a report as JSON, in one step."""
    path.parent.mkdir(exist_ok=True)
    new = path.with_suffix(".tmp")
    new.write_bytes(encoded(report))
    new.replace(path)


def encoded(report: Report) -> bytes:
    """Return a report as JSON, with a line for each value."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"


def table(results: Iterable[Result]) -> Table:
    """Return the results as people read them."""
    made = Table(*COLUMNS, box=SIMPLE_HEAD)
    for measured in results:
        made.add_row(
            measured.name,
            f"{measured.value:,g}",
            measured.unit,
            "" if measured.baseline is None else f"{measured.baseline:,g}",
            "" if measured.ratio is None else f"{measured.ratio:.2f}",
            _text(measured.before),
            "" if measured.goal is None else measured.goal.text(),
            {None: "", True: "[green]yes[/]", False: "[red]no[/]"}[measured.met],
        )
    return made


def notes(results: Iterable[Result]) -> str:
    """Return the notes of the results, one line each."""
    return "\n".join(f"{measured.name}: {measured.note}" for measured in results if measured.note)


@cache
def _before() -> dict[str, Figure]:
    return msgspec.json.decode(BEFORE.read_bytes(), type=dict[str, Figure])


def _text(figure: Figure | None) -> str:
    if figure is None:
        return ""
    ratio = "" if figure.ratio is None else f" ({figure.ratio:.2f})"
    return f"{figure.value:,g}{ratio}"


def _rounded(number: float) -> float:
    """Return four significant digits, and all digits of a whole number."""
    return float(f"{number:.4g}") if abs(number) < 1_000 else float(round(number))


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
